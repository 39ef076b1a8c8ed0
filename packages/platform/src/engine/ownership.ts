/**
 * The list of workers: one row each as proof of life (P9, P10, F84-F87).
 *
 * A worker that dies is noticed by the age of its heartbeat in the database's time; a worker that merely cannot reach the database
 * notices itself, by its own monotonic clock, before the others do (lease.ts). It then drops all it held and comes back as another
 * worker: whatever the old one still had under way meets a fence that no longer matches.
 */
import { sql, type Database } from '@duebridge/runtime';
import type { Queryable } from '../store/payments.ts';

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

/** Takes long dead workers off the list; taking over does not need their rows. */
export async function forgetDeadWorkers(on: Queryable, leaseMs: number): Promise<void> {
  await on.query(
    sql(
      'worker_forget',
      // A heartbeat from further ahead was written before the clock stepped back and proves nothing (E7).
      `DELETE FROM duebridge_platform.workers
        WHERE heartbeat_at <= now() - 10 * $1 * interval '1 millisecond'
           OR heartbeat_at > now() + 10 * $1 * interval '1 millisecond'`,
    ),
    [leaseMs],
  );
}
