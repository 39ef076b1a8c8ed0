/**
 * An operator's exits: closes a payment that the engine cannot end by itself (decision 21).
 *
 * enters: a payment in review or paused, and what the operator states.  leaves: a terminal row in no slot; a worker takes it over and
 *         captures or releases the funds.
 * holds:  the partner is asked by a GET at that moment, and no payment is closed against its record. Without a word of the operator only
 *         a clear denial by the partner closes one, and it stays in review if the partner does not answer (PL5). Nobody drives a payment
 *         while it is closed.
 * next:   admin/close-review.ts asks for a second person; store/operators-acts.ts writes the end.
 */
import { conflict, Refusal, type CloseByWord } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { NO_REASON } from '../partners/payment-record.ts';
import type { Services } from '../services.ts';
import { OF_PAYMENT } from '../store/audit.ts';
import { knownPayment, PAUSED, type PaymentRow } from '../store/payments.ts';
import { endByOperator, type ReviewAct } from '../store/operators-acts.ts';
import { callsEndMs } from './options.ts';
import { judgePoll, type PollOutcome } from './outcome.ts';
import { isUnsent } from './payment-steps.ts';

const NOT_IN_REVIEW = 'The payment is not in review';
const NOT_CLOSABLE =
  'The payment is neither in review nor paused: pause it, and close it when its calls have ended';
const NOT_REFUSED_BY_PARTNER =
  'The partner did not refuse this payment; it needs the statement of the partner';

/** What closing a payment depends on. */
export type ReviewDependencies = Pick<Services, 'database' | 'registry' | 'client'>;

/** Throws Refusal CONFLICT unless the payment stands still, and without a word was refused by its partner and never accepted. */
export function assertClosable(payment: PaymentRow, word: CloseByWord | undefined): void {
  const { stage, slot, review_reason, payment_id } = payment;
  if (word === undefined && review_reason === null) throw conflict(NOT_IN_REVIEW);
  if (stage !== 'review' && slot !== PAUSED) throw conflict(NOT_CLOSABLE);
  const isRefused = review_reason?.startsWith('rejected_') === true && payment_id === null;
  if (word === undefined && !isRefused) throw conflict(NOT_REFUSED_BY_PARTNER);
}

/**
 * Ends a payment that stands still, in review or paused. With a word of the operator: the partner is asked at that moment, and its record
 * contradicts the word or not; a partner that gives no usable answer contradicts nothing. Without one: a payment whose PUT the partner
 * refused (400, 422), and which it does not know now, ends as failed with the partner's own words as its reason. Throws Refusal
 * PAYMENT_NOT_FOUND; CONFLICT as `assertClosable`, when a call of before the pause may still be under way, or when the partner's record
 * says otherwise; SERVICE_UNAVAILABLE when the partner's own denial is needed and it gives no usable answer.
 */
export async function closePayment(
  on: ReviewDependencies,
  platform_payment_id: string,
  act: ReviewAct,
  word?: CloseByWord,
): Promise<PaymentRow> {
  const payment = await knownPayment(on.database, platform_payment_id);
  assertClosable(payment, word);
  if (payment.slot === PAUSED) await assertSilent(on, payment);
  const found = await askPartner(on, payment);
  const isDenied = found.kind === 'not_found' && found.believed;
  if (word === undefined ? !isDenied : contradicts(found, word)) throw notClosable(found);
  const seen = evidenceOf(found);
  const evidence = word === undefined ? seen : `${seen}; ${word.evidence}`;
  const said = {
    outcome: 'failed',
    failure_reason: payment.rejection_message ?? NO_REASON,
    ...word,
    evidence,
  } as const;
  const row = await endByOperator(on.database, payment, act, said);
  // Resumed or closed by somebody else meanwhile.
  if (row === undefined) throw conflict(NOT_IN_REVIEW);
  return row;
}

/** Whether the partner's record says something else than the operator. Pure. */
function contradicts(found: PollOutcome, { outcome }: CloseByWord): boolean {
  if (found.kind === 'ended') {
    return (found.ending.status === 'succeeded') !== (outcome === 'succeeded');
  }
  return found.kind === 'processing' || (found.kind === 'incomplete' && outcome !== 'succeeded');
}

const pausedStatement = sql(`
   SELECT (extract(epoch FROM clock_timestamp() - max(a.at)) * 1000)::bigint AS ms
     FROM duebridge_platform.audit a WHERE ${OF_PAYMENT} AND a.event = 'payment_paused'`);

/** Throws unless a PUT of the paused payment may have left, perhaps before the database lost it, and none can be under way. */
async function assertSilent(
  { database, registry }: ReviewDependencies,
  { platform_payment_id, partner_id, stage, maybe_sent }: PaymentRow,
): Promise<void> {
  if (isUnsent({ stage }) && maybe_sent === null) {
    throw conflict('Nothing was sent for this payment: withdraw it');
  }
  const [paused] = await database.query<{ ms: number | null }>(pausedStatement, [
    platform_payment_id,
  ]);
  const left = callsEndMs(await registry.known(partner_id)) - (paused?.ms ?? 0);
  if (left > 0) {
    const seconds = Math.ceil(left / 1_000);
    throw conflict(`A call may still be under way: close it in ${seconds} seconds`);
  }
}

async function askPartner(
  { registry, client }: ReviewDependencies,
  payment: PaymentRow,
): Promise<PollOutcome> {
  const partner = await registry.known(payment.partner_id);
  // Ignore the payment_id: a partner that lost the payment may have accepted it again under another.
  return judgePoll({ ...payment, payment_id: null }, await client.poll(partner, payment));
}

function notClosable(found: PollOutcome): Refusal {
  const evidence = evidenceOf(found);
  return found.kind === 'unknown' || found.kind === 'held' || found.kind === 'not_found'
    ? new Refusal('SERVICE_UNAVAILABLE', {
        message: `The partner’s answer was inconclusive (${evidence}); try again`,
      })
    : conflict(`The partner has the payment (${evidence}); resume it instead`);
}

/** The result of the GET, as one word for the audit. */
export function evidenceOf(found: PollOutcome): string {
  switch (found.kind) {
    case 'not_found':
      return found.believed ? 'not_found' : 'not_found_by_whom';
    case 'ended':
      return found.ending.status;
    case 'mismatch':
      return `mismatch_${found.field}`;
    case 'unknown':
    case 'held':
      return `${found.kind}_${found.reason}`;
    case 'processing':
    case 'incomplete':
      return found.kind;
  }
}
