/**
 * `duebridge partner …` (decision 30). `serve` and `migrate` open the database; the others speak to the admin API of a running
 * server, like any operator's tool (decision 32).
 */
import {
  addCommands,
  environmentHelp,
  jsonOption,
  print,
  processTerminal,
  unknownVariables,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { addCheckRemittance } from './cli/check-remittance.ts';
import { COMMANDS } from './cli/commands.ts';
import { addImports } from './cli/imports.ts';
import { variables, variablesOfOthers } from './variables.ts';

/** The command, for the `duebridge` entry point. A server's modules are loaded only when one is started. */
export function partnerCommand(terminal: Terminal = processTerminal): Command {
  const partner = new Command('partner')
    .description('run the partner kit; its accounts and payments')
    .addHelpText(
      'after',
      `${environmentHelp(variables)}

The commands that ask a running server read DUEBRIDGE_ADMIN_URL, or ADMIN_PORT, and the admin key.
Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  addServing(partner, terminal);
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
  addImports(partner, terminal);
  addCommands(partner, COMMANDS, terminal);
  addCheckRemittance(partner, terminal);
  return partner;
}

/** `serve` and `migrate`. The server's modules are loaded only when one is started. */
function addServing(partner: Command, terminal: Terminal): void {
  partner
    .command('serve')
    .description('serve the operations of the interface and the admin API')
    .addHelpText('after', environmentHelp(variables))
    .option('--no-migrate', 'refuse a database that lacks a migration, instead of applying it')
    .option(
      '--accounts-url <url>',
      'an account service of your own (DUEBRIDGE_PARTNER_ACCOUNTS_URL)',
    )
    .action(async (options: { migrate: boolean; accountsUrl?: string }) => {
      const [{ createLogger, runService }, { readPartnerConfig }, { startPartner }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('./config.ts'),
          import('./server.ts'),
        ]);
      const { logLevel, ...config } = readPartnerConfig({
        ...terminal.env,
        ...(options.accountsUrl && { DUEBRIDGE_PARTNER_ACCOUNTS_URL: options.accountsUrl }),
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
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const [{ createLogger, readConfig }, { openPartnerDatabase }] = await Promise.all([
        import('@duebridge/runtime'),
        import('./server.ts'),
      ]);
      const log = createLogger({ name: 'partner', level: 'warn' });
      const config = readConfig(variables, terminal.env);
      const opened = await openPartnerDatabase({ ...config, log, beside: true });
      await opened.close();
      print(terminal, options, { applied: opened.applied }, () =>
        opened.applied.length === 0
          ? 'The database is up to date.'
          : `Applied ${opened.applied.join(', ')}.`,
      );
    });
}
