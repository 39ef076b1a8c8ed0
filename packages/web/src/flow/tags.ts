/** The languages that the page speaks. */
export const TAGS = ['en', 'es', 'fr', 'pt'] as const;
export type Tag = (typeof TAGS)[number];

/** The supported language for a locale; English for any other. */
export function tagOf(asked: string): Tag {
  return TAGS.find((tag) => new RegExp(`^${tag}\\b`, 'i').test(asked)) ?? 'en';
}
