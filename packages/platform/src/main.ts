/**
 * `duebridge platform …`: run the platform, and ask it through its admin API (decisions 30 and 32). Beside `serve`, `migrate` and
 * `archive` nothing here touches the database: what the command line can do, any program with the admin key can do.
 */
import {
  addCommands,
  environmentHelp,
  processTerminal,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { addArchive } from './cli/archive.ts';
import { COMMANDS } from './cli/commands.ts';
import { addServing } from './cli/serving.ts';
import { variables } from './variables.ts';

/**
 * Makes the command. Errors are thrown: commander's own for wrong usage, and others whose `exitCode` is 1 (failed) or 2
 * (configuration).
 */
export function platformCommand(terminal: Terminal = processTerminal): Command {
  const command = new Command('platform')
    .description('run the platform; its partners, keys, payments, batches, reconciliation')
    .addHelpText(
      'after',
      `${environmentHelp(variables)}

The commands that ask a running platform read DUEBRIDGE_ADMIN_URL, or ADMIN_PORT, and the admin key or an operator's.
Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  addServing(command, terminal);
  addArchive(command, terminal);
  addCommands(command, COMMANDS, terminal);
  return command;
}
