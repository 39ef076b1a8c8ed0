/**
 * The page in four languages. Each language's text is a file of its own, loaded on demand; Intl formats numbers, money and dates.
 */
import type { Word, Words } from './words.ts';
import { formatMoney } from './money.ts';
import { tagOf, type Tag } from './tags.ts';

/** One language: its text and its formats of money and time. */
export interface Language {
  /** For `<html lang>`: the language of the text. */
  readonly tag: Tag;
  /** For Intl: the locale of numbers and dates. */
  readonly locale: string;
  readonly say: (word: Word, values?: Readonly<Record<string, string>>) => string;
  readonly has: (word: string) => word is Word;
  readonly money: (cents: number) => string;
  /** A calendar date (YYYY-MM-DD), the same day wherever the customer is. */
  readonly date: (day: string) => string;
  /** An instant in the customer's time zone, with the zone's name. */
  readonly instant: (iso: string) => string;
  readonly clock: (ms: number) => string;
}

/** Takes the locale that the site asked for; an unsupported one gets English. Waits for the text. */
export async function loadLanguage(
  asked: string,
  textOf: (tag: Tag) => Promise<Words>,
): Promise<Language> {
  const tag = tagOf(asked);
  return language(asked, tag, await textOf(tag));
}

/** A language whose text is loaded. */
export function language(asked: string, tag: Tag, words: Words): Language {
  const locale = usable(asked, tag) ? asked : `${tag}-US`;
  const format = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    new Intl.DateTimeFormat(locale, options);
  return {
    tag,
    locale,
    say: (word, values = {}) => filled(words[word], values),
    has: (word): word is Word => word in words,
    money: (cents) => formatMoney(cents, locale),
    // A calendar date has no zone: formatted in a zone west of Greenwich it would be a day early.
    date: (day) =>
      format({ dateStyle: 'long', timeZone: 'UTC' }).format(new Date(`${day}T00:00:00Z`)),
    instant: (iso) =>
      format({
        year: 'numeric',
        month: 'short',
        day: 'numeric',
        hour: 'numeric',
        minute: '2-digit',
        timeZoneName: 'short',
      }).format(new Date(iso)),
    clock: (ms) => format({ timeStyle: 'short' }).format(ms),
  };
}

/** A text with its `{names}` replaced by their values. */
export const filled = (text: string, values: Readonly<Record<string, string>>): string =>
  text.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? '');

/** A bare language means that language in the United States, because the amounts are US dollars. */
function usable(asked: string, tag: string): boolean {
  try {
    const found = new Intl.Locale(asked);
    return found.language === tag && found.region !== undefined;
  } catch {
    return false;
  }
}
