/**
 * Closing a review: who may end a payment that its partner refused for good (decisions 21 and 38).
 *
 * enters: a payment in review, and an operator's reason.  leaves: the closed payment (engine/review.ts asks the partner and ends it),
 *         or a request that waits for a second person.
 * holds:  above the limit two different persons must ask, and the audit names both.
 */
import { Refusal, type PendingClose } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import {
  closeRejected,
  NOT_REFUSED_BY_PARTNER,
  type ReviewDependencies,
} from '../engine/review.ts';
import { note } from '../store/audit.ts';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import { NOT_IN_REVIEW } from '../store/terminal.ts';

/** The dependencies of closing. */
export interface CloseDependencies extends ReviewDependencies {
  /** Above this amount, closing needs a second person. */
  readonly secondPersonAboveCents: number;
}

const pendingStatement = sql(
  'review_close_pending',
  `SELECT requested_by, requested_at, reason FROM duebridge_platform.review_closes WHERE platform_payment_id = $1`,
);

/** The request that waits for a second person, or null. */
export async function pendingClose(
  database: Database,
  platform_payment_id: string,
): Promise<PendingClose | null> {
  const [row] = await database.query<PendingClose>(pendingStatement, [platform_payment_id]);
  return row ?? null;
}

/**
 * Closes a review, or records the first of two requests. Throws what `closeRejected` throws, and Refusal CONFLICT when the same
 * person asks twice.
 */
export async function closeReview(
  dependencies: CloseDependencies,
  platform_payment_id: string,
  reason: string,
  actor: string,
): Promise<{ outcome: 'closed' | 'second_person_needed'; payment: PaymentRow }> {
  const { database } = dependencies;
  const payment = await findPayment(database, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  if (payment.stage !== 'review') {
    throw new Refusal('CONFLICT', { message: NOT_IN_REVIEW });
  }
  const pending = await pendingClose(database, platform_payment_id);
  const needsSecond = payment.amount_in_cents > dependencies.secondPersonAboveCents;
  if (needsSecond && pending === null) {
    await requestClose(database, payment, reason, actor);
    return { outcome: 'second_person_needed', payment };
  }
  if (needsSecond && pending?.requested_by === actor) {
    throw new Refusal('CONFLICT', {
      message: 'You asked for this already: above the limit a second person must confirm it',
    });
  }
  // The first person acts and the second approves; the audit line that ends the payment names both.
  const closed = await closeRejected(dependencies, {
    platform_payment_id,
    reason,
    ...(pending === null ? { actor } : { actor: pending.requested_by, approved_by: actor }),
  });
  await database.query(
    'DELETE FROM duebridge_platform.review_closes WHERE platform_payment_id = $1',
    [platform_payment_id],
  );
  return { outcome: 'closed', payment: closed };
}

async function requestClose(
  database: Database,
  { platform_payment_id, partner_id, review_reason }: PaymentRow,
  reason: string,
  actor: string,
): Promise<void> {
  if (review_reason?.startsWith('rejected_') !== true) {
    throw new Refusal('CONFLICT', { message: NOT_REFUSED_BY_PARTNER });
  }
  await database.transaction(async (tx) => {
    const made = await tx.query(
      `INSERT INTO duebridge_platform.review_closes (platform_payment_id, requested_by, reason) VALUES ($1, $2, $3)
       ON CONFLICT (platform_payment_id) DO NOTHING RETURNING 1`,
      [platform_payment_id, actor, reason],
    );
    if (made.length === 0) {
      throw new Refusal('CONFLICT', { message: 'Somebody else asked for this at the same time' });
    }
    await note(tx, {
      actor,
      event: 'review_close_requested',
      platform_payment_id,
      partner_id,
      detail: { reason },
    });
  });
}
