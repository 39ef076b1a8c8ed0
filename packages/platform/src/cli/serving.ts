import type { ServerDatabase } from '@duebridge/runtime';
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
    .option(
      '--finish',
      'also take away what only the version before needs: none of its processes runs or will be started again',
    )
    .option('--distribute', 'then distribute the tables over the nodes of a Citus cluster')
    .addOption(jsonOption())
    .action(async (options: { json?: true; finish?: true; distribute?: true }) => {
      const work = async ({ database, applied }: ServerDatabase) => {
        const [{ waitingMigrations }, { migrations }] = await Promise.all([
          import('@duebridge/runtime'),
          import('../migrations.ts'),
        ]);
        const waiting = await waitingMigrations(database, migrations);
        if (options.distribute !== true) return { applied, waiting };
        const { distributeTables } = await import('../store/distribution.ts');
        return { applied, waiting, distributed: await distributeTables(database) };
      };
      const result = await withDatabase(terminal, work, options.finish);
      print(terminal, options, result, () => {
        const { applied, waiting, distributed = [] } = result;
        const said = [
          applied.length === 0 ? 'The database is up to date.' : `Applied ${applied.join(', ')}.`,
        ];
        if (waiting.length > 0) {
          said.push(
            `Waiting: ${waiting.join(', ')}. Run this with --finish once no process of the version before is left and you will not go back to it.`,
          );
        }
        return [...said, ...distributed.map((table) => `Distributed ${table}.`)].join('\n');
      });
    });
}

/**
 * Gives `work` the database of the environment, as the owner of its tables and beside servers that run, migrated; closes it when `work` has ended,
 * whose result it gives. `finish`: with the final migrations too. Throws ConfigurationError where the environment or the database is wrong. Its modules are loaded here.
 */
export async function withDatabase<T>(
  { env }: Terminal,
  work: (opened: ServerDatabase) => Promise<T>,
  finish = false,
): Promise<T> {
  const [runtime, config, server] = await Promise.all([
    import('@duebridge/runtime'),
    import('../config.ts'),
    import('../server.ts'),
  ]);
  const log = runtime.createLogger({ name: 'platform', level: 'warn' });
  const opened = await server.openPlatformDatabase({
    ...config.readPlatformConfig(env),
    log,
    beside: true,
    finish,
  });
  try {
    return await work(opened);
  } finally {
    await opened.close();
  }
}
