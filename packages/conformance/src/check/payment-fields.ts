/** A payment as the judge asks for it, and its record as it came back: nothing of that is believed yet. */
import type { Json } from '@duebridge/contract';
import { asObject, isSuccess, tell, type Reply } from './http.ts';

/** A payment that the judge asks for. */
export interface Intent {
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly account_id: string;
}

/** The fields of a payment as they came: nothing is believed yet. */
export type PaymentFields = Readonly<Record<string, Json>>;

/** The record of a 2xx answer; undefined when the answer is no such thing. */
export function recordOf(reply: Reply): PaymentFields | undefined {
  return isSuccess(reply) ? asObject(reply.json) : undefined;
}

/** True for one of the three words that end a payment, as it stood on the wire. */
export function isTerminalWord(status: Json | undefined): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'canceled';
}

/** What the judge puts (decision 2). */
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

/** The fields of two records that must agree; gives the names of those that do not. */
export function differences(
  one: PaymentFields,
  other: PaymentFields,
  fields: readonly string[],
): string[] {
  return fields.filter(
    (name) => JSON.stringify(one[name] ?? null) !== JSON.stringify(other[name] ?? null),
  );
}

/** `reply`'s record against the first one, in words: which fields differ and how. */
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
