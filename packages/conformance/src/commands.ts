/**
 * `npx @duebridge/conformance partner|platform|sandbox …`: the judge without the rest of duebridge, for a build server that only
 * checks a biller's endpoints. `duebridge conform` and `duebridge sandbox` are the same commands.
 */
import { CommanderError, type Command } from 'commander';
import { conformCommand, sandboxCommand } from './main.ts';

/** Exit code of a wrong command line (decision 30); a report sets 1 and 2 by itself. */
const EXIT_USAGE = 3;

const program = conformCommand()
  .name('duebridge-conform')
  .addCommand(sandboxCommand().name('sandbox'));
for (const command of everyCommand(program)) command.exitOverride();

// `duebridge … | head` closes our standard output early; that is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  throw error;
});

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof CommanderError)) throw error;
  // Commander has already printed its message. Asking for help is not an error.
  process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
}

function everyCommand(command: Command): Command[] {
  return [command, ...command.commands.flatMap(everyCommand)];
}
