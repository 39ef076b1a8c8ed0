/**
 * The commands that ask a running partner server, over the operations of its admin API (decision 32). What a command takes follows
 * from its operation; its options have the names that they have on the platform's side.
 *
 * A table: one line per command, and below it what they print for people.
 */
import {
  formatCents,
  partnerAdminRoutes as routes,
  type BatchStatement,
  type KitAuditEntry,
  type KitAuditPage,
  type KitPaymentDetail,
  type KitPaymentPage,
  type PaymentRecord,
} from '@duebridge/contract';
import {
  auditVerifyLine,
  columns,
  line,
  readAdmin,
  table,
  type CommandTable,
} from '@duebridge/runtime/cli';

/** The server that the commands ask. */
export const TARGET = { server: 'partner', defaultPort: 4101 } as const;

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
    line('payments', routes.list_kit_payments, paymentPage),
    line('payment show', routes.get_kit_payment, paymentStory),
    line('payment cancel', routes.cancel_payment, onePayment),
    line('payment settle', routes.settle_payment, onePayment),
    line('batch show', routes.get_kit_batch, statement),
    line('batch export', routes.export_kit_batch, String, {
      help: 'the lines of a batch as CSV: the file that the platform reconciles with',
      run: async ({ terminal, request }) => {
        for await (const text of readAdmin(terminal, TARGET, request.path)) terminal.write(text);
      },
    }),
    line('audit', routes.list_kit_audit, auditPage),
    auditVerifyLine(routes.verify_kit_audit),
  ],
};

function facts(one: object): string {
  return columns(Object.entries(one).map(([name, value]) => [name, String(value ?? 'never')]));
}

function more(next_cursor: string | null): string {
  return next_cursor === null ? '' : `\nMore: --cursor ${next_cursor}`;
}

function payments(rows: readonly PaymentRecord[]): string {
  return table(
    ['ACCEPTED', 'PAYMENT', 'STATUS', 'AMOUNT', 'BILLER', 'ACCOUNT', 'REASON'],
    rows.map((one) => [
      one.initiated_at,
      one.platform_payment_id,
      one.status,
      formatCents(one.amount_in_cents),
      one.biller_id,
      one.account_id,
      one.failure_reason ?? '-',
    ]),
  );
}

function onePayment(payment: PaymentRecord): string {
  return payments([payment]);
}

function paymentPage(page: KitPaymentPage): string {
  return payments(page.payments) + more(page.next_cursor);
}

function paymentStory({ payment, audit }: KitPaymentDetail): string {
  return `${facts(payment)}\n\n${auditLines(audit)}`;
}

function auditLines(entries: readonly KitAuditEntry[]): string {
  return table(
    ['AT', 'EVENT', 'PAYMENT', 'BY', 'DETAIL'],
    entries.map((one) => [
      one.at,
      one.event,
      one.platform_payment_id ?? '-',
      one.actor,
      JSON.stringify(one.detail),
    ]),
  );
}

function auditPage(page: KitAuditPage): string {
  return auditLines(page.entries) + more(page.next_cursor);
}

function statement({ totals, platform_batch_id, count, sha256 }: BatchStatement): string {
  const rows = totals.map((one) => [
    one.status,
    String(one.count),
    formatCents(one.amount_in_cents),
  ]);
  return `${facts({ platform_batch_id, count, sha256 })}\n\n${table(['STATUS', 'PAYMENTS', 'AMOUNT'], rows)}`;
}
