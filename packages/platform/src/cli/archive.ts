/** `duebridge platform archive`. Like `migrate`, it asks the database and not a running platform. */
import { constants, setPriority } from 'node:os';
import { Refusal } from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  jsonOption,
  misused,
  print,
  progressReport,
  type Terminal,
} from '@duebridge/runtime/cli';
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
    .option('--before <month>', 'the months before this one, such as 2027-01')
    .option('--to <folder>', 'where; each month gets a folder in it')
    .addOption(jsonOption())
    .action(async (options: { before?: string; to?: string; json?: true }) => {
      const { before, to: folder } = options;
      if (before === undefined || folder === undefined) {
        throw misused('give --before and --to; duebridge platform archive --help says more');
      }
      if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(before)) {
        throw misused(`--before ${before} is no month: give one such as 2027-01`);
      }
      lowerPriority();
      const months: ArchivedMonth[] = [];
      const report = progressReport();
      try {
        await withDatabase(terminal, async ({ database }) => {
          const { archiveMonths } = await import('../store/archive.ts');
          await archiveMonths({
            database,
            before,
            folder,
            clock: Date,
            actor: 'database-owner',
            archived: (month) => months.push(month),
            progress: report,
          });
        });
      } catch (error) {
        throw error instanceof Refusal ? new CommandError(error.message, exitCodes.failed) : error;
      } finally {
        const none = 'No month was archived.';
        print(terminal, options, { months }, () => months.map(said).join('\n') || none);
      }
    });
}

/** Almost half of the work is this process's, which compresses the files and reads them back: it leaves the processors to payments. */
function lowerPriority(): void {
  try {
    setPriority(constants.priority.PRIORITY_LOW);
  } catch {
    // A sandbox may forbid it, which is no reason to archive nothing.
  }
}

/** What was archived of a month, in a sentence. Pure. */
const said = ({ month, folder, payments, audit }: ArchivedMonth): string =>
  `Archived ${month} to ${folder}: ${payments.rows} payments, ${audit.rows} lines of the audit.`;
