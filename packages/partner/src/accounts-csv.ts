/**
 * Accounts as a billing system exports them: a CSV text (RFC 4180, UTF-8) whose first line names its columns, in any order.
 *
 *   account_id            required; byte-exact (decision 13)
 *   biller_id             required, unless a biller is given beside the file
 *   status                active or inactive; a new account is active
 *   first_name,last_name  both or neither
 *   amount_due            dollars with two decimals: 1234.56, -20.00 for a credit
 *   due_date              YYYY-MM-DD
 *   min_amount,max_amount what one payment may be, in dollars as well
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
import type { Database } from '@duebridge/runtime';
import type { BillerRules } from './account-system.ts';
import { importCsv, type CsvKind, type CsvText, type Progress } from './csv.ts';
import { importAccounts, type ImportedAccount, type ImportResult } from './ledger.ts';
import { noteImport } from './store.ts';

const columns: readonly string[] = [
  'biller_id',
  'account_id',
  'status',
  'first_name',
  'last_name',
  'due_date',
  'amount_due',
  'min_amount',
  'max_amount',
];

/** What a file of accounts may leave to its importer. */
export interface AccountsFile {
  /** Whose accounts they are, in a file without the column biller_id. */
  readonly biller_id?: string | undefined;
  /** The billers served here; undefined: all. */
  readonly billers?: readonly BillerRules[] | undefined;
}

/** Files of accounts. */
export function accountsKind(file: AccountsFile = {}): CsvKind<ImportedAccount> {
  const { billers } = file;
  const biller_id = file.biller_id ?? (billers?.length === 1 ? billers[0]?.biller_id : undefined);
  return {
    what: 'account',
    identity: (account) => `${account.biller_id}\n${account.account_id}`,
    header: (names) => problemsOfHeader(names, biller_id),
    read(cell, problems) {
      const account = readAccount(cell, problems, biller_id);
      if (billers?.every((one) => one.biller_id !== account.biller_id)) {
        problems.push('belongs to a biller that is not served here');
      }
      return account;
    },
  };
}

/**
 * Creates and updates accounts from a CSV text, a thousand a transaction; `open` gives it from the beginning, because it is read twice: one
 * bad line refuses the file. Throws Refusal INVALID_REQUEST that names the bad lines, and as `importAccounts` does. The audit gets one line with the digest of the file. An import can be repeated.
 */
export async function importAccountsFile(
  database: Database,
  open: () => CsvText,
  options: AccountsFile & {
    /** When the amounts were true (`importAccounts`). */
    readonly as_of?: string | undefined;
    readonly progress?: Progress;
  } = {},
): Promise<ImportResult> {
  const { as_of, progress } = options;
  const sum = { created: 0, updated: 0, unchanged: 0 };
  await importCsv({
    kind: accountsKind(options),
    open,
    async store(page) {
      const done = await importAccounts(database, page, as_of ?? null);
      sum.created += done.created;
      sum.updated += done.updated;
      sum.unchanged += done.unchanged;
    },
    note: (file_sha256) =>
      noteImport(database, 'accounts_imported', { file_sha256, ...sum, ...(as_of && { as_of }) }),
    progress,
  });
  return sum;
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
  const cents = (column: string): number | null | undefined => {
    const given = cell(column);
    if (given === undefined || given === '') return given === undefined ? undefined : null;
    // The decimal point is removed from the text, so that no fraction is ever computed.
    const value = /^-?\d{1,9}\.\d{2}$/.test(given) ? Number(given.replace('.', '')) : Number.NaN;
    if (!(Math.abs(value) <= MAX_AMOUNT_IN_CENTS)) {
      problems.push(`${column} must be such as 1234.56`);
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
  if (amount_due_in_cents === null) problems.push('amount_due must not be empty');
  const [minimum, maximum] = [cents('min_amount'), cents('max_amount')];
  for (const [column, value] of [
    ['min_amount', minimum],
    ['max_amount', maximum],
  ] as const) {
    if (typeof value === 'number' && value < 1) problems.push(`${column} must be above zero`);
  }
  if (typeof minimum === 'number' && typeof maximum === 'number' && minimum > maximum) {
    problems.push('min_amount must not be above max_amount');
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
