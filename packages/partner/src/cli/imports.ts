/**
 * `duebridge partner accounts import` and `import-payments`. Both open the database themselves, and read a file of any size twice without holding
 * it: once for what is wrong in it, because one bad line refuses it and all that are given with it, and once to import it.
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
import { checkCsv, CsvChanged, CsvRefused, type CsvText } from '../csv.ts';

/** Adds both commands. */
export function addImports(partner: Command, terminal: Terminal): void {
  partner
    .command('accounts')
    .description('the accounts of the ledger')
    .command('import')
    .argument('<files...>', 'CSV files in UTF-8; - for standard input')
    .option('--biller <biller_id>', 'of a file without the column biller_id')
    .option('--as-of <time>', 'when the amounts were true, such as 2026-03-01T02:00:00Z')
    .addOption(jsonOption())
    .description(
      'create and update accounts from CSV files; one bad line in any of them imports nothing',
    )
    .action((files: string[], options: AccountsOptions) =>
      importAccountFiles(terminal, files, options),
    );
  partner
    .command('import-payments')
    .argument('<file>', 'CSV file in UTF-8; - for standard input')
    .option('--client <client_id>', 'whose payments they are', 'static-key')
    .addOption(jsonOption())
    .description('import the payments of a previous server, so that none is made twice')
    .action((file: string, options: { client: string; json?: true }) =>
      importPayments(terminal, file, options),
    );
}

interface AccountsOptions {
  readonly biller?: string;
  readonly asOf?: string;
  readonly json?: true;
}

interface NamedFile {
  readonly name: string;
  readonly open: () => CsvText;
}

/** Opens the files and the database, and closes them after `work`; errors of a file are told as its user reads them. */
async function withFiles<T>(
  terminal: Terminal,
  names: readonly string[],
  work: (
    files: readonly NamedFile[],
    database: Database,
    billers: readonly BillerRules[] | undefined,
  ) => Promise<T>,
): Promise<T> {
  // What lines leave behind is collected at once. Otherwise V8 lets 150 MB of it lie, which is more than all else that an import needs.
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--optimize-for-size');
  const [{ readDatabaseConfig }, { openPartnerDatabase }] = await Promise.all([
    import('../config.ts'),
    import('../server.ts'),
  ]);
  const opened: { close(): Promise<void> }[] = [];
  try {
    const files: NamedFile[] = [];
    for (const name of names) {
      const file = await openTextFile(terminal, name);
      opened.push(file);
      files.push({ name: name === '-' ? 'standard input' : name, open: () => file.text() });
    }
    const config = readDatabaseConfig(terminal.env);
    const server = await openPartnerDatabase(config, { beside: true });
    opened.push(server);
    return await work(files, server.database, config.billers);
  } finally {
    await Promise.all(opened.map((one) => one.close()));
  }
}

/** The error of a file as its user reads it; a refused one is told line by line. */
function toldOf(error: unknown, name: string, before = ''): unknown {
  if (error instanceof CsvRefused) {
    const lines = error.problems.map(({ path, problem }) => `  ${name}, ${path}: ${problem}`);
    return new CommandError(['nothing was imported:', ...lines].join('\n'), exitCodes.failed);
  }
  if (!(error instanceof CsvChanged || error instanceof Refusal)) return error;
  const details = error instanceof Refusal ? (error.details ?? []) : [];
  const lines = details.map(({ path, problem }) => `\n  ${path} ${problem}`);
  return new CommandError(`${name}: ${error.message}${lines.join('')}${before}`, exitCodes.failed);
}

/** Imports the accounts of each file. All of them are checked before the first is stored. */
async function importAccountFiles(
  terminal: Terminal,
  names: readonly string[],
  { biller: biller_id, asOf: as_of, json }: AccountsOptions,
): Promise<void> {
  const { accountsKind, importAccountsFile } = await import('../accounts-csv.ts');
  const sum = await withFiles(terminal, names, async (files, database, billers) => {
    const options = { biller_id, billers, as_of, actor: 'operator' };
    const checked = [];
    for (const { name, open } of files) {
      const one = await checkCsv(accountsKind(options), open()).catch((error: unknown): never => {
        throw toldOf(error, name);
      });
      checked.push({ name, open, one });
    }
    const total = checked.reduce((accounts, { one }) => accounts + one.count, 0);
    const sums = { created: 0, updated: 0, unchanged: 0 };
    const report = progressReport();
    let [before, stored] = [0, 0];
    const progress = (of: number): void => {
      stored = before + of;
      if (stored < total) report(`Imported ${stored} of ${total} accounts …`);
    };
    for (const { name, open, one } of checked) {
      before = stored;
      const done = await importAccountsFile(database, open, one, { ...options, progress }).catch(
        (error: unknown): never => {
          const told = `\n${stored} of ${total} accounts were imported before that, in the order in which they were given; run the same import again to complete it`;
          throw toldOf(error, name, stored === 0 ? '' : told);
        },
      );
      sums.created += done.created;
      sums.updated += done.updated;
      sums.unchanged += done.unchanged;
    }
    return sums;
  });
  print(terminal, json ? { json } : {}, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

async function importPayments(
  terminal: Terminal,
  name: string,
  options: { readonly client: string; readonly json?: true },
): Promise<void> {
  const { importFormerPayments } = await import('../former-payments.ts');
  const done = await withFiles(terminal, [name], ([file], database) =>
    importFormerPayments(database, file?.open ?? (() => []), options.client).catch(
      (error: unknown): never => {
        const again = '; what was stored of it before stays: import it again';
        throw toldOf(error, file?.name ?? name, error instanceof CsvChanged ? again : '');
      },
    ),
  );
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
