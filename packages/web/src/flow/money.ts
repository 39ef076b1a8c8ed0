/**
 * Amounts as people write them, in and out. Whole cents inside, never a float (S5, decision 11).
 */

/** The largest that the interface carries (decision 11). */
export const MAX_CENTS = 99_999_999_999;

/** Formats cents as dollars: 123450 is "$1,234.50" in en-US. */
export function formatMoney(cents: number, locale: string): string {
  const whole = Math.trunc(Math.abs(cents) / 100);
  const rest = String(Math.abs(cents) % 100).padStart(2, '0');
  const decimal = `${cents < 0 ? '-' : ''}${whole}.${rest}` as `${number}`;
  return new Intl.NumberFormat(locale, { style: 'currency', currency: 'USD' }).format(decimal);
}

/**
 * Parses what a person typed into cents; undefined when it cannot be an amount of dollars.
 * Either separator counts as the decimal separator when one or two digits follow its last occurrence ("1,234.50", "1234,5"). A
 * separator with three digits after it is a thousands separator only if the locale uses it so: "1,234" is an amount in English;
 * in a language that writes 1,234 for a little more than one, it is ambiguous and not guessed.
 */
export function parseAmount(text: string, locale: string): number | undefined {
  const typed = text.replaceAll(/[\s\u00A0\u202F'’$]|USD?/gi, '');
  const match = /^(\d[\d.,]*?)?(?:([.,])(\d{1,2}))?$/.exec(typed);
  if (!match || typed === '') return undefined;
  const [, front = '', sign, cents = ''] = match;
  const groups = front.split(/[.,]/);
  const used = [...front.matchAll(/[.,]/g)].map(([found]) => found);
  if (used.length > 0) {
    const [thousands] = used;
    const even = groups.every((group, index) =>
      (index === 0 ? /^\d{1,3}$/ : /^\d{3}$/).test(group),
    );
    if (!even || used.some((found) => found !== thousands) || thousands === sign) return undefined;
    if (sign === undefined && used.length === 1 && thousands !== groupOf(locale)) return undefined;
  }
  const digits = `${groups.join('')}${cents.padEnd(2, '0')}`.replace(/^0+(?=\d)/, '');
  // Longer than the largest amount: a double may not hold it exactly.
  return digits.length > 12 ? undefined : Number(digits);
}

/** What the locale writes between thousands. */
function groupOf(locale: string): string | undefined {
  const parts = new Intl.NumberFormat(locale, { useGrouping: 'always' }).formatToParts(12345.6);
  return parts.find(({ type }) => type === 'group')?.value;
}
