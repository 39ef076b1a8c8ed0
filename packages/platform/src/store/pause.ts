/**
 * Pausing one payment: nothing more is sent for it until an operator resumes it (decision 61).
 *
 * holds: a paused payment is in a slot of no worker. The fence therefore refuses every write for it, also of a step that is under
 *        way: its first PUT cannot leave, because `dispatching` is written before it. A worker that has it in memory drops it at its
 *        next round (engine/worker.ts); a PUT repeated or a poll sent before that is harmless, and its answer is learned again after
 *        the pause.
 * next:  resumePayment in terminal.ts, or withdrawPayment while no PUT can have left.
 */
import { sql, type Database } from '@duebridge/runtime';
import { actOn, PAUSED, PAYMENT_COLUMNS, type PaymentRow, type Queryable } from './payments.ts';

/** Why the act is refused. */
const NOT_DRIVEN =
  'Nothing is sent for this payment: it has ended, waits in review, or is paused already';

const pauseStatement = sql(
  'payment_pause',
  `WITH p AS (
     UPDATE duebridge_platform.payments AS p SET slot = ${PAUSED}
      WHERE p.platform_payment_id = $1 AND p.status = 'processing' AND p.slot <> ${PAUSED}
      RETURNING p.*
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $2, 'payment_paused', p.platform_payment_id, p.partner_id, jsonb_build_object('reason', $3::text) FROM p
   )
   SELECT ${PAYMENT_COLUMNS} FROM p`,
);

/** Pauses a payment. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when nothing is sent for it anyway. */
export function pausePayment(
  database: Database,
  platform_payment_id: string,
  reason: string,
  actor: string,
): Promise<PaymentRow> {
  return actOn(database, pauseStatement, [platform_payment_id, actor, reason], NOT_DRIVEN);
}

/** Paused payments read at once; each is paused by a person. */
const MAX_PAUSED = 10_000;

const pausedStatement = sql(
  'payment_paused_ids',
  `SELECT p.platform_payment_id FROM duebridge_platform.payments p
    WHERE p.slot = ${PAUSED} AND p.settled_at IS NULL LIMIT ${MAX_PAUSED}`,
);

/** The ids of paused payments. */
export async function pausedPayments(on: Queryable): Promise<string[]> {
  const rows = await on.query<{ platform_payment_id: string }>(pausedStatement);
  return rows.map((row) => row.platform_payment_id);
}
