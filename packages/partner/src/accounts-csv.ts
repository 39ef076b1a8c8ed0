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
} from '@duebridge/contract';
import { checkCsv, csvLines, csvRight, type CsvLine, type CsvText } from './csv.ts';
import type { ImportedAccount } from './ledger.ts';

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

/** Reads the accounts of a file, one by one. Takes its text and, for a file without the column biller_id, the biller. */
function readAccounts(text: CsvText, biller_id?: string): AsyncGenerator<CsvLine<ImportedAccount>> {
  return csvLines(text, {
    header: (names) => problemsOfHeader(names, biller_id),
    read: (cell, problems) => readAccount(cell, problems, biller_id),
  });
}

/** Reads a whole file and returns how many accounts it has. Throws CsvRefused that names every bad line. */
export function checkAccounts(text: CsvText, biller_id?: string): Promise<number> {
  return checkCsv(readAccounts(text, biller_id), {
    of: (account) => `${account.biller_id}\n${account.account_id}`,
    what: 'account',
  });
}

/** The accounts of a CSV text. Throws CsvRefused that names every bad line. */
export async function parseAccountsCsv(
  csv: string,
  biller_id?: string,
): Promise<ImportedAccount[]> {
  await checkAccounts([csv], biller_id);
  const accounts: ImportedAccount[] = [];
  for await (const account of csvRight(readAccounts([csv], biller_id))) accounts.push(account);
  return accounts;
}

function problemsOfHeader(header: readonly string[], biller_id: string | undefined): string[] {
  const problems: string[] = [];
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

function readAccount(
  written: (name: string) => string | undefined,
  problems: string[],
  biller_id: string | undefined,
): ImportedAccount {
  const cell = (name: string): string | undefined => written(name)?.trim();
  const id = (name: string, otherwise: string | undefined): string => {
    // Exactly as written: spaces belong to an id.
    const value = written(name) ?? otherwise ?? '';
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
  const named = (column: string): string =>
    written(column) === undefined ? `${column}_in_cents` : column;
  const cents = (column: string): number | null | undefined => {
    const [inDollars, inCents] = [cell(column), cell(`${column}_in_cents`)];
    const given = inDollars ?? inCents;
    if (given === undefined || given === '') return given === undefined ? undefined : null;
    const isRight = inDollars === undefined ? /^-?\d{1,11}$/ : /^-?\d{1,9}\.\d{2}$/;
    // The decimal point is removed from the text, so that no fraction is ever computed.
    const value = isRight.test(given) ? Number(given.replace('.', '')) : Number.NaN;
    if (!(Math.abs(value) <= MAX_AMOUNT_IN_CENTS)) {
      const form = inDollars === undefined ? 'whole cents, such as 123456' : 'such as 1234.56';
      problems.push(`${named(column)} must be ${form}`);
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
  if (amount_due_in_cents === null) problems.push(`${named('amount_due')} must not be empty`);
  const [minimum, maximum] = [cents('min_amount'), cents('max_amount')];
  for (const [column, value] of [
    ['min_amount', minimum],
    ['max_amount', maximum],
  ] as const) {
    if (typeof value === 'number' && value < 1)
      problems.push(`${named(column)} must be above zero`);
  }
  if (typeof minimum === 'number' && typeof maximum === 'number' && minimum > maximum) {
    problems.push(`${named('min_amount')} must not be above ${named('max_amount')}`);
  }
  return {
    biller_id: id('biller_id', biller_id),
    account_id: id('account_id', undefined),
    status: status === 'active' || status === 'inactive' ? status : undefined,
    first_name,
    last_name,
    amount_due_in_cents: amount_due_in_cents ?? undefined,
    due_date: due === '' ? null : due,
    min_amount_in_cents: minimum,
    max_amount_in_cents: maximum,
  };
}

/** Bytes of a part in JSON: under the 64 KiB that a server takes. Its shortest lines then are a thousand or two. */
const PART_BYTES = 50_000;

/** The accounts of a file that was checked, as CSV again, in parts for an admin API whose requests are limited. */
export async function* accountParts(
  text: CsvText,
  biller_id?: string,
): AsyncGenerator<{ readonly csv: string; readonly accounts: number }> {
  let [part, accounts, bytes] = ['', 0, 0];
  for await (const account of csvRight(readAccounts(text, biller_id))) {
    // All accounts of a file have the same columns.
    const names = writtenColumns.filter((name) => account[name] !== undefined);
    const row = `${names.map((name) => quoted(account[name])).join(',')}\n`;
    const more = Buffer.byteLength(JSON.stringify(row));
    if (accounts > 0 && bytes + more > PART_BYTES) {
      yield { csv: part, accounts };
      [accounts, bytes] = [0, 0];
    }
    part = accounts === 0 ? `${names.join(',')}\n${row}` : part + row;
    accounts += 1;
    bytes += more;
  }
  if (accounts > 0) yield { csv: part, accounts };
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
