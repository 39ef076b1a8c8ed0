import {
  environmentHelp,
  jsonOption,
  print,
  unknownVariables,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { variables, variablesOfOthers } from '../variables.ts';

/** `duebridge platform serve` and `migrate`. The server's modules are loaded only when one is started. */
export function addServing(command: Command, terminal: Terminal): void {
  command
    .command('serve')
    .description('run the platform until it is stopped')
    .addHelpText('after', environmentHelp(variables))
    .option('--no-migrate', 'refuse a database that lacks a migration, instead of applying it')
    .action(async (options: { migrate: boolean }) => {
      const [{ createLogger, runService }, { readPlatformConfig }, { startPlatform }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('../config.ts'),
          import('../server.ts'),
        ]);
      const config = readPlatformConfig(terminal.env);
      const log = createLogger({ name: 'platform', level: config.logLevel });
      await runService({
        log,
        unknownVariables: unknownVariables(variables, terminal.env, variablesOfOthers),
        start: () => startPlatform({ ...config, migrate: options.migrate, log }),
      });
    });

  command
    .command('migrate')
    .description('apply missing migrations, then exit')
    .option('--distribute', 'then distribute the tables over the nodes of a Citus cluster')
    .addOption(jsonOption())
    .action(async (options: { json?: true; distribute?: true }) => {
      const [
        { createLogger },
        { readPlatformConfig },
        { openPlatformDatabase },
        { distributeTables },
      ] = await Promise.all([
        import('@duebridge/runtime'),
        import('../config.ts'),
        import('../server.ts'),
        import('../store/distribution.ts'),
      ]);
      const log = createLogger({ name: 'platform', level: 'warn' });
      const opened = await openPlatformDatabase(
        { ...readPlatformConfig(terminal.env), log },
        { beside: true },
      );
      const { applied } = opened;
      let distributed: string[] = [];
      try {
        if (options.distribute === true) distributed = await distributeTables(opened.database);
      } finally {
        await opened.close();
      }
      const result = options.distribute === true ? { applied, distributed } : { applied };
      print(terminal, options, result, () =>
        [
          applied.length === 0 ? 'The database is up to date.' : `Applied ${applied.join(', ')}.`,
          ...distributed.map((table) => `Distributed ${table}.`),
        ].join('\n'),
      );
    });
}
