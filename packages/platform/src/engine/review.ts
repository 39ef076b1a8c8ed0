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
import { Refusal } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import type { PartnerClient } from '../partners/client.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import { findPayment, PAUSED, type PaymentRow } from '../store/payments.ts';
import { closePayment, NOT_CLOSABLE, NOT_IN_REVIEW } from '../store/terminal.ts';
import { judgePoll, type PollOutcome } from './outcome.ts';
import { refusalText } from './payment-steps.ts';

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

/**
 * Closes a payment whose PUT the partner refused (400, 422) and which the partner does not know, asked again now. It ends as failed
 * with the partner's own words as its reason. Throws Refusal PAYMENT_NOT_FOUND; CONFLICT when it is in no such review, was accepted
 * before, or is known to the partner; SERVICE_UNAVAILABLE when the partner gives no usable answer.
 */
export async function closeRejected(
  dependencies: ReviewDependencies,
  act: ReviewAct,
): Promise<PaymentRow> {
  const { payment, review_reason } = await inReview(dependencies, act.platform_payment_id);
  if (!review_reason.startsWith('rejected_') || payment.payment_id !== null) {
    throw new Refusal('CONFLICT', { message: NOT_REFUSED_BY_PARTNER });
  }
  const found = await askPartner(dependencies, payment);
  if (found.kind !== 'not_found' || !found.believed) throw notClosable(found);
  const [, , ...code] = review_reason.split('_');
  const failure_reason =
    payment.rejection_message ?? refusalText(code.length === 0 ? undefined : code.join('_'));
  return close(dependencies, act, {
    status: 'failed',
    failure_reason,
    payment_id: null,
    posted_at: null,
    review_reason,
    evidence: evidenceOf(found),
  });
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
 * Ends a payment that stands still (in review, or paused) on an operator's word, for which `evidence` says where it is written. The
 * partner is asked at that moment, and its record contradicts the word or not; a partner that gives no usable answer contradicts nothing.
 * Throws Refusal PAYMENT_NOT_FOUND; CONFLICT when the payment is driven, when a call of before the pause may still be under way, or when
 * the partner's record says otherwise.
 */
export async function closeByWord(
  dependencies: ReviewDependencies,
  act: ReviewAct & { readonly word: Word; readonly evidence: string },
): Promise<PaymentRow> {
  const { word, evidence, ...by } = act;
  const payment = await standingStill(dependencies, act.platform_payment_id);
  const found = await askPartner(dependencies, payment);
  if (contradicts(found, word)) throw notClosable(found);
  const isSuccess = word.outcome === 'succeeded';
  return close(dependencies, by, {
    status: word.outcome,
    failure_reason:
      word.outcome === 'failed'
        ? (word.failure_reason ?? refusalText(undefined)).slice(0, 500)
        : null,
    payment_id: isSuccess ? word.payment_id : null,
    posted_at: isSuccess ? word.posted_at : null,
    review_reason: payment.review_reason,
    evidence: `${evidenceOf(found)}; ${evidence}`,
  });
}

/** Whether the partner's record says something else than the operator. Pure. */
function contradicts(found: PollOutcome, word: Word): boolean {
  switch (found.kind) {
    case 'processing':
      return true;
    case 'incomplete':
      return word.outcome !== 'succeeded';
    case 'ended':
      return (found.ending.status === 'succeeded') !== (word.outcome === 'succeeded');
    case 'not_found':
    case 'mismatch':
    case 'unknown':
    case 'held':
      return false;
  }
}

/** A call that left before a pause has ended after this: more than a call may take (partners/http-call.ts). */
const CALLS_END_MS = 30_000;

const pausedStatement = sql(
  'payment_paused_for',
  `SELECT (extract(epoch FROM clock_timestamp() - max(a.at)) * 1000)::bigint AS ms
     FROM duebridge_platform.audit a WHERE a.platform_payment_id = $1 AND a.event = 'payment_paused'`,
);

/** The payment, if nobody drives it and a PUT may have left. */
async function standingStill(
  { database }: ReviewDependencies,
  platform_payment_id: string,
): Promise<PaymentRow> {
  const payment = await findPayment(database, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  if (payment.stage === 'review') return payment;
  if (payment.slot !== PAUSED) throw new Refusal('CONFLICT', { message: NOT_CLOSABLE });
  if (payment.stage === 'created' || payment.stage === 'authorized') {
    throw new Refusal('CONFLICT', { message: 'Nothing was sent for this payment: withdraw it' });
  }
  const [paused] = await database.query<{ ms: number | null }>(pausedStatement, [
    platform_payment_id,
  ]);
  const left = CALLS_END_MS - (paused?.ms ?? 0);
  if (left > 0) {
    throw new Refusal('CONFLICT', {
      message: `A call may still be under way: close it in ${Math.ceil(left / 1_000)} seconds`,
    });
  }
  return payment;
}

async function inReview(
  { database }: ReviewDependencies,
  platform_payment_id: string,
): Promise<{ payment: PaymentRow; review_reason: string }> {
  const payment = await findPayment(database, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  // A payment has a reason exactly while it is in review (payments_review).
  if (payment.review_reason === null) throw notInReview();
  return { payment, review_reason: payment.review_reason };
}

async function askPartner(
  dependencies: ReviewDependencies,
  payment: PaymentRow,
): Promise<PollOutcome> {
  const partner = await dependencies.registry.get(payment.partner_id);
  if (partner === undefined) throw new Refusal('NOT_FOUND');
  // Ignore the payment_id: a partner that lost the payment may have accepted it again under another.
  return judgePoll(
    { ...payment, payment_id: null },
    await dependencies.client.poll(partner, payment),
  );
}

async function close(
  { database }: ReviewDependencies,
  act: ReviewAct,
  closing: Omit<Parameters<typeof closePayment>[1], keyof ReviewAct>,
): Promise<PaymentRow> {
  const { platform_payment_id, reason, actor, approved_by = null } = act;
  const row = await closePayment(database, {
    ...closing,
    platform_payment_id,
    reason,
    actor,
    approved_by,
  });
  // Resumed or closed by somebody else meanwhile.
  if (row === undefined) throw notInReview();
  return row;
}

function notInReview(): Refusal {
  return new Refusal('CONFLICT', { message: NOT_IN_REVIEW });
}

function notClosable(found: PollOutcome): Refusal {
  const evidence = evidenceOf(found);
  switch (found.kind) {
    case 'unknown':
    case 'held':
    case 'not_found':
      return new Refusal('SERVICE_UNAVAILABLE', {
        message: `The partner’s answer was inconclusive (${evidence}); try again`,
      });
    case 'processing':
    case 'incomplete':
    case 'ended':
    case 'mismatch':
      return new Refusal('CONFLICT', {
        message: `The partner has the payment (${evidence}); resume it instead`,
      });
  }
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
