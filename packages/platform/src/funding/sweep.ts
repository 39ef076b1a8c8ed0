/**
 * What time does to funds: captures authorizations that are about to expire, and makes releases that no payment's settlement will make.
 *
 * enters: rows of `funds`.  leaves: the same rows, captured, uncollected, released or refunded, each with its line in the audit.
 * holds:  a row is claimed before the processor is asked for it, so that replicas sweep different rows, and one that cannot be captured
 *         is passed over until its pause ends: it keeps no other waiting. Only payments that were sent and are still under way are
 *         captured early: one that was not sent yet is asked for when it leaves (engine/dispatcher.ts), and one in review waits for a
 *         person, who could not take back what was captured.
 */
import { messageOf, sql, type Clock, type Database, type Log } from '@duebridge/runtime';
import type { FundingCallOptions, FundingOrder, SettledFunds } from '../funding.ts';
import { booking, type Place } from '../store/money-book.ts';

/**
 * While its payment is in progress, an authorization is captured this long before it expires, which leaves time for several
 * failed attempts.
 */
const CAPTURE_BEFORE_MS = 12 * 3_600_000;
/** Rows that are claimed at once, and claims in one sweep at most. */
const SWEEP_ROWS = 100;
const MAX_PAGES = 50;
/** Calls to processors at once: one that hangs delays few others. */
const CALLS_AT_ONCE = 10;
/** Maximum duration of a call. */
const CALL_MS = 15_000;
/** How long a row is passed over after it was claimed. */
const PAUSE_MS = 10 * 60_000;

const MAY_BE_CLAIMED = '(f.swept_at IS NULL OR f.swept_at < $1::timestamptz)';
const found = (state: 'authorized' | 'releasing', where: string, order: string): string => `(
   SELECT p.platform_payment_id, p.funding_method, p.amount_in_cents, f.state
     FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE f.state = '${state}' AND ${where} AND ${MAY_BE_CLAIMED} ORDER BY ${order} LIMIT ${SWEEP_ROWS})`;
/**
 * Holds that are about to expire, and releases that the settlement of their payments will not make, because it is over. The trigger of the
 * table gives both their `sweep_at`, and no other row: an index that named the state would get a second entry for every payment.
 */
const findStatement = sql(`
   ${found('authorized', "f.sweep_at > '-infinity' AND f.sweep_at < $2::timestamptz AND p.status = 'processing' AND p.stage IN ('dispatching', 'accepted')", 'f.sweep_at')}
   UNION ALL
   ${found('releasing', "f.sweep_at = '-infinity' AND p.settled_at IS NOT NULL", 'f.platform_payment_id')}`);
// Apart from the search: a sharded database locks no rows of a join.
const claimStatement = sql(`
   UPDATE duebridge_platform.funds AS f SET swept_at = $2::timestamptz
    WHERE f.platform_payment_id = ANY($3::text[]) AND ${MAY_BE_CLAIMED} RETURNING f.platform_payment_id`);
/** A payment that ended while its funds were taken early is settled by its worker, which books them: here nothing is written. */
const endStatement = sql(`
   WITH open AS (
     SELECT p.platform_payment_id FROM duebridge_platform.payments p
      WHERE p.platform_payment_id = $1 AND ($4 <> 'authorized' OR p.status = 'processing') FOR NO KEY UPDATE
   ), f AS (
     UPDATE duebridge_platform.funds AS f SET state = $2, reason = coalesce($3, f.reason)
       FROM open WHERE f.platform_payment_id = open.platform_payment_id AND f.state = $4 RETURNING f.platform_payment_id
   ), booked AS (
     ${booking({
       act: '$7::text',
       debit: "'taken'",
       credit: '$8::text',
       at: '$9::timestamptz',
       from: 'duebridge_platform.payments p JOIN f USING (platform_payment_id)',
       where: '$8 IS NOT NULL',
     })}
   )
   INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
   SELECT 'funding', $5, p.platform_payment_id, p.partner_id, $6::jsonb
     FROM duebridge_platform.payments p JOIN f USING (platform_payment_id)`);

/** What an act leads to, by the state before it and its answer: the state, the event, and what is booked, as act and credit. Nothing else is written. */
const ENDS: Readonly<
  Record<string, readonly [to: string, event: string, act?: string, credit?: Place]>
> = {
  'authorized done': ['captured', 'funds_captured_early', 'taken_early', 'under_way'],
  'authorized uncollected': ['uncollected', 'funds_uncollected'],
  'releasing done': ['released', 'funds_released'],
  'releasing refunded': ['refunded', 'funds_refunded', 'refunded_late', 'refunded'],
};

type Act = (order: FundingOrder, call: FundingCallOptions) => Promise<SettledFunds | void>;

/** Sweeps once. */
export async function sweepFunds(options: {
  readonly database: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly capture: Act;
  readonly release: Act;
}): Promise<void> {
  const { database, clock, log, capture, release } = options;
  const instant = (ms: number): string => new Date(ms).toISOString();
  const now = clock.now();
  const pausedSince = instant(now - PAUSE_MS);
  type Found = FundingOrder & { readonly state: 'authorized' | 'releasing' };

  const sweep = async ({ state, ...order }: Found): Promise<void> => {
    const call = { signal: AbortSignal.timeout(CALL_MS) };
    const settled = await (state === 'authorized' ? capture : release)(order, call);
    const end = ENDS[`${state} ${settled?.kind ?? 'done'}`];
    if (end === undefined) return;
    const [to, event, act = null, credit = null] = end;
    const reason = settled?.kind === 'uncollected' ? settled.reason : null;
    const detail = state === 'releasing' ? { late: 1 } : reason === null ? {} : { reason };
    const what = [order.platform_payment_id, to, reason, state, event, JSON.stringify(detail)];
    await database.query(endStatement, [...what, act, credit, instant(now)]);
  };
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const rows = await database.query<Found>(findStatement, [
      pausedSince,
      instant(now + CAPTURE_BEFORE_MS),
    ]);
    if (rows.length === 0) return;
    const claimed = await database.query<Pick<Found, 'platform_payment_id'>>(claimStatement, [
      pausedSince,
      instant(now),
      rows.map((row) => row.platform_payment_id),
    ]);
    const mine = new Set(claimed.map((row) => row.platform_payment_id));
    const orders = rows.filter((row) => mine.has(row.platform_payment_id)).values();
    const work = async (): Promise<void> => {
      for (const order of orders) {
        try {
          await sweep(order);
        } catch (error) {
          const { platform_payment_id } = order;
          const what = { platform_payment_id, error: messageOf(error) };
          log.error(what, 'the funding sweep failed for a payment');
        }
      }
    };
    await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work));
  }
}
