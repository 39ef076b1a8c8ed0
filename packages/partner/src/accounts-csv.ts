/**
 * Accounts as a billing system exports them: a CSV text (RFC 4180, UTF-8) whose first line names its columns, in any order.
 *
 *   account_id            required; byte-exact (decision 13)
 *   biller_id             required, unless a biller is given beside the file
 *   status                active or inactive; a new account is active
 *   first_name,last_name  both or neither
 *   amount_due            dollars with two decimals: 1234.56, -20.00 for a credit; or, instead,
 *   amount_due_in_cents   whole cents: 123456
 *   due_date              YYYY-MM-DD
 *   min_amount, max_amount, or min_amount_in_cents, max_amount_in_cents    what one payment may be
 *
 * An absent column keeps what is stored; an empty cell clears it, where it can be empty. Unknown columns are refused, because a
 * misspelt one would be an amount that is silently not imported. Every bad line is named, and one bad line refuses the file.
 */
import {
  AccountId,
  compileCheck,
  isDate,
  MAX_AMOUNT_IN_CENTS,
  MAX_TEXT_LENGTH,
  type Detail,
} from '@duebridge/contract';
import { CsvError, parse } from 'csv-parse/sync';
import type { ImportedAccount } from './ledger.ts';

/** The contents of a file, or its problems: one for each bad line, with its number in `path` (`line 7`). */
export type ParsedAccounts =
  | { readonly ok: true; readonly accounts: readonly ImportedAccount[] }
  | { readonly ok: false; readonly problems: readonly Detail[] };

const amountColumns = ['amount_due', 'min_amount', 'max_amount'] as const;
const plainColumns = [
  'biller_id',
  'account_id',
  'status',
  'first_name',
  'last_name',
  'due_date',
] as const;
const columns: readonly string[] = [
  ...plainColumns,
  ...amountColumns.flatMap((name) => [name, `${name}_in_cents`]),
];

/**
 * Parses a whole file. Takes its text and, for a file without the column biller_id, the biller. Never throws because of its
 * contents.
 */
export function parseAccountsCsv(csv: string, biller_id?: string): ParsedAccounts {
  let lines: { record: string[]; info: { lines: number } }[];
  try {
    lines = parse(csv, {
      bom: true,
      info: true,
      relax_column_count: true,
      skip_empty_lines: true,
    }) as unknown as typeof lines;
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const line = typeof error['lines'] === 'number' ? error['lines'] : 1;
    return {
      ok: false,
      problems: [
        {
          path: `line ${line}`,
          problem:
            'is not CSV: a quotation mark opens a cell and does not close it, or stands inside one without being doubled',
        },
      ],
    };
  }
  const header = lines[0]?.record.map((name) => name.trim()) ?? [];
  const headerProblems = problemsOfHeader(header, biller_id);
  if (headerProblems.length > 0) {
    return {
      ok: false,
      problems: headerProblems.map((problem) => ({ path: 'line 1', problem })),
    };
  }

  const accounts: ImportedAccount[] = [];
  const problems: Detail[] = [];
  const seen = new Map<string, number>();
  for (const { record, info } of lines.slice(1)) {
    const read = readLine(header, record, biller_id);
    const key = `${read.account.biller_id}\n${read.account.account_id}`;
    const before = seen.get(key);
    if (before !== undefined) read.problems.push(`is the same account as line ${before}`);
    seen.set(key, before ?? info.lines);
    if (read.problems.length === 0) accounts.push(read.account);
    else problems.push({ path: `line ${info.lines}`, problem: read.problems.join('; ') });
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, accounts };
}

function problemsOfHeader(header: readonly string[], biller_id: string | undefined): string[] {
  const problems: string[] = [];
  if (header.length === 0) return ['is missing: the file is empty'];
  const [only = ''] = header;
  if (header.length === 1 && /[;\t]/.test(only)) {
    return [
      `separates its columns with ${only.includes(';') ? 'semicolons' : 'tabs'}: save it with commas`,
    ];
  }
  for (const name of new Set(header)) {
    if (!columns.includes(name)) {
      problems.push(`column ${JSON.stringify(name)} is not known; known are ${columns.join(', ')}`);
    }
    if (header.indexOf(name) !== header.lastIndexOf(name)) problems.push(`${name} appears twice`);
  }
  for (const name of amountColumns) {
    if (header.includes(name) && header.includes(`${name}_in_cents`)) {
      problems.push(`give ${name} or ${name}_in_cents, not both`);
    }
  }
  if (header.includes('first_name') !== header.includes('last_name')) {
    problems.push('first_name and last_name belong together');
  }
  if (!header.includes('account_id')) problems.push('column account_id is missing');
  if (!header.includes('biller_id') && biller_id === undefined) {
    problems.push('column biller_id is missing, and no biller was named for the whole file');
  }
  return problems;
}

const partnerId = compileCheck(AccountId);

function readLine(
  header: readonly string[],
  record: readonly string[],
  biller_id: string | undefined,
): { account: ImportedAccount; problems: string[] } {
  const problems: string[] = [];
  if (record.length !== header.length) {
    problems.push(`has ${record.length} cells where the first line has ${header.length}`);
  }
  /** The cell of a column; undefined when the file has no such column. */
  const cell = (name: string): string | undefined => {
    const index = header.indexOf(name);
    return index < 0 ? undefined : (record[index] ?? '').trim();
  };
  const id = (name: string, otherwise: string | undefined): string => {
    // Exactly as written: spaces belong to an id.
    const value = record[header.indexOf(name)] ?? otherwise ?? '';
    if (!partnerId.holds(value)) problems.push(`${name} must be 1 to 128 printable characters`);
    return value;
  };
  const name = (column: string): string | null | undefined => {
    const value = cell(column);
    if (value === undefined) return undefined;
    if (value.length > MAX_TEXT_LENGTH || /\p{Cc}/u.test(value) || !value.isWellFormed()) {
      problems.push(`${column} must be plain text of at most ${MAX_TEXT_LENGTH} characters`);
    }
    return value === '' ? null : value;
  };
  /** The name that the file itself gives an amount: its own column is the one to correct. */
  const written = (column: string): string =>
    header.includes(column) ? column : `${column}_in_cents`;
  const cents = (column: string): number | null | undefined => {
    const [inDollars, inCents] = [cell(column), cell(`${column}_in_cents`)];
    const given = inDollars ?? inCents;
    if (given === undefined || given === '') return given === undefined ? undefined : null;
    const isRight = inDollars === undefined ? /^-?\d{1,11}$/ : /^-?\d{1,9}\.\d{2}$/;
    // The decimal point is removed from the text, so that no fraction is ever computed.
    const value = isRight.test(given) ? Number(given.replace('.', '')) : Number.NaN;
    if (!(Math.abs(value) <= MAX_AMOUNT_IN_CENTS)) {
      const form = inDollars === undefined ? 'whole cents, such as 123456' : 'such as 1234.56';
      problems.push(`${written(column)} must be ${form}`);
    }
    // "-0.00" is zero.
    return value === 0 ? 0 : value;
  };

  const status = cell('status');
  if (status !== undefined && status !== 'active' && status !== 'inactive') {
    problems.push('status must be active or inactive');
  }
  const due = cell('due_date');
  if (due !== undefined && due !== '' && !isDate(due)) {
    problems.push('due_date must be a date that exists, written YYYY-MM-DD');
  }
  const [first_name, last_name] = [name('first_name'), name('last_name')];
  if ((first_name === null) !== (last_name === null)) {
    problems.push('first_name and last_name must both be given or both be empty');
  }
  const amount_due_in_cents = cents('amount_due');
  if (amount_due_in_cents === null) problems.push(`${written('amount_due')} must not be empty`);
  const [minimum, maximum] = [cents('min_amount'), cents('max_amount')];
  for (const [column, value] of [
    ['min_amount', minimum],
    ['max_amount', maximum],
  ] as const) {
    if (typeof value === 'number' && value < 1)
      problems.push(`${written(column)} must be above zero`);
  }
  if (typeof minimum === 'number' && typeof maximum === 'number' && minimum > maximum) {
    problems.push(`${written('min_amount')} must not be above ${written('max_amount')}`);
  }
  return {
    account: {
      biller_id: id('biller_id', biller_id),
      account_id: id('account_id', undefined),
      status: status === 'active' || status === 'inactive' ? status : undefined,
      first_name,
      last_name,
      amount_due_in_cents: amount_due_in_cents ?? undefined,
      due_date: due === '' ? null : due,
      min_amount_in_cents: minimum,
      max_amount_in_cents: maximum,
    },
    problems,
  };
}

/**
 * Writes accounts as CSV again, in parts of at most `maxLength` characters, each with its header, for an admin API that takes a
 * limited text. All accounts must come from one file, so that they have the same columns.
 */
export function formatAccountsCsv(
  accounts: readonly ImportedAccount[],
  maxLength: number,
): string[] {
  const first = accounts[0];
  if (!first) return [];
  const names = writtenColumns.filter((name) => first[name] !== undefined);
  const header = `${names.join(',')}\n`;
  const parts: string[] = [];
  let part = header;
  for (const account of accounts) {
    const line = `${names.map((name) => quoted(account[name])).join(',')}\n`;
    if (part.length + line.length > maxLength && part !== header) {
      parts.push(part);
      part = header;
    }
    part += line;
  }
  return [...parts, part];
}

const writtenColumns = [
  'biller_id',
  'account_id',
  'status',
  'first_name',
  'last_name',
  'amount_due_in_cents',
  'due_date',
  'min_amount_in_cents',
  'max_amount_in_cents',
] as const;

function quoted(value: string | number | null | undefined): string {
  const text = String(value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
