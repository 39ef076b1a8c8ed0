/**
 * The page in four languages. Each language's text is a file of its own, loaded on demand; Intl formats numbers, money and dates.
 */
import type { Word, Words } from './words/en.ts';
import { formatMoney } from './money.ts';
import { tagOf, type Tag } from './tags.ts';

export type { Word };

/** Set by the build: the file of each language's text, below `flow/assets/`. */
declare const DUEBRIDGE_WORDS: Readonly<Record<Tag, string>>;

/** Delay between two attempts to load the text: nothing can be shown without it. */
const RETRY_MS = 2_000;

/** One language: its text and its formats of money and time. */
export interface Language {
  /** For `<html lang>`: the language of the text. */
  readonly tag: Tag;
  /** For Intl: the locale of numbers and dates. */
  readonly locale: string;
  readonly say: (word: Word, values?: Readonly<Record<string, string>>) => string;
  readonly money: (cents: number) => string;
  /** A calendar date (YYYY-MM-DD), the same day wherever the customer is. */
  readonly date: (day: string) => string;
  /** An instant in the customer's time zone, with the zone's name. */
  readonly instant: (iso: string) => string;
  readonly clock: (ms: number) => string;
  /** "12 seconds", "3 minutes". */
  readonly duration: (seconds: number) => string;
}

const loading = new Map<Tag, Promise<Words>>();

/** Takes the locale that the site asked for; an unsupported one gets English. Waits for the network. */
export async function loadLanguage(asked: string): Promise<Language> {
  const tag = tagOf(asked);
  const words = loading.get(tag) ?? fetchWords(tag);
  loading.set(tag, words);
  return language(asked, tag, await words);
}

async function fetchWords(tag: Tag): Promise<Words> {
  for (;;) {
    try {
      const file = new URL(`../assets/${DUEBRIDGE_WORDS[tag]}`, location.href);
      const answer = await fetch(file, { credentials: 'omit' });
      if (answer.ok) return (await answer.json()) as Words;
    } catch {
      // The same as an answer that is not a file.
    }
    await new Promise((resolve) => {
      setTimeout(resolve, RETRY_MS);
    });
  }
}

/** A language whose text is loaded. */
export function language(asked: string, tag: Tag, words: Words): Language {
  const locale = usable(asked, tag) ? asked : `${tag}-US`;
  const format = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    new Intl.DateTimeFormat(locale, options);
  return {
    tag,
    locale,
    say: (word, values = {}) =>
      words[word].replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? ''),
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
    duration(seconds) {
      const unit = seconds < 60 ? 'second' : 'minute';
      const value = seconds < 60 ? seconds : Math.floor(seconds / 60);
      return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(
        value,
      );
    },
  };
}

/** A bare language means that language in the United States, because the amounts are US dollars. */
function usable(asked: string, tag: string): boolean {
  try {
    const found = new Intl.Locale(asked);
    return found.language === tag && found.region !== undefined;
  } catch {
    return false;
  }
}
