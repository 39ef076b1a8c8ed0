/**
 * Mutates the core, the files of engine, store and partner kit behind docs/guarantees.md, with the same operators as the correct
 * peers (mutations.ts). A test, a simulator world or the database must kill each mutant.
 *
 *   npm run mutation -- core [--file NAME] [--count N] [--seed N] [--for SECONDS] [--at-once N] [--tests-only] [--results FILE]
 *
 * A loader substitutes the changed source (replace.ts), so the working tree stays untouched. Only tests that run the changed code are
 * run (spans.ts), and the first failure ends the process (first-failure.ts). A test that times out twice also kills the mutant.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { covers, coverage, sample, type Fate } from './fate.ts';
import { mutated, mutations, sitesOf, type Mutation } from './mutations.ts';
import type { Spans } from './spans.ts';
import { WarmTests } from './warm-tests.ts';

/** A test file, or a number of simulator worlds. `warm`: its tests need no server and no database, and can share a process (warm.ts). */
type Killer = { readonly test: string; readonly warm?: true } | { readonly worlds: number };

const ROOT = join(import.meta.dirname, '../../../..');
const ENGINE = 'packages/platform/src/engine';
const STORE = 'packages/platform/src/store';
const PARTNER = 'packages/partner/src';

const WORLDS: Killer = { worlds: 6 };
const engine = (name: string): Killer => ({ test: `${ENGINE}/${name}.test.ts` });
const pure = (name: string): Killer => ({ test: `${ENGINE}/${name}.test.ts`, warm: true });
const partner = (name: string): Killer => ({ test: `${PARTNER}/${name}.test.ts` });
const pureInKit = (name: string): Killer => ({ test: `${PARTNER}/${name}.test.ts`, warm: true });
const [LEASE_TEST, SLOTS_TEST] = [pure('lease'), engine('slots')];
const DISPATCHER_TEST = pure('dispatcher');
const [ORPHANS_TEST, REVIEW_TEST, ENGINE_TEST] = [
  engine('orphans'),
  engine('review'),
  engine('engine'),
];
const TERMINAL_TEST: Killer = { test: `${STORE}/terminal.test.ts` };
const PAYMENTS_TEST: Killer = { test: `${STORE}/payments.test.ts` };
const [ACCEPT_TEST, APPLY_TEST, LEDGER_TEST] = [
  partner('accept'),
  partner('apply'),
  partner('ledger'),
];
const [SYSTEM_TEST, NEIGHBOURS_TEST, READY_TEST] = [
  partner('account-system'),
  partner('neighbours'),
  partner('readiness'),
];
const [STORE_TEST, OWN_SYSTEM_TEST] = [partner('store'), partner('post-in-own-system')];

/** The killers run against the mutants of each file, fastest first. */
export const CORE: Readonly<Record<string, readonly Killer[]>> = {
  [`${ENGINE}/lease.ts`]: [LEASE_TEST, WORLDS],
  [`${ENGINE}/poll-schedule.ts`]: [pure('poll-schedule'), WORLDS],
  [`${ENGINE}/due-heap.ts`]: [pure('due-heap'), WORLDS],
  [`${ENGINE}/call-rate.ts`]: [pure('call-rate'), pure('partner-queue'), WORLDS],
  [`${ENGINE}/partner-queue.ts`]: [pure('partner-queue'), WORLDS],
  [`${ENGINE}/held-payments.ts`]: [pure('held-payments'), WORLDS],
  [`${ENGINE}/waiting.ts`]: [pure('held-payments'), WORLDS],
  [`${ENGINE}/funding-queue.ts`]: [pure('funding-queue'), WORLDS],
  [`${ENGINE}/outage.ts`]: [pure('outage'), WORLDS],
  [`${ENGINE}/shares.ts`]: [pure('shares'), engine('ownership'), WORLDS],
  [`${ENGINE}/dispatcher.ts`]: [DISPATCHER_TEST, WORLDS],
  [`${ENGINE}/active-payment.ts`]: [DISPATCHER_TEST, WORLDS],
  [`${ENGINE}/worker.ts`]: [pure('worker'), SLOTS_TEST, WORLDS],
  [`${ENGINE}/engine.ts`]: [pure('engine-loops'), WORLDS],
  [`${ENGINE}/review.ts`]: [REVIEW_TEST, ENGINE_TEST],
  [`${ENGINE}/records.ts`]: [pure('records'), WORLDS],
  [`${ENGINE}/calls.ts`]: [DISPATCHER_TEST, WORLDS],
  [`${ENGINE}/metrics.ts`]: [pure('metrics')],
  [`${ENGINE}/payment-steps.ts`]: [pure('payment-steps'), WORLDS],
  [`${ENGINE}/outcome.ts`]: [
    { test: 'packages/platform/src/partners/payment-record.test.ts', warm: true },
  ],
  [`${ENGINE}/slots.ts`]: [SLOTS_TEST, ORPHANS_TEST, LEASE_TEST, WORLDS],
  [`${ENGINE}/ownership.ts`]: [engine('ownership'), ORPHANS_TEST, SLOTS_TEST, WORLDS],
  [`${STORE}/payments.ts`]: [PAYMENTS_TEST, TERMINAL_TEST, REVIEW_TEST, WORLDS, ENGINE_TEST],
  [`${STORE}/terminal.ts`]: [TERMINAL_TEST, REVIEW_TEST, PAYMENTS_TEST, WORLDS, ENGINE_TEST],
  [`${PARTNER}/accept.ts`]: [ACCEPT_TEST, SYSTEM_TEST, partner('auth')],
  [`${PARTNER}/store.ts`]: [STORE_TEST, partner('audit-verify')],
  [`${PARTNER}/cancel.ts`]: [STORE_TEST],
  [`${PARTNER}/settle.ts`]: [STORE_TEST],
  [`${PARTNER}/poster.ts`]: [OWN_SYSTEM_TEST, partner('post-in-transaction'), SYSTEM_TEST],
  [`${PARTNER}/post-in-own-system.ts`]: [OWN_SYSTEM_TEST],
  [`${PARTNER}/status.ts`]: [pureInKit('waiting-reads'), partner('status')],
  [`${PARTNER}/statement.ts`]: [pureInKit('statement-queue'), partner('statement')],
  [`${PARTNER}/business-rules.ts`]: [partner('business-rules')],
  [`${PARTNER}/accounts-over-http.ts`]: [pureInKit('accounts-over-http')],
  [`${PARTNER}/accounts-by-sql.ts`]: [pureInKit('accounts-by-sql'), partner('accounts-beside')],
  [`${PARTNER}/credentials.ts`]: [pureInKit('credentials-memory'), partner('operators-day')],
  [`${PARTNER}/handler.ts`]: [partner('handler')],
  [`${PARTNER}/call-places.ts`]: [pureInKit('call-places'), OWN_SYSTEM_TEST],
  [`${PARTNER}/account-reads.ts`]: [partner('account-reads'), SYSTEM_TEST],
  [`${PARTNER}/account-system.ts`]: [pureInKit('outcomes'), SYSTEM_TEST, APPLY_TEST],
  [`${PARTNER}/former-payments.ts`]: [partner('former-payments')],
  [`${PARTNER}/auth.ts`]: [pureInKit('auth-memory'), partner('auth')],
  [`${PARTNER}/apply.ts`]: [partner('sweep'), APPLY_TEST, READY_TEST],
  [`${PARTNER}/ledger.ts`]: [partner('account-reads'), LEDGER_TEST, APPLY_TEST],
  [`${PARTNER}/claims.ts`]: [partner('claims'), STORE_TEST, SYSTEM_TEST],
  [`${PARTNER}/post-in-transaction.ts`]: [
    partner('post-in-transaction'),
    APPLY_TEST,
    NEIGHBOURS_TEST,
    ACCEPT_TEST,
    LEDGER_TEST,
  ],
};

/** Seed of the first world: every mutant meets the same worlds. */
const FIRST_WORLD = 1;
/** A mutant may loop forever, so its tests get this multiple of their usual time, and at least LEAST_MS. */
const PATIENCE = 8;
const LEAST_MS = 15_000;
/** A test of the unchanged code that takes longer, in milliseconds, is run only when the quicker ones of its file pass. */
const QUICK_MS = 1_000;
/** Time limit of a test file on the unchanged code. */
const RIGHT_MS = 240_000;

/** Tests mutants of the core: all wanted ones, or `count` of them chosen by `seed`. Throws if a test fails on the unchanged code. */
export async function mutateCore(options: {
  /** Limits the run to files whose path contains this. */
  readonly file?: string;
  readonly count?: number;
  readonly seed?: number;
  /** Starts no further mutant after this time. */
  readonly for_ms?: number;
  /** Mutants tested concurrently, each on its own PostgreSQL; default: one at a time, on the server that all test files share. */
  readonly at_once?: number;
  /** Leaves the worlds of the simulator out: six take most of a minute of processor time, for each mutant that no test kills. */
  readonly testsOnly?: boolean;
  /** Selects mutants by file path and Mutation.name; default: all. */
  readonly wanted?: (file: string, name: string) => boolean;
  readonly told?: (fate: Fate) => void;
  /** Aborts the run: abandons the mutants under test and stops the servers. */
  readonly signal?: AbortSignal;
}): Promise<readonly Fate[]> {
  const files = Object.keys(CORE).filter((file) => file.includes(options.file ?? ''));
  if (files.length === 0) {
    throw new Error(
      `${options.file} is no file of the core: they are ${Object.keys(CORE).join(', ')}`,
    );
  }
  const queue = [
    ...sample(
      files
        .flatMap((file) => mutantsOf(file).map((mutation) => ({ file, mutation })))
        .filter(({ file, mutation }) => options.wanted?.(file, mutation.name) ?? true),
      options.count,
      options.seed ?? 1,
    ),
  ];
  const until = performance.now() + (options.for_ms ?? Infinity);
  const fates: Fate[] = [];
  const known = new Map<Killer, Promise<Known>>();
  const isOver = (): boolean => options.signal?.aborted === true;
  const needServer = files
    .flatMap((file) => CORE[file] ?? [])
    .some((killer) => 'test' in killer && killer.warm !== true);
  await inLanes(options.at_once, needServer, options.signal, async (lane) => {
    while (performance.now() < until && !isOver()) {
      const next = queue.shift();
      if (next === undefined) return;
      const killers = (CORE[next.file] ?? []).filter(
        (killer) => options.testsOnly !== true || 'test' in killer,
      );
      const fate = await tried(next.file, next.mutation, killers, lane, known);
      if (isOver()) return;
      fates.push(fate);
      options.told?.(fate);
    }
  });
  return fates;
}

/** Every mutant of a core file, given by its path from the repository root. */
export function mutantsOf(file: string): ReturnType<typeof mutations> {
  return mutations(file, readFileSync(join(ROOT, file), 'utf8'), true);
}

/** Tests one mutant with one killer after another, running only tests that reach the changed code. */
async function tried(
  file: string,
  mutation: Mutation,
  killers: readonly Killer[],
  lane: Lane,
  known: Map<Killer, Promise<Known>>,
): Promise<Fate> {
  const source = readFileSync(join(ROOT, file), 'utf8');
  const sites = sitesOf(file, source, mutation.start);
  const text = mutated(source, mutation);
  let caught: string | undefined;
  let reached = false;
  for (const killer of killers) {
    let one = known.get(killer);
    if (one === undefined) known.set(killer, (one = right(killer, lane)));
    for (const attempt of (await one)(join(ROOT, file), sites)) {
      reached = true;
      caught ??=
        'test' in killer && killer.warm === true
          ? await killedWarm(killer, attempt, file, text, lane)
          : await killed(killer, attempt, file, text, lane);
    }
    if (caught !== undefined) break;
  }
  return {
    file,
    line: mutation.line,
    name: mutation.name,
    caught: caught === undefined ? [] : [caught],
    reached,
  };
}

/** The tests of a killer to run, by title (all if absent), and their time limit. */
interface Attempt {
  readonly titles?: readonly string[];
  readonly limitMs: number;
}
/** Returns the tests of a killer that reach one of the given places in a file, the quick ones first; empty if none does. */
type Known = (path: string, sites: readonly number[]) => readonly Attempt[];

/** Runs a killer on the unchanged code, where it must pass, and records which places each of its tests reaches. */
async function right(killer: Killer, lane: Lane): Promise<Known> {
  if ('test' in killer && killer.warm === true) {
    const reached = await lane.warm.reach(join(ROOT, killer.test));
    return (path, sites) =>
      sites.some((offset) => covers(reached[path] ?? [], offset)) ? [{ limitMs: LEAST_MS }] : [];
  }
  return inFolder(async (folder) => {
    const started = performance.now();
    const spans = join(folder, 'spans.jsonl');
    const files = Object.keys(CORE).map((file) => join(ROOT, file));
    const env =
      'test' in killer
        ? { SPANS: spans, SPANS_FILES: files.join(':') }
        : { NODE_V8_COVERAGE: folder };
    const failed = await failure(killer, undefined, env, RIGHT_MS, lane);
    lane.signal?.throwIfAborted();
    if (failed !== undefined) throw new Error(`over the right code ${failed}`);
    const wholeMs = performance.now() - started;
    if (!('test' in killer)) {
      const isCovered = coverage(folder);
      return (path, sites) =>
        sites.some((offset) => isCovered(path, offset))
          ? [{ limitMs: Math.max(LEAST_MS, PATIENCE * wholeMs) }]
          : [];
    }
    const tests = readFileSync(spans, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Spans);
    // Overhead beyond the tests' own time: startup, database creation, shutdown.
    const aroundMs = Math.max(0, wholeMs - tests.reduce((sum, { ms }) => sum + ms, 0));
    return (path, sites) => {
      const own = tests.filter(({ files: ran }) =>
        sites.some((offset) => covers(ran[path] ?? [], offset)),
      );
      // In one process each, tests run in the order of the file: most mutants die before a slow test need start.
      const quick = own.filter(({ ms }) => ms <= QUICK_MS);
      const slow = own.filter(({ ms }) => ms > QUICK_MS);
      return [quick, slow]
        .filter((some) => some.length > 0)
        .map((some) => ({
          titles: some.map(({ name }) => name),
          limitMs: Math.max(
            LEAST_MS,
            PATIENCE * some.reduce((sum, test) => sum + test.ms, aroundMs),
          ),
        }));
    };
  });
}

/** `killed` for tests that can share a process. What that leaves unclear, a process of its own decides. */
async function killedWarm(
  killer: Killer & { readonly test: string },
  attempt: Attempt,
  file: string,
  text: string,
  lane: Lane,
): Promise<string | undefined> {
  const fate = await lane.warm.run(join(ROOT, killer.test), { file: join(ROOT, file), text });
  if (lane.signal?.aborted === true) return undefined;
  if (fate === 'unclear') return killed(killer, attempt, file, text, lane);
  return fate === 'passes' ? undefined : `${basename(killer.test)} ${fate}`;
}

async function killed(
  killer: Killer,
  { titles, limitMs }: Attempt,
  file: string,
  text: string,
  lane: Lane,
): Promise<string | undefined> {
  return inFolder(async (folder) => {
    const source = join(folder, basename(file));
    writeFileSync(source, text);
    const env = { ...lane.cache, MUTANT_FILE: join(ROOT, file), MUTANT_SOURCE: source };
    const first = await failure(killer, titles, env, limitMs, lane);
    // One timeout proves nothing: another process may have held the CPU.
    return first?.endsWith(LATE) === true ? failure(killer, titles, env, 2 * limitMs, lane) : first;
  });
}

/** V8 stops counting optimized code, so a test that follows a busy one would seem to run nothing. */
const UNOPTIMIZED = ['--no-opt', '--no-maglev'];

/** Suffix of the result of `failure` for a test that timed out. */
const LATE = 'does not end';

/** Runs tests or worlds in a separate process. Returns the first failure; undefined if all passed. */
async function failure(
  killer: Killer,
  titles: readonly string[] | undefined,
  env: Readonly<Record<string, string>>,
  limitMs: number,
  lane: Lane,
): Promise<string | undefined> {
  const patterns =
    titles?.map((title) => `^${title.replaceAll(/[.*+?^${}()|[\]\\/]/g, String.raw`\$&`)}`) ?? [];
  const args =
    'test' in killer
      ? [
          ...('SPANS' in env ? UNOPTIMIZED : []),
          ...(lane.stopsEarly
            ? [
                `--test-reporter=${pathToFileURL(join(import.meta.dirname, 'first-failure.ts')).href}`,
                '--test-reporter-destination=stdout',
              ]
            : []),
          ...patterns.map((pattern) => `--test-name-pattern=${pattern}`),
          join(ROOT, killer.test),
        ]
      : [
          join(ROOT, 'test/simulation/seeds.ts'),
          `--from=${FIRST_WORLD}`,
          `--count=${killer.worlds}`,
          '--until-violation',
        ];
  const name = 'test' in killer ? basename(killer.test) : 'simulator';
  const preload = 'SPANS' in env ? 'spans.ts' : 'replace.ts';
  const hooks = pathToFileURL(join(import.meta.dirname, preload)).href;
  // With this set, node:test would report as a child of another test run.
  const { NODE_TEST_CONTEXT: _, ...own } = process.env;
  const ended = await new Promise<string | undefined>((resolve, reject) => {
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      // Its own process group, so that killing it also kills what its tests started.
      detached: true,
      env: { ...own, ...lane.env, ...env, NODE_OPTIONS: `--import=${hooks}` },
      stdio: 'ignore',
    });
    const end = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // Already exited.
      }
    };
    process.once('exit', end);
    lane.signal?.addEventListener('abort', end);
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      end();
    }, limitMs);
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(late);
      process.off('exit', end);
      lane.signal?.removeEventListener('abort', end);
      end();
      if (isLate) resolve(`${name} ${LATE}`);
      else if (code !== 0) resolve(`${name} fails`);
      else resolve(undefined);
    });
  });
  if (ended !== undefined) await lane.clean();
  return ended;
}

/** Tests mutants one after another. */
interface Lane {
  readonly warm: WarmTests;
  readonly signal: AbortSignal | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** Node's compile cache, which halves startup. Not used for the unchanged code, because it distorts V8's counts. */
  readonly cache: Readonly<Record<string, string>>;
  /** True if a test file may exit at its first failure: someone drops the databases it leaves behind. */
  readonly stopsEarly: boolean;
  /** Drops the databases that killed tests left behind. */
  clean(): Promise<void>;
}

/** Runs `work` in `lanes` lanes, with a server each if `needServer`; if undefined, in one lane on the server that all test files share. */
async function inLanes(
  lanes: number | undefined,
  needServer: boolean,
  signal: AbortSignal | undefined,
  work: (lane: Lane) => Promise<void>,
): Promise<void> {
  const one = async (lane: Omit<Lane, 'warm' | 'signal'>): Promise<void> => {
    const warm = new WarmTests();
    const end = (): void => warm.end();
    signal?.addEventListener('abort', end);
    process.once('exit', end);
    try {
      await work({ ...lane, warm, signal });
    } finally {
      signal?.removeEventListener('abort', end);
      process.off('exit', end);
      end();
    }
  };
  const clean = (): Promise<void> => Promise.resolve();
  if (lanes === undefined) return one({ env: {}, cache: {}, stopsEarly: false, clean });
  await Promise.all(
    Array.from({ length: lanes }, () =>
      inFolder(async (folder) => {
        const cache = { NODE_COMPILE_CACHE: join(folder, 'compiled') };
        if (!needServer) return one({ env: {}, cache, stopsEarly: true, clean });
        const server = await testServer(folder);
        const admin = openDatabase({ url: server.url, applicationName: 'duebridge mutation' });
        try {
          // Databases are made and dropped for every mutant, and none has to survive a power cut.
          await admin.query('ALTER SYSTEM SET fsync = off');
          await admin.query('SELECT pg_reload_conf()');
          await one({
            env: { DUEBRIDGE_TEST_DATABASE_URL: server.url },
            cache,
            stopsEarly: true,
            async clean() {
              const left = await admin.query<{ datname: string }>(
                `SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'`,
              );
              for (const { datname } of left) {
                await admin.query(`DROP DATABASE IF EXISTS ${datname} WITH (FORCE)`);
              }
            },
          });
        } finally {
          await admin.close();
          await server.stop();
        }
      }),
    ),
  );
}

async function inFolder<T>(run: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-core-'));
  try {
    return await run(folder);
  } finally {
    if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
  }
}
