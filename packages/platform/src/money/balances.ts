/**
 * The balances of the book, by biller: of one day, or since the book began.
 *
 * enters: the book, of which the days that are over are added up once.  leaves: what each biller's accounts hold.
 * holds:  a day is added up when nothing is booked for it any more; what is later is read from the book, by its index of days, so that the
 *         hourly check of three years reads a few days.
 */
import { type MoneyBalances } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { PLACES, SOURCES, type BookAccount } from '../store/money-book.ts';
import type { Queryable } from '../store/payments.ts';

/** Both sides of each transfer: debits add, credits take. */
const sides = (where: string): string =>
  `SELECT t.partner_id, t.biller_id, t.debit AS account, sum(t.amount_in_cents) AS cents
     FROM duebridge_platform.transfers t WHERE ${where} GROUP BY 1, 2, 3
   UNION ALL
   SELECT t.partner_id, t.biller_id, t.credit, -sum(t.amount_in_cents)
     FROM duebridge_platform.transfers t WHERE ${where} GROUP BY 1, 2, 3`;

const shown = (rows: string): string =>
  `SELECT r.mode, s.partner_id, s.biller_id, s.account, sum(s.cents)::bigint AS cents
     FROM (${rows}) AS s JOIN duebridge_platform.partners r USING (partner_id)
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`;
const SUMMED_TO = '(SELECT summed_to FROM duebridge_platform.book_progress)';
const dayStatement = sql(shown(sides('t.day = $1::date')));
const allStatement = sql(
  shown(
    `SELECT partner_id, biller_id, account, cents FROM duebridge_platform.book_sums UNION ALL ${sides(`t.day > ${SUMMED_TO}`)}`,
  ),
);

/** The balances of every biller: of one day, or since the book began. */
export async function readBalances(on: Queryable, day?: string): Promise<MoneyBalances[]> {
  type Row = Pick<MoneyBalances, 'mode' | 'partner_id' | 'biller_id'> & {
    readonly account: BookAccount;
    readonly cents: number;
  };
  const rows =
    day === undefined
      ? await on.query<Row>(allStatement)
      : await on.query<Row>(dayStatement, [day]);
  const billers = new Map<string, MoneyBalances>();
  for (const { mode, partner_id, biller_id, account, cents } of rows) {
    const key = `${partner_id} ${biller_id}`;
    const one = billers.get(key) ?? { mode, partner_id, biller_id, ...noMoney() };
    // Sources grow by debits, places by credits: both are shown as positive amounts.
    one[account] = account in SOURCES ? cents : 0 - cents;
    billers.set(key, one);
  }
  return [...billers.values()];
}

/** Every account, empty. */
export function noMoney(): Record<BookAccount, number> {
  const accounts = [...Object.keys(SOURCES), ...Object.keys(PLACES)] as BookAccount[];
  return Object.fromEntries(accounts.map((one) => [one, 0])) as Record<BookAccount, number>;
}

/** Where the money came from less where it is: zero, or the book is broken. Pure. */
export function outOfBalance(one: Record<BookAccount, number>): number {
  const sum = (accounts: object): number =>
    Object.keys(accounts).reduce((total, account) => total + one[account as BookAccount], 0);
  return sum(SOURCES) - sum(PLACES);
}

/** Days after which nothing is booked for a day: statements book the day on which they run, by the clocks of the replicas. */
const SUMMED_AFTER_DAYS = 3;
/** The last day that is over, when it is not added up yet. A replica whose clock is fast would close days that are still booked. */
const holdStatement = sql(`
   SELECT o.day::text AS day
     FROM duebridge_platform.book_progress b, (SELECT (least($1::timestamptz, now()) AT TIME ZONE 'UTC')::date - ${SUMMED_AFTER_DAYS} AS day) AS o
    WHERE b.one AND b.summed_to < o.day FOR UPDATE OF b`);
const addStatement = sql(`
   INSERT INTO duebridge_platform.book_sums AS b (partner_id, biller_id, account, cents)
   SELECT s.partner_id, s.biller_id, s.account, sum(s.cents) FROM (${sides(`t.day > ${SUMMED_TO} AND t.day <= $1::date`)}) AS s GROUP BY 1, 2, 3
   ON CONFLICT (partner_id, biller_id, account) DO UPDATE SET cents = b.cents + excluded.cents`);
const addedStatement = sql(`
   UPDATE duebridge_platform.book_progress SET summed_to = $1::date WHERE one`);

/** Adds up the days that are over. `now` in milliseconds since 1970. Any number of replicas may do it. */
export function sumBook(database: Database, now: number): Promise<void> {
  return database.transaction(
    async (tx) => {
      const [over] = await tx.query<{ day: string }>(holdStatement, [new Date(now).toISOString()]);
      if (over === undefined) return;
      await tx.query(addStatement, [over.day]);
      await tx.query(addedStatement, [over.day]);
    },
    { statementTimeoutMs: 15 * 60_000 },
  );
}
