/**
 * `duebridge platform …`: run the platform, and ask it through its admin API (decisions 30 and 32). Beside `serve` and `migrate`
 * nothing here touches the database: what the command line can do, any program with the admin key can do.
 */
import { processTerminal, type Terminal } from '@duebridge/runtime/cli';
import { Command } from 'commander';
import { addAudit } from './cli/audit.ts';
import { addBatches } from './cli/batches.ts';
import { addKeys } from './cli/keys.ts';
import { addOperators } from './cli/operators.ts';
import { addPartners } from './cli/partners.ts';
import { addPayments } from './cli/payments.ts';
import { addPeople } from './cli/people.ts';
import { addServing } from './cli/serving.ts';

/**
 * Makes the command. Errors are thrown: commander's own for wrong usage, and others whose `exitCode` is 1 (failed) or 2
 * (configuration).
 */
export function platformCommand(terminal: Terminal = processTerminal): Command {
  const command = new Command('platform')
    .description('run the platform; its partners, keys, payments, batches, reconciliation')
    .addHelpText(
      'after',
      `
Environment:
  HOST, PORT, ADMIN_HOST, ADMIN_PORT   where to listen; 127.0.0.1:4000 and 127.0.0.1:4001
  DATABASE_URL                         PostgreSQL to use; without it an embedded one
  DUEBRIDGE_DATA_DIR                   embedded database and generated secrets; .duebridge
  DUEBRIDGE_SEAL_KEY                   32 bytes in base64; required with DATABASE_URL
  DUEBRIDGE_KEY_PEPPER                 32 bytes in base64; required with DATABASE_URL
  DUEBRIDGE_ADMIN_KEY                  the deployment's admin key, or of the commands an operator's key;
                                       else kept in the data directory
  DUEBRIDGE_ADMIN_URL                  where the commands find it; http://127.0.0.1:4001
  DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES    1 admits partners at http and private addresses
  DUEBRIDGE_DATABASE_CONNECTIONS       database connections at most, at least 6; 20
  DUEBRIDGE_CLIENT_RATE                tokens a second for each client, twice that in a burst; 25
  DUEBRIDGE_IP_RATE                    calls a second from one address; 200, 0 for no limit
  DUEBRIDGE_RETENTION_DAYS             days personal data of customers who paid is kept; 90
  DUEBRIDGE_SECOND_PERSON_ABOVE_CENTS  closing a review of more needs a second person; 100000
  LOG_LEVEL                            debug, info, warn, error or silent; info

Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  addServing(command, terminal);
  addPartners(command, terminal);
  addKeys(command, terminal);
  addPayments(command, terminal);
  addBatches(command, terminal);
  addPeople(command, terminal);
  addOperators(command, terminal);
  addAudit(command, terminal);
  return command;
}
