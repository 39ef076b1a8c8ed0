/**
 * `duebridge partner accounts import` and `import-payments`. A file of any size is read twice and never held: once for what is wrong in
 * it, because one bad line refuses it and all that are given with it, and once to import it.
 */
import { randomUUID } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import {
  partnerAdminRoutes,
  type AccountImport,
  type AccountImportResult,
} from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  openTextFile,
  print,
  progressReport,
  type CommandRun,
  type Terminal,
  type TextFile,
} from '@duebridge/runtime/cli';
import { accountParts, checkAccounts } from '../accounts-csv.ts';
import { CsvChanged, CsvRefused, digested } from '../csv.ts';
import type { FormerPaymentsResult } from '../former-payments.ts';

/** What lines leave behind is collected at once. Otherwise V8 lets 150 MB of it lie, which is more than all else that an import needs. */
function saveMemory(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--optimize-for-size');
}

interface NamedFile extends TextFile {
  readonly name: string;
}

async function openNamed(terminal: Terminal, file: string): Promise<NamedFile> {
  saveMemory();
  const opened = await openTextFile(terminal, file);
  return { name: file === '-' ? 'standard input' : file, ...opened };
}

/** The error of a file as its user reads it; a refused one is told line by line. */
function toldOf(error: unknown, { name }: NamedFile): unknown {
  if (error instanceof CsvChanged) {
    return new CommandError(`${name}: ${error.message}`, exitCodes.failed);
  }
  if (!(error instanceof CsvRefused)) return error;
  const lines = error.problems.map(({ path, problem }) => `  ${name}, ${path}: ${problem}`);
  return new CommandError(['nothing was imported:', ...lines].join('\n'), exitCodes.failed);
}

/** Imports the accounts of each file. All of them are checked before the first is sent. */
export async function importAccountFiles(run: CommandRun): Promise<void> {
  if (run.values.length === 0) throw new CommandError('give a file', exitCodes.usage);
  const biller = run.options['biller'] as string | undefined;
  const checked: CheckedFile[] = [];
  let sum: AccountImportResult;
  try {
    for (const name of run.values) {
      const file = await openNamed(run.terminal, name);
      checked.push({ file, part_of: await checkedPlan(file, biller) });
    }
    sum = await sendAccounts(run, checked, biller);
  } finally {
    await Promise.all(checked.map(({ file }) => file.close()));
  }
  print(run.terminal, run.options, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

interface CheckedFile {
  readonly file: NamedFile;
  readonly part_of: Plan;
}

type Plan = NonNullable<AccountImport['part_of']>;

/** What each part of the file says of the whole. A file that is refused is closed. */
async function checkedPlan(file: NamedFile, biller: string | undefined): Promise<Plan> {
  let file_sha256 = '';
  const text = digested(file.text(), (sha256) => void (file_sha256 = sha256));
  try {
    const accounts = await checkAccounts(text, biller);
    return { import_id: randomUUID(), file_sha256, accounts };
  } catch (error) {
    await file.close();
    throw toldOf(error, file);
  }
}

async function sendAccounts(
  { request, ask }: CommandRun,
  files: readonly CheckedFile[],
  biller: string | undefined,
): Promise<AccountImportResult> {
  const sum = { created: 0, updated: 0, unchanged: 0 };
  const total = files.reduce((accounts, { part_of }) => accounts + part_of.accounts, 0);
  const report = progressReport();
  let imported = 0;
  for (const { file, part_of } of files) {
    const text = digested(file.text(), (sha256) => {
      if (sha256 !== part_of.file_sha256) throw new CsvChanged();
    });
    try {
      // It is sent in parts because a request has a size limit. An interrupted import can simply be run again.
      for await (const part of accountParts(text, biller)) {
        const body = { ...request.body, csv: part.csv, part_of };
        const done = await ask<AccountImportResult>(
          'POST',
          partnerAdminRoutes.import_accounts.path,
          body,
        );
        sum.created += done.created;
        sum.updated += done.updated;
        sum.unchanged += done.unchanged;
        imported += part.accounts;
        if (imported < total) report(`Imported ${imported} of ${total} accounts …`);
      }
    } catch (error) {
      throw interruptedImport(toldOf(error, file), imported, total);
    }
  }
  return sum;
}

/** The error of one part, with how much of all files is stored already: otherwise it reads as if nothing were. */
function interruptedImport(error: unknown, imported: number, total: number): unknown {
  if (!(error instanceof CommandError) || imported === 0) return error;
  // An error with a cause leaves the outcome of its own part unknown.
  const stored = error.cause === undefined ? `${imported}` : `at least ${imported}`;
  return new CommandError(
    `${error.message}\n${stored} of ${total} accounts were imported before that, in the order in which they were given; run the same import again to complete it`,
    error.exitCode,
    error.cause === undefined ? undefined : { cause: error.cause },
  );
}

/** Opens the database itself: payments are moved from another server before the first start of this one. */
export async function importPayments(
  terminal: Terminal,
  file: string,
  options: { readonly client: string; readonly json?: true },
): Promise<void> {
  const [{ readDatabaseConfig }, { openPartnerDatabase }, { importFormerPayments }] =
    await Promise.all([
      import('../config.ts'),
      import('../server.ts'),
      import('../former-payments.ts'),
    ]);
  const opened = await openNamed(terminal, file);
  let done: FormerPaymentsResult;
  try {
    const { database, close } = await openPartnerDatabase(readDatabaseConfig(terminal.env), {
      beside: true,
    });
    try {
      done = await importFormerPayments(database, () => opened.text(), options.client);
    } finally {
      await close();
    }
  } catch (error) {
    throw toldOf(error, opened);
  } finally {
    await opened.close();
  }
  print(terminal, options, done, () =>
    [
      `${done.imported} imported, ${done.known} known before`,
      ...(done.skipped > 0
        ? [`${done.skipped} left out: they have no payment_id, so this partner never had them`]
        : []),
      ...done.differing.map(
        (id) =>
          `  ${id} exists here with different contents, or its payment_id belongs to another payment`,
      ),
    ].join('\n'),
  );
}
