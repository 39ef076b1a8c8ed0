/**
 * The biller of a test payment over a test amount (decision 161): the platform itself. Nothing is sent to the partner.
 *
 * holds: the answer follows from the payment's id, which holds the instant it was made at, its amount and the time, and from nothing
 *        else: every worker gives the same, after any crash, and a status that has ended stays as it is (RU2).
 */
import { testAmount, type PaymentRecord } from '@duebridge/contract';
import { madeAt } from '../payment-id.ts';
import type { Reply } from './http-call.ts';
import type { Partner } from './registry.ts';

/** Long enough to see the page's steps. */
const USUAL_MS = 1_500;
/** A payment that stays processing is canceled after this, so that no batch waits for it forever. */
const STAYS_MS = 3_600_000;

/** What of a payment its partner would be told. */
type TestOrder = Pick<
  PaymentRecord,
  'platform_payment_id' | 'biller_id' | 'account_id' | 'amount_in_cents'
> & { readonly platform_batch_id: string };

/** Whether the platform itself answers for a payment of this amount. */
export function isAnsweredHere({ mode }: Pick<Partner, 'mode'>, amount_in_cents: number): boolean {
  return mode === 'test' && testAmount(amount_in_cents) !== undefined;
}

/** The answer to a PUT or a poll at `now` (wall milliseconds); undefined when the partner is to be asked. */
export function testReply(
  partner: Pick<Partner, 'mode'>,
  order: TestOrder,
  now: number,
): Reply | undefined {
  if (!isAnsweredHere(partner, order.amount_in_cents)) return undefined;
  const { platform_payment_id, platform_batch_id, biller_id, account_id, amount_in_cents } = order;
  const ending = testAmount(amount_in_cents)?.ending ?? {};
  const { status = 'succeeded', failure_reason, after_ms = USUAL_MS } = ending;
  const initiated = madeAt(platform_payment_id);
  const ends = initiated + (after_ms ?? STAYS_MS);
  const ended = now >= ends;
  const at = after_ms === null ? 'canceled' : status;
  const record: PaymentRecord = {
    payment_id: `test-${platform_payment_id}`,
    platform_payment_id,
    platform_batch_id,
    biller_id,
    account_id,
    status: ended ? at : 'processing',
    amount_in_cents,
    initiated_at: new Date(initiated).toISOString(),
    posted_at: ended && at === 'succeeded' ? new Date(ends).toISOString() : null,
    ...(ended && at === 'failed' ? { failure_reason: failure_reason ?? '' } : {}),
  };
  return {
    kind: 'reply',
    status: 200,
    json: { ...record },
    problem: undefined,
    retryAfter: undefined,
    waited: false,
  };
}
