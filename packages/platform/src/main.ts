/**
 * `duebridge platform …`: run the platform, and ask it through its admin API (decisions 30 and 32). Beside `serve` and `migrate`
 * nothing here touches the database: what the command line can do, any program with the admin key can do.
 */
import { environmentHelp, processTerminal, type Terminal } from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { addAudit } from './cli/audit.ts';
import { addBatches } from './cli/batches.ts';
import { addBulk } from './cli/bulk.ts';
import { addKeys } from './cli/keys.ts';
import { addMoney } from './cli/money.ts';
import { addOperators } from './cli/operators.ts';
import { addPartners } from './cli/partners.ts';
import { addPayments } from './cli/payments.ts';
import { addPeople } from './cli/people.ts';
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
  addPartners(command, terminal);
  addKeys(command, terminal);
  addPayments(command, terminal);
  addBulk(command, terminal);
  addBatches(command, terminal);
  addMoney(command, terminal);
  addPeople(command, terminal);
  addOperators(command, terminal);
  addAudit(command, terminal);
  return command;
}
