/**
 * The correct peers whose sources are mutated, and how each is started and judged. A peer with two
 * authentication methods, or two kinds of client, is judged in one round for each.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { freePort } from '@duebridge/runtime/testing';
import { memoryHistory } from '../../src/check/history.ts';
import type { Pace } from '../../src/check/pace.ts';
import { partnerTarget, platformTarget, type Draft } from '../../src/check/target.ts';
import {
  judgePartner,
  judgePlatform,
  type PartnerRunOptions,
  type PlatformRunOptions,
  type RunReport,
} from '../../src/run.ts';
import { CALLER_CASES, TOKEN_CASES } from '../../src/cases/index.ts';
import { QUICK } from '../kill.ts';
import { platformDraft } from '../peers.ts';
import { AUTHS, CLIENT, KEY } from './credentials.ts';

/** Options that a round passes to the judge. */
export interface Judging {
  readonly signal: AbortSignal;
  readonly onProgress: NonNullable<PartnerRunOptions['onProgress']>;
}

/** Starts and judges a subject in one way. `folder` is empty and for this round alone; `env` selects the mutated source. */
export type Round = (place: {
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  readonly judging: Judging;
}) => Promise<RunReport | undefined>;

/** A correct peer. */
export interface Subject {
  /** The files to mutate. */
  readonly files: readonly string[];
  readonly rounds: Readonly<Record<string, Round>>;
}

const root = join(import.meta.dirname, '../../../..');
const REPLACE = join(import.meta.dirname, 'replace.ts');
const SERVE = join(import.meta.dirname, 'serve.ts');

/** A peer that does not listen within this time counts as one that does not start. */
const START_MS = 30_000;

const PACE: Partial<Pace> = {
  ...QUICK,
  poll_first_ms: 50,
  poll_longest_ms: 200,
  balance_lag_ms: 1_000,
  request_timeout_ms: 10_000,
};

const EXAMPLES = join(root, 'docs/examples');
const SANDBOX = join(root, 'packages/conformance/src/sandbox');
const CLIENTS = join(import.meta.dirname, '../clients');

export const SUBJECTS: Readonly<Record<string, Subject>> = {
  'partner.mjs': {
    files: [join(EXAMPLES, 'partner.mjs')],
    rounds: { key: example(join(EXAMPLES, 'partner.mjs')) },
  },
  'partner.py': {
    files: [join(EXAMPLES, 'partner.py')],
    rounds: { key: example(join(EXAMPLES, 'partner.py')) },
  },
  'sandbox-partner': {
    files: [join(SANDBOX, 'partner.ts'), join(SANDBOX, 'state.ts')],
    rounds: { key: sandboxPartner('key'), oauth: sandboxPartner('oauth') },
  },
  'sandbox-platform': {
    files: [join(SANDBOX, 'platform.ts')],
    rounds: { biller: sandboxPlatform('biller'), aggregator: sandboxPlatform('aggregator') },
  },
  'caller.mjs': {
    files: [join(CLIENTS, 'caller.mjs')],
    rounds: { key: caller('caller.mjs', 'key'), oauth: caller('caller.mjs', 'oauth') },
  },
  'caller.py': {
    files: [join(CLIENTS, 'caller.py')],
    rounds: { key: caller('caller.py', 'key'), oauth: caller('caller.py', 'oauth') },
  },
};

/** An example server, which keeps its records in a file and so can be restarted. */
function example(file: string): Round {
  return async ({ folder, env, judging }) => {
    const own = { ...env, PARTNER_KEY: KEY, PARTNER_DB: join(folder, 'books.db') };
    let server = await start([file], { ...own, PORT: '0' });
    if (server === undefined) return undefined;
    const { url } = server;
    try {
      const target = partnerTarget(
        {
          base_url: url,
          authentication: AUTHS.key,
          biller_id: 'my-biller',
          accounts: { payable: 'A-1', other: 'A-2', inactive: 'A-3' },
          limits: { max_amount_in_cents: 10_000_000 },
          terminal_window_seconds: 8,
        },
        {},
      );
      return await judgePartner(target, {
        ...judging,
        profile: 'strict',
        pace: PACE,
        history: memoryHistory(),
        async restart() {
          await server?.stop();
          server = await start([file], { ...own, PORT: new URL(url).port });
        },
      });
    } finally {
      await server?.stop();
    }
  };
}

function sandboxPartner(method: 'key' | 'oauth'): Round {
  return async ({ env, judging }) => {
    const server = await start([SERVE, `partner-${method}`], env);
    if (server === undefined) return undefined;
    try {
      const auth = AUTHS[method];
      const target = partnerTarget(
        {
          base_url: server.url,
          authentication:
            auth.method === 'key'
              ? auth
              : { method, ...CLIENT, token_url: `${server.url}/oauth/token` },
          biller_id: 'sandbox-utility',
          accounts: {
            payable: 'maximum',
            other: 'active-2',
            unknown: 'nobody',
            inactive: 'inactive',
            canceled: 'canceled',
          },
          limits: { min_amount_in_cents: 100, max_amount_in_cents: 50_000 },
          terminal_window_seconds: 4,
          spending_cap_in_cents: 20_000_000_000,
        },
        {},
      );
      return await judgePartner(target, {
        ...judging,
        profile: 'strict',
        pace: PACE,
        history: memoryHistory(),
      });
    } finally {
      await server.stop();
    }
  };
}

function sandboxPlatform(kind: 'biller' | 'aggregator'): Round {
  return async ({ env, judging }) => {
    const server = await start([SERVE, `platform-${kind}`], env);
    if (server === undefined) return undefined;
    const { client_id = '', api_key = '', unknown_account_id = '' } = server.told;
    const told = { url: server.url, client_id, api_key, unknown_account_id };
    try {
      return await judgePlatform(platformTarget(platformDraft(told, kind), {}), {
        ...judging,
        pace: PACE,
        profile: 'strict',
        only: TOKEN_CASES.map(({ id }) => id),
      });
    } finally {
      await server.stop();
    }
  };
}

function caller(file: string, method: 'key' | 'oauth'): Round {
  return async ({ env, judging }) => {
    const port = await freePort();
    const proof: Record<string, string> =
      method === 'key'
        ? { PARTNER_KEY: KEY }
        : { CLIENT_ID: CLIENT.client_id, CLIENT_SECRET: CLIENT.client_secret };
    const server = await start([join(CLIENTS, file)], {
      ...env,
      ...proof,
      PARTNER_URL: `http://127.0.0.1:${port}`,
    });
    if (server === undefined) return undefined;
    const draft: Draft = {
      caller: {
        port,
        authentication:
          method === 'key'
            ? AUTHS.key
            : { method, ...CLIENT, token_url: `http://127.0.0.1:${port}/oauth/token` },
        biller_id: 'a-biller',
        account_id: 'A-1',
        patience_seconds: 20,
        pay_url: `${server.url}/pay`,
        status_url: `${server.url}/payments/{platform_payment_id}`,
      },
    };
    const options: PlatformRunOptions = {
      ...judging,
      profile: 'strict',
      pace: { quiet_ms: 800 },
      only: CALLER_CASES.map(({ id }) => id),
    };
    try {
      return await judgePlatform(platformTarget(draft, {}), options);
    } finally {
      await server.stop();
    }
  };
}

/** Killed whenever this process exits: some mutants call in a tight loop. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

interface Started {
  readonly url: string;
  readonly told: Readonly<Record<string, string>>;
  readonly stop: () => Promise<void>;
}

/** Starts a peer and waits until it prints its address; undefined if it never does. */
async function start(
  [script = '', ...rest]: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Started | undefined> {
  const python = script.endsWith('.py');
  // Python has no loader hook here: run the changed file itself.
  const file = python ? (env['MUTANT_SOURCE'] ?? script) : script;
  const child = spawn(
    python ? 'python3' : process.execPath,
    python ? [file] : ['--import', REPLACE, file, ...rest],
    {
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        ...env,
      },
      stdio: ['ignore', 'pipe', 'ignore'],
    },
  );
  running.add(child);
  child.once('exit', () => running.delete(child));
  const text = await new Promise<string | undefined>((resolve) => {
    let said = '';
    const timer = setTimeout(() => resolve(undefined), START_MS);
    const end = (found: string | undefined): void => {
      clearTimeout(timer);
      resolve(found);
    };
    child.stdout.on('data', (piece: Buffer) => {
      said += piece.toString();
      if (/http:\/\/127\.0\.0\.1:\d+.*\n/.test(said)) end(said);
    });
    child.once('exit', () => end(undefined));
  });
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(text ?? '')?.[0];
  // SIGKILL, as in a power cut; SIGTERM if Node must still write its coverage.
  const signal = env['NODE_V8_COVERAGE'] === undefined ? 'SIGKILL' : 'SIGTERM';
  if (text === undefined || url === undefined) {
    await stop(child, signal);
    return undefined;
  }
  const told = text.startsWith('{') ? (JSON.parse(text) as Record<string, string>) : {};
  return { url, told, stop: () => stop(child, signal) };
}

async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill(signal);
  await ended;
}
