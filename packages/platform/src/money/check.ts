/**
 * Whether every cent is somewhere: the book compared with the rows that caused it.
 *
 * enters: the book (store/money-book.ts), and the payments of a number of days.  leaves: the balances of each biller, and a sentence for
 *         every payment whose money is not where it should be.
 * holds:  a transfer has two sides, so the book alone always balances. What the check proves is that nothing is missing from it, booked
 *         twice, or booked with another amount. Both are read in one snapshot.
 */
import { formatCents, type MoneyBalances, type MoneyCheck } from '@duebridge/contract';
import { sql, type Database, type Statement } from '@duebridge/runtime';
import { idBefore } from '../payment-id.ts';
import type { Services } from '../services.ts';
import { IN_THE_BOOK, type BookAccount } from '../store/money-book.ts';
import type { Queryable } from '../store/payments.ts';
import { noMoney, outOfBalance, readBalances, sumBook } from './balances.ts';
import type { Waiting } from './remittance.ts';

/** What is compared each hour: payments of so many days. A payment that is settled later is compared by `money check --days`. */
export const HOURLY_DAYS = 3;
/** Faults that are named; the rest is counted. */
const MAX_FAULTS = 100;
const DAY_MS = 24 * 3_600_000;
/** A check of a year reads every payment of it. */
export const CHECK_TIMEOUT_MS = 15 * 60_000;

/** SQL: cents as people read them, such as $1,234.50. */
const dollars = (cents: string): string =>
  `replace('$' || to_char(${cents} / 100.0, 'FM999,999,999,999,990.00'), '$-', '-$')`;

/** A sentence for every payment since the id `$1` whose row and book disagree about what its biller is owed, or what came and went. */
const paymentsStatement = sql(`
   SELECT 'payment ' || s.id || ' of ' || s.partner_id || ': ' ||
          CASE WHEN s.owed <> s.expected
               THEN 'its biller is owed ' || ${dollars('s.expected')} || ', and the book has ' || CASE s.owed WHEN 0 THEN 'nothing' ELSE ${dollars('s.owed')} END
               WHEN s.went > s.came
               THEN ${dollars('s.went')} || ' went back to the customer, and only ' || ${dollars('s.came')} || ' were taken'
               WHEN s.has_ended THEN 'it has ended, and ' || ${dollars('s.under_way')} || ' are still under way'
               ELSE ${dollars('s.under_way')} || ' are under way, which is not its amount' END AS what
     FROM (SELECT coalesce(p.platform_payment_id, b.id) AS id, coalesce(p.partner_id, b.partner_id) AS partner_id, p.amount_in_cents,
                  coalesce(p.expected, 0) AS expected, coalesce(b.owed, 0) AS owed, coalesce(b.under_way, 0) AS under_way,
                  coalesce(b.came, 0) AS came, coalesce(b.went, 0) AS went, coalesce(p.has_ended, false) AS has_ended
             FROM (SELECT p.platform_payment_id, p.partner_id, p.settled_at IS NOT NULL AS has_ended, p.amount_in_cents,
                          CASE WHEN p.status = 'succeeded' AND p.settled_at IS NOT NULL AND ${IN_THE_BOOK} THEN p.amount_in_cents ELSE 0 END AS expected
                     FROM duebridge_platform.payments p WHERE p.platform_payment_id >= $1) AS p
             FULL JOIN
                  (SELECT t.id, min(t.partner_id) AS partner_id,
                          sum(CASE WHEN t.credit = 'owed' THEN t.amount_in_cents ELSE 0 END) AS owed,
                          sum(CASE WHEN t.credit = 'under_way' THEN t.amount_in_cents WHEN t.debit = 'under_way' THEN -t.amount_in_cents ELSE 0 END) AS under_way,
                          sum(CASE WHEN t.debit IN ('taken', 'elsewhere') THEN t.amount_in_cents ELSE 0 END) AS came,
                          sum(CASE WHEN t.credit IN ('refunded', 'returned') THEN t.amount_in_cents ELSE 0 END) AS went
                     FROM duebridge_platform.transfers t
                    WHERE t.id >= $1 AND t.act IN ('settled', 'taken_early', 'returned', 'refunded_late', 'word')
                    GROUP BY t.id) AS b ON b.id = p.platform_payment_id) AS s
    WHERE s.expected <> s.owed OR s.under_way NOT IN (0, coalesce(s.amount_in_cents, 0)) OR (s.has_ended AND s.under_way <> 0)
       OR s.went > s.came OR s.amount_in_cents IS NULL
    ORDER BY s.id LIMIT ${MAX_FAULTS}`);

/**
 * A sentence for each row of `of` whose balances in the book are not the expected ones. `of` gives id, partner_id, state, cents, and
 * `expected`: the balance (credits less debits) of each of `accounts` by the transfers under this id.
 */
function moving(what: string, accounts: readonly BookAccount[], of: string): Statement {
  const balances = accounts.map(
    (account) =>
      `coalesce(sum(CASE '${account}' WHEN t.credit THEN t.amount_in_cents WHEN t.debit THEN -t.amount_in_cents END), 0)::bigint`,
  );
  const booked = accounts.map(
    (account, at) => `'${account} ' || ${dollars(`b.booked[${at + 1}]`)}`,
  );
  return sql(`
     SELECT '${what} ' || s.id || ' of ' || s.partner_id || ' is ' || s.state || ' with ' || ${dollars('s.cents')} || ', and the book has ' ||
            concat_ws(', ', ${booked.join(', ')}) AS what
       FROM (${of}) AS s
       LEFT JOIN LATERAL (SELECT ARRAY[${balances.join(', ')}] AS booked
                            FROM duebridge_platform.transfers t WHERE t.id = s.id) AS b ON true
      WHERE b.booked IS DISTINCT FROM s.expected::bigint[] ORDER BY s.id LIMIT ${MAX_FAULTS}`);
}

/** What moves money by an id of its own, and may still move or has moved since `$1`. */
const movingStatements = [
  moving(
    'remittance',
    ['owed', 'remitting', 'paid'],
    `SELECT r.remittance_id AS id, r.partner_id, r.state, r.net_in_cents AS cents,
            ARRAY[CASE WHEN r.state IN ('sending', 'sent', 'paid') THEN -r.net_in_cents ELSE 0 END,
                  CASE WHEN r.state IN ('sending', 'sent') THEN r.net_in_cents ELSE 0 END,
                  CASE WHEN r.state = 'paid' THEN r.net_in_cents ELSE 0 END] AS expected
       FROM duebridge_platform.remittances r
      WHERE r.state IN ('sending', 'sent') OR r.made_at >= $1::timestamptz OR r.ended_at >= $1::timestamptz`,
  ),
  moving(
    'refund',
    ['refunding', 'refunded'],
    `SELECT f.refund_id AS id, f.partner_id, f.state, f.amount_in_cents AS cents,
            ARRAY[CASE WHEN f.state = 'sending' THEN f.amount_in_cents ELSE 0 END,
                  CASE WHEN f.state = 'done' THEN f.amount_in_cents ELSE 0 END] AS expected
       FROM duebridge_platform.refunds f
      WHERE f.state = 'sending' OR f.made_at >= $1::timestamptz OR f.ended_at >= $1::timestamptz`,
  ),
  moving(
    'case',
    ['disputed', 'returned', 'uncollected'],
    `SELECT c.case_id AS id, c.partner_id, coalesce(c.disposition, c.state) AS state, c.amount_in_cents AS cents,
            ARRAY[CASE WHEN c.reason_code = 'disputed' AND c.state = 'open' THEN c.amount_in_cents ELSE 0 END,
                  CASE WHEN c.reason_code IN ('disputed', 'debit_returned') AND c.state <> 'open' AND c.disposition IS DISTINCT FROM 'won'
                       THEN c.amount_in_cents ELSE 0 END,
                  CASE WHEN c.reason_code = 'uncollected' THEN CASE c.state WHEN 'ended' THEN c.amount_in_cents ELSE 0 END
                       WHEN c.reason_code IN ('disputed', 'debit_returned') AND c.state <> 'ended' THEN -c.amount_in_cents ELSE 0 END] AS expected
       FROM duebridge_platform.cases c
      WHERE c.state <> 'ended' OR c.opened_at >= $1::timestamptz OR c.ended_at >= $1::timestamptz`,
  ),
];

/** Of no payment may more than was taken be refunded or returned. */
const overRefundedStatement = sql(`
   SELECT 'payment ' || s.id || ' of ' || s.partner_id || ': ' || ${dollars('s.cents')} || ' are refunded or returned, and only ' ||
          ${dollars('p.amount_in_cents')} || ' were taken' AS what
     FROM (SELECT b.id, min(b.partner_id) AS partner_id, sum(b.cents) AS cents
             FROM (SELECT f.platform_payment_id AS id, f.partner_id, f.amount_in_cents AS cents
                     FROM duebridge_platform.refunds f WHERE f.state IN ('sending', 'done')
                   UNION ALL
                   SELECT c.platform_payment_id, c.partner_id, c.amount_in_cents FROM duebridge_platform.cases c
                    WHERE c.reason_code IN ('disputed', 'debit_returned') AND (c.disposition IS NULL OR c.disposition NOT IN ('won', 'recovered'))) AS b
            WHERE b.id IN (SELECT f.platform_payment_id FROM duebridge_platform.refunds f WHERE f.made_at >= $1::timestamptz
                           UNION SELECT c.platform_payment_id FROM duebridge_platform.cases c WHERE c.opened_at >= $1::timestamptz)
            GROUP BY b.id) AS s
     JOIN duebridge_platform.payments p ON p.platform_payment_id = s.id
    WHERE s.cents > p.amount_in_cents ORDER BY s.id LIMIT ${MAX_FAULTS}`);
/** What went back before its payment was posted, and is owed to the biller as well until the case ends (refunds.ts, noteEarlyRefund). */
const unbookedStatement = sql(`
   SELECT 'payment ' || c.platform_payment_id || ' of ' || c.partner_id || ': ' || ${dollars('c.amount_in_cents')} ||
          ' went back to the customer before it was posted, and are not booked: end case ' || c.case_id || ' as answered' AS what
     FROM duebridge_platform.cases c JOIN duebridge_platform.payments p ON p.platform_payment_id = c.platform_payment_id
    WHERE c.state <> 'ended' AND c.reason_code = 'refunded_elsewhere' AND c.amount_in_cents > 0
      AND p.status = 'succeeded' AND p.settled_at IS NOT NULL
    ORDER BY c.case_id LIMIT ${MAX_FAULTS}`);

/** What a biller is owed, by what it is made of: payments of batches that are not remitted yet, remittances that have not left, and deductions. */
const unremittedStatement = sql(`
   SELECT p.partner_id, p.biller_id, sum(t.amount_in_cents)::bigint AS cents
     FROM duebridge_platform.payments p JOIN duebridge_platform.transfers t ON t.id = p.platform_payment_id AND t.credit = 'owed'
    WHERE p.platform_batch_id = ANY($1::text[]) AND t.day >= $2::date GROUP BY 1, 2`);
/**
 * `day`: before the window of the oldest, by the database's clock when it was opened and by the platform's when its cut-off was set. Without it the
 * book of years would be read, because the planner takes a batch for spread over them.
 */
const unremittedBatchesStatement = sql(`
   SELECT b.platform_batch_id,
          ((min(least(b.opened_at, b.cutoff_at - interval '2 days')) OVER () AT TIME ZONE 'UTC')::date - 1)::text AS day
     FROM duebridge_platform.batches b
    WHERE NOT EXISTS (SELECT 1 FROM duebridge_platform.remitted_batches r WHERE r.platform_batch_id = b.platform_batch_id)`);
const unsentStatement = sql(`
   SELECT r.partner_id, r.biller_id, sum(r.net_in_cents)::bigint AS cents FROM duebridge_platform.remittances r
    WHERE r.state = 'due' OR (r.state IN ('carried', 'returned') AND r.carried_to IS NULL) GROUP BY 1, 2
   UNION ALL
   SELECT d.partner_id, d.biller_id, -sum(d.amount_in_cents)::bigint FROM duebridge_platform.deductions d
    WHERE d.remittance_id IS NULL GROUP BY 1, 2`);

/**
 * What each biller is owed by the book, compared with what that is made of. A payment that is in two remittances, or in none, is a
 * difference here, whatever the sums of the remittances say.
 */
async function findOwedFaults(
  on: Queryable,
  balances: readonly MoneyBalances[],
): Promise<string[]> {
  const batches = await on.query<{ platform_batch_id: string; day: string }>(
    unremittedBatchesStatement,
  );
  type Part = { readonly partner_id: string; readonly biller_id: string; readonly cents: number };
  const parts = [
    ...(await on.query<Part>(unremittedStatement, [
      batches.map((one) => one.platform_batch_id),
      batches[0]?.day ?? null,
    ])),
    ...(await on.query<Part>(unsentStatement)),
  ];
  const left = new Map<string, number>();
  const add = ({ partner_id, biller_id }: Omit<Part, 'cents'>, cents: number): void => {
    const biller = `${biller_id} of ${partner_id}`;
    left.set(biller, (left.get(biller) ?? 0) + cents);
  };
  for (const one of balances) add(one, one.owed);
  for (const one of parts) add(one, -one.cents);
  return [...left]
    .filter(([, cents]) => cents !== 0)
    .map(
      ([biller, cents]) =>
        `biller ${biller}: the book owes it ${formatCents(cents)} more than what is still to be remitted`,
    );
}

/** Payments, remittances, refunds and cases since a moment, and billers, whose money is not where it should be, in sentences. */
export async function findFaults(
  on: Queryable,
  sinceMs: number,
  balances?: readonly MoneyBalances[],
): Promise<string[]> {
  // Nothing is below an empty text, in any collation.
  const above = sinceMs <= 0 ? '' : idBefore(sinceMs);
  const since = new Date(sinceMs).toISOString();
  const faults: string[] = [];
  for (const [statement, values] of [
    [paymentsStatement, [above]],
    ...movingStatements.map((one) => [one, [since]] as const),
    [unbookedStatement, []],
    [overRefundedStatement, [since]],
  ] as const) {
    const rows = await on.query<{ readonly what: string }>(statement, values);
    faults.push(...rows.map(({ what }) => what));
  }
  return [...faults, ...(await findOwedFaults(on, balances ?? (await readBalances(on))))];
}

/** Compares the book with the payments of the last `days`. `now` in milliseconds since 1970. */
export function checkMoney(database: Database, now: number, days: number): Promise<MoneyCheck> {
  return database.transaction(
    async (tx) => {
      const balances = await readBalances(tx);
      const unbalanced = balances
        .filter((one) => outOfBalance(one) !== 0)
        .map(
          (one) =>
            `biller ${one.biller_id} of ${one.partner_id}: the book is out of balance by ${formatCents(outOfBalance(one))}`,
        );
      const rows = await findFaults(tx, Math.max(0, now - days * DAY_MS), balances);
      const faults = [...unbalanced, ...rows];
      return { days, balances, faults, holds: faults.length === 0 };
    },
    { isolation: 'repeatable read', statementTimeoutMs: CHECK_TIMEOUT_MS },
  );
}

/** What is done with the book each hour: its days that are over are added up, it is compared, and shown in /metrics. */
export function openBookkeeping(
  { database, metrics, clock, log }: Pick<Services, 'database' | 'metrics' | 'clock' | 'log'>,
  /** Remits what is due (remittance.ts), and says what could not be. */
  remit: () => Promise<readonly Waiting[]>,
): () => Promise<void> {
  let faults = 0;
  let waiting = 0;
  metrics.gauge(
    'duebridge_remittances_waiting',
    'Batches and remittances that the last hourly round could not remit',
    [],
    () => waiting,
  );
  metrics.gauge(
    'duebridge_money_faults',
    'Payments whose money is not where it should be, at the last hourly check',
    [],
    () => faults,
  );
  const held = metrics.gauge(
    'duebridge_money_cents',
    'Balances of the book of money in cents, by mode and account',
    ['mode', 'account'],
  );
  return async () => {
    await sumBook(database, clock.now());
    waiting = (await remit()).length;
    const check = await checkMoney(database, clock.now(), HOURLY_DAYS);
    faults = check.faults.length;
    for (const mode of ['test', 'live'] as const) {
      for (const account of Object.keys(noMoney()) as BookAccount[]) {
        const cents = check.balances
          .filter((one) => one.mode === mode)
          .reduce((sum, one) => sum + one[account], 0);
        held.set({ mode, account }, cents);
      }
    }
    for (const what of check.faults) log.error({ what }, 'money is not where it should be');
  };
}
