/**
 * The page in four languages. Each language's text is a file of its own, loaded on demand; Intl formats numbers, money and dates.
 */
import type { Word, Words } from './words.ts';
import { formatMoney } from './money.ts';
import { tagOf, type Tag } from './tags.ts';

/** One language: its text and its formats of money and time. */
export type Language = ReturnType<typeof language>;

/** Takes the locale that the site asked for; an unsupported one gets English. Waits for the text. */
export async function loadLanguage(
  asked: string,
  textOf: (tag: Tag) => Promise<Words>,
): Promise<Language> {
  const tag = tagOf(asked);
  return language(asked, tag, await textOf(tag));
}

/** A language whose text is loaded. */
export function language(asked: string, tag: Tag, words: Words) {
  const locale = usable(asked, tag) ? asked : `${tag}-US`;
  const format = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    new Intl.DateTimeFormat(locale, options);
  return {
    /** For `<html lang>`: the language of the text. */
    tag,
    /** For Intl: the locale of numbers and dates. */
    locale,
    say: (word: Word, values: Readonly<Record<string, string>> = {}) => filled(words[word], values),
    has: (word: string): word is Word => word in words,
    money: (cents: number) => formatMoney(cents, locale),
    /** A calendar date (YYYY-MM-DD). It has no zone: formatted in a zone west of Greenwich it would be a day early. */
    date: (day: string) =>
      format({ dateStyle: 'long', timeZone: 'UTC' }).format(new Date(`${day}T00:00:00Z`)),
    /** An instant in the customer's time zone, with the zone's name. */
    instant: (iso: string) =>
      format({
        year: 'numeric',
        month: 'short',
        day: 'numeric',
        hour: 'numeric',
        minute: '2-digit',
        timeZoneName: 'short',
      }).format(new Date(iso)),
    clock: (ms: number) => format({ timeStyle: 'short' }).format(ms),
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
