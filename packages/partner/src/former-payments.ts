/**
 * Payments that a biller accepted on the server it had before the kit. Their ids must stay known forever (PF2): a platform that
 * repeats one gets the existing payment, and no second one is made.
 */
import { createHash } from 'node:crypto';
import {
  AccountId,
  compileCheck,
  isTerminal,
  MAX_AMOUNT_IN_CENTS,
  MAX_FAILURE_REASON_LENGTH,
  parseInstant,
  PAYMENT_STATUSES,
  type Detail,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { CsvError, parse } from 'csv-parse/sync';
import { columns, takeNames, writeAudit, type PaymentRow } from './store.ts';

/**
 * The result of an import, in payments. `differing`: ids that exist here with other contents, or whose payment_id belongs to another
 * payment; these were left unchanged.
 */
export interface FormerPaymentsResult {
  readonly imported: number;
  readonly known: number;
  readonly differing: readonly string[];
}

/** Rows per statement. */
const PAGE_ROWS = 1_000;

const importStatement = sql(
  'kit_import_payments',
  `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, status,
     amount_in_cents, initiated_at, posted_at, ended_at, failure_reason)
   SELECT id, payment_id, batch, biller, account, client, status, cents, at, posted, greatest(at, coalesce(posted, at)), reason
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::timestamptz[],
                 $10::timestamptz[], $11::text[])
       AS former(id, payment_id, batch, biller, account, client, status, cents, at, posted, reason)
   ON CONFLICT (platform_payment_id) DO NOTHING RETURNING platform_payment_id`,
);

const storedStatement = sql(
  'kit_find_imported',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1::text[])`,
);

/**
 * Stores payments that ended on a former server, a thousand per transaction. Existing ids are left unchanged, so the import can
 * be repeated. Accounts and balances do not change. Takes rows and the file's digest from `parseFormerPayments`; the audit gets one line.
 */
export async function importFormerPayments(
  database: Database,
  payments: readonly PaymentRow[],
  file_sha256: string,
): Promise<FormerPaymentsResult> {
  const sum = { imported: 0, known: 0, differing: [] as string[] };
  try {
    await importPages(database, payments, sum);
  } finally {
    // One line for the whole file, and also for one that broke off: the database has the pages before that.
    const { imported, known, differing } = sum;
    const detail = { file_sha256, imported, known, differing: differing.length };
    const line = {
      platform_payment_id: null,
      actor: 'import',
      event: 'payments_imported',
    } as const;
    await writeAudit(database, [{ ...line, detail }]);
  }
  return sum;
}

async function importPages(
  database: Database,
  payments: readonly PaymentRow[],
  sum: { imported: number; known: number; differing: string[] },
): Promise<void> {
  for (let from = 0; from < payments.length; from += PAGE_ROWS) {
    const page = payments
      .slice(from, from + PAGE_ROWS)
      .toSorted((one, other) => (one.platform_payment_id < other.platform_payment_id ? -1 : 1));
    const stored = await database.transaction(async (tx) => {
      // Two payments never share a payment_id.
      const taken = await takeNames(tx, page);
      const own = page.filter((row) => !taken.has(row.platform_payment_id));
      sum.differing.push(...taken);
      const made = await tx.query<{ platform_payment_id: string }>(importStatement, [
        own.map((row) => row.platform_payment_id),
        own.map((row) => row.payment_id),
        own.map((row) => row.platform_batch_id),
        own.map((row) => row.biller_id),
        own.map((row) => row.account_id),
        own.map((row) => row.client_id),
        own.map((row) => row.status),
        own.map((row) => row.amount_in_cents),
        own.map((row) => row.initiated_at),
        own.map((row) => row.posted_at),
        own.map((row) => row.failure_reason),
      ]);
      sum.imported += made.length;
      const isNew = new Set(made.map((row) => row.platform_payment_id));
      const rest = own.filter((row) => !isNew.has(row.platform_payment_id));
      sum.known += rest.length;
      if (rest.length === 0) return new Map<string, PaymentRow>();
      const rows = await tx.query<PaymentRow>(storedStatement, [
        rest.map((row) => row.platform_payment_id),
      ]);
      return new Map(rows.map((row) => [row.platform_payment_id, row]));
    });
    for (const row of page) {
      const known = stored.get(row.platform_payment_id);
      if (known && fields.some((field) => known[field] !== row[field])) {
        sum.differing.push(row.platform_payment_id);
      }
    }
  }
}

const fields = [
  'payment_id',
  'platform_batch_id',
  'biller_id',
  'account_id',
  'status',
  'amount_in_cents',
] as const;

/** Columns of the file. */
const needed = [
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

const PLATFORM_ID = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/;
const partnerId = compileCheck(AccountId);
/** What an export of the platform puts an apostrophe before, at the places where a spreadsheet may see the beginning of a cell. */
const FORMULA = /(^|[;\t\r\n|])'(?=[=+\-@\t\r'])/g;

/**
 * Parses a CSV text whose first line names the ten fields of a payment record, in any order: also an export of a platform, with its
 * apostrophes before what a spreadsheet would run as a formula, and with payments that the partner never had, which are `skipped`.
 * `client_id`: their owner, the OAuth client or `static-key`. Each bad line is named, and one bad line refuses the file. Only payments that have ended are accepted:
 * end the others on the former server first, or nobody knows which of the two servers posts them.
 */
export function parseFormerPayments(
  csv: string,
  client_id: string,
):
  | {
      readonly ok: true;
      readonly payments: readonly PaymentRow[];
      readonly skipped: number;
      readonly sha256: string;
    }
  | { readonly ok: false; readonly problems: readonly Detail[] } {
  let header: readonly string[] = [];
  let lines: { record: Record<string, string>; info: { lines: number } }[];
  try {
    lines = parse(csv, {
      bom: true,
      columns: (names: string[]) => (header = names.map((name) => name.trim())),
      info: true,
      skip_empty_lines: true,
    }) as unknown as typeof lines;
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const problem =
      'is not CSV with one cell for each column: a cell is missing, or a quotation mark opens one and does not close it';
    return { ok: false, problems: [{ path: `line ${Number(error['lines'] ?? 1)}`, problem }] };
  }
  const missing = needed.filter((name) => !header.includes(name));
  if (missing.length > 0) {
    const problem = `must name the columns ${missing.join(', ')}`;
    return { ok: false, problems: [{ path: 'line 1', problem }] };
  }
  const seen = new Set<string>();
  const problems: Detail[] = [];
  const had = lines.filter(
    ({ record }) => record['payment_id'] !== '' || record['initiated_at'] !== '',
  );
  const payments = had.map(({ record, info }) => {
    const { payment, wrong } = readFormerPayment(record, client_id);
    if (seen.has(payment.platform_payment_id)) wrong.push('its platform_payment_id appears twice');
    seen.add(payment.platform_payment_id);
    if (wrong.length > 0) problems.push({ path: `line ${info.lines}`, problem: wrong.join('; ') });
    return payment;
  });
  return problems.length > 0
    ? { ok: false, problems }
    : {
        ok: true,
        payments,
        skipped: lines.length - had.length,
        sha256: createHash('sha256').update(csv).digest('hex'),
      };
}

function readFormerPayment(
  record: Readonly<Record<string, string>>,
  client_id: string,
): { payment: PaymentRow; wrong: string[] } {
  const wrong: string[] = [];
  /** Exactly as written: spaces belong to the biller's own ids. */
  const written = (name: (typeof needed)[number]): string =>
    (record[name] ?? '').replaceAll(FORMULA, '$1');
  const cell = (name: (typeof needed)[number]): string => written(name).trim();
  const id = (name: (typeof needed)[number], pattern: RegExp): string => {
    if (!pattern.test(cell(name))) wrong.push(`${name} is not one that the interface takes`);
    return cell(name);
  };
  const own = (name: 'biller_id' | 'account_id'): string => {
    if (!partnerId.holds(written(name))) {
      wrong.push(`${name} must be 1 to 128 printable characters`);
    }
    return written(name);
  };
  const time = (name: 'initiated_at' | 'posted_at'): string => {
    const instant = parseInstant(cell(name));
    if (instant === undefined) wrong.push(`${name} must be a time such as 2026-03-01T09:30:00Z`);
    return new Date(instant ?? 0).toISOString();
  };
  const status = PAYMENT_STATUSES.find((one) => one === cell('status')) ?? 'processing';
  if (!isTerminal(status)) wrong.push('status must be succeeded, failed or canceled');
  const amount = /^[1-9]\d{0,10}$/.test(cell('amount_in_cents'))
    ? Number(cell('amount_in_cents'))
    : 0;
  if (amount < 1 || amount > MAX_AMOUNT_IN_CENTS) wrong.push('amount_in_cents must be whole cents');
  const initiated_at = time('initiated_at');
  const posted_at = status === 'succeeded' ? time('posted_at') : null;
  if (status !== 'succeeded' && cell('posted_at') !== '') {
    wrong.push('posted_at belongs to a payment that succeeded');
  }
  if (posted_at !== null && posted_at < initiated_at)
    wrong.push('posted_at is before initiated_at');
  const reason = cell('failure_reason');
  if ((status === 'failed') !== (reason !== '') || reason.length > MAX_FAILURE_REASON_LENGTH) {
    wrong.push('failure_reason belongs to a payment that failed, and to each of them');
  }
  return {
    wrong,
    payment: {
      platform_payment_id: id('platform_payment_id', PLATFORM_ID),
      payment_id: id('payment_id', /^[\u0021-\u007e]{1,128}$/),
      platform_batch_id: id('platform_batch_id', PLATFORM_ID),
      biller_id: own('biller_id'),
      account_id: own('account_id'),
      client_id,
      status,
      amount_in_cents: amount,
      initiated_at,
      posted_at,
      failure_reason: status === 'failed' ? reason : null,
    },
  };
}
