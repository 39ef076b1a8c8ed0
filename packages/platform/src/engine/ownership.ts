/**
 * Who drives which payment: one row per worker as proof of life, one guarded UPDATE to take over from the dead (P9, P10, F84-F87).
 *
 * A worker that dies is noticed by the age of its heartbeat in the database's time; a worker that merely cannot reach the database
 * notices itself, by its own monotonic clock, before the others do. It then drops all it held and comes back as another worker:
 * whatever the old one still had under way meets a fence that no longer matches.
 *
 * The same row shares out the partners' budgets (decision 25). What a worker registered it may use; registering happens under one
 * lock and never lets the sum exceed the budget, so a newcomer waits until the others have let go, at most one beat.
 */
import { sql, type Database } from '@duebridge/runtime';
import { PAYMENT_COLUMNS, type PaymentRow, type Queryable } from '../store/payments.ts';

/** What a worker wants of one budget of a partner, and what it still uses. */
export interface Want {
  /** What the partner allows all workers together. */
  readonly cap: number;
  /** What this worker could use now; 0 when it has nothing for this partner. */
  readonly need: number;
  /** What is in use and cannot be given back yet: a share never falls below it. */
  readonly inUse: number;
}

/** Both budgets of a partner: calls at once, and calls per second. */
export interface Demand {
  readonly calls: Want;
  readonly rate: Want;
}

/** What a worker may use of both. */
export interface Share {
  readonly calls: number;
  readonly rate: number;
}

/** Registered and wanted, per partner and budget. */
export type Shares = Readonly<
  Record<string, Readonly<Record<keyof Share, readonly [registered: number, need: number]>>>
>;

/** A living worker, as the others see it. */
export interface WorkerRow {
  readonly worker_id: string;
  readonly shares: Shares;
}

/** One lock for registering shares: heartbeats are rare and short, so nobody waits long. */
const SHARES_LOCK = 7_033_124_800_419;

/** How long an odd part of a small budget stays with one worker before it goes to the next, in milliseconds. */
const TURN_MS = 5_000;

/**
 * Condition on `workers`: alive, with `lease` as the SQL of its milliseconds. A heartbeat from further ahead than a lease was
 * written before the clock stepped back and proves nothing (E7).
 */
const isAlive = (column: string, lease: string): string =>
  `${column} > clock_timestamp() - ${lease} * interval '1 millisecond'
   AND ${column} <= clock_timestamp() + ${lease} * interval '1 millisecond'`;

/** Puts a new worker on the list. */
export async function registerWorker(database: Database, worker_id: string): Promise<void> {
  await database.query('INSERT INTO duebridge_platform.workers (worker_id) VALUES ($1)', [
    worker_id,
  ]);
}

/**
 * Renews the heartbeat: one statement that waits for no other worker. False when the lease has run out: others may have taken
 * over already. `now()` and not the clock's own function, because a sharded PostgreSQL refuses a volatile one in an UPDATE.
 */
export async function renewHeartbeat(
  database: Database,
  worker_id: string,
  leaseMs: number,
): Promise<boolean> {
  const rows = await database.query(
    sql(
      'worker_renew',
      `UPDATE duebridge_platform.workers SET heartbeat_at = now()
        WHERE worker_id = $1
          AND heartbeat_at > now() - $2 * interval '1 millisecond'
          AND heartbeat_at <= now() + $2 * interval '1 millisecond'
       RETURNING worker_id`,
    ),
    [worker_id, leaseMs],
  );
  return rows.length > 0;
}

/** Takes a worker off the list: whatever names it is anybody's. */
export async function removeWorker(database: Database, worker_id: string): Promise<void> {
  await database.query(
    sql('worker_remove', 'DELETE FROM duebridge_platform.workers WHERE worker_id = $1'),
    [worker_id],
  );
}

/**
 * Renews the heartbeat and the shares. Gives what this worker may use, per partner, or undefined when its lease has run out:
 * others may have taken its payments already.
 */
export function beat(
  database: Database,
  worker_id: string,
  leaseMs: number,
  demands: ReadonlyMap<string, Demand>,
): Promise<Map<string, Share> | undefined> {
  return database.transaction(async (tx) => {
    await tx.query(sql('worker_lock', 'SELECT pg_advisory_xact_lock($1)'), [SHARES_LOCK]);
    const living = await tx.query<WorkerRow & { turn: number }>(
      sql(
        'worker_alive',
        `SELECT worker_id, shares, floor(extract(epoch FROM clock_timestamp()) * 1000 / $2)::bigint AS turn
           FROM duebridge_platform.workers WHERE ${isAlive('heartbeat_at', '$1')} ORDER BY worker_id`,
      ),
      [leaseMs, TURN_MS],
    );
    const turn = living[0]?.turn ?? 0;
    if (!living.some((worker) => worker.worker_id === worker_id)) return undefined;
    const granted = new Map<string, Share>();
    const registered: Record<string, Shares[string]> = {};
    for (const [partner_id, { calls, rate }] of demands) {
      const share = {
        calls: shareOf(worker_id, partner_id, 'calls', calls, living, turn),
        rate: shareOf(worker_id, partner_id, 'rate', rate, living, turn),
      };
      granted.set(partner_id, share);
      registered[partner_id] = { calls: [share.calls, calls.need], rate: [share.rate, rate.need] };
    }
    await tx.query(
      sql(
        'worker_beat',
        `UPDATE duebridge_platform.workers SET heartbeat_at = clock_timestamp(), shares = $2 WHERE worker_id = $1`,
      ),
      [worker_id, JSON.stringify(registered)],
    );
    return granted;
  });
}

/** This worker's part of one budget of one partner: its even part, but never more than the others have left free. Pure. */
export function shareOf(
  worker_id: string,
  partner_id: string,
  budget: keyof Share,
  want: Want,
  alive: readonly WorkerRow[],
  turn: number,
): number {
  const others = alive.filter((worker) => worker.worker_id !== worker_id);
  const taken = others.reduce((sum, { shares }) => sum + (shares[partner_id]?.[budget][0] ?? 0), 0);
  const needs = alive.map((worker) =>
    worker.worker_id === worker_id ? want.need : (worker.shares[partner_id]?.[budget][1] ?? 0),
  );
  const even = evenParts(want.cap, needs, turn);
  const mine = even[alive.findIndex((worker) => worker.worker_id === worker_id)] ?? 0;
  return Math.max(want.inUse, Math.min(mine, want.cap - taken));
}

/**
 * Parts of `cap` for these needs: nobody gets more than it needs, what one leaves goes to the others, and a remainder that does
 * not divide goes round by `turn`. Pure.
 */
export function evenParts(cap: number, needs: readonly number[], turn: number): number[] {
  const parts = needs.map(() => 0);
  let left = cap;
  for (;;) {
    const hungry = needs.flatMap((need, index) => (need > (parts[index] ?? 0) ? [index] : []));
    if (left === 0 || hungry.length === 0) return parts;
    if (left < hungry.length) {
      for (let taken = 0; taken < left; taken += 1) {
        const index = hungry[(turn + taken) % hungry.length] ?? 0;
        parts[index] = (parts[index] ?? 0) + 1;
      }
      return parts;
    }
    const each = Math.floor(left / hungry.length);
    for (const index of hungry) {
      const more = Math.min(each, (needs[index] ?? 0) - (parts[index] ?? 0));
      parts[index] = (parts[index] ?? 0) + more;
      left -= more;
    }
  }
}

/** An adopted payment, and how long ago the partner accepted it by the database's clock; null when it has not. */
export type AdoptedRow = PaymentRow & { readonly accepted_age_ms: number | null };

/** Owners in flight are found by stepping from one to the next in the index: as many probes as owners, however many payments. */
const adoptStatement = sql(
  'payment_adopt',
  `WITH RECURSIVE owners (owner) AS (
     (SELECT owner FROM duebridge_platform.payments WHERE settled_at IS NULL AND owner IS NOT NULL ORDER BY owner LIMIT 1)
     UNION ALL
     SELECT (SELECT p.owner FROM duebridge_platform.payments p WHERE p.settled_at IS NULL AND p.owner > o.owner ORDER BY p.owner LIMIT 1)
       FROM owners o WHERE o.owner IS NOT NULL
   ), dead AS (
     SELECT o.owner FROM owners o
      WHERE o.owner IS NOT NULL AND o.owner <> $1
        AND NOT EXISTS (SELECT 1 FROM duebridge_platform.workers w
                         WHERE w.worker_id = o.owner AND ${isAlive('w.heartbeat_at', '$2')})
   ), orphans AS (
     (SELECT d.platform_payment_id FROM duebridge_platform.payments d
       WHERE d.settled_at IS NULL AND d.owner IN (SELECT owner FROM dead) LIMIT $3)
     UNION ALL
     (SELECT n.platform_payment_id FROM duebridge_platform.payments n
       WHERE n.settled_at IS NULL AND n.owner IS NULL AND n.stage <> 'review' LIMIT $3)
   )
   UPDATE duebridge_platform.payments AS p SET owner = $1
    WHERE p.platform_payment_id IN (SELECT platform_payment_id FROM orphans)
      AND p.settled_at IS NULL AND p.stage <> 'review'
      AND (p.owner IS NULL OR p.owner IN (SELECT owner FROM dead))
   RETURNING ${PAYMENT_COLUMNS}, (extract(epoch FROM clock_timestamp() - p.accepted_at) * 1000)::bigint AS accepted_age_ms`,
);

/** Payments adopted by one statement at most: each is a row to read and to hold in memory at once. */
export const ADOPT_AT_ONCE = 5_000;

/** Takes over payments that nobody living drives, at most ADOPT_AT_ONCE of each kind; call again until it gives none. */
export function adopt(on: Queryable, worker_id: string, leaseMs: number): Promise<AdoptedRow[]> {
  return on.query<AdoptedRow>(adoptStatement, [worker_id, leaseMs, ADOPT_AT_ONCE]);
}

const ownedStatement = sql(
  'payment_owned',
  'SELECT platform_payment_id FROM duebridge_platform.payments WHERE owner = $1 AND settled_at IS NULL',
);

/** The ids of all that this worker drives by the record: up to a million, so only for when its memory may differ. */
export async function ownedIds(on: Queryable, worker_id: string): Promise<string[]> {
  const rows = await on.query<{ platform_payment_id: string }>(ownedStatement, [worker_id]);
  return rows.map((row) => row.platform_payment_id);
}

/** A graceful end: what this worker drives is anybody's again, and it leaves the list. */
export async function release(database: Database, worker_id: string): Promise<void> {
  await database.query(
    'UPDATE duebridge_platform.payments SET owner = NULL WHERE owner = $1 AND settled_at IS NULL',
    [worker_id],
  );
  await removeWorker(database, worker_id);
}

/** Takes long dead workers off the list; adoption does not need their rows. */
export async function forgetDeadWorkers(on: Queryable, leaseMs: number): Promise<void> {
  await on.query(
    sql(
      'worker_forget',
      `DELETE FROM duebridge_platform.workers WHERE NOT (${isAlive('heartbeat_at', '10 * $1')})`,
    ),
    [leaseMs],
  );
}
