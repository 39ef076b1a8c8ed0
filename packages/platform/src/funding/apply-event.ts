/**
 * What a processor's webhook told, applied once: the event, its effect on the row of `funds`, and its lines in the audit and the book.
 */
import { sql, type Database } from '@duebridge/runtime';
import { booking, KNOWN_TO_BILLER } from '../store/money-book.ts';
import type { ProcessorEvent } from './adapter.ts';

/**
 * A payment that failed or was canceled must not keep funds, whatever the
 * row said about them: `taken` then begins a release.
 */
const applyStatement = sql(
  'funds_apply_event',
  `WITH p AS (
     SELECT p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, p.amount_in_cents, p.payment_id, p.status, f.state
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
                         WHEN fresh.kind = 'returned' AND f.state = 'captured' THEN 'uncollected'
                         ELSE f.state END,
            action = CASE WHEN fresh.kind = 'taken' AND p.status IN ('failed', 'canceled') THEN NULL ELSE f.action END
       FROM fresh, p WHERE f.platform_payment_id = p.platform_payment_id
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT 'processor ' || $1, 'funds_' || $4, p.platform_payment_id, p.partner_id, $6::jsonb
       FROM p, fresh WHERE fresh.kind IN ('disputed', 'returned', 'refunded')
   ), booked AS (
     ${booking({
       act: "'returned'",
       debit: "CASE p.status WHEN 'processing' THEN 'under_way' ELSE 'uncollected' END",
       credit: "'returned'",
       at: '$5::timestamptz',
       from: 'p, fresh',
       where: `fresh.kind = 'returned' AND p.state = 'captured' AND ${KNOWN_TO_BILLER}`,
     })}
   )
   SELECT kind FROM fresh`,
);

/** Applies a verified event at `at`, by the wall clock. False for one that was applied before, or that concerns no payment of the adapter. */
export async function applyEvent(
  database: Database,
  adapter: string,
  { event_id, platform_payment_id, kind, detail = {} }: ProcessorEvent,
  at: string,
): Promise<boolean> {
  const fresh = await database.query(applyStatement, [
    adapter,
    event_id,
    platform_payment_id,
    kind,
    at,
    JSON.stringify({ event_id, ...detail }),
  ]);
  return fresh.length > 0;
}
