/**
 * The operator's cancel (ST4, decision 18), and how a replica asks another for one.
 *
 * A payment that nobody has handed to a biller's own system is canceled at once, under its lock. Only the replica that has claimed
 * a payment may cancel it, because it alone knows whether a call holds it at this moment. Other replicas leave a request in the
 * row; the claimer sees it at its next poll, within a second, and cancels the payment or drops the request.
 */
import assert from 'node:assert/strict';
import { sql, type Database } from '@duebridge/runtime';
import { columns, writeAudit, type PaymentRow } from './store.ts';

/** The result of a cancel. `was_canceled`: by an earlier cancel, whose reason is kept. */
export type CancelOutcome =
  | { readonly outcome: 'canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'was_canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'too_late'; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

const lockAnyStatement = sql(
  'kit_lock_payment',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = $1 FOR NO KEY UPDATE`,
);

const lockClaimStatement = sql(
  'kit_lock_claim',
  `SELECT claimed_by FROM duebridge_partner.payment_processing WHERE platform_payment_id = $1 FOR UPDATE`,
);

const cancelStatement = sql(
  'kit_cancel_payment',
  `WITH ended AS (
     UPDATE duebridge_partner.payment
        SET status = 'canceled', ended_at = greatest(date_trunc('milliseconds', clock_timestamp()), initiated_at)
      WHERE platform_payment_id = $1
     RETURNING ${columns}
   ), done AS (
     DELETE FROM duebridge_partner.payment_processing AS begun USING ended WHERE begun.platform_payment_id = ended.platform_payment_id
   )
   SELECT ${columns} FROM ended`,
);

/**
 * Cancels a payment that is processing (ST4, decision 18), with its reason in the audit. A payment that a replica has claimed is
 * canceled only with that replica's id as `claimer`; otherwise the answer is `claimed`. Waits for a posting in progress in the
 * kit's database, and returns too late if that succeeded. A payment canceled before stays canceled.
 */
export function cancelPayment(
  database: Database,
  platform_payment_id: string,
  actor: string,
  reason: string,
  claimer?: string,
): Promise<CancelOutcome | ClaimedOutcome> {
  return database.transaction(async (tx) => {
    // Read the row under its lock before changing it: an update followed by a read could meet a payment accepted in between, and
    // report a new payment as too late to cancel.
    const [payment] = await tx.query<PaymentRow>(lockAnyStatement, [platform_payment_id]);
    if (!payment) return { outcome: 'not_found' };
    if (payment.status === 'canceled') return { outcome: 'was_canceled', payment };
    if (payment.status !== 'processing') return { outcome: 'too_late', payment };
    const [begun] = await tx.query<{ claimed_by: string | null }>(lockClaimStatement, [
      platform_payment_id,
    ]);
    const by = begun?.claimed_by ?? null;
    if (by !== null && by !== claimer) return { outcome: 'claimed', by, payment };
    const [canceled] = await tx.query<PaymentRow>(cancelStatement, [platform_payment_id]);
    assert(canceled, 'a payment changed under its lock');
    await writeAudit(tx, [{ platform_payment_id, actor, event: 'canceled', detail: { reason } }]);
    return { outcome: 'canceled', payment: canceled };
  });
}

/** The replica that has claimed the payment decides about a cancel. */
export interface ClaimedOutcome {
  readonly outcome: 'claimed';
  readonly by: string;
  readonly payment: PaymentRow;
}

/** Asks the replica that has claimed a payment to cancel it. */
export async function requestCancel(
  database: Database,
  platform_payment_id: string,
  claimed_by: string,
  actor: string,
  reason: string,
): Promise<void> {
  await database.query(
    `UPDATE duebridge_partner.payment_processing SET cancel_actor = $3, cancel_reason = $4
      WHERE platform_payment_id = $1 AND claimed_by = $2`,
    [platform_payment_id, claimed_by, actor, reason],
  );
}

/** Whether a requested cancel is still waiting for its answer. */
export async function isCancelRequested(
  database: Database,
  platform_payment_id: string,
): Promise<boolean> {
  const rows = await database.query(
    `SELECT 1 FROM duebridge_partner.payment_processing WHERE platform_payment_id = $1 AND cancel_actor IS NOT NULL`,
    [platform_payment_id],
  );
  return rows.length > 0;
}

/** Withdraws what `requestCancel` asked for: the answer is no, or nobody waits for it any more. */
export async function dropCancelRequest(
  database: Database,
  platform_payment_id: string,
): Promise<void> {
  await database.query(
    `UPDATE duebridge_partner.payment_processing SET cancel_actor = NULL, cancel_reason = NULL WHERE platform_payment_id = $1`,
    [platform_payment_id],
  );
}

/** A cancel requested from this replica. */
export interface CancelRequest {
  readonly platform_payment_id: string;
  readonly actor: string;
  readonly reason: string;
}

const cancelRequestsStatement = sql(
  'kit_cancel_requests',
  `SELECT platform_payment_id, cancel_actor AS actor, cancel_reason AS reason FROM duebridge_partner.payment_processing
    WHERE claimed_by = $1 AND cancel_actor IS NOT NULL LIMIT 100`,
);

/** The cancels requested from replica `replica_id`. */
export function findCancelRequests(
  database: Database,
  replica_id: string,
): Promise<CancelRequest[]> {
  return database.query<CancelRequest>(cancelRequestsStatement, [replica_id]);
}
