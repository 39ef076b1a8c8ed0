/**
 * `duebridge partner accounts import` and `import-payments`. A file of any size is read twice and never held: once for what is wrong in
 * it, because one bad line refuses it, and once to import it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { partnerAdminRoutes, type AccountImportResult } from '@duebridge/contract';
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
import { CsvRefused } from '../csv.ts';

/** What lines leave behind is collected at once. Otherwise V8 lets 150 MB of it lie, which is more than all else that an import needs. */
function saveMemory(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--optimize-for-size');
}

/** Runs `work` on an open file; a refused one is told line by line. */
async function withFile<T>(
  terminal: Terminal,
  file: string,
  work: (opened: TextFile) => Promise<T>,
): Promise<T> {
  saveMemory();
  const opened = await openTextFile(terminal, file);
  try {
    return await work(opened);
  } catch (error) {
    if (!(error instanceof CsvRefused)) throw error;
    const lines = error.problems.map(({ path, problem }) => `  ${path}: ${problem}`);
    throw new CommandError(['nothing was imported:', ...lines].join('\n'), exitCodes.failed);
  } finally {
    await opened.close();
  }
}

/** Imports the accounts of each file. */
export async function importAccountFiles(run: CommandRun): Promise<void> {
  if (run.values.length === 0) throw new CommandError('give a file', exitCodes.usage);
  const sum = { created: 0, updated: 0, unchanged: 0 };
  for (const file of run.values) {
    await withFile(run.terminal, file, (opened) => importAccountFile(run, opened, sum));
  }
  print(run.terminal, run.options, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

async function importAccountFile(
  { request, options, ask }: CommandRun,
  file: TextFile,
  sum: { created: number; updated: number; unchanged: number },
): Promise<void> {
  const biller = options['biller'] as string | undefined;
  const digest = createHash('sha256');
  const watched = async function* (): AsyncGenerator<string> {
    for await (const chunk of file.text()) {
      digest.update(chunk);
      yield chunk;
    }
  };
  const accounts = await checkAccounts(watched(), biller);
  const part_of = { import_id: randomUUID(), file_sha256: digest.digest('hex'), accounts };
  const report = progressReport();
  let imported = 0;
  // It is sent in parts because a request has a size limit. An interrupted import can simply be run again.
  for await (const part of accountParts(file.text(), biller)) {
    const body = { ...request.body, csv: part.csv, part_of };
    const done = await ask<AccountImportResult>(
      'POST',
      partnerAdminRoutes.import_accounts.path,
      body,
    ).catch((error: unknown) => {
      throw interruptedImport(error, imported, accounts);
    });
    sum.created += done.created;
    sum.updated += done.updated;
    sum.unchanged += done.unchanged;
    imported += part.accounts;
    if (imported < accounts) report(`Imported ${imported} of ${accounts} accounts …`);
  }
}

/** The error of one part, with how much of the file is stored already: otherwise it reads as if nothing were. */
function interruptedImport(error: unknown, imported: number, total: number): unknown {
  if (!(error instanceof CommandError) || imported === 0) return error;
  // An error with a cause leaves the outcome of its own part unknown.
  const stored = error.cause === undefined ? `${imported}` : `at least ${imported}`;
  return new CommandError(
    `${error.message}\n${stored} of ${total} accounts were imported before that, in the order of the file; run the same import again to complete it`,
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
  const done = await withFile(terminal, file, async (opened) => {
    const { database, close } = await openPartnerDatabase(readDatabaseConfig(terminal.env), {
      beside: true,
    });
    try {
      return await importFormerPayments(database, () => opened.text(), options.client);
    } finally {
      await close();
    }
  });
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
