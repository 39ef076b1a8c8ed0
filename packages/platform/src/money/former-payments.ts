/**
 * Books what was settled before the book began, by a version that kept none.
 *
 * enters: settled payments without a row in the book.  leaves: their rows, page by page, until all are booked.
 * holds:  a page and the note of how far it went are one transaction; what is booked already is left as it is. Payments that the version
 *         before settles while both run are found as well: pages go on until a day after the migration.
 */
import { sql, type Database } from '@duebridge/runtime';
import { idAfter } from '../payment-id.ts';
import type { Queryable } from '../store/payments.ts';
import { booking, KNOWN_TO_BILLER } from '../store/money-book.ts';

/** Payments that one transaction looks at. */
const PAGE = 5_000;
/** How long both versions may run beside each other. */
const BOTH_RUN_MS = 24 * 3_600_000;
/** Payments that were made then may be settled a while later; what is found later is for `money check` to name. */
const LAST_PASS_MS = 2 * BOTH_RUN_MS;

const progressStatement = sql(
  'book_progress',
  `SELECT read_to, extract(epoch FROM began_at)::float8 * 1000 AS began, extract(epoch FROM now())::float8 * 1000 AS now
     FROM duebridge_platform.book_progress WHERE one FOR UPDATE`,
);
const movedStatement = sql(
  'book_moved',
  'UPDATE duebridge_platform.book_progress SET read_to = $1 WHERE one',
);
const pageStatement = sql(
  'book_page',
  `SELECT max(platform_payment_id) AS last, count(*)::int AS count FROM (
     SELECT p.platform_payment_id FROM duebridge_platform.payments p
      WHERE p.platform_payment_id > $1 AND p.platform_payment_id < $2 ORDER BY p.platform_payment_id LIMIT ${PAGE}) AS page`,
);
/** Without a row of funds the money was collected elsewhere; the first versions kept none for the sandbox either. */
const bookStatement = sql(
  'book_former',
  booking({
    act: "'settled'",
    debit: `CASE WHEN f.state IN ('uncollected', 'borne') THEN f.state
                 WHEN f.state IS NULL AND p.funding_method NOT LIKE 'sandbox%' THEN 'elsewhere' ELSE 'taken' END`,
    credit: "CASE p.status WHEN 'succeeded' THEN 'owed' ELSE 'refunded' END",
    at: 'p.settled_at',
    from: 'duebridge_platform.payments p LEFT JOIN duebridge_platform.funds f ON f.platform_payment_id = p.platform_payment_id',
    where: `p.platform_payment_id > $1 AND p.platform_payment_id <= $2 AND p.settled_at IS NOT NULL
            AND (p.status = 'succeeded' OR f.state = 'refunded') AND ${KNOWN_TO_BILLER}
            AND NOT EXISTS (SELECT 1 FROM duebridge_platform.transfers t
                             WHERE t.id = p.platform_payment_id AND t.act IN ('settled', 'word', 'refunded_late'))`,
  }),
);

/** Books the next page. True when there may be more. Any number of replicas may do it. */
export function bookFormerPayments(database: Database): Promise<boolean> {
  return database.transaction(
    async (tx) => {
      const [progress] = await tx.query<{ read_to: string; began: number; now: number }>(
        progressStatement,
      );
      if (progress === undefined || progress.now > progress.began + LAST_PASS_MS) return false;
      const until = idAfter(progress.began + BOTH_RUN_MS);
      const [page] = await tx.query<{ last: string | null; count: number }>(pageStatement, [
        progress.read_to,
        until,
      ]);
      // From the beginning again, an hour later: the version before may have settled more.
      const last = page?.last ?? '';
      if (last !== '') await tx.query(bookStatement, [progress.read_to, last]);
      await tx.query(movedStatement, [page?.count === PAGE ? last : '']);
      return page?.count === PAGE;
    },
    { statementTimeoutMs: 60_000 },
  );
}

/** Whether payments of before the book may still be booked, for days that are over. */
export async function hasFormerPayments(on: Queryable): Promise<boolean> {
  const [progress] = await on.query<{ began: number; now: number }>(progressStatement);
  return progress !== undefined && progress.now <= progress.began + LAST_PASS_MS;
}
