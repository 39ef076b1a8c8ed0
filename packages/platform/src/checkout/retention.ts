/**
 * Forgetting: personal data that has served its time is erased, tokens and sessions that have ended are removed. The facts of
 * payments stay (reliability 4.5).
 */
import { sql, type Clock, type Database, type Log } from '@duebridge/runtime';

/** How often to look: data is kept up to this much longer than promised. */
const everyMs = 60 * 60 * 1000;
/** Rows of one statement: it stays far below the statement time limit. */
const batchRows = 5_000;
/** Statements of one look at most; what is left waits for the next. */
const maxBatches = 200;

const erase = sql(
  'retention_erase',
  `UPDATE duebridge_platform.customers SET sealed = NULL, email_digest = NULL, erased_at = now()
    WHERE customer_id IN (SELECT customer_id FROM duebridge_platform.customers
                           WHERE erased_at IS NULL AND erase_after < now() LIMIT ${batchRows})
   RETURNING 1`,
);
/** A day after their end: until then a token is still told to have expired, which a page can mend by itself. */
const removeTokens = sql(
  'retention_tokens',
  `DELETE FROM duebridge_platform.tokens WHERE token_hash IN
     (SELECT token_hash FROM duebridge_platform.tokens WHERE expires_at < now() - interval '1 day' LIMIT ${batchRows})
   RETURNING 1`,
);
/** A day after their end: until then a page may continue one under a new token. */
const removeSessions = sql(
  'retention_sessions',
  `DELETE FROM duebridge_platform.sessions WHERE session_hash IN
     (SELECT session_hash FROM duebridge_platform.sessions WHERE expires_at < now() - interval '1 day' LIMIT ${batchRows})
   RETURNING 1`,
);

/** One look. Gives how many customers were erased, and tokens and sessions removed. Any number of replicas may look at once. */
export async function forget(
  database: Database,
): Promise<{ customers: number; tokens: number; sessions: number }> {
  const drain = async (statement: typeof erase): Promise<number> => {
    let rows = 0;
    for (let batch = 0; batch < maxBatches; batch += 1) {
      const done = (await database.query(statement)).length;
      rows += done;
      if (done < batchRows) break;
    }
    return rows;
  };
  return {
    customers: await drain(erase),
    tokens: await drain(removeTokens),
    sessions: await drain(removeSessions),
  };
}

/** Looks every hour until `signal` aborts; resolves then. */
export async function keepForgetting(options: {
  database: Database;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}): Promise<void> {
  const { database, clock, log, signal } = options;
  while (!signal.aborted) {
    try {
      log.debug(await forget(database), 'looked for what is to be forgotten');
    } catch (error) {
      log.warn({ error }, 'what is to be forgotten could not be looked for');
    }
    await clock.sleep(everyMs, signal);
  }
}
