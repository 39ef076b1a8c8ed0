/**
 * Payments that a biller accepted on the server it had before the kit. Their ids must stay known forever (PF2): a platform that
 * repeats one gets the existing payment, and no second one is made.
 */
import assert from 'node:assert/strict';
import { compileCheck, instantText, PaymentRecord } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { importCsv, type CsvKind, type CsvText, type Progress } from './csv.ts';
import { arraysOf, noteImport, toRecord, type PaymentRow } from './store.ts';

/** The result of an import, in payments. */
export interface FormerPaymentsResult {
  readonly imported: number;
  readonly known: number;
  /** Lines of payments without a payment_id: the partner never had them. */
  readonly skipped: number;
  /** The first thousand ids that exist here with other contents, and were left unchanged. */
  readonly differing: readonly string[];
}

/** Ids that are named in a result. */
const MOST_NAMED = 1_000;

/** The columns of the file, in the order of the statement. */
const columnsOfFile = [
  'platform_payment_id',
  'payment_id',
  'platform_batch_id',
  'biller_id',
  'account_id',
  'status',
  'amount_in_cents',
  'initiated_at',
  'posted_at',
  'failure_reason',
] as const;

/** The payments of a page, from an array of each column of the file. */
const former = `unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::timestamptz[],
                          $9::timestamptz[], $10::text[])
         AS former(platform_payment_id, payment_id, batch, biller, account, status, cents, at, posted, reason)`;

// In order of id, so that two imports cannot deadlock.
const importStatement = sql(`
   WITH made AS (
     INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, status,
       amount_in_cents, initiated_at, posted_at, ended_at, failure_reason)
     SELECT platform_payment_id, payment_id, batch, biller, account, 'static-key', status, cents, at, posted,
            greatest(at, coalesce(posted, at)), reason FROM ${former} ORDER BY platform_payment_id
     ON CONFLICT (platform_payment_id) DO NOTHING RETURNING 1
   ) SELECT count(*) AS imported FROM made`);

// Ids that exist here with other contents; times and reasons may be told in other words. A statement of its own, because the import does not
// see a payment for which it waited.
const differingStatement = sql(`
   SELECT platform_payment_id FROM ${former} JOIN duebridge_partner.payment AS known USING (platform_payment_id)
    WHERE (former.payment_id, batch, biller, account, former.status, cents)
       <> (known.payment_id, platform_batch_id, biller_id, account_id, known.status, amount_in_cents)
    ORDER BY platform_payment_id`);

/**
 * Stores payments that ended on a former server, from a CSV file whose first line names the ten fields of a payment record, in any
 * order: also from an export of a platform, with its apostrophes before what a spreadsheet would run as a formula. Only payments that have ended are accepted: end the others on the former server first, or
 * nobody knows which of the two servers posts them.
 *
 * `open` gives the text from its beginning; it is read twice, because one bad line refuses the file: Refusal
 * INVALID_REQUEST names the bad lines. Then a thousand payments a transaction are stored.
 * Existing ids are left unchanged, so that an import can be repeated. Accounts and balances do not change. The audit gets one line,
 * with the digest of the file that was checked.
 */
export async function importFormerPayments(
  database: Database,
  open: () => CsvText,
  progress?: Progress,
): Promise<FormerPaymentsResult> {
  const sum = { imported: 0, known: 0, skipped: 0, differing: [] as string[] };
  let differing = 0;
  await importCsv({
    kind: formerPayments,
    open,
    async store(page) {
      const payments = page.filter((payment) => payment !== undefined);
      const values = arraysOf(payments, ...columnsOfFile);
      const [stored] = await database.query<{ imported: number }>(importStatement, values);
      assert(stored);
      sum.skipped += page.length - payments.length;
      sum.imported += stored.imported;
      const known = payments.length - stored.imported;
      if (known === 0) return;
      sum.known += known;
      const others = await database.query<Pick<PaymentRow, 'platform_payment_id'>>(
        differingStatement,
        values,
      );
      differing += others.length;
      const ids = others.map((row) => row.platform_payment_id);
      sum.differing.push(...ids.slice(0, MOST_NAMED - sum.differing.length));
    },
    note: (file_sha256) => {
      const { imported, known } = sum;
      return noteImport(database, 'payments_imported', { file_sha256, imported, known, differing });
    },
    progress,
  });
  return sum;
}

type Column = (typeof columnsOfFile)[number];

const record = compileCheck(PaymentRecord);
/** What an export of the platform puts an apostrophe before, at the places where a spreadsheet may see the beginning of a cell. */
const FORMULA = /(^|[;\t\r\n|])'(?=[=+\-@\t\r'])/g;

/** Files of former payments; undefined for one that the partner never had, as an export of a platform may list. */
export const formerPayments: CsvKind<PaymentRow | undefined> = {
  what: 'payment',
  identity: (payment) => payment?.platform_payment_id,
  header(names) {
    const missing = columnsOfFile.filter((name) => !names.includes(name));
    return missing.length === 0 ? [] : [`must name the columns ${missing.join(', ')}`];
  },
  read: (cell, problems) =>
    cell('payment_id') === '' && cell('initiated_at') === ''
      ? undefined
      : readFormerPayment(cell, problems),
};

/** Whether a text can be a payment_id: 1 to 128 visible ASCII characters, which is what a platform accepts (decision 3). */
function isPaymentId(text: string): boolean {
  return /^[\u0021-\u007e]{1,128}$/.test(text);
}

/** Reads a line; what the schema of the record on the wire refuses is refused here in its words. */
function readFormerPayment(
  given: (name: string) => string | undefined,
  wrong: string[],
): PaymentRow {
  /** Exactly as written: spaces belong to the biller's own ids. */
  const written = (name: Column): string => {
    const text = given(name) ?? '';
    return text.includes("'") ? text.replaceAll(FORMULA, '$1') : text;
  };
  const cell = (name: Column): string => written(name).trim();
  const time = (name: Column): string => instantText(cell(name)) ?? cell(name);
  const row = {
    platform_payment_id: cell('platform_payment_id'),
    payment_id: cell('payment_id'),
    platform_batch_id: cell('platform_batch_id'),
    biller_id: written('biller_id'),
    account_id: written('account_id'),
    status: cell('status') as PaymentRow['status'],
    // Digits alone: 1e2 and 1.0 are numbers to JavaScript.
    amount_in_cents: /^\d+$/.test(cell('amount_in_cents')) ? Number(cell('amount_in_cents')) : 0,
    initiated_at: time('initiated_at'),
    posted_at: cell('posted_at') === '' ? null : time('posted_at'),
    failure_reason: cell('failure_reason') === '' ? null : cell('failure_reason'),
  };
  const problems = record.problems(toRecord(row), '');
  wrong.push(...problems.map(({ path, problem }) => `${path.replace(/^\./, '')} ${problem}`));
  if (!isPaymentId(row.payment_id)) wrong.push('payment_id must be 1 to 128 visible characters');
  if (row.status === 'processing') wrong.push('status must be succeeded, failed or canceled');
  if ((row.status === 'succeeded') !== (row.posted_at !== null)) {
    wrong.push('posted_at belongs to a payment that succeeded, and to each of them');
  }
  if ((row.status === 'failed') !== (row.failure_reason !== null)) {
    wrong.push('failure_reason belongs to a payment that failed, and to each of them');
  }
  if (problems.length === 0 && (row.posted_at ?? row.initiated_at) < row.initiated_at) {
    wrong.push('posted_at is before initiated_at');
  }
  return row;
}
