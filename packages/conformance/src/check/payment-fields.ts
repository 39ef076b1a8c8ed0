/** A payment as requested by the judge, and its record as received, with no field trusted yet. */
import { isDateTime, parseInstant, type Json } from '@duebridge/contract';
import { asObject, isSuccess, tell, type Reply } from './http.ts';
import type { PartnerTarget } from './target.ts';

/** A payment that the judge requests. */
export interface Intent {
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly account_id: string;
}

/** The fields of a payment as received, with no field trusted yet. */
export type PaymentFields = Readonly<Record<string, Json>>;

/** The record of a 2xx answer; undefined when the answer has none. */
export function recordOf(reply: Reply): PaymentFields | undefined {
  return isSuccess(reply) ? asObject(reply.json) : undefined;
}

/**
 * True when an answer tells of a payment. A server that answers a read of an unknown payment with 200 and `null` or `{}` breaks P11,
 * and has no payment for all that.
 */
export function holdsPayment(reply: Reply): boolean {
  const record = recordOf(reply) ?? {};
  return ['payment_id', 'platform_payment_id', 'status'].some(
    (name) => (record[name] ?? null) !== null,
  );
}

/**
 * An ISO 8601 time with its zone, in milliseconds since 1970. The interface asks for ISO 8601 and no more, so the basic format
 * (20260301T093000Z) and a comma before the fraction are read as well.
 */
export function instantOf(value: Json | undefined): number | undefined {
  return typeof value === 'string' ? parseInstant(extended(value)) : undefined;
}

/** True for an ISO 8601 date and time; its zone may be missing. */
export function isTime(value: Json | undefined): boolean {
  return typeof value === 'string' && isDateTime(extended(value));
}

function extended(text: string): string {
  const [, year, month, day, hour, minute, rest = ''] =
    /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(.*)$/.exec(text) ?? [];
  const usual =
    year === undefined
      ? text
      : `${year}-${month}-${day}T${hour}:${minute}${rest.replace(/^\d\d/, (second) => `:${second}`)}`;
  return usual.replace(',', '.');
}

/** The body of the judge's PUT (decision 2). */
export function instruction(
  intent: Intent,
  change: Readonly<Record<string, unknown>> = {},
): string {
  return JSON.stringify({
    amount_in_cents: intent.amount_in_cents,
    platform_batch_id: intent.platform_batch_id,
    platform_payment_id: intent.platform_payment_id,
    ...change,
  });
}

/** Compares the fields of two records that must agree; returns the names of those that differ. */
export function differences(
  one: PaymentFields,
  other: PaymentFields,
  fields: readonly string[],
): string[] {
  return fields.filter((name) => {
    const values = [one[name] ?? null, other[name] ?? null];
    // The interface asks no record to name its biller or account: one answer may, and another not.
    if (/^(?:biller|account)_id$/.test(name) && values.includes(null)) return false;
    // A time is its instant: it may be stored with fewer digits, and read in another zone.
    const [first, second] = values.map((value) =>
      JSON.stringify((name.endsWith('_at') ? instantOf(value) : undefined) ?? value),
    );
    return first !== second;
  });
}

/** Compares the reply's record with the first one; describes which fields differ and how. */
export function tellDifferences(
  first: PaymentFields,
  reply: Reply,
  fields: readonly string[],
): string {
  const record = recordOf(reply);
  if (record === undefined) return tell(reply);
  return differences(first, record, fields)
    .map((name) => `${name} was ${JSON.stringify(first[name])}, is ${JSON.stringify(record[name])}`)
    .join('; ');
}

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
  return { amount_in_cents: plainAmount(target, offset), account_id: target.accounts.payable };
}

/** A biller that no partner has: the path's first id must be looked at like the second. */
export const NO_BILLER = 'no-such-biller-duebridge';

/** The payments shared by several checks: what each adds to a plain amount, and the account that it goes to. */
const SHARED = {
  first: [20, 'payable'],
  other: [21, 'other'],
  unknown: [40, 'unknown'],
  inactive: [41, 'inactive'],
  above: [undefined, 'payable'],
  control: [62, 'payable'],
  'second control': [63, 'payable'],
} as const;

export type SharedName = keyof typeof SHARED;

/** A shared payment; undefined when the target declares no account or limit for it. */
export function shared(target: PartnerTarget, name: SharedName): Planned | undefined {
  const [offset, account] = SHARED[name];
  const account_id = target.accounts[account];
  const { max_amount_in_cents: max = NaN } = target.limits;
  const amount_in_cents = offset === undefined ? max + 1 : plainAmount(target, offset);
  if (account_id === undefined || Number.isNaN(amount_in_cents)) return undefined;
  return { amount_in_cents, account_id, shared: name };
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
