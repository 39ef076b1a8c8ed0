/** Text that somebody else wrote: as one line that can be shown to anybody, and read as JSON. */
import { MAX_FAILURE_REASON_LENGTH } from '@duebridge/contract';

/** Characters that turn the direction of text, so that what is read differs from what is written. */
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu;

/** One line of printable text: at most 500 characters (decision 16). */
export function plainText(text: string): string {
  const line = text
    .toWellFormed()
    .replaceAll(DIRECTIONS, '')
    .replaceAll(/[\s\p{Cc}]+/gu, ' ')
    .trim();
  // Cut by code points, so that no surrogate pair is split.
  return Array.from(line).slice(0, MAX_FAILURE_REASON_LENGTH).join('');
}

/** The value of a text in JSON; undefined for any other text. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
