/**
 * `duebridge sandbox …`: a partner, or a platform, to develop against (decision 30).
 */
import { randomBytes } from 'node:crypto';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  findScenario,
  MAGIC_ACCOUNTS,
  MAGIC_AMOUNTS,
  SCENARIOS,
  ScenarioProblem,
  startScriptedPartner,
  type ScriptedAuth,
  type ScriptedExchange,
} from './partner.ts';
import { startScriptedPlatform } from './platform.ts';

/** Exit code (decision 30); commander itself exits with 3 for usage errors. */
const EXIT_CONFIGURATION = 2;

/** One sentence for the person at the terminal. */
class SandboxProblem extends Error {
  readonly exitCode = EXIT_CONFIGURATION;
}

/** How long a closed port stays closed unless --heal-after is given: long enough for a circuit breaker to open. */
const CLOSED_SECONDS = 30;

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
  readonly scenario?: string;
  readonly faults?: number;
  readonly healAfter?: number;
  readonly list?: boolean;
  readonly json?: boolean;
}

/** Creates the command. Throws errors whose `exitCode` is 2 when something has to be fixed first. */
export function sandboxCommand(): Command {
  const command = new Command('sandbox').description(
    'run a partner with every outcome and fault, or a platform, to develop against',
  );
  command.addCommand(partnerCommand());
  command.addCommand(platformCommand());
  return command;
}

function partnerCommand(): Command {
  return new Command('partner')
    .description('run an in-memory partner: correct, or with a chosen fault')
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port; 0 picks a free one', whole(0, 65_535), 4100)
    .addOption(new Option('--auth <method>').choices(['key', 'oauth']).default('key'))
    .option('--header <name>', 'header of the key', 'x-api-key')
    .option('--key <key>', 'the key; generated unless given')
    .option('--client-id <id>', 'OAuth client of the platform', 'sandbox-platform')
    .option('--client-secret <secret>', 'its secret; generated unless given')
    .option('--expires-in <seconds>', 'lifetime of an access token', whole(1, 86_400), 3600)
    .option('--processing-ms <ms>', 'default time until a payment ends', whole(0, 86_400_000), 2000)
    .option('--scenario <name>', 'a fault by name or number, such as F02; see --list')
    .option(
      '--faults <count>',
      'number of faulty responses before it behaves correctly again',
      whole(1, 1_000_000),
    )
    .option('--heal-after <seconds>', 'end the fault after this time', whole(1, 86_400))
    .option('--list', 'list the faults and what a correct caller does')
    .option('--json', 'prints JSON')
    .addHelpText('after', () => `\n${magicHelp()}`)
    .action(runPartner);
}

function magicHelp(): string {
  const accounts = MAGIC_ACCOUNTS.map(
    ({ biller_id, account_id, note }) => [`${biller_id} / ${account_id}`, note ?? ''] as const,
  );
  const amounts = MAGIC_AMOUNTS.map(
    ({ amount_in_cents, note }) => [String(amount_in_cents), note] as const,
  );
  return [
    'Magic accounts (biller / account):',
    ...table(accounts),
    '',
    'Magic amounts in cents, on any active account:',
    ...table(amounts),
    '',
    'While it runs, GET /sandbox/payments, /sandbox/exchanges and /sandbox/accounts show what it holds.',
  ].join('\n');
}

function table(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}

async function runPartner(flags: PartnerFlags): Promise<void> {
  if (flags.list === true) {
    print(flags.json === true ? JSON.stringify(listed(), null, 2) : listText());
    return;
  }
  const wanted = flags.scenario === undefined ? undefined : findScenario(flags.scenario);
  const method = wanted?.needs ?? flags.auth;
  const auth: ScriptedAuth =
    method === 'key'
      ? { method, header: flags.header, key: flags.key ?? madeUp() }
      : {
          method,
          client_id: flags.clientId,
          client_secret: flags.clientSecret ?? madeUp(),
          expires_in: flags.expiresIn,
        };
  const partner = await started(() =>
    startScriptedPartner({
      host: flags.host,
      port: flags.port,
      auth,
      processing_ms: flags.processingMs,
      ...(flags.scenario === undefined ? {} : { scenario: flags.scenario }),
      ...(flags.faults === undefined ? {} : { faults: flags.faults }),
      seen: (exchange) => {
        if (flags.json !== true) print(exchangeLine(exchange));
      },
    }),
  );
  const { url, token_url, scenario } = partner;
  const inForce = partner.auth;
  if (flags.json === true) {
    print(
      JSON.stringify({
        url,
        auth: { ...inForce, token_url },
        scenario: scenario?.name ?? null,
      }),
    );
  } else {
    print(`Sandbox partner at ${url}; look at ${url}/sandbox/payments`);
    print(
      inForce.method === 'key'
        ? `key: ${inForce.header}: ${inForce.key}`
        : `OAuth: ${token_url} client_id ${inForce.client_id} client_secret ${inForce.client_secret}`,
    );
    if (scenario !== undefined) {
      print(`${scenario.name}: ${scenario.title}.\nA correct caller: ${scenario.caller}`);
    }
  }
  const healAfter = flags.healAfter ?? (scenario?.entry === 'closed' ? CLOSED_SECONDS : undefined);
  const heal = () => {
    void partner.heal();
    if (flags.json !== true) print('healed');
  };
  const healing = healAfter === undefined ? undefined : setTimeout(heal, healAfter * 1000);
  await interrupted();
  clearTimeout(healing);
  await partner.stop();
}

/** Starts something; a failure becomes one sentence. */
async function started<T>(start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    if (error instanceof ScenarioProblem) throw new SandboxProblem(error.message);
    if (error instanceof Error && 'code' in error && 'port' in error) {
      throw new SandboxProblem(
        `cannot listen on port ${String(error.port)}: ${String(error.code)}`,
      );
    }
    throw error;
  }
}

const listed = () =>
  SCENARIOS.map(({ name, title, caller, needs, faults }) => ({
    name,
    title,
    caller,
    auth: needs ?? 'any',
    faults,
  }));

function listText(): string {
  return SCENARIOS.map(
    ({ name, title, caller, faults }) =>
      `${name}\n    ${title} (${faults === 'until_healed' ? 'until healed' : `${faults} times`})\n    A correct caller: ${caller}`,
  ).join('\n');
}

function exchangeLine(exchange: ScriptedExchange): string {
  const { method, path, answer, credential } = exchange;
  const came = answer === undefined ? 'no ordinary response' : `${answer.status} ${answer.body}`;
  const refused = credential === 'refused' ? ' (credential refused)' : '';
  const sent = exchange.body === '' ? '' : ` ${exchange.body}`;
  return cut(`${method} ${path}${sent}${refused} -> ${came}`);
}

function platformCommand(): Command {
  return new Command('platform')
    .description('run an in-memory platform that issues tokens')
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port; 0 picks a free one', whole(0, 65_535), 4000)
    .addOption(
      new Option('--kind <kind>', 'an aggregator must send biller_id')
        .choices(['biller', 'aggregator'])
        .default('biller'),
    )
    .option('--client-id <id>', 'generated unless given')
    .option('--api-key <key>', 'generated unless given')
    .option('--json', 'prints JSON')
    .action(
      async (flags: {
        host: string;
        port: number;
        kind: 'biller' | 'aggregator';
        clientId?: string;
        apiKey?: string;
        json?: boolean;
      }) => {
        const platform = await started(() =>
          startScriptedPlatform({
            host: flags.host,
            port: flags.port,
            client: {
              kind: flags.kind,
              client_id: flags.clientId ?? `client_${madeUp()}`,
              api_key: flags.apiKey ?? madeUp(),
            },
          }),
        );
        const { url, client_id, api_key } = platform;
        print(
          flags.json === true
            ? JSON.stringify({ url, client_id, api_key })
            : `Sandbox platform at ${url}\nX-Client-Id: ${client_id}\nX-Api-Key: ${api_key}`,
        );
        await interrupted();
        await platform.stop();
      },
    );
}

const cut = (text: string) => (text.length > SHOWN ? `${text.slice(0, SHOWN)} …` : text);

const madeUp = () => randomBytes(18).toString('base64url');

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Resolves at SIGINT or SIGTERM. */
function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
  });
}

function whole(minimum: number, maximum: number) {
  return (text: string): number => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < minimum || value > maximum) {
      throw new InvalidArgumentError(`must be an integer from ${minimum} to ${maximum}`);
    }
    return value;
  };
}
