/**
 * The payments that checks of a partner make, as amounts and accounts. The plan adds them up before anything is sent, and the
 * checks then request exactly these.
 */
import type { PartnerTarget } from './target.ts';

/** One payment that a run may request. */
export interface Planned {
  readonly amount_in_cents: number;
  readonly account_id: string;
  /** The name under which several checks share it; it is then made once. */
  readonly shared?: string;
}

/**
 * Odd amounts just above the range of 24 bits (a 32-bit float) and of 32 bits, so that rounding or wrapping changes them (P24).
 */
export const BEYOND_24_BITS = 16_777_217;
export const BEYOND_32_BITS = 4_294_967_297;

/** A small amount that this target accepts; `offset` distinguishes the payments of different checks. */
export function plainAmount(target: PartnerTarget, offset: number): number {
  const { min_amount_in_cents, max_amount_in_cents } = target.limits;
  const wish = Math.max(min_amount_in_cents, 100) + offset;
  return max_amount_in_cents === undefined ? wish : Math.min(wish, max_amount_in_cents);
}

/** A payment of a single check, to the payable account. */
export function own(target: PartnerTarget, offset: number): Planned {
  return {
    amount_in_cents: plainAmount(target, offset),
    account_id: target.accounts.payable,
  };
}

/** A biller that no partner has: the path's first id must be looked at like the second. */
export const NO_BILLER = 'no-such-biller-duebridge';

/** The payments shared by several checks. */
export type SharedName =
  'first' | 'other' | 'unknown' | 'inactive' | 'above' | 'control' | 'second control';

/** A shared payment; undefined when the target declares no account or limit for it. */
export function shared(target: PartnerTarget, name: SharedName): Planned | undefined {
  const { payable, other, unknown, inactive } = target.accounts;
  const max = target.limits.max_amount_in_cents;
  switch (name) {
    case 'first':
      return { ...own(target, 20), shared: name };
    case 'control':
    case 'second control':
      return { ...own(target, name === 'control' ? 62 : 63), shared: name };
    case 'other':
      return other === undefined
        ? undefined
        : { amount_in_cents: plainAmount(target, 21), account_id: other, shared: name };
    case 'unknown':
      return { amount_in_cents: plainAmount(target, 40), account_id: unknown, shared: name };
    case 'inactive':
      return inactive === undefined
        ? undefined
        : { amount_in_cents: plainAmount(target, 41), account_id: inactive, shared: name };
    case 'above':
      return max === undefined
        ? undefined
        : { amount_in_cents: max + 1, account_id: payable, shared: name };
  }
}

/** What a check may request: shared payments by name, and payments of its own by their offset. */
export function uses(
  ...payments: readonly (SharedName | number)[]
): (target: PartnerTarget) => readonly Planned[] {
  return (target) =>
    payments.flatMap((one) =>
      typeof one === 'number' ? own(target, one) : (shared(target, one) ?? []),
    );
}

/** The shared payments of these names that the target allows. */
export function sharedAll(target: PartnerTarget, names: readonly SharedName[]): Planned[] {
  return names.flatMap((name) => shared(target, name) ?? []);
}
