/**
 * `duebridge partner …` (decision 30). `serve` and `migrate` open the database; the others speak to the admin API of a running
 * server, like any operator's tool (decision 32).
 */
import type {
  AccountImportResult,
  AuditVerification,
  KitPaymentPage,
  PaymentRecord,
} from '@duebridge/contract';
import { fillPath, partnerAdminRoutes } from '@duebridge/contract';
import {
  CommandError,
  environmentHelp,
  exitCodes,
  jsonOption,
  print,
  processTerminal,
  progressReport,
  queryOf,
  readTextFile,
  unknownVariables,
  verifyAudit,
  type AuditVerifyOptions,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { formatAccountsCsv, parseAccountsCsv } from './accounts-csv.ts';
import { addCheckRemittance } from './cli/check-remittance.ts';
import {
  addOperating,
  adminOptions,
  ask,
  paymentTable,
  type AdminOptions,
} from './cli/operator.ts';
import { variables, variablesOfOthers } from './variables.ts';

/** Maximum CSV text per call of the admin API: under its limit of 60,000, and under 64 KiB when escaped as JSON. */
const IMPORT_PART_LENGTH = 50_000;

/** The command, for the `duebridge` entry point. A server's modules are loaded only when one is started. */
export function partnerCommand(terminal: Terminal = processTerminal): Command {
  const partner = new Command('partner')
    .description('run the partner kit; its accounts and payments')
    .addHelpText(
      'after',
      `${environmentHelp(variables)}

The commands that ask a running server read --url, DUEBRIDGE_ADMIN_URL, or ADMIN_PORT, and the admin key.
Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  partner
    .command('serve')
    .description('serve the operations of the interface and the admin API')
    .addHelpText('after', environmentHelp(variables))
    .option('--no-migrate', 'refuse a database that lacks a migration, instead of applying it')
    .option(
      '--accounts-url <url>',
      'an account service of your own (DUEBRIDGE_PARTNER_ACCOUNTS_URL)',
    )
    .option(
      '--accounts-sql <file>',
      'three statements on your tables (DUEBRIDGE_PARTNER_ACCOUNTS_SQL)',
    )
    .action(async (options: ServeOptions) => {
      const [{ createLogger, runService }, { readPartnerConfig }, { startPartner }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('./config.ts'),
          import('./server.ts'),
        ]);
      const { logLevel, ...config } = readPartnerConfig({
        ...terminal.env,
        ...(options.accountsUrl && { DUEBRIDGE_PARTNER_ACCOUNTS_URL: options.accountsUrl }),
        ...(options.accountsSql && { DUEBRIDGE_PARTNER_ACCOUNTS_SQL: options.accountsSql }),
      });
      const log = createLogger({
        name: 'partner',
        level: logLevel,
        privateKeys: config.auth.method === 'key' ? [config.auth.header] : [],
      });
      await runService({
        log,
        unknownVariables: unknownVariables(variables, terminal.env, variablesOfOthers),
        start: () => startPartner({ ...config, migrate: options.migrate, log }),
      });
    });
  partner
    .command('migrate')
    .description('apply missing migrations, then exit')
    .option('--distribute', 'refused: a ledger stays on one PostgreSQL server (decision 190)')
    .addOption(jsonOption())
    .action(async (options: { json?: true; distribute?: true }) => {
      if (options.distribute === true) {
        const { ConfigurationError } = await import('@duebridge/runtime');
        throw new ConfigurationError(
          'the tables of a partner are not distributed, because a cluster could show a payment as succeeded before the account shows it (decision 190): run migrate without --distribute, on one PostgreSQL server with a standby',
        );
      }
      const [{ createLogger }, { readDatabaseConfig }, { openPartnerDatabase }] = await Promise.all(
        [import('@duebridge/runtime'), import('./config.ts'), import('./server.ts')],
      );
      const log = createLogger({ name: 'partner', level: 'warn' });
      const opened = await openPartnerDatabase(
        { ...readDatabaseConfig(terminal.env), log },
        { beside: true },
      );
      await opened.close();
      print(terminal, options, { applied: opened.applied }, () =>
        opened.applied.length === 0
          ? 'The database is up to date.'
          : `Applied ${opened.applied.join(', ')}.`,
      );
    });

  partner
    .command('openapi')
    .description('print the OpenAPI document of the operations that a partner hosts')
    .option('--key-header <name>', 'with a static key in this header instead of OAuth 2.0')
    .action(async ({ keyHeader: header }: { keyHeader?: string }) => {
      const { partnerOpenApi } = await import('./server.ts');
      print(terminal, { json: true }, partnerOpenApi(header), () => '');
    });
  partner
    .command('accounts-openapi')
    .description('print the OpenAPI document of the service that --accounts-url calls')
    .action(async () => {
      const { accountServiceOpenApi } = await import('./server.ts');
      print(terminal, { json: true }, accountServiceOpenApi(), () => '');
    });
  partner
    .command('import-payments')
    .argument('<file>', 'CSV file in UTF-8; - for standard input')
    .option('--client <client_id>', 'whose payments they are', 'static-key')
    .addOption(jsonOption())
    .description('import the payments of a previous server, so that none is made twice')
    .action((file: string, options: FormerOptions) => importFormer(terminal, file, options));

  const accounts = partner.command('accounts').description('the accounts of the ledger');
  adminOptions(accounts.command('import'))
    .argument('<file>', 'CSV file in UTF-8; - for standard input')
    .option('--biller <id>', 'the biller of a file without the column biller_id')
    .option('--as-of <time>', 'when the amounts were true, such as 2026-03-01T02:00:00Z')
    .description('create and update accounts; imports nothing if any line is invalid')
    .action((file: string, options: ImportOptions) => importFile(terminal, file, options));

  adminOptions(partner.command('payments'))
    .description('list payments, newest first')
    .option('--status <status>', 'processing, succeeded, failed or canceled')
    .option('--biller <id>', 'of one biller')
    .option('--account <id>', 'of one account')
    .option('--batch <id>', 'of one batch')
    .option('--limit <n>', 'maximum number of rows, up to 1000', '100')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .action((options: PaymentsOptions) => showPayments(terminal, options));

  const audit = partner
    .command('audit')
    .description('the audit of events outside the normal life of payments');
  adminOptions(audit.command('verify'))
    .option('--expect <number:seal>', 'a seal noted earlier, which must still exist unchanged')
    .option('--after <number>', 'continue after this seal, up to which an earlier run compared')
    .description('compare the audit with its seals: was a line altered, removed or inserted?')
    .action((_own: AuditVerifyOptions, self: Command) => {
      // `audit` also has --url and --json, and consumes them first.
      const options = self.optsWithGlobals<AdminOptions & AuditVerifyOptions>();
      const path = partnerAdminRoutes.verify_kit_audit.path;
      return verifyAudit(terminal, options, (query) =>
        ask<AuditVerification>(terminal, options, 'GET', `${path}${query}`),
      );
    });

  const payment = partner.command('payment').description('act on one payment');
  adminOptions(payment.command('cancel'))
    .argument('<platform_payment_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .description('cancel a payment that is processing')
    .action((id: string, options: CancelOptions) => cancel(terminal, id, options));
  addOperating(partner, { payment, audit }, terminal);
  addCheckRemittance(partner, terminal);
  return partner;
}

interface ServeOptions {
  readonly migrate: boolean;
  readonly accountsUrl?: string;
  readonly accountsSql?: string;
}

interface ImportOptions extends AdminOptions {
  readonly asOf?: string;
  readonly biller?: string;
}

interface FormerOptions {
  readonly client: string;
  readonly json?: true;
}

interface PaymentsOptions extends AdminOptions {
  readonly status?: string;
  readonly biller?: string;
  readonly account?: string;
  readonly batch?: string;
  readonly limit: string;
  readonly cursor?: string;
}

interface CancelOptions extends AdminOptions {
  readonly reason: string;
}

async function importFile(terminal: Terminal, file: string, options: ImportOptions): Promise<void> {
  const parsed = parseAccountsCsv(await readTextFile(terminal, file), options.biller);
  if (!parsed.ok) {
    const lines = parsed.problems.map(({ path, problem }) => `  ${path}: ${problem}`);
    throw new CommandError(['nothing was imported:', ...lines].join('\n'), exitCodes.failed);
  }
  const sum = { created: 0, updated: 0, unchanged: 0 };
  // The whole file was validated above; it is sent in parts because a request has a size limit. An interrupted import can simply
  // be run again.
  const report = progressReport();
  for (const part of formatAccountsCsv(parsed.accounts, IMPORT_PART_LENGTH)) {
    let done: AccountImportResult;
    try {
      done = await ask<AccountImportResult>(
        terminal,
        options,
        'POST',
        partnerAdminRoutes.import_accounts.path,
        { csv: part, ...(options.asOf === undefined ? undefined : { as_of: options.asOf }) },
      );
    } catch (error) {
      throw interruptedImport(error, sum, parsed.accounts.length);
    }
    sum.created += done.created;
    sum.updated += done.updated;
    sum.unchanged += done.unchanged;
    const sent = sum.created + sum.updated + sum.unchanged;
    if (sent < parsed.accounts.length)
      report(`Imported ${sent} of ${parsed.accounts.length} accounts …`);
  }
  print(terminal, options, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

/** The error of one part, with how much of the file is stored already: otherwise it reads as if nothing were. */
function interruptedImport(error: unknown, sum: AccountImportResult, total: number): unknown {
  const imported = sum.created + sum.updated + sum.unchanged;
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
async function importFormer(
  terminal: Terminal,
  file: string,
  options: FormerOptions,
): Promise<void> {
  const [{ readDatabaseConfig }, { openPartnerDatabase }, former] = await Promise.all([
    import('./config.ts'),
    import('./server.ts'),
    import('./former-payments.ts'),
  ]);
  const parsed = former.parseFormerPayments(await readTextFile(terminal, file), options.client);
  if (!parsed.ok) {
    const lines = parsed.problems.map(({ path, problem }) => `  ${path}: ${problem}`);
    throw new CommandError(['nothing was imported:', ...lines].join('\n'), exitCodes.failed);
  }
  const opened = await openPartnerDatabase(readDatabaseConfig(terminal.env), { beside: true });
  try {
    const done = await former.importFormerPayments(opened.database, parsed.payments, parsed.sha256);
    print(terminal, options, done, () =>
      [
        `${done.imported} imported, ${done.known} known before`,
        ...(parsed.skipped > 0
          ? [`${parsed.skipped} left out: they have no payment_id, so this partner never had them`]
          : []),
        ...done.differing.map(
          (id) =>
            `  ${id} exists here with different contents, or its payment_id belongs to another payment`,
        ),
      ].join('\n'),
    );
  } finally {
    await opened.close();
  }
}

async function showPayments(terminal: Terminal, options: PaymentsOptions): Promise<void> {
  const page = await ask<KitPaymentPage>(
    terminal,
    options,
    'GET',
    `${partnerAdminRoutes.list_kit_payments.path}${queryOf({
      limit: options.limit,
      status: options.status,
      biller_id: options.biller,
      account_id: options.account,
      platform_batch_id: options.batch,
      cursor: options.cursor,
    })}`,
  );
  print(terminal, options, page, () => {
    const more = page.next_cursor === null ? '' : `\nMore: --cursor ${page.next_cursor}`;
    return paymentTable(page.payments) + more;
  });
}

async function cancel(terminal: Terminal, id: string, options: CancelOptions): Promise<void> {
  const path = fillPath(partnerAdminRoutes.cancel_payment.path, { platform_payment_id: id });
  const payment = await ask<PaymentRecord>(terminal, options, 'POST', path, {
    reason: options.reason,
  });
  print(terminal, options, payment, () => paymentTable([payment]));
}
