import { jsonOption, print, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';

/** `duebridge platform serve` and `migrate`. A server is loaded only when one is started. */
export function addServing(command: Command, terminal: Terminal): void {
  command
    .command('serve')
    .description('run the platform until it is told to stop')
    .action(async () => {
      const [{ createLogger, runService }, { readPlatformConfig }, { startPlatform }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('../config.ts'),
          import('../server.ts'),
        ]);
      const config = readPlatformConfig(terminal.env);
      const log = createLogger({ name: 'platform', level: config.logLevel });
      await runService({ log, start: () => startPlatform({ ...config, log }) });
    });

  command
    .command('migrate')
    .description('bring the database to this version, and end')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const [{ createLogger }, { readPlatformConfig }, { openPlatformDatabase }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('../config.ts'),
          import('../server.ts'),
        ]);
      const config = readPlatformConfig(terminal.env);
      const closers: (() => Promise<unknown>)[] = [];
      let applied: string[] = [];
      try {
        await openPlatformDatabase(
          config,
          createLogger({ name: 'platform', level: 'warn' }),
          closers,
          (names) => {
            applied = names;
          },
        );
      } finally {
        for (const close of closers.toReversed()) await close();
      }
      print(terminal, options, { applied }, () =>
        applied.length === 0 ? 'The database is up to date.' : `Applied ${applied.join(', ')}.`,
      );
    });
}
