/**
 * Retention: removes personal data whose time is over, expired tokens and sessions, flows without a payment, old mails, and the evidence
 * of payments settled long ago. The payments themselves stay forever.
 */
import { sql, type Clock, type Database, type Log, type Statement } from '@duebridge/runtime';

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

/** Personal data whose time is over: of one who only looked, a day after the token; of one who paid, DUEBRIDGE_RETENTION_DAYS. */
const selectCustomers = sql(
  'retention_select_customers',
  `SELECT customer_id FROM duebridge_platform.customers WHERE erase_after < now() LIMIT ${ROWS_PER_STATEMENT}`,
);
/**
 * Which visit a payment came from matters as long as its customer can be found, except for the latest of a flow, on which later sessions
 * of the flow stand. First, so that a sweep that ends here leaves no row that nothing would find again.
 */
const removeFlowPayments = sql(
  'retention_flow_payments',
  `DELETE FROM duebridge_platform.flow_payments fp WHERE fp.customer_id = ANY($1::uuid[]) AND NOT EXISTS
     (SELECT 1 FROM duebridge_platform.flows f WHERE f.flow_id = fp.flow_id AND f.latest_payment_id = fp.platform_payment_id)`,
);
const removeCustomers = sql(
  'retention_customers',
  'DELETE FROM duebridge_platform.customers WHERE customer_id = ANY($1::uuid[]) AND erase_after < now() RETURNING 1',
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

/**
 * Removes the rows of a table that a condition holds for, some at a time; it is looked at again when each row goes. `act` is the beginning of
 * the statement in full, because the documented grants are read off the texts.
 */
function removing(act: `DELETE FROM duebridge_platform.${string}`, key: string, condition: string) {
  const from = act.slice('DELETE '.length);
  return rowsOf(
    sql(
      `retention_${from.split('.')[1]}`,
      `${act} WHERE ${condition} AND ${key} IN (SELECT ${key} ${from} WHERE ${condition} LIMIT ${ROWS_PER_STATEMENT}) RETURNING 1`,
    ),
  );
}

/** What leaves, with what removes some of it and gives the number of rows. */
const LEAVING = {
  async customers(database: Database): Promise<number> {
    const rows = await database.query<{ customer_id: string }>(selectCustomers);
    const ids = rows.map(({ customer_id }) => customer_id);
    if (ids.length === 0) return 0;
    await database.query(removeFlowPayments, [ids]);
    return (await database.query(removeCustomers, [ids])).length;
  },
  // A day after their end: until then a token is reported as expired, which a page can fix by itself,
  tokens: removing(
    'DELETE FROM duebridge_platform.tokens',
    'token_hash',
    "expires_at < now() - interval '1 day'",
  ),
  // and a page may continue a session under a new token.
  sessions: removing(
    'DELETE FROM duebridge_platform.sessions',
    'session_hash',
    "expires_at < now() - interval '1 day'",
  ),
  // Nothing was paid in them: two days after their page was open, when no session can stand on them.
  flows: removing(
    'DELETE FROM duebridge_platform.flows',
    'flow_id',
    "latest_payment_id IS NULL AND (minted_at < now() - interval '2 days' OR minted_at IS NULL)",
  ),
  mails: rowsOf(removeMails),
  attempts: rowsOf(removeAttempts),
  sums: rowsOf(removeSums),
  // Who asks what was answered asks about the last days.
  answers: removing(
    'DELETE FROM duebridge_platform.answers',
    'ctid',
    "hour < now() - interval '30 days'",
  ),
} as const;

function rowsOf(statement: Statement): (database: Database) => Promise<number> {
  return async (database) => (await database.query(statement)).length;
}

/** One sweep. Gives the rows that it removed of each kind. Any number of replicas may sweep at once. */
export async function forget(database: Database): Promise<Record<keyof typeof LEAVING, number>> {
  const removed: [string, number][] = [];
  for (const [kind, remove] of Object.entries(LEAVING)) {
    let rows = 0;
    for (let batch = 0; batch < MAX_STATEMENTS; batch += 1) {
      const done = await remove(database);
      rows += done;
      if (done < ROWS_PER_STATEMENT) break;
    }
    removed.push([kind, rows]);
  }
  return Object.fromEntries(removed) as Record<keyof typeof LEAVING, number>;
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
