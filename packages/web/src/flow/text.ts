/**
 * Strings from a partner are shown as plain text, without control characters.
 */

/** Control characters, and those that change the text direction: they can make one text look like another. */
const INVISIBLE =
  /[\p{Cc}\u061C\u200B-\u200F\u2028-\u202E\u2060-\u2069\uFEFF\u{E0000}-\u{E007F}]/gu;

/** One line of at most `limit` characters (the partner's name, a reason), safe to show as text. */
export function plainText(value: string, limit = 120): string {
  const letters = Array.from(value.replaceAll(INVISIBLE, ' ').replaceAll(/\s+/g, ' ').trim());
  return letters.length > limit ? `${letters.slice(0, limit - 1).join('')}…` : letters.join('');
}
