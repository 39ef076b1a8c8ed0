/**
 * `duebridge sandbox partner`: a right partner in memory to develop a platform against (decision 30). Each exchange is printed;
 * `duebridge conform platform` has the faults.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { FAILURE_REASONS } from '@duebridge/contract';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  startScriptedPartner,
  type Behaviour,
  type Call,
  type ScriptedAccount,
} from './scripted/partner.ts';
import type { Ending } from './scripted/state.ts';

/** Maximum length of an exchange shown on one line of the terminal. */
const SHOWN = 300;

/** The biller of every account. */
const BILLER = 'sandbox-utility';

const account = (id: string, rest: Partial<ScriptedAccount> = {}): ScriptedAccount => {
  const balance = { amount_due_in_cents: 12_500, due_date: '2030-01-31' };
  return { biller_id: BILLER, account_id: id, status: 'active', balance, ...rest };
};

/** The accounts, and what is special about each. Any other id is unknown. */
const ACCOUNTS: readonly (readonly [ScriptedAccount, note: string])[] = [
  [account('active'), '$125.00 due; payments succeed'],
  [account('inactive', { status: 'inactive' }), 'payments fail'],
  [
    account('maximum', { payment_rules: { max_amount_in_cents: 50_000 } }),
    'takes at most $500.00; a larger payment fails',
  ],
  [account('unit 4/B'), 'an id with a space and a slash, which a path must encode'],
  [account('paid', { balance: { amount_due_in_cents: 0 } }), 'nothing is due'],
  [account('credit', { balance: { amount_due_in_cents: -2_000 } }), 'a credit of $20.00'],
  [{ biller_id: BILLER, account_id: 'bare', status: 'active' }, 'no balance is known'],
];

interface Flags {
  readonly host: string;
  readonly port: number;
  readonly auth: 'key' | 'oauth';
  readonly header: string;
  readonly key: string;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly processingMs: number;
}

/** Creates the command. Throws an error whose `exitCode` is 2 when its port is not available. */
export function sandboxCommand(): Command {
  const partner = new Command('partner')
    .description('run an in-memory partner')
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port; 0 picks a free one', whole(65_535), 4100)
    .addOption(new Option('--auth <method>').choices(['key', 'oauth']).default('key'))
    .option('--header <name>', 'header of the key', 'x-api-key')
    .addOption(secret('--key <key>', 'the key'))
    .option('--client-id <id>', 'OAuth client of the platform', 'sandbox-platform')
    .addOption(secret('--client-secret <secret>', 'its secret'))
    .option('--processing-ms <ms>', 'time until a payment ends', whole(86_400_000), 2000)
    .addHelpText('after', help)
    .action(run);
  return new Command('sandbox')
    .description('run a partner with every outcome, to develop against')
    .addCommand(partner);
}

const secret = (flag: string, what: string): Option =>
  new Option(flag, what).default(randomBytes(18).toString('base64url'), 'made anew');

function help(): string {
  const rows = ACCOUNTS.map(([{ account_id }, note]) => `  ${account_id.padEnd(10)}${note}`);
  return `
Accounts of the biller ${BILLER}:
${rows.join('\n')}
Amounts that choose how a payment ends:
${Object.entries(ENDINGS)
  .map(([cents, [note]]) => `  ${cents.padEnd(10)}${note}`)
  .join('\n')}`;
}

async function run(flags: Flags): Promise<void> {
  const { host, port, header, key, clientId: client_id, clientSecret: client_secret } = flags;
  const auth =
    flags.auth === 'key'
      ? ({ method: 'key', header, key } as const)
      : ({ method: 'oauth', client_id, client_secret } as const);
  const partner = await startScriptedPartner({
    host,
    port,
    auth,
    accounts: ACCOUNTS.map(([one]) => one),
    processing_ms: flags.processingMs,
    behaviour: byAmount,
    seen: (call) => print(line(call)),
  }).catch((error: unknown) => {
    const isPlace = error instanceof Error && 'syscall' in error;
    if (!isPlace || !['listen', 'getaddrinfo'].includes(String(error.syscall))) throw error;
    const problem = `cannot listen on ${host}:${port} (${error.message}): choose another`;
    // Commander itself exits with 3 for usage errors (decision 30).
    throw Object.assign(new Error(problem), { exitCode: 2 });
  });
  print(`Sandbox partner at ${partner.url}, biller ${BILLER}`);
  print(
    auth.method === 'key'
      ? `${header}: ${key}`
      : `OAuth: ${partner.token_url} client_id ${client_id} client_secret ${client_secret}`,
  );
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  await partner.stop();
}

const failed = (failure_reason: string): Partial<Ending> => ({ status: 'failed', failure_reason });

/** How a payment of so many cents ends, in words and as the script has it. Unusual enough that no bill has one by coincidence. */
const ENDINGS: Readonly<Record<number, readonly [note: string, ending: Partial<Ending>]>> = {
  66_600: ['succeeded', { status: 'succeeded' }],
  66_601: ['failed: account not found or inactive', failed(FAILURE_REASONS.account)],
  66_602: ['failed: amount above the maximum', failed(FAILURE_REASONS.maximum)],
  66_603: ['failed: duplicate payment detected', failed(FAILURE_REASONS.duplicate)],
  66_604: ['canceled', { status: 'canceled' }],
  66_605: ['processing for 30 s, then succeeded', { status: 'succeeded', after_ms: 30_000 }],
  66_606: ['stays processing', { after_ms: undefined }],
};

const byAmount: Behaviour = {
  born(payment) {
    payment.ending = { ...payment.ending, ...ENDINGS[payment.amount_in_cents]?.[1] };
  },
};

function line({ operation, method, path, text, answer }: Call): string {
  const came = answer === undefined ? 'no ordinary response' : `${answer.status} ${answer.body}`;
  // The token endpoint's request and answer are secrets.
  const [sent, got] = operation === 'access_token' ? ['', answer?.status ?? came] : [text, came];
  const shown = `${method} ${path} ${sent} -> ${got}`;
  return shown.length > SHOWN ? `${shown.slice(0, SHOWN)} …` : shown;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function whole(maximum: number) {
  return (text: string): number => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value <= maximum) return value;
    throw new InvalidArgumentError(`must be an integer from 0 to ${maximum}`);
  };
}
