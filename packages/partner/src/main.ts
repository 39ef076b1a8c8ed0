/**
 * `duebridge partner …` (decision 30). `serve` and `migrate` open the database; the others speak to the admin API of a running
 * server, like any operator's tool (decision 32).
 */
import { readFile } from 'node:fs/promises';
import type {
  AccountImportResult,
  ErrorBody,
  KitPaymentPage,
  PaymentRecord,
} from '@duebridge/contract';
import { fillPath, formatCents, partnerAdminRoutes } from '@duebridge/contract';
import { Command } from 'commander';
import { formatAccountsCsv, parseAccountsCsv } from './accounts-csv.ts';

/** Longest CSV text of one call to the admin API, under its limit of 60,000 and under 64 KiB when escaped as JSON. */
const importPartLength = 50_000;
/** How long one call to the admin API may take. */
const callTimeoutMs = 30_000;

/** The command, for the doorway. Every file that a server needs is loaded only when one is started. */
export function partnerCommand(): Command {
  const partner = new Command('partner').description(
    'run the partner kit; its accounts and payments',
  );
  partner
    .command('serve')
    .description(
      'serve the operations of the interface and the admin API; set up by the environment',
    )
    .addHelpText('after', environmentHelp)
    .action(async () => (await import('./config.ts')).serve());
  partner
    .command('migrate')
    .description('make or update the tables, and end')
    .option('--json', 'one JSON value on standard output')
    .action(async (options: { json?: true }) => {
      const applied = await (await import('./config.ts')).migrateOnly();
      print(options, { applied }, () =>
        applied.length === 0
          ? 'nothing to do'
          : applied.map((name) => `applied ${name}`).join('\n'),
      );
    });

  const accounts = partner.command('accounts').description('the accounts in the books');
  adminOptions(accounts.command('import'))
    .argument('<file>', 'CSV file; - for standard input')
    .option('--biller <id>', 'the biller of a file without the column biller_id')
    .description('create and update accounts; nothing when any line is bad')
    .action(importFile);

  adminOptions(partner.command('payments'))
    .description('list payments, the newest first')
    .option('--status <status>', 'processing, succeeded, failed or canceled')
    .option('--biller <id>', 'of this biller only')
    .option('--account <id>', 'of this account only')
    .option('--batch <id>', 'of this batch only')
    .option('--limit <number>', 'at most so many, up to 1000', '100')
    .option('--cursor <cursor>', 'go on after the page that gave this')
    .action(showPayments);

  const payment = partner.command('payment').description('one payment');
  adminOptions(payment.command('cancel'))
    .argument('<id>', 'its platform_payment_id')
    .requiredOption('--reason <text>', 'why; kept in the audit')
    .description('cancel a payment that is processing')
    .action(cancel);
  return partner;
}

interface AdminOptions {
  readonly url?: string;
  readonly json?: true;
}

function adminOptions(command: Command): Command {
  return command
    .option('--url <url>', 'address of the admin API (default: http://127.0.0.1:ADMIN_PORT, 4101)')
    .option('--json', 'one JSON value on standard output');
}

async function importFile(
  file: string,
  options: AdminOptions & { biller?: string },
): Promise<void> {
  const csv = file === '-' ? await readAll(process.stdin) : await readFile(file, 'utf8');
  const parsed = parseAccountsCsv(csv, options.biller);
  if (!parsed.ok) {
    const lines = parsed.problems.map(({ path, problem }) => `  ${path}: ${problem}`);
    throw new Failure(['nothing was imported:', ...lines].join('\n'));
  }
  const sum = { created: 0, updated: 0, unchanged: 0 };
  // The whole file was judged above; the parts are small because a request is. An import that breaks off is simply run again.
  for (const part of formatAccountsCsv(parsed.accounts, importPartLength)) {
    const done = await call<AccountImportResult>(
      options,
      'POST',
      partnerAdminRoutes.import_accounts.path,
      { csv: part },
    );
    sum.created += done.created;
    sum.updated += done.updated;
    sum.unchanged += done.unchanged;
  }
  print(options, sum, () =>
    [`${sum.created} created`, `${sum.updated} updated`, `${sum.unchanged} unchanged`].join(', '),
  );
}

async function readAll(stream: AsyncIterable<Buffer | string>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString('utf8');
}

async function showPayments(
  options: AdminOptions & {
    status?: string;
    biller?: string;
    account?: string;
    batch?: string;
    limit: string;
    cursor?: string;
  },
): Promise<void> {
  const query = new URLSearchParams({ limit: options.limit });
  for (const [name, value] of [
    ['status', options.status],
    ['biller_id', options.biller],
    ['account_id', options.account],
    ['platform_batch_id', options.batch],
    ['cursor', options.cursor],
  ] as const) {
    if (value !== undefined) query.set(name, value);
  }
  const page = await call<KitPaymentPage>(
    options,
    'GET',
    `${partnerAdminRoutes.list_kit_payments.path}?${query.toString()}`,
  );
  print(options, page, () =>
    [
      ...page.payments.map(paymentLine),
      ...(page.payments.length === 0 ? ['no payments'] : []),
      ...(page.next_cursor === null ? [] : [`more with --cursor ${page.next_cursor}`]),
    ].join('\n'),
  );
}

async function cancel(id: string, options: AdminOptions & { reason: string }): Promise<void> {
  const path = fillPath(partnerAdminRoutes.cancel_payment.path, { platform_payment_id: id });
  const payment = await call<PaymentRecord>(options, 'POST', path, { reason: options.reason });
  print(options, payment, () => paymentLine(payment));
}

function paymentLine(payment: PaymentRecord): string {
  return [
    payment.initiated_at,
    payment.platform_payment_id,
    payment.status.padEnd(10),
    formatCents(payment.amount_in_cents).padStart(14),
    `${payment.biller_id}/${payment.account_id}`,
    payment.failure_reason ?? '',
  ]
    .join('  ')
    .trimEnd();
}

function print(options: { json?: true }, value: object, words: () => string): void {
  process.stdout.write(`${options.json ? JSON.stringify(value) : words()}\n`);
}

/** What the command could not do, in words; ends with 1 (decision 30). */
class Failure extends Error {
  override readonly name = 'Failure';
  readonly exitCode = 1;
}

async function call<T>(
  options: AdminOptions,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
): Promise<T> {
  const { adminAccess } = await import('./config.ts');
  const { url, adminKey } = await adminAccess(options.url);
  let response: Response;
  try {
    response = await fetch(`${url}${path}`, {
      method,
      // A redirect would carry the key to wherever it points.
      redirect: 'error',
      signal: AbortSignal.timeout(callTimeoutMs),
      headers: {
        authorization: `Bearer ${adminKey}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    throw new Failure(`the admin API at ${url} does not answer; is the partner server running?`);
  }
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok) return answer as T;
  throw new Failure(wordsOf(response.status, answer));
}

function wordsOf(status: number, answer: unknown): string {
  if (typeof answer !== 'object' || answer === null || !('code' in answer)) {
    return `the admin API answered ${status}`;
  }
  const { code, message, details = [] } = answer as ErrorBody;
  const lines = details.map(({ path, problem }) => `  ${path}: ${problem}`);
  return [`${message} (${code})`, ...lines].join('\n');
}

const environmentHelp = `
Environment:
  HOST, PORT                     public listener; default 127.0.0.1, 4100
  ADMIN_HOST, ADMIN_PORT         admin listener; default 127.0.0.1, 4101
  DATABASE_URL                   PostgreSQL; unset: an embedded one in DUEBRIDGE_DATA_DIR
  DUEBRIDGE_PARTNER_AUTH         key (default) or oauth
  DUEBRIDGE_PARTNER_KEY          the static key; DUEBRIDGE_PARTNER_KEY_2 the next or last one while rotating
  DUEBRIDGE_PARTNER_KEY_HEADER   its header; default x-api-key
  DUEBRIDGE_PARTNER_CLIENT_ID, DUEBRIDGE_PARTNER_CLIENT_SECRET, DUEBRIDGE_PARTNER_CLIENT_SECRET_2
                                 the OAuth client and its one or two secrets
  DUEBRIDGE_PARTNER_CLIENTS      instead, several: [{"client_id": …, "secrets": […], "scopes": ["read", "write"]}]
  DUEBRIDGE_PARTNER_FORMERLY     client ids, with commas between, that the holder of the key or the one client had before
                                 (static-key: the holder of a key); what was put under them stays its own
  DUEBRIDGE_PARTNER_BILLERS      [{"biller_id": …, "max_amount_in_cents": …, "duplicate_window_seconds": …}];
                                 unset: every biller that has accounts, without rules
  DUEBRIDGE_PARTNER_HOLD_SECONDS time to cancel in before a payment is posted; default 0
  DUEBRIDGE_ADMIN_KEY            bearer key of the admin API; unset: made once, kept in DUEBRIDGE_DATA_DIR
  LOG_LEVEL                      debug, info (default), warn, error or silent
`;
