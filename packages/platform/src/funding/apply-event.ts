/**
 * What a processor's webhook told, applied once: the event, its effect on the row of `funds`, its lines in the audit, and what it says of money:
 * a case (store/cases.ts), or a refund that somebody made at the processor.
 */
import { sql, type Database } from '@duebridge/runtime';
import { failRefund, noteRefund } from '../money/refunds.ts';
import { decideDispute, moveCase, openCase } from '../store/cases.ts';
import { booking } from '../store/money-book.ts';
import type { Queryable } from '../store/payments.ts';
import type { EventMoney, ProcessorEvent } from './adapter.ts';

/** Neither a refund nor a settlement may begin in between: the next statements decide by what they read. */
const lockStatement = sql(`
   SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1 FOR NO KEY UPDATE`);
/**
 * A payment that failed or was canceled must not keep funds, whatever the
 * row said about them: `taken` then begins a release.
 */
const applyStatement = sql(`
   WITH p AS (
     SELECT p.platform_payment_id, p.partner_id, p.amount_in_cents, p.status, p.settled_at IS NOT NULL AS is_settled, f.state
       FROM duebridge_platform.payments p JOIN duebridge_platform.funds f USING (platform_payment_id)
      WHERE p.platform_payment_id = $3 AND f.adapter = $1
   ), fresh AS (
     INSERT INTO duebridge_platform.funding_events AS made (adapter, event_id, kind, platform_payment_id)
     SELECT $1, $2, $4, p.platform_payment_id FROM p
     ON CONFLICT (adapter, event_id) DO NOTHING
     RETURNING made.kind
   ), changed AS (
     UPDATE duebridge_platform.funds f
        SET news_at = $5::timestamptz,
            state = CASE WHEN fresh.kind = 'taken' AND p.status IN ('failed', 'canceled')
                          AND f.state IN ('new', 'acting', 'declined', 'released') AND f.reference IS NOT NULL THEN 'releasing'
                         ELSE f.state END,
            action = CASE WHEN fresh.kind = 'taken' AND p.status IN ('failed', 'canceled') THEN NULL ELSE f.action END
       FROM fresh, p WHERE f.platform_payment_id = p.platform_payment_id
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT 'processor ' || $1, 'funds_' || $4, p.platform_payment_id, p.partner_id, $6::jsonb
       FROM p, fresh WHERE fresh.kind IN ('disputed', 'returned', 'refunded', 'refund_failed')
   )
   SELECT p.amount_in_cents, p.state = 'captured' AS is_taken,
          CASE WHEN p.status = 'processing' THEN 'open' WHEN p.status <> 'succeeded' THEN 'failed' WHEN p.is_settled THEN 'owed' ELSE 'settling' END AS end
     FROM p, fresh`);
/** The bank takes back what was taken early, before the payment has ended. */
const returnedEarlyStatement = sql(`
   WITH f AS (
     UPDATE duebridge_platform.funds SET state = 'uncollected' WHERE platform_payment_id = $1 AND state = 'captured' RETURNING platform_payment_id
   )
   ${booking({
     act: "'returned'",
     debit: "'under_way'",
     credit: "'returned'",
     at: '$2::timestamptz',
     from: 'duebridge_platform.payments p JOIN f USING (platform_payment_id)',
     where: 'true',
   })}`);

/** The payment of an event, as it is when the event is applied. */
interface Met {
  readonly amount_in_cents: number;
  /** Its money is with the platform. */
  readonly is_taken: boolean;
  /** `settling`: it succeeded, and its capture is not settled yet; `owed`: it is, so that the biller is owed the amount. */
  readonly end: 'open' | 'failed' | 'settling' | 'owed';
}

/** A processor repeats its events at once; the next one waits for the one before, which writes some ten statements. */
const LOCK = { lockTimeoutMs: 2_000 };

/**
 * Applies a verified event at `at`, by the wall clock. False for one that was applied before, or that concerns no payment of the adapter.
 * Throws when it comes too early, and has to be told again.
 */
export function applyEvent(
  database: Database,
  adapter: string,
  event: ProcessorEvent,
  at: string,
): Promise<boolean> {
  const { event_id, platform_payment_id, kind, detail = {}, money } = event;
  return database.transaction(async (tx) => {
    await tx.query(lockStatement, [platform_payment_id]);
    const [met] = await tx.query<Met>(applyStatement, [
      adapter,
      event_id,
      platform_payment_id,
      kind,
      at,
      JSON.stringify({ event_id, ...detail }),
    ]);
    if (met === undefined) return false;
    // A processor that names no money means all of it.
    const all = [{ reference: event_id, amount_in_cents: met.amount_in_cents }];
    for (const one of money ?? all) await moveMoney(tx, { adapter, event, at, met, one });
    return true;
  }, LOCK);
}

interface Moving {
  readonly adapter: string;
  readonly event: ProcessorEvent;
  readonly at: string;
  readonly met: Met;
  readonly one: EventMoney;
}

async function moveMoney(on: Queryable, { adapter, event, at, met, one }: Moving): Promise<void> {
  const { kind, platform_payment_id } = event;
  const case_id = `${adapter}-${one.reference}`;
  const actor = `processor ${adapter}`;
  const said = { actor, at, reason: one.reason ?? `${adapter} ${one.reference}` };
  const about = { case_id, platform_payment_id, ...said, deadline: one.deadline };
  const isOwed = met.is_taken && met.end === 'owed';
  const isUndecided = met.end === 'open' || met.end === 'settling';
  switch (kind) {
    case 'returned':
      // The settlement would book the debit as taken after its return was forgotten.
      if (met.end === 'settling') {
        throw new Error(`the capture of ${platform_payment_id} is not settled yet`);
      }
      if (isOwed) {
        const { amount_in_cents } = met;
        const what = { ...about, reason_code: 'debit_returned', amount_in_cents } as const;
        await openCase(on, 'debit_returned', what);
      } else if (met.is_taken) await on.query(returnedEarlyStatement, [platform_payment_id, at]);
      return;
    case 'disputed': {
      const cents = Math.min(one.amount_in_cents, met.amount_in_cents);
      // What the book does not have with the platform, a dispute does not take from it: a person looks at it.
      const amount_in_cents = isOwed ? cents : 0;
      const dispute = { ...about, reason_code: 'disputed', amount_in_cents } as const;
      await openCase(on, 'disputed', dispute);
      if (one.outcome === undefined) return;
      const biller = isOwed ? 'is owed' : isUndecided ? 'may be owed' : 'is not owed';
      await decideDispute(on, { ...dispute, amount_in_cents: cents }, one.outcome, biller);
      return;
    }
    case 'refunded': {
      if (met.end === 'owed') {
        await noteRefund(on, { ...one, refund_id: case_id, platform_payment_id, actor, at });
      }
      // Before that nobody is owed the money: a release books it, or the case does when it ends.
      const amount_in_cents = isUndecided ? one.amount_in_cents : 0;
      const reason_code = 'refunded_elsewhere';
      await openCase(on, 'complained', { ...about, reason_code, amount_in_cents });
      return;
    }
    case 'refund_failed': {
      const failed = { refund_ids: [one.reference, case_id], note: said.reason, actor, at };
      if (!(await failRefund(on, failed))) return;
      // What went back before its payment was posted is booked when a person ends its case: now it is not to be booked.
      await moveCase(on, case_id, 'answered', said);
      // The customer has nothing, and was told otherwise: a person pays them another way.
      const what = { ...about, case_id: `${case_id}-failed`, reason_code: 'other' } as const;
      await openCase(on, 'complained', what);
      return;
    }
    case 'news':
    case 'taken':
  }
}
