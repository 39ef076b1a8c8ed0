/** `duebridge platform archive`. Like `migrate`, it asks the database and not a running platform. */
import { Refusal } from '@duebridge/contract';
import { CommandError, exitCodes, jsonOption, print, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import type { ArchivedMonth } from '../store/archive.ts';
import { withDatabase } from './serving.ts';

/** Adds the command to `platform`. Its modules are loaded only when it runs. */
export function addArchive(command: Command, terminal: Terminal): void {
  command
    .command('archive')
    .description(
      'write months that are over to files and drop what is in them; as the owner of the tables',
    )
    .requiredOption('--before <month>', 'the months before this one, such as 2027-01')
    .requiredOption('--to <folder>', 'where; each month gets a folder in it')
    .addOption(jsonOption())
    .action(async (options: { before: string; to: string; json?: true }) => {
      if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(options.before)) {
        throw new CommandError(
          `--before ${options.before} is no month: give one such as 2027-01`,
          exitCodes.usage,
        );
      }
      const months: ArchivedMonth[] = [];
      try {
        await withDatabase(terminal, async ({ database }) => {
          const [{ archiveMonths }, { systemClock }] = await Promise.all([
            import('../store/archive.ts'),
            import('@duebridge/runtime'),
          ]);
          await archiveMonths({
            database,
            before: options.before,
            folder: options.to,
            clock: systemClock,
            actor: 'database-owner',
            archived: (month) => months.push(month),
          });
        });
      } catch (error) {
        throw error instanceof Refusal ? new CommandError(error.message, exitCodes.failed) : error;
      } finally {
        print(terminal, options, { months }, () => said(months));
      }
    });
}

/** What was archived, in sentences. Pure. */
function said(months: readonly ArchivedMonth[]): string {
  if (months.length === 0) return 'No month was archived.';
  return months
    .map(
      ({ month, folder, payments, audit }) =>
        `Archived ${month} to ${folder}: ${payments.rows} payments, ${audit.rows} lines of the audit.`,
    )
    .join('\n');
}
