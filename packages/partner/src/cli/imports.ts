/**
 * `duebridge partner accounts import` and `import-payments`. Both open the database themselves, and read a file of any size twice without holding
 * it: once for what is wrong in it, because one bad line refuses it, and once to import it.
 */
import { setFlagsFromString } from 'node:v8';
import { Refusal } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import {
  CommandError,
  exitCodes,
  jsonOption,
  openTextFile,
  print,
  progressReport,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import type { BillerRules } from '../account-system.ts';
import { variables } from '../variables.ts';
import type { CsvText, Progress } from '../csv.ts';

/** Adds both commands. */
export function addImports(partner: Command, terminal: Terminal): void {
  partner
    .command('accounts')
    .description('the accounts of the ledger')
    .command('import')
    .argument('<file>', 'CSV file in UTF-8; - for standard input')
    .option('--biller <biller_id>', 'of a file without the column biller_id')
    .option('--as-of <time>', 'when the amounts were true, such as 2026-03-01T02:00:00Z')
    .addOption(jsonOption())
    .description('create and update accounts from a CSV file; one bad line imports nothing')
    .action((file: string, options: AccountsOptions) => importAccounts(terminal, file, options));
  partner
    .command('import-payments')
    .argument('<file>', 'CSV file in UTF-8; - for standard input')
    .addOption(jsonOption())
    .description('import the payments of a previous server, so that none is made twice')
    .action((file: string, options: { json?: true }) => importPayments(terminal, file, options));
}

interface AccountsOptions {
  readonly biller?: string;
  readonly asOf?: string;
  readonly json?: true;
}

/**
 * Opens the file and the database, and closes them after `work`. Errors are printed for the file's user, and say how much of it is
 * stored. `what` the file has: accounts.
 */
async function withFile<T>(
  terminal: Terminal,
  name: string,
  what: string,
  work: (
    open: () => CsvText,
    server: { readonly database: Database; readonly billers: readonly BillerRules[] | undefined },
    progress: Progress,
  ) => Promise<T>,
): Promise<T> {
  // What lines leave behind is collected at once. Otherwise V8 lets 150 MB of it lie, which is more than all else that an import needs.
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--optimize-for-size');
  const [{ readConfig }, { openPartnerDatabase }] = await Promise.all([
    import('@duebridge/runtime'),
    import('../server.ts'),
  ]);
  const report = progressReport();
  let [stored, total] = [0, 0];
  const progress: Progress = (now, of) => {
    [stored, total] = [now, of];
    if (stored < total) report(`Imported ${stored} of ${total} ${what} …`);
  };
  const file = await openTextFile(terminal, name);
  try {
    const config = readConfig(variables, terminal.env);
    const { database, close } = await openPartnerDatabase(config);
    try {
      return await work(() => file.text(), { database, billers: config.billers }, progress);
    } finally {
      await close();
    }
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const shown = name === '-' ? 'standard input' : name;
    const head =
      stored === 0
        ? 'nothing was imported:'
        : `${stored} of ${total} ${what} were imported, in the order of the file; run the same import again when the rest is right:`;
    const lines = (error.details ?? []).map(
      ({ path, problem }) => `  ${shown}, ${path}: ${problem}`,
    );
    throw new CommandError([head, ...lines].join('\n'), exitCodes.failed);
  } finally {
    await file.close();
  }
}

async function importAccounts(
  terminal: Terminal,
  name: string,
  { biller: biller_id, asOf: as_of, ...options }: AccountsOptions,
): Promise<void> {
  const { importAccountsFile } = await import('../accounts-csv.ts');
  const sum = await withFile(terminal, name, 'accounts', (open, { database, billers }, progress) =>
    importAccountsFile(database, open, { biller_id, billers, as_of, progress }),
  );
  print(terminal, options, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

async function importPayments(
  terminal: Terminal,
  name: string,
  options: { readonly json?: true },
): Promise<void> {
  const { importFormerPayments } = await import('../former-payments.ts');
  const done = await withFile(terminal, name, 'payments', (open, { database }, progress) =>
    importFormerPayments(database, open, progress),
  );
  print(terminal, options, done, () =>
    [
      `${done.imported} imported, ${done.known} known before`,
      ...(done.skipped > 0
        ? [`${done.skipped} left out: they have no payment_id, so this partner never had them`]
        : []),
      ...done.differing.map((id) => `  ${id} exists here with different contents`),
    ].join('\n'),
  );
}
