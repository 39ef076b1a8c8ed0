/**
 * The end of a payment as reported by a biller's own system on its own initiative: it takes a payment, answers `later`, and calls
 * back.
 */
import assert from 'node:assert/strict';
import type { Database } from '@duebridge/runtime';
import { checkedOutcome, type FinalOutcome } from './account-system.ts';
import { endOf } from './poster.ts';
import { endPayments, lockPayments, findPayments, writeAudit, type PaymentRow } from './store.ts';

/**
 * The result of a report. `was_ended`: it had ended before; `agrees` says whether with the same outcome. A report that disagrees
 * changes nothing (RU2), and is kept in the audit.
 */
export type SettleOutcome =
  | { readonly outcome: 'settled'; readonly payment: PaymentRow }
  | { readonly outcome: 'was_ended'; readonly agrees: boolean; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

/** Ends a payment that is processing; a `reason` is kept in the audit. Throws WrongAnswer when the outcome is not a valid one. */
export function settlePayment(
  database: Database,
  platform_payment_id: string,
  reported: FinalOutcome,
  actor: string,
  reason?: string,
): Promise<SettleOutcome> {
  const end = endOf(platform_payment_id, checkedOutcome(reported));
  if (!end) throw new TypeError('settle takes posted, failed or canceled');
  const detail = { status: end.status, ...(reason === undefined ? {} : { reason }) };
  return database.transaction(async (tx): Promise<SettleOutcome> => {
    const [locked] = await lockPayments(tx, [platform_payment_id]);
    if (locked) {
      const [payment] = await endPayments(tx, [end]);
      assert(payment, 'a payment changed under its lock');
      await writeAudit(tx, [{ platform_payment_id, actor, event: 'settled', detail }]);
      return { outcome: 'settled', payment };
    }
    const payment = (await findPayments(tx, [platform_payment_id])).get(platform_payment_id);
    if (!payment) return { outcome: 'not_found' };
    const agrees = payment.status === end.status;
    if (!agrees) {
      await writeAudit(tx, [{ platform_payment_id, actor, event: 'contradicted', detail }]);
    }
    return { outcome: 'was_ended', agrees, payment };
  });
}
