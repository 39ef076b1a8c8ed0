/** The ends of a payment that do not come from a posting: an operator's cancel (ST4, decision 18), and a report of the biller's own system. */
import assert from 'node:assert/strict';
import type { TerminalStatus } from '@duebridge/contract';
import { sql, type Database, type Log, type Transaction } from '@duebridge/runtime';
import type { KitMetrics } from './metrics.ts';
import {
  columns,
  endPayments,
  writeAudit,
  type AuditLine,
  type PaymentEnd,
  type PaymentRow,
} from './store.ts';

/** The result of a cancel. `was_canceled`: by an earlier cancel, whose reason is kept. */
export type CancelOutcome =
  | { readonly outcome: 'canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'was_canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'too_late'; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

/**
 * The result of a report. `was_ended`: it had ended before; `agrees` says whether with the same outcome. A report that disagrees
 * changes nothing (RU2), and is kept in the audit.
 */
export type SettleOutcome =
  | { readonly outcome: 'settled'; readonly payment: PaymentRow }
  | { readonly outcome: 'was_ended'; readonly agrees: boolean; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

const lockAnyStatement = sql(
  'kit_lock_payment',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = $1 FOR NO KEY UPDATE`,
);

const lockClaimStatement = sql(
  'kit_lock_claim',
  `SELECT claimed_by FROM duebridge_partner.payment_processing WHERE platform_payment_id = $1 FOR UPDATE`,
);

/**
 * Cancels a payment that is processing, with its reason in the audit. One that is claimed is too late: a call to the biller's own system
 * may hold it, or its outcome is unknown (post-in-own-system.ts). Waits for a posting in progress in the kit's database, and returns too
 * late if that succeeded. A payment canceled before stays canceled.
 */
export function cancelPayment(
  database: Database,
  platform_payment_id: string,
  actor: string,
  reason: string,
): Promise<CancelOutcome> {
  return database.transaction(async (tx): Promise<CancelOutcome> => {
    const payment = await lockAny(tx, platform_payment_id);
    if (!payment) return { outcome: 'not_found' };
    if (payment.status === 'canceled') return { outcome: 'was_canceled', payment };
    if (payment.status !== 'processing') return { outcome: 'too_late', payment };
    const [begun] = await tx.query<{ claimed_by: string | null }>(lockClaimStatement, [
      platform_payment_id,
    ]);
    if (begun && begun.claimed_by !== null) return { outcome: 'too_late', payment };
    const end = { platform_payment_id, status: 'canceled', failure_reason: null } as const;
    const canceled = await endWith(tx, end, { actor, event: 'canceled', detail: { reason } });
    return { outcome: 'canceled', payment: canceled };
  });
}

/** Ends a payment that is processing as the biller's own system reports it; a `reason` is kept in the audit. */
export function settlePayment(
  database: Database,
  end: PaymentEnd,
  actor: string,
  reason?: string,
): Promise<SettleOutcome> {
  const { platform_payment_id, status } = end;
  const detail = { status, ...(reason === undefined ? {} : { reason }) };
  return database.transaction(async (tx): Promise<SettleOutcome> => {
    const payment = await lockAny(tx, platform_payment_id);
    if (!payment) return { outcome: 'not_found' };
    if (payment.status === 'processing') {
      const settled = await endWith(tx, end, { actor, event: 'settled', detail });
      return { outcome: 'settled', payment: settled };
    }
    const agrees = payment.status === status;
    if (!agrees) {
      await writeAudit(tx, [{ platform_payment_id, actor, event: 'contradicted', detail }]);
    }
    return { outcome: 'was_ended', agrees, payment };
  });
}

/** Counts and logs a report that contradicts the recorded end. */
export function noteContradiction(
  settled: SettleOutcome,
  reported: TerminalStatus,
  { metrics, log }: { readonly metrics: KitMetrics; readonly log: Log },
): void {
  if (settled.outcome !== 'was_ended' || settled.agrees) return;
  const { platform_payment_id, status } = settled.payment;
  metrics.count('contradicted');
  log.error(
    { platform_payment_id, here: status, there: reported },
    'the account system reports a different result than the one recorded',
  );
}

/**
 * Reads a row under its lock before anything is changed: an update followed by a read could meet a payment accepted in between, and
 * report a new payment as too late to cancel.
 */
async function lockAny(tx: Transaction, id: string): Promise<PaymentRow | undefined> {
  const [payment] = await tx.query<PaymentRow>(lockAnyStatement, [id]);
  return payment;
}

async function endWith(
  tx: Transaction,
  end: PaymentEnd,
  line: Omit<AuditLine, 'platform_payment_id'>,
): Promise<PaymentRow> {
  const [payment] = await endPayments(tx, [end], false);
  assert(payment, 'a payment changed under its lock');
  await writeAudit(tx, [{ platform_payment_id: end.platform_payment_id, ...line }]);
  return payment;
}
