/** The ends of a payment that do not come from a posting: an operator's cancel (ST4, decision 18), and a report of the biller's own system. */
import assert from 'node:assert/strict';
import { sql } from '@duebridge/runtime';
import type { KitContext } from './metrics.ts';
import { columns, endPayments, writeAudit, type PaymentEnd, type PaymentRow } from './store.ts';

/** What came of it. */
export type EndedByHand =
  | { readonly outcome: 'ended'; readonly payment: PaymentRow }
  /** It had ended before, and stays as it was (RU2); `agrees`: with the same status. */
  | { readonly outcome: 'was_ended'; readonly agrees: boolean; readonly payment: PaymentRow }
  /** It cannot be canceled: a call to the biller's own system may hold it, or its outcome there is unknown. */
  | { readonly outcome: 'is_claimed'; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

/** Who ends it, how, and why: a line of the audit. */
export interface ByHand {
  readonly actor: string;
  readonly event: 'canceled' | 'settled';
  readonly reason?: string | undefined;
}

const lockAnyStatement = sql(`
   SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = $1 FOR NO KEY UPDATE`);

const lockClaimStatement = sql(`
   SELECT claimed_by FROM duebridge_partner.payment_processing WHERE platform_payment_id = $1 FOR UPDATE`);

/**
 * Ends a payment that is processing. Waits for a posting in progress in the kit's database. A cancel of a payment that is claimed is
 * refused (post-in-own-system.ts). A report that contradicts the recorded end changes nothing: it is kept in the audit, counted and logged.
 */
export async function endByHand(
  on: Omit<KitContext, 'clock'>,
  end: PaymentEnd,
  { actor, event, reason }: ByHand,
): Promise<EndedByHand> {
  const { platform_payment_id, status } = end;
  const detail = {
    ...(event === 'settled' && { status }),
    ...(reason !== undefined && { reason }),
  };
  const line = { platform_payment_id, actor, detail };
  const done = await on.database.transaction(async (tx): Promise<EndedByHand> => {
    // Under its lock before anything is changed: an update followed by a read could meet a payment accepted in between, and report a
    // new payment as one that has ended.
    const [payment] = await tx.query<PaymentRow>(lockAnyStatement, [platform_payment_id]);
    if (!payment) return { outcome: 'not_found' };
    if (payment.status !== 'processing') {
      const agrees = payment.status === status;
      if (event === 'settled' && !agrees) {
        await writeAudit(tx, [{ ...line, event: 'contradicted' }]);
      }
      return { outcome: 'was_ended', agrees, payment };
    }
    if (event === 'canceled') {
      const [begun] = await tx.query<{ claimed_by: string | null }>(lockClaimStatement, [
        platform_payment_id,
      ]);
      if (begun && begun.claimed_by !== null) return { outcome: 'is_claimed', payment };
    }
    const [ended] = await endPayments(tx, [end], false);
    assert(ended, 'a payment changed under its lock');
    await writeAudit(tx, [{ ...line, event }]);
    return { outcome: 'ended', payment: ended };
  });
  if (event === 'settled' && done.outcome === 'was_ended' && !done.agrees) {
    on.metrics.count('contradicted');
    on.log.error(
      { platform_payment_id, here: done.payment.status, there: status },
      'the account system reports a different result than the one recorded',
    );
  }
  return done;
}
