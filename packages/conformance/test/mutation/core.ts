/**
 * Mutants of the core: the files of engine, store and partner kit that keep the promises, changed by the same operators as the right
 * peers (mutations.ts). Each mutant has to be killed by a test, a world of the simulator or the database.
 *
 *   npm run mutation -- core [--file NAME] [--count N] [--seed N] [--for SECONDS] [--at-once N] [--results FILE]
 *
 * The changed text is put in the place of the file while it is loaded (replace.ts), so that the tree itself never changes. Only the
 * tests that run the changed place are tried over a mutant (spans.ts), and the first that fails ends the process (first-failure.ts);
 * a test that does not end in its time kills too, if it does so twice.
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

/** A test file, or worlds of the simulator. */
type Killer = { readonly test: string } | { readonly worlds: number };

const ROOT = join(import.meta.dirname, '../../../..');
const ENGINE = 'packages/platform/src/engine';
const STORE = 'packages/platform/src/store';
const PARTNER = 'packages/partner/src';

const WORLDS: Killer = { worlds: 6 };
const engine = (name: string): Killer => ({ test: `${ENGINE}/${name}.test.ts` });
const partner = (name: string): Killer => ({ test: `${PARTNER}/${name}.test.ts` });
const [LEASE_TEST, SLOTS_TEST] = [engine('lease'), engine('slots')];
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
const [ADMIN_TEST, STATUS_TEST] = [partner('admin'), partner('status')];

/** What is run over the mutants of each file, the fastest first. */
export const CORE: Readonly<Record<string, readonly Killer[]>> = {
  [`${ENGINE}/lease.ts`]: [LEASE_TEST, WORLDS],
  [`${ENGINE}/poll-schedule.ts`]: [engine('poll-schedule'), WORLDS],
  [`${ENGINE}/due-heap.ts`]: [engine('due-heap'), WORLDS],
  [`${ENGINE}/call-rate.ts`]: [engine('call-rate'), engine('partner-queue'), WORLDS],
  [`${ENGINE}/partner-queue.ts`]: [engine('partner-queue'), WORLDS],
  [`${ENGINE}/payment-steps.ts`]: [engine('payment-steps'), WORLDS],
  [`${ENGINE}/outcome.ts`]: [{ test: 'packages/platform/src/partners/payment-record.test.ts' }],
  [`${ENGINE}/slots.ts`]: [SLOTS_TEST, ORPHANS_TEST, LEASE_TEST, WORLDS],
  [`${ENGINE}/ownership.ts`]: [
    engine('ownership'),
    ORPHANS_TEST,
    SLOTS_TEST,
    engine('shares'),
    WORLDS,
  ],
  [`${STORE}/payments.ts`]: [PAYMENTS_TEST, TERMINAL_TEST, REVIEW_TEST, WORLDS, ENGINE_TEST],
  [`${STORE}/terminal.ts`]: [TERMINAL_TEST, REVIEW_TEST, PAYMENTS_TEST, WORLDS, ENGINE_TEST],
  [`${PARTNER}/accept.ts`]: [ACCEPT_TEST, partner('auth'), SYSTEM_TEST, WORLDS, APPLY_TEST],
  [`${PARTNER}/store.ts`]: [ACCEPT_TEST, APPLY_TEST, ADMIN_TEST, STATUS_TEST, WORLDS],
  [`${PARTNER}/apply.ts`]: [APPLY_TEST, READY_TEST, NEIGHBOURS_TEST, SYSTEM_TEST, WORLDS],
  [`${PARTNER}/ledger.ts`]: [partner('account-reads'), LEDGER_TEST, APPLY_TEST],
  [`${PARTNER}/claims.ts`]: [partner('claims'), SYSTEM_TEST, READY_TEST, APPLY_TEST],
  [`${PARTNER}/post-in-transaction.ts`]: [
    partner('post-in-transaction'),
    APPLY_TEST,
    NEIGHBOURS_TEST,
    ACCEPT_TEST,
    LEDGER_TEST,
  ],
};

/** The first world: the seeds are the same for every mutant. */
const FIRST_WORLD = 1;
/** Tests over a mutant have this many times what they take over the right code, and not less than LEAST_MS; a loop never ends. */
const PATIENCE = 8;
const LEAST_MS = 15_000;
/** What a test file may take over the right code. */
const RIGHT_MS = 240_000;

/** Tries mutants of the core: all that are new, or so many of them, chosen by the seed. Throws when a test fails over the right code. */
export async function mutateCore(options: {
  /** Part of the path of one file or several. */
  readonly file?: string;
  readonly count?: number;
  readonly seed?: number;
  /** Begins no more mutants after so long. */
  readonly for_ms?: number;
  /** Mutants tried side by side, each with a PostgreSQL of its own; default: one, on the server that all test files share. */
  readonly at_once?: number;
  /** Those that are to be tried, by the path of the file and Mutation.name; else all. */
  readonly wanted?: (file: string, name: string) => boolean;
  readonly told?: (fate: Fate) => void;
  /** Ends the run: what is being tried is given up, and servers are stopped. */
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
  await inLanes(options.at_once, options.signal, async (lane) => {
    while (performance.now() < until && !isOver()) {
      const next = queue.shift();
      if (next === undefined) return;
      const fate = await tried(next.file, next.mutation, lane, known);
      if (isOver()) return;
      fates.push(fate);
      options.told?.(fate);
    }
  });
  return fates;
}

/** Every mutant of a file of the core, whose path begins at the root of the repository. */
export function mutantsOf(file: string): ReturnType<typeof mutations> {
  return mutations(file, readFileSync(join(ROOT, file), 'utf8'), true);
}

/** Tries one mutant: killer after killer, of each the tests that run the changed place. */
async function tried(
  file: string,
  mutation: Mutation,
  lane: Lane,
  known: Map<Killer, Promise<Known>>,
): Promise<Fate> {
  const source = readFileSync(join(ROOT, file), 'utf8');
  const sites = sitesOf(file, source, mutation.start);
  const text = mutated(source, mutation);
  let caught: string | undefined;
  let reached = false;
  for (const killer of CORE[file] ?? []) {
    let one = known.get(killer);
    if (one === undefined) known.set(killer, (one = right(killer, lane)));
    const attempt = (await one)(join(ROOT, file), sites);
    if (attempt === undefined) continue;
    reached = true;
    caught = await killed(killer, attempt, file, text, lane);
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

/** Which tests of a killer are to be run, by their titles, and the longest they may take; all of them when `titles` is absent. */
interface Attempt {
  readonly titles?: readonly string[];
  readonly limitMs: number;
}
/** What of a killer leads to one of some places in a file; undefined when nothing does. */
type Known = (path: string, sites: readonly number[]) => Attempt | undefined;

/** Runs a killer over the right code: it has to pass, and tells which places each of its tests leads to. */
async function right(killer: Killer, lane: Lane): Promise<Known> {
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
          ? { limitMs: Math.max(LEAST_MS, PATIENCE * wholeMs) }
          : undefined;
    }
    const tests = readFileSync(spans, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Spans);
    // What is not the tests' own time: to start, to make a database, to close.
    const aroundMs = Math.max(0, wholeMs - tests.reduce((sum, { ms }) => sum + ms, 0));
    return (path, sites) => {
      const own = tests.filter(({ files: ran }) =>
        sites.some((offset) => covers(ran[path] ?? [], offset)),
      );
      if (own.length === 0) return undefined;
      const ms = aroundMs + own.reduce((sum, test) => sum + test.ms, 0);
      return {
        titles: own.map(({ name }) => name),
        limitMs: Math.max(LEAST_MS, PATIENCE * ms),
      };
    };
  });
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
    // Another program may have had the processor: what is late once is no proof.
    return first?.endsWith(LATE) === true ? failure(killer, titles, env, 2 * limitMs, lane) : first;
  });
}

/** What V8 has optimized it counts no more: a test after a busy one would seem to lead nowhere. */
const UNOPTIMIZED = ['--no-opt', '--no-maglev'];

/** The end of what `failure` says of a test that took too long. */
const LATE = 'does not end';

/** Runs tests, or worlds, in a process of its own. What failed; undefined when all passed. */
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
  // A test that believes itself below another one reports in another form.
  const { NODE_TEST_CONTEXT: _, ...own } = process.env;
  const ended = await new Promise<string | undefined>((resolve, reject) => {
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      // A group of its own: whatever a test has started ends with it.
      detached: true,
      env: { ...own, ...lane.env, ...env, NODE_OPTIONS: `--import=${hooks}` },
      stdio: 'ignore',
    });
    const end = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended by itself.
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

/** Where mutants are tried one after another. */
interface Lane {
  readonly signal: AbortSignal | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** Where what Node compiled is kept for the next mutant, which halves its start. Not for the right code: it blurs what V8 counts. */
  readonly cache: Readonly<Record<string, string>>;
  /** Whether a test file may end at its first failure, leaving its databases behind: somebody drops them. */
  readonly stopsEarly: boolean;
  /** Drops what a test that was ended has left. */
  clean(): Promise<void>;
}

/** Runs `work` in so many lanes with a server each; or in one, on the server that all test files share. */
async function inLanes(
  lanes: number | undefined,
  signal: AbortSignal | undefined,
  work: (lane: Lane) => Promise<void>,
): Promise<void> {
  if (lanes === undefined) {
    await work({ env: {}, cache: {}, signal, stopsEarly: false, clean: () => Promise.resolve() });
    return;
  }
  await Promise.all(
    Array.from({ length: lanes }, () =>
      inFolder(async (folder) => {
        const server = await testServer(folder);
        const admin = openDatabase({ url: server.url, applicationName: 'duebridge mutation' });
        try {
          await work({
            env: { DUEBRIDGE_TEST_DATABASE_URL: server.url },
            cache: { NODE_COMPILE_CACHE: join(folder, 'compiled') },
            signal,
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
