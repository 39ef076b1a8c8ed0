/**
 * Takes over what was settled by a version without the book or without cases.
 *
 * enters: settled payments without a row in the book; uncollected money and marks for a follow-up without a case.
 * leaves: their rows, page by page, until all are booked; their cases.
 * holds:  a page and the note of how far it went are one transaction; what is booked already is left as it is. What the version before
 *         settles while both run is found as well: both go on until two days after their migration.
 */
import { sql, type Database } from '@duebridge/runtime';
import { idAfter } from '../payment-id.ts';
import { note } from '../store/audit.ts';
import { moveCase, uncollectedCases } from '../store/cases.ts';
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

const casesAgeStatement = sql(
  'former_cases_age',
  `SELECT extract(epoch FROM now() - m.applied_at)::float8 * 1000 AS age, now()::text AS at
     FROM duebridge_platform.migrations m WHERE m.name = '046-cases.sql'`,
);
/** As the migration did once. A payment whose money has another open case is not counted twice. */
const openCasesStatement = sql(
  'former_cases_open',
  uncollectedCases(
    `(SELECT p.*, jsonb_build_object('reason', f.reason) AS detail
        FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
       WHERE f.state = 'uncollected' AND p.settled_at IS NOT NULL AND p.status = 'succeeded'
         AND NOT EXISTS (SELECT 1 FROM duebridge_platform.cases c
                          WHERE c.platform_payment_id = p.platform_payment_id AND c.amount_in_cents > 0 AND c.state <> 'ended')) AS p`,
    'now()',
    'true',
  ),
);
const markedStatement = sql(
  'former_cases_marked',
  `INSERT INTO duebridge_platform.cases (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code, amount_in_cents,
          state, note, opened_by, opened_at)
   SELECT 'follow-up-' || p.platform_payment_id, p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, 'other', 0,
          'open', f.note, f.marked_by, f.marked_at
     FROM duebridge_platform.follow_ups f JOIN duebridge_platform.payments p USING (platform_payment_id)
   ON CONFLICT (platform_payment_id, case_id) DO NOTHING`,
);
/** Cases whose money the version before has settled by an operator's word; `is_booked`: and it kept a book. */
const madeUpStatement = sql(
  'former_cases_made_up',
  `SELECT c.case_id, c.platform_payment_id, c.partner_id, f.state,
          EXISTS (SELECT 1 FROM duebridge_platform.transfers t
                   WHERE t.id = c.platform_payment_id AND t.act = 'word') AS is_booked
     FROM duebridge_platform.cases c JOIN duebridge_platform.funds f USING (platform_payment_id)
    WHERE c.state = 'lost' AND c.reason_code = 'uncollected' AND f.state IN ('captured', 'borne') ORDER BY c.case_id`,
);
const answerStatement = sql(
  'former_cases_answer',
  `UPDATE duebridge_platform.cases AS c SET state = 'ended', disposition = 'answered', ended_at = now(), ended_by = $3, outcome = $4
    WHERE c.platform_payment_id = $1 AND c.case_id = $2 AND c.state = 'lost' RETURNING 1 AS one`,
);

const BY_WORD = {
  actor: 'funds',
  reason: 'an operator’s word settled it in the version before',
} as const;

/** Opens and ends the cases that the version before did not know of. Any number of replicas may do it. */
export function openFormerCases(database: Database): Promise<void> {
  return database.transaction(
    async (tx) => {
      const [migration] = await tx.query<{ age: number; at: string }>(casesAgeStatement);
      if (migration === undefined || migration.age > LAST_PASS_MS) return;
      await tx.query(openCasesStatement);
      await tx.query(markedStatement);
      const said = { ...BY_WORD, at: migration.at };
      for (const one of await tx.query<{
        case_id: string;
        platform_payment_id: string;
        partner_id: string;
        state: 'captured' | 'borne';
        is_booked: boolean;
      }>(madeUpStatement)) {
        const { case_id, platform_payment_id, partner_id } = one;
        if (!one.is_booked) {
          await moveCase(tx, case_id, one.state === 'borne' ? 'written_off' : 'recovered', said);
          continue;
        }
        // The word has moved the money in the book: the case has none to move.
        const values = [platform_payment_id, case_id, BY_WORD.actor, BY_WORD.reason];
        if ((await tx.query(answerStatement, values)).length === 0) continue;
        const detail = { case_id, reason: BY_WORD.reason };
        const line = { actor: BY_WORD.actor, platform_payment_id, partner_id, detail };
        await note(tx, { ...line, event: 'case_answered' });
      }
    },
    { statementTimeoutMs: 15 * 60_000 },
  );
}
