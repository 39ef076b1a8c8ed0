/**
 * The commands that ask a running partner server, over the operations of its admin API (decision 32). What a command takes follows
 * from its operation; its options have the names that they have on the platform's side.
 *
 * A table: one line per command.
 */
import {
  partnerAdminRoutes as routes,
  type KitAuditEntry,
  type PaymentRecord,
} from '@duebridge/contract';
import { auditVerifyLine, facts, line, tableOf, type CommandTable } from '@duebridge/runtime/cli';

/** The server that the commands ask. */
export const TARGET = { server: 'partner', defaultPort: 4101 } as const;

const payments = tableOf<PaymentRecord>(
  'initiated_at',
  'platform_payment_id',
  'status',
  'amount_in_cents',
  'biller_id',
  'account_id',
  'failure_reason',
);

export const COMMANDS: CommandTable = {
  target: TARGET,
  groups: {
    payment: 'read or act on one payment',
    batch: 'a batch, as the payments here have it',
  },
  words: {
    platform_batch_id: { flags: '--batch <id>', help: 'of one batch' },
    platform_payment_id: { flags: '--payment <id>', help: 'of one payment' },
    status: { help: 'processing, succeeded, failed or canceled' },
    biller_id: { flags: '--biller <biller_id>', help: 'of one biller' },
    account_id: { flags: '--account <account_id>', help: 'of one account' },
    event: { help: 'of one kind, such as canceled or accounts_imported' },
    limit: { flags: '--limit <n>', help: 'maximum number of rows' },
    cursor: { help: 'continue from the next_cursor of the previous page' },
    reason: { flags: '--reason <text>' },
    outcome: { help: 'the result in the biller’s own system' },
    posted_at: { flags: '--posted-at <time>' },
    failure_reason: { flags: '--failure-reason <text>' },
  },
  lines: [
    line('payments', routes.list_kit_payments, payments),
    line('payment show', routes.get_kit_payment, ({ payment, audit }) =>
      facts({ ...payment, audit }),
    ),
    line('payment cancel', routes.cancel_payment, payments),
    line('payment settle', routes.settle_payment, payments),
    line('batch show', routes.get_kit_batch, facts),
    line('batch export', routes.export_kit_batch, String, {
      help: 'the lines of a batch as CSV: the file that the platform reconciles with',
    }),
    line(
      'audit',
      routes.list_kit_audit,
      tableOf<KitAuditEntry>('at', 'event', 'platform_payment_id', 'actor', 'detail'),
    ),
    auditVerifyLine(routes.verify_kit_audit),
  ],
};
