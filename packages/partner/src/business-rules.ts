/**
 * The rules of a biller, checked before the account system is called (FR1, decision 10): is the biller served here, is the amount
 * within its limits, is the payment a duplicate.
 */
import { FAILURE_REASONS } from '@duebridge/contract';
import { sql, type Transaction } from '@duebridge/runtime';
import { reasonByLimits, type BillerRules } from './account-system.ts';
import type { PaymentEnd, PaymentRow } from './store.ts';

/** The billers served, by id; undefined: every biller that has accounts, without rules. */
export type Rules = ReadonlyMap<string, BillerRules> | undefined;

/** The rules by biller. */
export function readRules(billers: readonly BillerRules[] | undefined): Rules {
  return billers && new Map(billers.map((rule) => [rule.biller_id, rule]));
}

/** Of these payments, locked by `tx`, those that a rule refuses, by id. */
export async function refusals(
  tx: Transaction,
  rules: Rules,
  payments: readonly PaymentRow[],
): Promise<Map<string, PaymentEnd>> {
  const refused = new Map<string, PaymentEnd>();
  if (!rules) return refused;
  const refuse = (platform_payment_id: string, failure_reason: string): void => {
    const end = { platform_payment_id, status: 'failed', failure_reason, posted_at: null } as const;
    refused.set(platform_payment_id, end);
  };
  const windows: { payment: PaymentRow; seconds: number }[] = [];
  for (const payment of payments) {
    const rule = rules.get(payment.biller_id);
    const reason = rule ? reasonByLimits(payment.amount_in_cents, rule) : FAILURE_REASONS.account;
    const seconds = rule?.duplicate_window_seconds ?? 0;
    if (reason !== undefined) refuse(payment.platform_payment_id, reason);
    else if (seconds > 0) windows.push({ payment, seconds });
  }
  if (windows.length > 0) {
    for (const id of await duplicates(tx, windows)) refuse(id, FAILURE_REASONS.duplicate);
  }
  return refused;
}

// Of two equal payments in flight at two replicas one must see the other, so the check for duplicates holds this lock until it
// commits. The keys are taken in sorted order to avoid deadlocks.
const lockDebtsStatement = sql(`
   SELECT pg_advisory_xact_lock(key) FROM (
     SELECT DISTINCT hashtextextended(debt, 0) AS key FROM unnest($1::text[]) AS debt ORDER BY key
   ) AS keys`);

// A payment is a duplicate if an equal one succeeded within the window, is being posted, or was there first. A failed or canceled
// one moved no money and does not count.
const duplicatesStatement = sql(`
   SELECT asked.id AS platform_payment_id
     FROM unnest($1::text[], $2::float8[]) AS asked(id, seconds)
     JOIN duebridge_partner.payment AS mine ON mine.platform_payment_id = asked.id
    WHERE EXISTS (
      SELECT FROM duebridge_partner.payment AS other
       WHERE other.account_id = mine.account_id AND other.biller_id = mine.biller_id
         AND other.amount_in_cents = mine.amount_in_cents
         AND other.platform_payment_id <> mine.platform_payment_id
         AND other.initiated_at BETWEEN mine.initiated_at - asked.seconds * interval '1 second'
                                    AND mine.initiated_at + asked.seconds * interval '1 second'
         AND (other.status = 'succeeded'
              OR (other.status = 'processing'
                  AND (EXISTS (SELECT FROM duebridge_partner.payment_processing AS begun
                                WHERE begun.platform_payment_id = other.platform_payment_id AND begun.claimed_at IS NOT NULL)
                       OR (other.initiated_at, other.platform_payment_id) < (mine.initiated_at, mine.platform_payment_id)))))`);

async function duplicates(
  tx: Transaction,
  windows: readonly { payment: PaymentRow; seconds: number }[],
): Promise<string[]> {
  const debts = windows.map(({ payment }) =>
    [payment.biller_id, payment.account_id, payment.amount_in_cents].join(':'),
  );
  await tx.query(lockDebtsStatement, [debts]);
  const rows = await tx.query<{ platform_payment_id: string }>(duplicatesStatement, [
    windows.map(({ payment }) => payment.platform_payment_id),
    windows.map(({ seconds }) => seconds),
  ]);
  return rows.map((row) => row.platform_payment_id);
}
