/**
 * Retention: erases personal data whose retention period is over, and removes expired tokens and sessions and the evidence of
 * payments settled long ago. The payments themselves stay forever.
 */
import { sql, type Clock, type Database, type Log } from '@duebridge/runtime';

/** Interval between sweeps: data is kept up to this much longer than promised. */
const SWEEP_EVERY_MS = 60 * 60 * 1000;
/** Rows per statement, to stay far below the statement time limit. */
const ROWS_PER_STATEMENT = 5_000;
/** Statements per sweep at most; the rest waits for the next sweep. */
const MAX_STATEMENTS = 200;
/**
 * How long the evidence of a payment is kept after it was settled, in days. Customers may dispute a card payment for 120 days, and the
 * partner is asked what it answered some weeks after that.
 */
export const ATTEMPT_DAYS = 180;

const erase = sql(
  'retention_erase',
  `UPDATE duebridge_platform.customers SET sealed = NULL, email_digest = NULL, erased_at = now()
    WHERE customer_id IN (SELECT customer_id FROM duebridge_platform.customers
                           WHERE erased_at IS NULL AND erase_after < now() LIMIT ${ROWS_PER_STATEMENT})
   RETURNING 1`,
);
/** A day after their end: until then a token is reported as expired, which a page can fix by itself. */
const removeTokens = sql(
  'retention_tokens',
  `DELETE FROM duebridge_platform.tokens WHERE token_hash IN
     (SELECT token_hash FROM duebridge_platform.tokens WHERE expires_at < now() - interval '1 day' LIMIT ${ROWS_PER_STATEMENT})
   RETURNING 1`,
);
/** A day after their end: until then a page may continue one under a new token. */
const removeSessions = sql(
  'retention_sessions',
  `DELETE FROM duebridge_platform.sessions WHERE session_hash IN
     (SELECT session_hash FROM duebridge_platform.sessions WHERE expires_at < now() - interval '1 day' LIMIT ${ROWS_PER_STATEMENT})
   RETURNING 1`,
);
/**
 * Reads `attempts` in the order of its primary key, which starts with a UUIDv7 and so with the time at which the payment was made: the
 * oldest come first, and the scan ends before payments that are too young to have been settled so long ago. The settlement is a scalar
 * subquery because PostgreSQL could turn a join into a merge that reads every payment ever made; ARRAY keeps the delete on the key too.
 * A payment that is not settled keeps its evidence, however old it is.
 */
const removeAttempts = sql(
  'retention_attempts',
  `DELETE FROM duebridge_platform.attempts WHERE platform_payment_id = ANY(ARRAY
     (SELECT a.platform_payment_id FROM duebridge_platform.attempts a
       WHERE a.platform_payment_id < (SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-000000000000'
               FROM lpad(to_hex((extract(epoch FROM now() - interval '${ATTEMPT_DAYS} days') * 1000)::bigint), 12, '0') AS h)
         AND (SELECT p.settled_at FROM duebridge_platform.payments p WHERE p.platform_payment_id = a.platform_payment_id)
             < now() - interval '${ATTEMPT_DAYS} days'
       ORDER BY a.platform_payment_id LIMIT ${ROWS_PER_STATEMENT}))
   RETURNING 1`,
);

/** What one sweep erased (customers) and removed, in rows. */
interface Forgotten {
  readonly customers: number;
  readonly tokens: number;
  readonly sessions: number;
  readonly attempts: number;
}

/** One sweep. Any number of replicas may sweep at once. */
export async function forget(database: Database): Promise<Forgotten> {
  const drain = async (statement: typeof erase): Promise<number> => {
    let rows = 0;
    for (let batch = 0; batch < MAX_STATEMENTS; batch += 1) {
      const done = (await database.query(statement)).length;
      rows += done;
      if (done < ROWS_PER_STATEMENT) break;
    }
    return rows;
  };
  return {
    customers: await drain(erase),
    tokens: await drain(removeTokens),
    sessions: await drain(removeSessions),
    attempts: await drain(removeAttempts),
  };
}

/** Sweeps every hour until `signal` aborts, then resolves. */
export async function keepForgetting(options: {
  database: Database;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}): Promise<void> {
  const { database, clock, log, signal } = options;
  while (!signal.aborted) {
    try {
      log.debug(await forget(database), 'retention sweep done');
    } catch (error) {
      log.warn({ error }, 'retention sweep failed');
    }
    await clock.sleep(SWEEP_EVERY_MS, signal);
  }
}
