/**
 * The list of workers: one row each as proof of life (PL9, PL10, F84-F87).
 *
 * A dead worker is detected by the age of its heartbeat in the database's time. A worker that merely cannot reach the database
 * detects this by its own monotonic clock before the others do (lease.ts). It then drops everything and restarts as another worker;
 * writes that the old one still had in flight fail at the fence.
 */
import { sql, type Clock, type Database } from '@duebridge/runtime';
import type { Queryable } from '../store/payments.ts';

/**
 * The database's time as this process knows it: learned at every heartbeat, carried on by the monotonic clock in between, so that a
 * step of the wall clock does not show in it (EE7). Statements take it as a parameter, because a sharded PostgreSQL refuses the
 * clock's own function in an UPDATE.
 */
export class DatabaseTime {
  readonly #clock: Clock;
  #aheadMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#aheadMs = clock.now() - clock.monotonic();
  }

  /** Runs a statement that sets a heartbeat to the database's time, and records the time; that time lies between our two clock readings. */
  async learn<Row extends { readonly heartbeat_at: string }>(
    run: () => Promise<Row[]>,
  ): Promise<Row[]> {
    const before = this.#clock.monotonic();
    const rows = await run();
    const after = this.#clock.monotonic();
    const [row] = rows;
    if (row !== undefined) this.#aheadMs = Date.parse(row.heartbeat_at) - (before + after) / 2;
    return rows;
  }

  /** As a text for a parameter. */
  now(): string {
    return new Date(this.#clock.monotonic() + this.#aheadMs).toISOString();
  }
}

/** Puts a new worker on the list. */
export async function registerWorker(
  database: Database,
  worker_id: string,
  time?: DatabaseTime,
): Promise<void> {
  // The column, not now(): a sharded database calls no function of time in RETURNING.
  const run = (): Promise<{ heartbeat_at: string }[]> =>
    database.query(
      'INSERT INTO duebridge_platform.workers (worker_id) VALUES ($1) RETURNING heartbeat_at',
      [worker_id],
    );
  await (time === undefined ? run() : time.learn(run));
}

/**
 * Renews the heartbeat: one statement that waits for no other worker. False when the lease has run out: others may have taken
 * over already.
 */
export async function renewHeartbeat(
  database: Database,
  worker_id: string,
  leaseMs: number,
  time: DatabaseTime,
): Promise<boolean> {
  const rows = await time.learn(() =>
    database.query<{ heartbeat_at: string }>(renewStatement, [worker_id, leaseMs]),
  );
  return rows.length > 0;
}

const renewStatement = sql(
  'worker_renew',
  `UPDATE duebridge_platform.workers SET heartbeat_at = now()
    WHERE worker_id = $1
      AND heartbeat_at > now() - $2 * interval '1 millisecond'
      AND heartbeat_at <= now() + $2 * interval '1 millisecond'
  RETURNING heartbeat_at`,
);

/** Removes a worker from the list: anybody may take what names it as its owner. */
export async function removeWorker(database: Database, worker_id: string): Promise<void> {
  await database.query(
    sql('worker_remove', 'DELETE FROM duebridge_platform.workers WHERE worker_id = $1'),
    [worker_id],
  );
}

/** Removes workers that died long ago from the list; takeover does not need their rows. */
export async function forgetDeadWorkers(on: Queryable, leaseMs: number): Promise<void> {
  await on.query(
    sql(
      'worker_forget',
      // A heartbeat from further ahead was written before the clock stepped back and proves nothing (EE7).
      `DELETE FROM duebridge_platform.workers
        WHERE heartbeat_at <= now() - 10 * $1 * interval '1 millisecond'
           OR heartbeat_at > now() + 10 * $1 * interval '1 millisecond'`,
    ),
    [leaseMs],
  );
}
