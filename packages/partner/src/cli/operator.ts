/**
 * `duebridge partner batch`, `payment show` and `settle`, `credential` and `audit`: the kit operator's commands, through its
 * admin API.
 */
import type {
  BatchStatement,
  KitAuditEntry,
  KitAuditPage,
  KitBatchPage,
  KitCredential,
  KitCredentialGrant,
  KitCredentialList,
  KitPaymentDetail,
  KitTokensRevoked,
  PaymentRecord,
} from '@duebridge/contract';
import { fillPath, formatCents, partnerAdminRoutes } from '@duebridge/contract';
import {
  askAdmin,
  columns,
  jsonOption,
  print,
  queryOf,
  readAdmin,
  table,
  wholeDays,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Option, type Command } from 'commander';

/** The options of every command here. */
export interface AdminOptions {
  readonly url?: string;
  readonly json?: true;
}

interface PageOptions extends AdminOptions {
  readonly limit?: string;
  readonly cursor?: string;
}

interface ReasonOptions extends AdminOptions {
  readonly reason: string;
}

interface SettleOptions extends ReasonOptions {
  readonly outcome: string;
  readonly postedAt?: string;
  readonly failureReason?: string;
}

/** Adds `--url` and `--json`. */
export function adminOptions(command: Command): Command {
  return command
    .option('--url <url>', 'address of the admin API (default http://127.0.0.1:4101)')
    .addOption(jsonOption());
}

/** One call of the kit's admin API; throws CommandError with one sentence for anything but success. */
export function ask<Reply>(
  terminal: Terminal,
  options: AdminOptions,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
): Promise<Reply> {
  return askAdmin<Reply>(terminal, targetOf(options), method, path, body);
}

/** The whole of an answer that is streamed. */
export async function readAll(
  terminal: Terminal,
  options: AdminOptions,
  path: string,
): Promise<string> {
  let text = '';
  for await (const piece of readAdmin(terminal, targetOf(options), path)) text += piece;
  return text;
}

function targetOf({ url }: AdminOptions) {
  return { server: 'partner', defaultPort: 4101, url } as const;
}

/** Payments for people. */
export function paymentTable(payments: readonly PaymentRecord[]): string {
  return table(
    ['ACCEPTED', 'PAYMENT', 'STATUS', 'AMOUNT', 'BILLER', 'ACCOUNT', 'REASON'],
    payments.map((one) => [
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

/** Adds the commands; `payment` is the group that has `cancel`, `audit` the one that has `verify`. */
export function addOperating(
  partner: Command,
  { payment, audit }: { readonly payment: Command; readonly audit: Command },
  terminal: Terminal,
): void {
  addPaymentCommands(payment, terminal);
  addBatches(partner, terminal);
  addCredentials(partner, terminal);
  // Options after `verify` belong to verify.
  adminOptions(audit.enablePositionalOptions())
    .description('the audit of events outside the normal life of payments, newest first')
    .option('--payment <platform_payment_id>', 'of one payment')
    .option('--event <event>', 'of one kind, such as canceled or credential_revoked')
    .option('--limit <n>', 'maximum number of rows, up to 1000 (default 100)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .action(async (options: PageOptions & { payment?: string; event?: string }) => {
      const { payment: platform_payment_id, event, limit, cursor } = options;
      const query = queryOf({ platform_payment_id, event, limit, cursor });
      const path = `${partnerAdminRoutes.list_kit_audit.path}${query}`;
      const page = await ask<KitAuditPage>(terminal, options, 'GET', path);
      print(terminal, options, page, () => auditTable(page.entries) + more(page.next_cursor));
    });
}

function addPaymentCommands(payment: Command, terminal: Terminal): void {
  adminOptions(payment.command('show'))
    .argument('<platform_payment_id>')
    .description('one payment and its audit')
    .action(async (platform_payment_id: string, options: AdminOptions) => {
      const path = fillPath(partnerAdminRoutes.get_kit_payment.path, { platform_payment_id });
      const detail = await ask<KitPaymentDetail>(terminal, options, 'GET', path);
      print(terminal, options, detail, () => {
        const facts = Object.entries(detail.payment).map(([name, value]) => [name, String(value)]);
        return `${columns(facts)}\n\n${auditTable(detail.audit)}`;
      });
    });
  adminOptions(payment.command('settle'))
    .argument('<platform_payment_id>')
    .addOption(
      new Option('--outcome <outcome>', 'the result in the biller’s own system')
        .choices(['posted', 'failed', 'canceled'])
        .makeOptionMandatory(),
    )
    .option('--posted-at <time>', 'when it was posted, such as 2026-03-01T09:30:00Z; default now')
    .option('--failure-reason <text>', 'with failed: why, in words for the customer')
    .requiredOption('--reason <text>', 'kept in the audit')
    .description('end a processing payment with the result of the biller’s own system')
    .action(async (platform_payment_id: string, options: SettleOptions) => {
      const path = fillPath(partnerAdminRoutes.settle_payment.path, { platform_payment_id });
      const { outcome, postedAt: posted_at, failureReason: failure_reason, reason } = options;
      const body = { outcome, posted_at, failure_reason, reason };
      const settled = await ask<PaymentRecord>(terminal, options, 'POST', path, body);
      print(terminal, options, settled, () => paymentTable([settled]));
    });
}

function addBatches(partner: Command, terminal: Terminal): void {
  const batch = adminOptions(partner.command('batch').enablePositionalOptions())
    .description('list batches, or read the statement of one')
    .argument('[platform_batch_id]', 'one batch')
    .option('--limit <n>', 'maximum number of rows, up to 100 (default 10)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .action(async (platform_batch_id: string | undefined, options: PageOptions) => {
      if (platform_batch_id !== undefined) {
        const path = fillPath(partnerAdminRoutes.get_kit_batch.path, { platform_batch_id });
        const statement = await ask<BatchStatement>(terminal, options, 'GET', path);
        print(terminal, options, statement, () => describeStatement(statement));
        return;
      }
      const { limit, cursor } = options;
      const path = `${partnerAdminRoutes.list_kit_batches.path}${queryOf({ limit, cursor })}`;
      const page = await ask<KitBatchPage>(terminal, options, 'GET', path);
      const rows = page.batches.map((one) => [
        one.platform_batch_id,
        String(one.count),
        String(one.processing),
        formatCents(one.amount_in_cents),
        one.first_initiated_at,
        one.last_initiated_at,
      ]);
      const head = ['BATCH', 'PAYMENTS', 'PROCESSING', 'AMOUNT', 'FIRST', 'LAST'];
      print(terminal, options, page, () => table(head, rows) + more(page.next_cursor));
    });
  batch
    .command('export')
    .argument('<platform_batch_id>')
    .option('--url <url>', 'address of the admin API (default http://127.0.0.1:4101)')
    .description('the lines of a batch as CSV: the file that the platform reconciles with')
    .action(async (platform_batch_id: string, options: AdminOptions) => {
      const path = fillPath(partnerAdminRoutes.export_kit_batch.path, { platform_batch_id });
      for await (const piece of readAdmin(terminal, targetOf(options), path)) terminal.write(piece);
    });
}

function addCredentials(partner: Command, terminal: Terminal): void {
  const credential = partner
    .command('credential')
    .description('client secrets and static keys, changed while the servers run');
  adminOptions(credential.command('list'))
    .description('all of them, without their values')
    .action(async (options: AdminOptions) => {
      const path = partnerAdminRoutes.list_kit_credentials.path;
      const list = await ask<KitCredentialList>(terminal, options, 'GET', path);
      print(terminal, options, list, () => credentialTable(list.credentials));
    });
  adminOptions(credential.command('issue'))
    .argument('<client_id>', 'an OAuth client of the configuration, or static-key')
    .requiredOption('--reason <text>', 'kept in the audit')
    .option('--days <n>', 'it expires after so many days; without it, never', wholeDays)
    .description('issue another secret or key; it is shown once, and the existing ones stay valid')
    .action(async (client_id: string, options: ReasonOptions & { days?: number }) => {
      const path = fillPath(partnerAdminRoutes.issue_kit_credential.path, { client_id });
      const { reason, days } = options;
      const body = { reason, ...(days === undefined ? {} : { valid_for_days: days }) };
      const grant = await ask<KitCredentialGrant>(terminal, options, 'POST', path, body);
      print(terminal, options, grant, () =>
        columns(Object.entries(grant).map(([name, value]) => [name, value ?? 'never'])),
      );
    });
  adminOptions(credential.command('revoke'))
    .argument('<credential_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .description('revoke a secret or key; the last valid one of a client cannot be revoked')
    .action(async (credential_id: string, options: ReasonOptions) => {
      const path = fillPath(partnerAdminRoutes.revoke_kit_credential.path, { credential_id });
      const { reason } = options;
      const one = await ask<KitCredential>(terminal, options, 'POST', path, { reason });
      print(terminal, options, one, () => credentialTable([one]));
    });
  adminOptions(credential.command('revoke-tokens'))
    .argument('<client_id>', 'an OAuth client of the configuration')
    .requiredOption('--reason <text>', 'kept in the audit')
    .description('end a client’s access tokens; with a valid secret it can get new ones')
    .action(async (client_id: string, options: ReasonOptions) => {
      const path = fillPath(partnerAdminRoutes.revoke_kit_tokens.path, { client_id });
      const { reason } = options;
      const done = await ask<KitTokensRevoked>(terminal, options, 'POST', path, { reason });
      print(terminal, options, done, () => `${done.tokens_revoked} access tokens ended.`);
    });
}

function more(next_cursor: string | null): string {
  return next_cursor === null ? '' : `\nMore: --cursor ${next_cursor}`;
}

function auditTable(entries: readonly KitAuditEntry[]): string {
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

function describeStatement({ platform_batch_id, count, sha256, totals }: BatchStatement): string {
  const facts = columns([
    ['platform_batch_id', platform_batch_id],
    ['count', String(count)],
    ['sha256', sha256],
  ]);
  const rows = totals.map((one) => [
    one.status,
    String(one.count),
    formatCents(one.amount_in_cents),
  ]);
  return `${facts}\n\n${table(['STATUS', 'PAYMENTS', 'AMOUNT'], rows)}`;
}

function credentialTable(credentials: readonly KitCredential[]): string {
  return table(
    ['CREDENTIAL', 'CLIENT', 'FROM', 'ISSUED', 'EXPIRES', 'REVOKED'],
    credentials.map((one) => [
      one.credential_id,
      one.client_id,
      one.source,
      one.issued_at ?? '-',
      one.expires_at ?? 'never',
      one.revoked_at ?? '-',
    ]),
  );
}
