/** A payment as requested by the judge, and its record as received, with no field trusted yet. */
import type { Json } from '@duebridge/contract';
import { asObject, isSuccess, tell, type Reply } from './http.ts';

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

/** True for one of the three terminal statuses, as received on the wire. */
export function isTerminalWord(status: Json | undefined): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'canceled';
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
  return fields.filter(
    (name) => JSON.stringify(one[name] ?? null) !== JSON.stringify(other[name] ?? null),
  );
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
