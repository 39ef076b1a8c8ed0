/**
 * An operator's exits: closes a payment that the engine cannot end by itself (decision 21).
 *
 * enters: a payment in review or paused, and what the operator states.  leaves: a terminal row in no slot; a worker takes it over and
 *         captures or releases the funds.
 * holds:  the partner is asked by a GET at that moment, and no payment is closed against its record. Without a word of the operator only
 *         a clear denial by the partner closes one, and it stays in review if the partner does not answer (PL5). Nobody drives a payment
 *         while it is closed.
 * next:   admin/close-review.ts asks for a second person; store/terminal.ts writes the end.
 */
import { conflict, Refusal } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import type { PartnerClient } from '../partners/client.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import { knownPayment, PAUSED, type PaymentRow } from '../store/payments.ts';
import { closePayment, NOT_CLOSABLE, NOT_IN_REVIEW } from '../store/terminal.ts';
import { CALLS_END_MS } from './options.ts';
import { judgePoll, type PollOutcome } from './outcome.ts';
import { isUnsent, refusalText } from './payment-steps.ts';

/** Why `closeRejected` refuses a payment that is in review for another reason. */
export const NOT_REFUSED_BY_PARTNER =
  'The partner did not refuse this payment; it needs the statement of the partner';

/** What closing a payment depends on. */
export interface ReviewDependencies {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
}

/** Who closes a payment, and why. */
export interface ReviewAct {
  readonly platform_payment_id: string;
  /** In the operator's words; kept in the audit. */
  readonly reason: string;
  readonly actor: string;
  /** The second approver, if the amount requires one; the caller checks that. */
  readonly approved_by?: string;
}

/** What an operator states about a payment, as the partner or the biller has confirmed it outside this interface. */
export type Word =
  /** It was not applied and will not be: the funds are released, or refunded if they were captured. */
  | {
      readonly outcome: 'failed' | 'canceled';
      /** For the customer, at most 500 characters; for `failed` only. */
      readonly failure_reason?: string | undefined;
    }
  /** It was applied: the funds are captured. */
  | { readonly outcome: 'succeeded'; readonly payment_id: string; readonly posted_at: string };

/**
 * Closes a payment whose PUT the partner refused (400, 422) and which the partner does not know, asked again now. It ends as failed
 * with the partner's own words as its reason. Throws Refusal PAYMENT_NOT_FOUND; CONFLICT when it is in no such review, was accepted
 * before, or is known to the partner; SERVICE_UNAVAILABLE when the partner gives no usable answer.
 */
export async function closeRejected(on: ReviewDependencies, act: ReviewAct): Promise<PaymentRow> {
  const payment = await knownPayment(on.database, act.platform_payment_id);
  const { review_reason, rejection_message } = payment;
  if (review_reason === null) throw conflict(NOT_IN_REVIEW);
  if (!review_reason.startsWith('rejected_') || payment.payment_id !== null) {
    throw conflict(NOT_REFUSED_BY_PARTNER);
  }
  const found = await askPartner(on, payment);
  if (found.kind !== 'not_found' || !found.believed) throw notClosable(found);
  const code = review_reason.split('_').slice(2).join('_');
  const failure_reason = rejection_message ?? refusalText(code === '' ? undefined : code);
  return close(on, act, payment, { outcome: 'failed', failure_reason }, evidenceOf(found));
}

/**
 * Ends a payment that stands still (in review, or paused) on an operator's word, for which `evidence` says where it is written. The
 * partner is asked at that moment, and its record contradicts the word or not; a partner that gives no usable answer contradicts nothing.
 * Throws Refusal PAYMENT_NOT_FOUND; CONFLICT when the payment is driven, when a call of before the pause may still be under way, or when
 * the partner's record says otherwise.
 */
export async function closeByWord(
  on: ReviewDependencies,
  act: ReviewAct & { readonly word: Word; readonly evidence: string },
): Promise<PaymentRow> {
  const { word, evidence } = act;
  const payment = await knownPayment(on.database, act.platform_payment_id);
  if (payment.stage !== 'review') await assertPaused(on, payment);
  const found = await askPartner(on, payment);
  if (contradicts(found, word)) throw notClosable(found);
  return close(on, act, payment, word, `${evidenceOf(found)}; ${evidence}`);
}

/** Whether the partner's record says something else than the operator. Pure. */
function contradicts(found: PollOutcome, { outcome }: Word): boolean {
  if (found.kind === 'ended') {
    return (found.ending.status === 'succeeded') !== (outcome === 'succeeded');
  }
  return found.kind === 'processing' || (found.kind === 'incomplete' && outcome !== 'succeeded');
}

const pausedStatement = sql(
  'payment_paused_for',
  `SELECT (extract(epoch FROM clock_timestamp() - max(a.at)) * 1000)::bigint AS ms
     FROM duebridge_platform.audit a WHERE a.platform_payment_id = $1 AND a.event = 'payment_paused'`,
);

/** Throws unless nobody drives the payment and a PUT may have left, perhaps before the database lost it. */
async function assertPaused(
  { database }: ReviewDependencies,
  { platform_payment_id, slot, stage, maybe_sent }: PaymentRow,
): Promise<void> {
  if (slot !== PAUSED) throw conflict(NOT_CLOSABLE);
  if (isUnsent({ stage }) && maybe_sent === null) {
    throw conflict('Nothing was sent for this payment: withdraw it');
  }
  const [paused] = await database.query<{ ms: number | null }>(pausedStatement, [
    platform_payment_id,
  ]);
  const left = CALLS_END_MS - (paused?.ms ?? 0);
  if (left > 0) {
    const seconds = Math.ceil(left / 1_000);
    throw conflict(`A call may still be under way: close it in ${seconds} seconds`);
  }
}

async function askPartner(
  { registry, client }: ReviewDependencies,
  payment: PaymentRow,
): Promise<PollOutcome> {
  const partner = await registry.get(payment.partner_id);
  if (partner === undefined) throw new Refusal('NOT_FOUND');
  // Ignore the payment_id: a partner that lost the payment may have accepted it again under another.
  return judgePoll({ ...payment, payment_id: null }, await client.poll(partner, payment));
}

async function close(
  { database }: ReviewDependencies,
  { platform_payment_id, reason, actor, approved_by }: ReviewAct,
  { review_reason }: PaymentRow,
  word: Word,
  evidence: string,
): Promise<PaymentRow> {
  const isSuccess = word.outcome === 'succeeded';
  const failure_reason =
    word.outcome === 'failed'
      ? (word.failure_reason ?? refusalText(undefined)).slice(0, 500)
      : null;
  const row = await closePayment(database, {
    platform_payment_id,
    reason,
    actor,
    approved_by: approved_by ?? null,
    review_reason,
    evidence,
    status: word.outcome,
    failure_reason,
    payment_id: isSuccess ? word.payment_id : null,
    posted_at: isSuccess ? word.posted_at : null,
  });
  // Resumed or closed by somebody else meanwhile.
  if (row === undefined) throw conflict(NOT_IN_REVIEW);
  return row;
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
