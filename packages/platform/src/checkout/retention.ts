/**
 * Retention: removes what its time is over for, by one table that operations.md is printed from. The payments themselves stay.
 */
import { sql, type Database } from '@duebridge/runtime';
import { ASK_DAYS } from '../store/asks.ts';

/** Rows per statement, to stay far below the statement time limit. */
const ROWS_PER_STATEMENT = 5_000;
/** Statements per sweep at most, of each kind; the rest waits for the next sweep. */
const MAX_STATEMENTS = 200;
/** Pause between two statements of a sweep, in which payments have the disk for themselves. */
export const REST_MS = 100;
/**
 * How long the evidence of a payment is kept after it was settled, in days. Customers may dispute a card payment for 120 days, and the
 * partner is asked what it answered some weeks after that.
 */
export const ATTEMPT_DAYS = 180;
/** A customer who asks whether a mail was sent asks within a month; a processor that sends an event again does so within one as well. */
export const MAIL_DAYS = 60;
/** Who asks what Create Token answered asks about the last days, and the console's figures show a week. */
const COUNT_DAYS = 30;

/** What leaves, and when, as operations.md says it; `remove` gives the number of rows: fewer than ROWS_PER_STATEMENT, and that was all. */
interface Leaving {
  readonly what: string;
  readonly leaves: string;
  readonly remove: (database: Database) => Promise<number>;
}

/**
 * Removes the rows of a table that a condition holds for, some at a time; it is looked at again when each row goes. `act` is the beginning of
 * the statement in full, because the documented grants are read off the texts. `order`: that of the index that finds the oldest rows.
 */
function removing(
  what: string,
  leaves: string,
  act: `DELETE FROM duebridge_platform.${string}`,
  key: string,
  condition: string,
  order = '',
): Leaving {
  const from = act.slice('DELETE '.length);
  const statement = sql(`
     ${act} t WHERE ${condition} AND ${key} = ANY(ARRAY(SELECT ${key} ${from} t WHERE ${condition} ${order} LIMIT ${ROWS_PER_STATEMENT}))
     RETURNING 1`);
  return {
    what,
    leaves,
    remove: async (database) => (await database.query(statement)).length,
  };
}

/** Whether an instant is so many days ago. */
const isPast = (column: string, days: number): string =>
  `${column} < now() - interval '${days} days'`;
/** The same of the instant in a payment's id. */
const wasMadeBefore = (days: number): string =>
  `t.platform_payment_id < duebridge_platform.first_id(now() - interval '${days} days')`;

const selectCustomers = sql(`
   SELECT customer_id FROM duebridge_platform.customers WHERE erase_after < now() LIMIT ${ROWS_PER_STATEMENT}`);
const removeFlowPayments = sql(`
   DELETE FROM duebridge_platform.flow_payments fp WHERE fp.customer_id = ANY($1::uuid[]) AND NOT EXISTS
     (SELECT 1 FROM duebridge_platform.flows f WHERE f.flow_id = fp.flow_id AND f.latest_payment_id = fp.platform_payment_id)`);
const removeSelected = sql(`
   DELETE FROM duebridge_platform.customers WHERE customer_id = ANY($1::uuid[]) AND erase_after < now() RETURNING 1`);
/**
 * Which visit a payment came from matters as long as its customer can be found, except for the latest of a flow, on which later sessions
 * of the flow stand. First, so that a sweep that ends here leaves no row that nothing would find again.
 */
async function removeCustomers(database: Database): Promise<number> {
  const rows = await database.query<{ customer_id: string }>(selectCustomers);
  const ids = rows.map(({ customer_id }) => customer_id);
  if (ids.length === 0) return 0;
  await database.query(removeFlowPayments, [ids]);
  return (await database.query(removeSelected, [ids])).length;
}

export const LEAVING = {
  customers: {
    what: 'personal data (one sealed row for each token), and the visit that a payment came from but for the latest of a customer at an account',
    leaves: 'a day after a visit without a payment, otherwise `DUEBRIDGE_RETENTION_DAYS`',
    remove: removeCustomers,
  },
  // Until then an expired token is reported as expired, which a page can fix by itself,
  tokens: removing(
    'tokens',
    'a day after they end',
    'DELETE FROM duebridge_platform.tokens',
    'token_hash',
    isPast('expires_at', 1),
  ),
  // and a page may continue a session under a new token.
  sessions: removing(
    'sessions',
    'a day after they end',
    'DELETE FROM duebridge_platform.sessions',
    'session_hash',
    isPast('expires_at', 1),
  ),
  // When no session can stand on them.
  flows: removing(
    'flows in which nothing was paid',
    'two days after their page was opened',
    'DELETE FROM duebridge_platform.flows',
    'flow_id',
    `latest_payment_id IS NULL AND (${isPast('minted_at', 2)} OR minted_at IS NULL)`,
  ),
  mails: removing(
    'mails (one that is a day late is not sent)',
    `${MAIL_DAYS} days after the end or the refund that they report`,
    'DELETE FROM duebridge_platform.mails',
    'platform_payment_id',
    `${wasMadeBefore(MAIL_DAYS)} AND ${isPast('t.queued_at', MAIL_DAYS)}`,
    'ORDER BY t.platform_payment_id',
  ),
  events: removing(
    'which events of payment processors have come',
    `${MAIL_DAYS} days after them`,
    'DELETE FROM duebridge_platform.funding_events',
    't.event_id',
    isPast('t.received_at', MAIL_DAYS),
  ),
  /**
   * In the order of the primary key, which starts with a UUIDv7 and so with the time at which the payment was made: the oldest come first, and
   * the scan ends before payments that are too young to have been settled so long ago. The settlement is a scalar subquery because
   * PostgreSQL could turn a join into a merge that reads every payment ever made.
   */
  attempts: removing(
    "the partner's answers to attempts (sealed)",
    `${ATTEMPT_DAYS} days after the payment was settled, or all of its month where that is in files; never before`,
    'DELETE FROM duebridge_platform.attempts',
    't.platform_payment_id',
    `${wasMadeBefore(ATTEMPT_DAYS)} AND ${isPast(
      '(SELECT p.settled_at FROM duebridge_platform.payments p WHERE p.platform_payment_id = t.platform_payment_id)',
      ATTEMPT_DAYS,
    )}`,
    'ORDER BY t.platform_payment_id',
  ),
  asks: removing(
    'what waited for a second person',
    `${ASK_DAYS} days after it was asked for`,
    'DELETE FROM duebridge_platform.asks',
    't.subject',
    isPast('t.asked_at', ASK_DAYS),
  ),
  sums: removing(
    'sums of the figures, by hour',
    `${COUNT_DAYS} days later`,
    'DELETE FROM duebridge_platform.ended_counts',
    't.hour',
    isPast('t.hour', COUNT_DAYS),
  ),
  answers: removing(
    'what Create Token answered, counted by hour',
    `${COUNT_DAYS} days later`,
    'DELETE FROM duebridge_platform.answers',
    't.ctid',
    isPast('t.hour', COUNT_DAYS),
  ),
} as const satisfies Readonly<Record<string, Leaving>>;

/**
 * One sweep; `rest` is waited for between two statements. Gives the rows that it removed of each kind. Any number of replicas may sweep at once.
 */
export async function forget(
  database: Database,
  rest: () => Promise<void> = () => Promise.resolve(),
): Promise<Record<keyof typeof LEAVING, number>> {
  const removed: [string, number][] = [];
  for (const [kind, { remove }] of Object.entries(LEAVING)) {
    let rows = 0;
    for (let batch = 0; batch < MAX_STATEMENTS; batch += 1) {
      const done = await remove(database);
      rows += done;
      if (done < ROWS_PER_STATEMENT) break;
      await rest();
    }
    removed.push([kind, rows]);
  }
  return Object.fromEntries(removed) as Record<keyof typeof LEAVING, number>;
}
