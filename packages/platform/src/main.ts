/**
 * `duebridge platform …`: run the platform, and ask it through its admin API (decisions 30 and 32). Beside `serve` and `migrate`
 * nothing here touches the database: what the command line can do, any program with the admin key can do.
 */
import { readFile } from 'node:fs/promises';
import type {
  AuditEntry,
  BatchPage,
  BatchView,
  ClientKeyGrant,
  ClientKeyView,
  ErrorBody,
  PartnerAuth,
  PartnerRegistration,
  PartnerView,
  PaymentDetail,
  PaymentPage,
  PaymentView,
  Reconciliation,
} from '@duebridge/contract';
import { Command, Option } from 'commander';
import { adminKeyFile, dataDirectory } from './data-directory.ts';

/** Exit codes (decision 30); 3, usage, is commander's own errors. */
const exitFailed = 1;
const exitConfiguration = 2;

/** One sentence for the person at the terminal, and the exit code of the process. */
class CommandError extends Error {
  readonly exitCode: number;
  constructor(message: string, exitCode: number) {
    super(message);
    this.name = 'CommandError';
    this.exitCode = exitCode;
  }
}

/** Where a command reads and writes; the process's own unless a test gives others. */
export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: AsyncIterable<Uint8Array>;
  write(text: string): void;
}

const processTerminal: Terminal = {
  env: process.env,
  stdin: process.stdin,
  write: (text) => void process.stdout.write(text),
};

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
  DUEBRIDGE_ADMIN_KEY                  bearer key of the admin API; else kept in the data directory
  DUEBRIDGE_ADMIN_URL                  where the commands find it; http://127.0.0.1:4001
  DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES    1 admits partners at http and private addresses
  DUEBRIDGE_DATABASE_CONNECTIONS       database connections at most; 20
  DUEBRIDGE_CLIENT_RATE                tokens a second for each client, twice that in a burst; 25
  DUEBRIDGE_IP_RATE                    calls a second from one address; 200, 0 for no limit
  DUEBRIDGE_RETENTION_DAYS             days personal data of customers who paid is kept; 90
  LOG_LEVEL                            debug, info, warn, error or silent; info

Exit codes: 0 done, 1 failed, 2 configuration, 3 usage.`,
    );
  addServing(command, terminal);
  addPartners(command, terminal);
  addKeys(command, terminal);
  addPayments(command, terminal);
  addBatches(command, terminal);
  return command;
}

// Serving --------------------------------------------------------------------------------------------------------------------

function addServing(command: Command, terminal: Terminal): void {
  command
    .command('serve')
    .description('run the platform until it is told to stop')
    .action(async () => {
      const [{ createLogger, runService }, { readPlatformConfig }, { startPlatform }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('./config.ts'),
          import('./server.ts'),
        ]);
      const config = readPlatformConfig(terminal.env);
      const log = createLogger({ name: 'platform', level: config.logLevel });
      await runService({ log, start: () => startPlatform({ ...config, log }) });
    });

  command
    .command('migrate')
    .description('bring the database to this version, and end')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const [{ createLogger }, { readPlatformConfig }, { openPlatformDatabase }] =
        await Promise.all([
          import('@duebridge/runtime'),
          import('./config.ts'),
          import('./server.ts'),
        ]);
      const config = readPlatformConfig(terminal.env);
      const closers: (() => Promise<unknown>)[] = [];
      let applied: string[] = [];
      try {
        await openPlatformDatabase(
          config,
          createLogger({ name: 'platform', level: 'warn' }),
          closers,
          (names) => {
            applied = names;
          },
        );
      } finally {
        for (const close of closers.toReversed()) await close();
      }
      print(terminal, options, { applied }, () =>
        applied.length === 0 ? 'The database is up to date.' : `Applied ${applied.join(', ')}.`,
      );
    });
}

// Partners and keys ------------------------------------------------------------------------------------------------------------

interface PartnerOptions {
  id: string;
  name: string;
  kind: 'biller' | 'aggregator';
  biller?: string;
  baseUrl: string;
  auth: 'key' | 'oauth';
  header?: string;
  key?: string;
  tokenUrl?: string;
  clientId?: string;
  clientSecret?: string;
  scope?: string;
  origin?: string[];
  accountCheck?: 'when_reachable' | 'required' | 'off';
  json?: true;
}

function addPartners(command: Command, terminal: Terminal): void {
  const partner = command.command('partner').description('register and list partners');
  const add = partner
    .command('add')
    .description('register a partner')
    .requiredOption('--id <id>', 'id of ours, such as springfield-water')
    .requiredOption('--name <name>', 'shown to customers')
    .addOption(
      new Option('--kind <kind>', 'a company that is owed, or one that hosts many')
        .choices(['biller', 'aggregator'])
        .makeOptionMandatory(),
    )
    .option('--biller <biller_id>', 'its biller id; for a biller')
    .requiredOption('--base-url <url>', 'where its operations are, prefix included')
    .addOption(
      new Option('--auth <method>', 'how it protects them')
        .choices(['key', 'oauth'])
        .makeOptionMandatory(),
    )
    .option('--header <name>', 'key: the header that carries it')
    .option(
      '--key <key>',
      'key: the value; - reads it from standard input; else DUEBRIDGE_PARTNER_KEY',
    )
    .option('--token-url <url>', 'oauth: the token endpoint')
    .option('--client-id <id>', 'oauth: issued by the partner')
    .option(
      '--client-secret <secret>',
      'oauth: - reads it from standard input; else DUEBRIDGE_PARTNER_CLIENT_SECRET',
    )
    .option('--scope <scopes>', 'oauth: such as "read write"')
    .option('--origin <origin...>', 'sites that may show the payment page')
    .addOption(
      new Option(
        '--account-check <mode>',
        'whether a token waits for the account to be found',
      ).choices(['when_reachable', 'required', 'off']),
    )
    .addOption(jsonOption());
  add.action(async (options: PartnerOptions) => {
    const registration: PartnerRegistration = {
      partner_id: options.id,
      name: options.name,
      kind: options.kind,
      ...(options.biller === undefined ? {} : { biller_id: options.biller }),
      base_url: options.baseUrl,
      origins: options.origin ?? [],
      ...(options.accountCheck === undefined ? {} : { account_check: options.accountCheck }),
      auth: await partnerAuth(add, options, terminal),
    };
    const view = await ask<PartnerView>(terminal, 'POST', '/admin/v1/partners', registration);
    print(
      terminal,
      options,
      view,
      () =>
        `Registered ${view.partner_id}. Next: duebridge platform key issue --partner ${view.partner_id}`,
    );
  });

  partner
    .command('list')
    .description('list the partners')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const { partners } = await ask<{ partners: PartnerView[] }>(
        terminal,
        'GET',
        '/admin/v1/partners',
      );
      print(terminal, options, partners, () =>
        table(
          ['PARTNER', 'NAME', 'KIND', 'BILLER', 'AUTH', 'BASE URL', 'STATE'],
          partners.map((one) => [
            one.partner_id,
            one.name,
            one.kind,
            one.biller_id ?? '-',
            one.auth.method,
            one.base_url,
            one.pause_reason ?? 'active',
          ]),
        ),
      );
    });
}

/** The credentials of a registration; `usage.error` for those that are missing or do not go together. */
async function partnerAuth(
  usage: Command,
  options: PartnerOptions,
  terminal: Terminal,
): Promise<PartnerAuth> {
  if (options.auth === 'key') {
    const key = await secretOption(options.key, 'DUEBRIDGE_PARTNER_KEY', terminal);
    if (options.header === undefined) usage.error('error: --auth key needs --header');
    else if (key === undefined)
      usage.error('error: --auth key needs --key, or DUEBRIDGE_PARTNER_KEY');
    else return { method: 'key', header: options.header, key };
  }
  const { tokenUrl, clientId, scope } = options;
  const secret = await secretOption(
    options.clientSecret,
    'DUEBRIDGE_PARTNER_CLIENT_SECRET',
    terminal,
  );
  if (tokenUrl === undefined) return usage.error('error: --auth oauth needs --token-url');
  if (clientId === undefined) return usage.error('error: --auth oauth needs --client-id');
  if (secret === undefined) {
    return usage.error(
      'error: --auth oauth needs --client-secret, or DUEBRIDGE_PARTNER_CLIENT_SECRET',
    );
  }
  return {
    method: 'oauth',
    token_url: tokenUrl,
    client_id: clientId,
    client_secret: secret,
    ...(scope === undefined ? {} : { scope }),
  };
}

/** A secret from its flag, from standard input when the flag is `-`, or from the environment: those two leave no trace in a shell's history. */
async function secretOption(
  given: string | undefined,
  variable: string,
  terminal: Terminal,
): Promise<string | undefined> {
  if (given !== '-') return given ?? (terminal.env[variable] || undefined);
  return (await readAll(terminal.stdin)).trimEnd() || undefined;
}

async function readAll(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

function addKeys(command: Command, terminal: Terminal): void {
  const key = command.command('key').description('API keys of the token endpoint');
  key
    .command('issue')
    .description('issue a key; it is shown once')
    .requiredOption('--partner <id>', 'whose key')
    .option('--client <client_id>', 'a second key for this client, to rotate to')
    .addOption(jsonOption())
    .action(async (options: { partner: string; client?: string; json?: true }) => {
      const grant = await ask<ClientKeyGrant>(
        terminal,
        'POST',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys`,
        options.client === undefined ? {} : { client_id: options.client },
      );
      print(terminal, options, grant, () =>
        [
          `client_id  ${grant.client_id}`,
          `api_key    ${grant.api_key}`,
          `key_id     ${grant.key_id}`,
          'The api_key is not shown again; it goes into X-Api-Key, the client_id into X-Client-Id.',
        ].join('\n'),
      );
    });
  key
    .command('list')
    .description('list the keys of a partner, without their secrets')
    .requiredOption('--partner <id>', 'whose keys')
    .addOption(jsonOption())
    .action(async (options: { partner: string; json?: true }) => {
      const { keys } = await ask<{ keys: ClientKeyView[] }>(
        terminal,
        'GET',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys`,
      );
      print(terminal, options, keys, () =>
        table(
          ['KEY', 'CLIENT', 'ISSUED', 'LAST USED', 'REVOKED'],
          keys.map((one) => [
            one.key_id,
            one.client_id,
            one.created_at,
            one.last_used_at ?? '-',
            one.revoked_at ?? '-',
          ]),
        ),
      );
    });
  key
    .command('revoke')
    .description('revoke a key; refused everywhere within five seconds')
    .argument('<key_id>', 'from key issue or key list')
    .requiredOption('--partner <id>', 'whose key')
    .addOption(jsonOption())
    .action(async (key_id: string, options: { partner: string; json?: true }) => {
      const view = await ask<ClientKeyView>(
        terminal,
        'DELETE',
        `/admin/v1/partners/${encodeURIComponent(options.partner)}/keys/${encodeURIComponent(key_id)}`,
      );
      print(terminal, options, view, () => `Revoked ${view.key_id} of ${view.client_id}.`);
    });
}

// Payments ---------------------------------------------------------------------------------------------------------------------

interface PaymentsOptions {
  status?: string;
  stage?: string;
  partner?: string;
  batch?: string;
  overdue?: true;
  limit?: string;
  cursor?: string;
  json?: true;
}

function addPayments(command: Command, terminal: Terminal): void {
  command
    .command('payments')
    .description('list payments, newest first, or read one with its audit trail')
    .argument('[platform_payment_id]', 'one payment')
    .option('--status <status>', 'processing, succeeded, failed or canceled')
    .option('--stage <stage>', 'created, authorized, dispatching, accepted, review or ended')
    .option('--partner <id>', 'of one partner')
    .option('--batch <id>', 'of one batch')
    .option('--overdue', 'not ended a day after it was confirmed: for a person to look at')
    .option('--limit <n>', 'at most this many; 50')
    .option('--cursor <cursor>', 'go on from the next_cursor of the page before')
    .addOption(jsonOption())
    .action(async (id: string | undefined, options: PaymentsOptions) => {
      if (id !== undefined) {
        const detail = await ask<PaymentDetail>(
          terminal,
          'GET',
          `/admin/v1/payments/${encodeURIComponent(id)}`,
        );
        print(terminal, options, detail, () => describePayment(detail));
        return;
      }
      const page = await ask<PaymentPage>(
        terminal,
        'GET',
        `/admin/v1/payments${query({
          status: options.status,
          stage: options.stage,
          partner_id: options.partner,
          platform_batch_id: options.batch,
          overdue: options.overdue === true ? 'true' : undefined,
          limit: options.limit,
          cursor: options.cursor,
        })}`,
      );
      print(terminal, options, page, () => {
        const more = page.next_cursor === null ? '' : `\nMore: --cursor ${page.next_cursor}`;
        return paymentTable(page.payments) + more;
      });
    });

  const payment = command.command('payment').description('act on one payment');
  for (const [verb, description] of [
    ['resume', 'take a payment out of review: the same id and bytes are put again'],
    ['withdraw', 'cancel a payment that cannot have left yet'],
  ] as const) {
    payment
      .command(verb)
      .description(description)
      .argument('<platform_payment_id>')
      .requiredOption('--reason <text>', 'kept in the audit')
      .addOption(jsonOption())
      .action(async (id: string, options: { reason: string; json?: true }) => {
        const view = await ask<PaymentView>(
          terminal,
          'POST',
          `/admin/v1/payments/${encodeURIComponent(id)}/${verb}`,
          { reason: options.reason },
        );
        print(terminal, options, view, () => paymentTable([view]));
      });
  }

  command
    .command('audit')
    .description('the latest entries of the audit, newest first')
    .addOption(jsonOption())
    .action(async (options: { json?: true }) => {
      const { entries } = await ask<{ entries: AuditEntry[] }>(terminal, 'GET', '/admin/v1/audit');
      print(terminal, options, entries, () => auditTable(entries));
    });
}

function paymentTable(payments: readonly PaymentView[]): string {
  return table(
    ['PAYMENT', 'STATUS', 'STAGE', 'PARTNER', 'ACCOUNT', 'CENTS', 'CREATED', 'REASON'],
    payments.map((one) => [
      one.platform_payment_id,
      one.status,
      one.stage,
      one.partner_id,
      one.masked_account_id,
      String(one.amount_in_cents),
      one.created_at,
      one.review_reason ?? one.failure_reason ?? '-',
    ]),
  );
}

function auditTable(entries: readonly AuditEntry[]): string {
  return table(
    ['AT', 'ACTOR', 'EVENT', 'DETAIL'],
    entries.map((one) => [
      one.at,
      one.actor,
      one.event,
      Object.entries(one.detail)
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
    ]),
  );
}

function describePayment({ payment, audit }: PaymentDetail): string {
  const facts = Object.entries(payment).map(([name, value]) => [name, String(value ?? '-')]);
  return `${columns(facts)}\n\n${auditTable(audit)}`;
}

// Batches ----------------------------------------------------------------------------------------------------------------------

function addBatches(command: Command, terminal: Terminal): void {
  command
    .command('batch')
    .description('list batches, newest first, or read the statement of one')
    .argument('[platform_batch_id]', 'one batch')
    .option('--partner <id>', 'of one partner')
    .addOption(jsonOption())
    .action(async (id: string | undefined, options: { partner?: string; json?: true }) => {
      if (id !== undefined) {
        const batch = await ask<BatchView>(
          terminal,
          'GET',
          `/admin/v1/batches/${encodeURIComponent(id)}`,
        );
        print(terminal, options, batch, () => describeBatch(batch));
        return;
      }
      const { batches } = await ask<BatchPage>(
        terminal,
        'GET',
        `/admin/v1/batches${query({ partner_id: options.partner })}`,
      );
      print(terminal, options, batches, () =>
        table(
          ['BATCH', 'PARTNER', 'CUT-OFF', 'CLOSED', 'PAYMENTS', 'CENTS'],
          batches.map((one) => [
            one.platform_batch_id,
            one.partner_id,
            one.cutoff_at,
            one.closed_at ?? '-',
            String(one.statement.count),
            String(one.statement.totals.reduce((sum, total) => sum + total.amount_in_cents, 0)),
          ]),
        ),
      );
    });

  command
    .command('reconcile')
    .description('compare a batch with the partner; exit code 1 when they differ')
    .argument('<platform_batch_id>')
    .option(
      '--csv <file>',
      "compare with the partner's file: platform_payment_id,status,amount_in_cents",
    )
    .addOption(jsonOption())
    .action(async (id: string, options: { csv?: string; json?: true }) => {
      const csv = options.csv === undefined ? undefined : await readCsv(options.csv);
      const result = await ask<Reconciliation>(
        terminal,
        'POST',
        `/admin/v1/batches/${encodeURIComponent(id)}/reconcile`,
        csv === undefined ? {} : { csv },
      );
      print(terminal, options, result, () => describeReconciliation(result));
      if (result.differences.length > 0) {
        throw new CommandError(
          `the two books differ in ${result.differences.length} of ${result.compared} payments`,
          exitFailed,
        );
      }
    });
}

async function readCsv(file: string): Promise<string> {
  return readFile(file, 'utf8').catch(() => {
    throw new CommandError(
      `the file ${file} cannot be read: check its name and rights`,
      exitFailed,
    );
  });
}

function describeBatch(batch: BatchView): string {
  const { statement } = batch;
  const facts = [
    ['platform_batch_id', batch.platform_batch_id],
    ['partner_id', batch.partner_id],
    ['opened_at', batch.opened_at],
    ['cutoff_at', batch.cutoff_at],
    ['closed_at', batch.closed_at ?? '-'],
    ['count', String(statement.count)],
    ['sha256', statement.sha256],
  ];
  const totals = table(
    ['STATUS', 'PAYMENTS', 'CENTS'],
    statement.totals.map((one) => [one.status, String(one.count), String(one.amount_in_cents)]),
  );
  return `${columns(facts)}\n\n${totals}`;
}

function describeReconciliation(result: Reconciliation): string {
  if (result.differences.length === 0) {
    return `The two books agree on ${result.compared} payments (by ${result.method}).`;
  }
  return table(
    ['PAYMENT', 'DIFFERENCE', 'HERE', 'THERE'],
    result.differences.map((one) => [
      one.platform_payment_id,
      one.kind,
      one.here ?? '-',
      one.there ?? '-',
    ]),
  );
}

// The admin API ------------------------------------------------------------------------------------------------------------------

/** Longest an answer may take; reconciling reads each payment of a batch where the partner has no statement. */
const answerTimeoutMs = 120_000;

/** One call of the admin API. Throws CommandError with the sentence of the refusal, or with how to reach the platform. */
async function ask<Reply>(
  terminal: Terminal,
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  body?: object,
): Promise<Reply> {
  const base = terminal.env['DUEBRIDGE_ADMIN_URL'] || 'http://127.0.0.1:4001';
  if (!URL.canParse(base)) {
    throw new CommandError(
      'DUEBRIDGE_ADMIN_URL is not an address: give it as http://127.0.0.1:4001',
      exitConfiguration,
    );
  }
  const key = await adminKey(terminal);
  let response: Response;
  try {
    response = await fetch(new URL(path, base), {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      redirect: 'error',
      signal: AbortSignal.timeout(answerTimeoutMs),
    });
  } catch {
    throw new CommandError(
      `the platform does not answer at ${base}: start it with "duebridge platform serve", or set DUEBRIDGE_ADMIN_URL`,
      exitFailed,
    );
  }
  const answer: unknown = await response.json().catch(() => undefined);
  // The platform's answers are checked by the platform; both are of one version.
  if (response.ok && answer !== undefined) return answer as Reply;
  if (response.status === 401) {
    throw new CommandError(
      `the platform at ${base} refused the admin key: set DUEBRIDGE_ADMIN_KEY, or DUEBRIDGE_DATA_DIR to the folder of that platform`,
      exitConfiguration,
    );
  }
  throw new CommandError(describeRefusal(response, answer), exitFailed);
}

function describeRefusal(response: Response, answer: unknown): string {
  if (typeof answer !== 'object' || answer === null || !('code' in answer)) {
    return `the platform answered ${response.status} in a form that is not its own: check DUEBRIDGE_ADMIN_URL`;
  }
  const { code, message, details = [] } = answer as ErrorBody;
  const list = details.map(({ path, problem }) => `${path} ${problem}`).join('; ');
  return `${message} (${code})${list === '' ? '' : `: ${list}`}`;
}

async function adminKey(terminal: Terminal): Promise<string> {
  const given = terminal.env['DUEBRIDGE_ADMIN_KEY'];
  if (given !== undefined && given !== '') return given;
  const file = adminKeyFile(dataDirectory(terminal.env));
  return (
    await readFile(file, 'utf8').catch(() => {
      throw new CommandError(
        `there is no admin key: set DUEBRIDGE_ADMIN_KEY, or DUEBRIDGE_DATA_DIR to the folder of the platform (${file} cannot be read)`,
        exitConfiguration,
      );
    })
  ).trim();
}

// Printing -----------------------------------------------------------------------------------------------------------------------

function jsonOption(): Option {
  return new Option('--json', 'print one JSON value');
}

function print(
  terminal: Terminal,
  options: { json?: true },
  value: unknown,
  human: () => string,
): void {
  terminal.write(`${options.json === true ? JSON.stringify(value, undefined, 2) : human()}\n`);
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return rows.length === 0 ? 'Nothing found.' : columns([head, ...rows]);
}

/** Texts in columns, two spaces apart. Controls are taken out: some of them come from partners, and a terminal obeys. */
function columns(rows: readonly (readonly string[])[]): string {
  const clean = rows.map((row) => row.map((cell) => cell.replaceAll(/\p{Cc}/gu, ' ')));
  const widths = (clean[0] ?? []).map((_, column) =>
    Math.max(...clean.map((row) => row[column]?.length ?? 0)),
  );
  return clean
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function query(fields: Readonly<Record<string, string | undefined>>): string {
  const given = Object.entries(fields).filter(
    (field): field is [string, string] => field[1] !== undefined,
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given).toString()}`;
}
