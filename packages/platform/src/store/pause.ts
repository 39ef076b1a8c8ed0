/**
 * Pausing one payment: nothing more is sent for it until an operator resumes it (decision 61).
 *
 * holds: a paused payment is in a slot of no worker. The fence therefore refuses every write for it, also of a step that is under
 *        way: its first PUT cannot leave, because `dispatching` is written before it. A worker that has it in memory drops it at its
 *        next round (engine/worker.ts); a PUT repeated or a poll sent before that is harmless, and its answer is learned again after
 *        the pause.
 * next:  resumePayment in terminal.ts, or withdrawPayment while no PUT can have left.
 */
import { sql } from '@duebridge/runtime';
import { operatorsAct, PAUSED, type Queryable } from './payments.ts';

/** Pauses a payment. */
export const pausePayment = operatorsAct('payment_pause', {
  set: `slot = ${PAUSED}`,
  where: `p.slot <> ${PAUSED}`,
  event: 'payment_paused',
  refused: 'Nothing is sent for this payment: it has ended, waits in review, or is paused already',
});

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
