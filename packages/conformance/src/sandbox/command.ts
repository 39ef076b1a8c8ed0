/** `duebridge sandbox partner`: a partner to develop against (decision 30). */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  MAGIC_ACCOUNTS,
  MAGIC_AMOUNTS,
  startScriptedPartner,
  type ScriptedAuth,
  type ScriptedExchange,
} from './partner.ts';

/** One sentence for the person at the terminal. Commander itself exits with 3 for usage errors (decision 30). */
class SandboxProblem extends Error {
  readonly exitCode = 2;
}

/** Maximum length of an answer shown on one line of the terminal. */
const SHOWN = 300;

interface PartnerFlags {
  readonly host: string;
  readonly port: number;
  readonly auth: 'key' | 'oauth';
  readonly header: string;
  readonly key?: string;
  readonly clientId: string;
  readonly clientSecret?: string;
  readonly expiresIn: number;
  readonly processingMs: number;
}

/** Creates the command. Throws errors whose `exitCode` is 2 when something has to be fixed first. */
export function sandboxCommand(): Command {
  const partner = new Command('partner')
    .description('run an in-memory partner that is right; `conform platform` plays one that fails')
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port; 0 picks a free one', whole(0, 65_535), 4100)
    .addOption(new Option('--auth <method>').choices(['key', 'oauth']).default('key'))
    .option('--header <name>', 'header of the key', 'x-api-key')
    .option('--key <key>', 'the key; generated unless given')
    .option('--client-id <id>', 'OAuth client of the platform', 'sandbox-platform')
    .option('--client-secret <secret>', 'its secret; generated unless given')
    .option('--expires-in <seconds>', 'lifetime of an access token', whole(1, 86_400), 3600)
    .option('--processing-ms <ms>', 'default time until a payment ends', whole(0, 86_400_000), 2000)
    .addHelpText('after', () => `\n${magicHelp()}`)
    .action(runPartner);
  return new Command('sandbox')
    .description('run a partner with every outcome, to develop against')
    .addCommand(partner);
}

function magicHelp(): string {
  const table = (rows: readonly (readonly [string, string])[]): string[] => {
    const width = Math.max(...rows.map(([left]) => left.length));
    return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
  };
  return [
    'Magic accounts (biller / account):',
    ...table(MAGIC_ACCOUNTS.map((one) => [`${one.biller_id} / ${one.account_id}`, one.note ?? ''])),
    '',
    'Magic amounts in cents, on any active account:',
    ...table(MAGIC_AMOUNTS.map((one) => [String(one.amount_in_cents), one.note])),
    '',
    'While it runs, GET /sandbox/payments, /sandbox/exchanges and /sandbox/accounts show what it holds.',
  ].join('\n');
}

async function runPartner(flags: PartnerFlags): Promise<void> {
  const { auth: method } = flags;
  const auth: ScriptedAuth =
    method === 'key'
      ? { method, header: flags.header, key: flags.key ?? madeUp() }
      : {
          method,
          client_id: flags.clientId,
          client_secret: flags.clientSecret ?? madeUp(),
          expires_in: flags.expiresIn,
        };
  const { host, port, processingMs: processing_ms } = flags;
  const partner = await startScriptedPartner({
    host,
    port,
    auth,
    processing_ms,
    seen: (exchange) => print(exchangeLine(exchange)),
  }).catch((error: unknown) => {
    if (!(error instanceof Error && 'code' in error && 'port' in error)) throw error;
    throw new SandboxProblem(`cannot listen on port ${String(error.port)}: ${String(error.code)}`);
  });
  const { url, token_url } = partner;
  print(`Sandbox partner at ${url}; look at ${url}/sandbox/payments`);
  print(
    auth.method === 'key'
      ? `key: ${auth.header}: ${auth.key}`
      : `OAuth: ${token_url} client_id ${auth.client_id} client_secret ${auth.client_secret}`,
  );
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  await partner.stop();
}

function exchangeLine({ method, path, body, answer, credential }: ScriptedExchange): string {
  const came = answer === undefined ? 'no ordinary response' : `${answer.status} ${answer.body}`;
  const refused = credential === 'refused' ? ' (credential refused)' : '';
  const line = `${method} ${path}${body === '' ? '' : ` ${body}`}${refused} -> ${came}`;
  return line.length > SHOWN ? `${line.slice(0, SHOWN)} …` : line;
}

const madeUp = () => randomBytes(18).toString('base64url');

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function whole(minimum: number, maximum: number) {
  return (text: string): number => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= minimum && value <= maximum) return value;
    throw new InvalidArgumentError(`must be an integer from ${minimum} to ${maximum}`);
  };
}
