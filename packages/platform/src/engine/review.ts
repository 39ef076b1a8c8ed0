/**
 * The exits of review: an operator closes a payment that the engine cannot end by itself (decision 21).
 *
 * enters: a payment in review, and what the operator states.  leaves: a terminal row in no slot; a worker takes it over and
 *         releases the funds, and the customer may pay anew.
 * holds:  the partner is asked by a GET at that moment. A payment that the partner shows as existing is never closed, whatever the
 *         operator states. If the partner does not answer, the payment stays in review (PL5).
 */
import { Refusal } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import type { PartnerClient } from '../partners/client.ts';
import type { PartnerRegistry } from '../partners/registry.ts';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import { closePayment, NOT_IN_REVIEW } from '../store/terminal.ts';
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
    review_reason,
    evidence: evidenceOf(found),
  });
}

/**
 * Closes any payment in review on the operator's word that the partner has confirmed, outside this interface, that it neither applied
 * the payment nor will. `failure_reason` is for the customer. Throws as `closeRejected` does; CONFLICT also when the partner's GET
 * shows the payment as processing or succeeded, whatever was confirmed.
 */
export async function closeReview(
  dependencies: ReviewDependencies,
  act: ReviewAct & {
    readonly status: 'failed' | 'canceled';
    /** At most 500 characters; for `failed` only. */
    readonly failure_reason?: string;
  },
): Promise<PaymentRow> {
  const { payment, review_reason } = await inReview(dependencies, act.platform_payment_id);
  const found = await askPartner(dependencies, payment);
  switch (found.kind) {
    // The partner's record shows the payment: resume it, and let it end as the partner says.
    case 'processing':
    case 'incomplete':
      throw notClosable(found);
    case 'ended':
      if (found.ending.status === 'succeeded') throw notClosable(found);
      break;
    // The partner does not answer now, and what it confirmed earlier may have changed.
    case 'unknown':
    case 'held':
      throw notClosable(found);
    // No credible answer contradicts the operator.
    case 'not_found':
    case 'mismatch':
      break;
  }
  const failure_reason =
    act.status === 'failed' ? (act.failure_reason ?? refusalText(undefined)).slice(0, 500) : null;
  return close(dependencies, act, {
    status: act.status,
    failure_reason,
    review_reason,
    evidence: evidenceOf(found),
  });
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
