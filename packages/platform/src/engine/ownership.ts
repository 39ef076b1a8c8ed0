/**
 * The list of workers: one row each as proof of life (PL9, PL10, F84-F87).
 *
 * A dead worker is detected by the age of its heartbeat in the database's time. A worker that merely cannot reach the database
 * detects this by its own monotonic clock before the others do (lease.ts). It then drops everything and restarts as another worker;
 * writes that the old one still had in flight fail at the fence.
 */
import { sql, type Clock, type Database } from '@duebridge/runtime';

// The column, not now(): a sharded database calls no function of time in RETURNING.
const registerStatement = sql(
  'INSERT INTO duebridge_platform.workers (worker_id) VALUES ($1) RETURNING heartbeat_at',
);

const renewStatement = sql(
  'worker_renew',
  `UPDATE duebridge_platform.workers SET heartbeat_at = now()
    WHERE worker_id = $1
      AND heartbeat_at > now() - $2 * interval '1 millisecond'
      AND heartbeat_at <= now() + $2 * interval '1 millisecond'
  RETURNING heartbeat_at`,
);

const removeStatement = sql(`DELETE FROM duebridge_platform.workers WHERE worker_id = $1`);

const forgetStatement = sql(
  // A heartbeat from further ahead was written before the clock stepped back and proves nothing (EE7).
  `DELETE FROM duebridge_platform.workers
    WHERE heartbeat_at <= now() - 10 * $1 * interval '1 millisecond'
       OR heartbeat_at > now() + 10 * $1 * interval '1 millisecond'`,
);

/** The list, as one process uses it. */
export class WorkerList {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /**
   * How far the database's time is ahead of our monotonic clock: learned at every heartbeat, so that a step of the wall clock does not
   * show in it (EE7).
   */
  #aheadMs: number;

  constructor(database: Database, clock: Clock, leaseMs: number) {
    this.#database = database;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#aheadMs = clock.now() - clock.monotonic();
  }

  /**
   * The database's time as this process knows it, as a text for a parameter: a sharded PostgreSQL refuses the clock's own function in an
   * UPDATE.
   */
  now(): string {
    return new Date(this.#clock.monotonic() + this.#aheadMs).toISOString();
  }

  /** Puts a new worker on the list, and takes those off that died long ago: a takeover does not need their rows. */
  async register(worker_id: string): Promise<void> {
    await this.#beat(() => this.#database.query(registerStatement, [worker_id]));
    await this.#database.query(forgetStatement, [this.#leaseMs]);
  }

  /**
   * Renews the heartbeat: one statement that waits for no other worker. False when the lease has run out: others may have taken
   * over already.
   */
  renew(worker_id: string): Promise<boolean> {
    return this.#beat(() => this.#database.query(renewStatement, [worker_id, this.#leaseMs]));
  }

  /** Runs a statement that sets a heartbeat to the database's time, which lies between our two clock readings. True if it set one. */
  async #beat(run: () => Promise<{ readonly heartbeat_at: string }[]>): Promise<boolean> {
    const before = this.#clock.monotonic();
    const [row] = await run();
    if (row === undefined) return false;
    this.#aheadMs = Date.parse(row.heartbeat_at) - (before + this.#clock.monotonic()) / 2;
    return true;
  }

  /** Removes a worker from the list: anybody may take what names it as its owner. */
  async remove(worker_id: string): Promise<void> {
    await this.#database.query(removeStatement, [worker_id]);
  }
}
