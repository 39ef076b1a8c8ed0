/**
 * Money on the wire and in code: whole cents, never a fraction or a float (S5, decision 11).
 */

/** Smallest payment: one cent (decision 11; zero and negative amounts are refused). */
export const MIN_AMOUNT_IN_CENTS = 1;

/** Largest payment: 999,999,999.99 dollars (decision 11), far below 2^53 so that sums stay exact. */
export const MAX_AMOUNT_IN_CENTS = 99_999_999_999;

/** The same number, once it is known to be whole cents. Throws RangeError otherwise: the schemas refuse bad input, so it is a bug. */
export function wholeCents(value: number): number {
  if (!Number.isSafeInteger(value)) throw new RangeError(`not a whole number of cents: ${value}`);
  return value;
}

/** Formats cents as dollars: 123450 is "$1,234.50" in `en-US`. Exact for every safe integer. */
export function formatCents(value: number, locale = 'en-US'): string {
  const cents = wholeCents(value);
  const [dollars, rest] = [Math.trunc(Math.abs(cents) / 100), Math.abs(cents) % 100];
  // A decimal string instead of a division: Intl keeps all its digits, a float would not.
  const decimal =
    `${cents < 0 ? '-' : ''}${dollars}.${String(rest).padStart(2, '0')}` as `${number}`;
  return new Intl.NumberFormat(locale, { style: 'currency', currency: 'USD' }).format(decimal);
}
