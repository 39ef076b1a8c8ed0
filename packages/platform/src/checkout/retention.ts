/**
 * Retention: removes personal data whose time is over, expired tokens and sessions, flows without a payment, old mails, and the evidence
 * of payments settled long ago. The payments themselves stay forever.
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
/** A customer who asks whether a mail was sent asks within a month. */
export const MAIL_DAYS = 60;

/** SQL: the smallest id of the moment so many days ago. */
function idDaysAgo(days: number): string {
  return `(SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-000000000000'
               FROM lpad(to_hex((extract(epoch FROM now() - interval '${days} days') * 1000)::bigint), 12, '0') AS h)`;
}

/** Personal data: of one who only looked, a day after the token; of one who paid, DUEBRIDGE_RETENTION_DAYS. Nothing stays of it. */
const removeCustomers = sql(
  'retention_customers',
  `DELETE FROM duebridge_platform.customers WHERE customer_id IN
     (SELECT customer_id FROM duebridge_platform.customers WHERE erase_after < now() LIMIT ${ROWS_PER_STATEMENT})
   RETURNING 1`,
);
/** Flows in which nothing was paid: two days after their page was open, when no session can stand on them. */
const removeFlows = sql(
  'retention_flows',
  `DELETE FROM duebridge_platform.flows WHERE latest_payment_id IS NULL AND flow_id IN
     (SELECT flow_id FROM duebridge_platform.flows
       WHERE latest_payment_id IS NULL AND (minted_at < now() - interval '2 days' OR minted_at IS NULL) LIMIT ${ROWS_PER_STATEMENT})
   RETURNING 1`,
);
/** Mails that were sent or given up; in the order of the key, which is that of time. */
const removeMails = sql(
  'retention_mails',
  `DELETE FROM duebridge_platform.mails WHERE platform_payment_id = ANY(ARRAY
     (SELECT m.platform_payment_id FROM duebridge_platform.mails m
       WHERE m.platform_payment_id < ${idDaysAgo(MAIL_DAYS)}
         AND (m.sent_at IS NOT NULL OR m.given_up_at IS NOT NULL)
       ORDER BY m.platform_payment_id LIMIT ${ROWS_PER_STATEMENT}))
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
       WHERE a.platform_payment_id < ${idDaysAgo(ATTEMPT_DAYS)}
         AND (SELECT p.settled_at FROM duebridge_platform.payments p WHERE p.platform_payment_id = a.platform_payment_id)
             < now() - interval '${ATTEMPT_DAYS} days'
       ORDER BY a.platform_payment_id LIMIT ${ROWS_PER_STATEMENT}))
   RETURNING 1`,
);

/** The console shows a week. */
const removeSums = sql(
  'retention_sums',
  `DELETE FROM duebridge_platform.hourly_sums WHERE hour < now() - interval '30 days' RETURNING 1`,
);

/** What leaves, and the statement that removes some of it. */
const LEAVING = {
  customers: removeCustomers,
  tokens: removeTokens,
  sessions: removeSessions,
  flows: removeFlows,
  mails: removeMails,
  attempts: removeAttempts,
  sums: removeSums,
} as const;

/** One sweep. Gives the rows that it removed of each kind. Any number of replicas may sweep at once. */
export async function forget(database: Database): Promise<Record<keyof typeof LEAVING, number>> {
  const removed = {
    customers: 0,
    tokens: 0,
    sessions: 0,
    flows: 0,
    mails: 0,
    attempts: 0,
    sums: 0,
  };
  for (const kind of Object.keys(removed) as (keyof typeof LEAVING)[]) {
    for (let batch = 0; batch < MAX_STATEMENTS; batch += 1) {
      const done = (await database.query(LEAVING[kind])).length;
      removed[kind] += done;
      if (done < ROWS_PER_STATEMENT) break;
    }
  }
  return removed;
}

/** Sweeps every hour, and does what else is due hourly, until `signal` aborts, then resolves. */
export async function keepForgetting(options: {
  database: Database;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  alsoHourly: () => Promise<void>;
}): Promise<void> {
  const { database, clock, log, signal, alsoHourly } = options;
  while (!signal.aborted) {
    try {
      log.debug(await forget(database), 'retention sweep done');
    } catch (error) {
      log.warn({ error }, 'retention sweep failed');
    }
    await alsoHourly();
    await clock.sleep(SWEEP_EVERY_MS, signal);
  }
}
