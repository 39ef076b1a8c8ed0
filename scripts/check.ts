/**
 * The one command for people and CI: types, lint, format, dead code, documents and tests.
 *
 * One embedded PostgreSQL serves every test file; each file creates its own database in it.
 */
import { spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
} from 'node:fs';
import { setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { endProcessesOf } from './left-processes.ts';
import { readWords, refuse } from './words.ts';

const root = join(import.meta.dirname, '..');
const bin = (name: string): string => join(root, 'node_modules', '.bin', name);

/** Limits of one test and of one test file: what takes longer hangs. The slowest file takes about a third of it. */
const TEST_TIMEOUT_MS = 240_000;
const FILE_TIMEOUT_MS = 420_000;

/**
 * Test files that run at once. One more than the cores of the smallest machine: two of them use little more than one core, because
 * wrong peers, polls and browsers are mostly waited for.
 */
const FILES_AT_ONCE = 3;

/** A run's folder among the temporary files, and the file in it that is locked while the run lives. */
const RUN_FOLDER = 'duebridge-check-';
const RUN_LOCK = 'run.lock';

/**
 * The files that take more than 20 s alone. First those of the judge, which measure how long peers take and leave most of two cores
 * idle; then the others in an order in which no more than two that keep a core busy run at once.
 */
const LONGEST: readonly string[] = [
  'packages/conformance/test/foreign-callers.test.ts',
  'packages/conformance/test/scenario-verdicts.test.ts',
  'test/conformance-platform.test.ts',
  'packages/conformance/test/kill-matrix-caller.test.ts',
  'packages/conformance/test/kill-matrix-platform.test.ts',
  'packages/conformance/test/kill-matrix.test.ts',
  'packages/conformance/test/fresh-peers.test.ts',
  'packages/conformance/test/judge.test.ts',
  'test/browser/end-to-end.test.ts',
  'packages/partner/src/neighbours.test.ts',
  'test/citus.test.ts',
  'packages/platform/src/engine/neighbours.test.ts',
  'test/browser/sdk.test.ts',
  'packages/platform/src/engine/liveness.test.ts',
  'packages/platform/src/engine/engine.test.ts',
  'test/browser/engines.test.ts',
  'packages/runtime/src/embedded-postgres.test.ts',
  'test/browser/funding.test.ts',
  'test/simulation/planted.test.ts',
  'test/browser/pay.test.ts',
  'test/prove-your-server.test.ts',
  'test/browser/screens.test.ts',
  'test/browser/settings.test.ts',
  'test/browser/time.test.ts',
  'test/rig/rig.test.ts',
  'test/crash.test.ts',
  'test/browser/console.test.ts',
  'test/browser/embed.test.ts',
  'test/consumers/quickstart.test.ts',
];

interface Step {
  readonly name: string;
  /** Whether it passed; what it has to say is printed by then. */
  readonly run: () => Promise<boolean>;
}

const HELP = `Usage:
  npm test                               types, lint, format, dead code and every test; 15 to 20 minutes on 2 cores
  npm test -- --only types,lint          some steps: types, lint, format, dead-code, tests
  npm test -- --tests packages/partner   the tests below a folder, or of one file; may be repeated

Exit codes: 0 everything passed, 1 something failed, 3 wrong arguments.`;

const { values: options } = readWords('test', HELP, {
  options: { only: { type: 'string' }, tests: { type: 'string', multiple: true } },
});

const TESTS: Step = { name: 'tests', run: tests };

/** Steps that run one after the other; prettier, which uses one core, takes as long as the other three, which use all. */
const ROWS: readonly (readonly Step[])[] = [
  [
    {
      name: 'types',
      run: async () =>
        (await command(bin('tsc'), ['--noEmit', '-p', 'tsconfig.json'])) &&
        command(bin('tsc'), ['--noEmit', '-p', 'packages/web/tsconfig.json']),
    },
    { name: 'lint', run: () => command(bin('oxlint'), ['--type-aware', '--deny-warnings']) },
    { name: 'dead-code', run: () => command(bin('knip'), ['--no-progress']) },
  ],
  [
    {
      name: 'format',
      run: () => command(bin('prettier'), ['--check', '--log-level=warn', '.']),
    },
  ],
  [TESTS],
];

const steps = ROWS.flat();

/**
 * Priority of what runs beside the tests: it takes the processor where no test wants it. The first test files mostly wait, so it is done
 * within a minute, and no test is slower for it.
 */
const BESIDE_TESTS = 10;

const chosen = choose();

/** Ctrl-C, or a signal to us alone, ends what runs and leaves the tests to clean up. A second one ends us at once. */
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

const failed: string[] = [];
if (chosen.length === steps.length) {
  console.log(
    'duebridge checks itself: types, lint, format, dead code, then every test, with real PostgreSQL, HTTP and browsers.\n' +
      'On 2 cores this takes 15 to 20 minutes; npm test -- --tests packages/partner runs the tests of one folder.',
  );
}
await Promise.all(
  ROWS.map(async (row) => {
    for (const step of row) {
      if (!chosen.includes(step) || stop.signal.aborted) continue;
      const started = performance.now();
      console.log(`${step.name} …`);
      const passed = await step.run();
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      console.log(`${step.name} ${passed ? 'ok' : 'FAILED'} ${seconds} s`);
      if (!passed) failed.push(step.name);
    }
  }),
);
if (failed.length > 0) {
  console.error(`${failed.length} of ${chosen.length} steps failed: ${failed.join(', ')}.`);
  process.exitCode = 1;
}

function choose(): readonly Step[] {
  if (options.tests !== undefined) return [TESTS];
  if (options.only === undefined) return steps;
  const names = options.only.split(',');
  const unknown = names.find((name) => !steps.some((step) => step.name === name));
  if (unknown !== undefined) {
    refuse('test', `there is no step "${unknown}"`);
  }
  return steps.filter((step) => names.includes(step.name));
}

async function tests(): Promise<boolean> {
  const below = options.tests ?? ['packages', 'test', 'demo', 'scripts'];
  const files = below.flatMap((place) =>
    place.endsWith('.test.ts')
      ? [place]
      : globSync(`${place}/**/*.test.ts`, {
          cwd: root,
          exclude: (name) => name === 'node_modules',
        }),
  );
  if (files.length === 0) {
    console.error(`No test file below ${below.join(', ')}.`);
    return false;
  }
  // Loaded here, so that the first line is printed before it.
  const { holdDataDirectory, startEmbeddedPostgres } = await import('@duebridge/runtime');
  for (const name of readdirSync(tmpdir())) {
    const left = join(tmpdir(), name);
    if (!name.startsWith(RUN_FOLDER) || !existsSync(join(left, RUN_LOCK))) continue;
    // The lock of a run that was killed is free; one of another user cannot be taken.
    const lock = await holdDataDirectory(left, RUN_LOCK).catch(() => undefined);
    if (lock === undefined) continue;
    try {
      await endProcessesOf(placesOf(left));
      const server = await startEmbeddedPostgres({ dataDirectory: join(left, 'database') });
      await server.stop();
      remove(left);
    } catch (error) {
      console.error(`${left}, of a run that was killed, could not be removed: ${String(error)}`);
    } finally {
      lock.release();
    }
  }
  const folder = makeRunFolder();
  const lock = await holdDataDirectory(folder, RUN_LOCK);
  const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'database') });
  try {
    return await runFiles(inOrder(files), {
      DUEBRIDGE_TEST_DATABASE_URL: postgres.url,
      DUEBRIDGE_TEST_FILE_MS: String(FILE_TIMEOUT_MS),
      // The modules are compiled once for all files and the programs they start, which halves the time of a start.
      NODE_COMPILE_CACHE: join(folder, 'compiled'),
      TMPDIR: join(folder, 'tmp'),
    });
  } finally {
    const left = await endProcessesOf(placesOf(folder));
    if (left.length > 0) console.error(`Ended what the tests had left: ${left.join(', ')}.`);
    await postgres.stop();
    lock?.release();
    try {
      remove(folder);
    } catch (error) {
      // What the tests say does not depend on it.
      console.error(`${folder} could not be removed: ${String(error)}`);
    }
  }
}

/** Where in a run's folder its test files and what they start write; one of them is in the environment of each. */
function placesOf(folder: string): readonly string[] {
  return [join(folder, 'tmp'), join(folder, 'compiled')];
}

/** Removes a run's folder; again, while a browser that was just killed still writes. */
function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}

/** The files with the longest first, so that none of them runs alone at the end while a core is idle. */
function inOrder(files: readonly string[]): readonly string[] {
  const missing = LONGEST.filter((file) => !existsSync(join(root, file)));
  if (missing.length > 0) {
    throw new Error(`scripts/check.ts names test files that do not exist: ${missing.join(', ')}`);
  }
  const long = LONGEST.filter((file) => files.includes(file));
  return [...long, ...files.filter((file) => !LONGEST.includes(file)).sort()];
}

/**
 * Runs test files, each in a process of its own, and prints what they report. The runner is called rather than started as `node --test`,
 * which sorts the files by name.
 */
async function runFiles(
  files: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<boolean> {
  const { run } = await import('node:test');
  const { spec } = await import('node:test/reporters');
  // The test files inherit it.
  Object.assign(process.env, environment);
  const events = run({
    cwd: root,
    files: files.map((file) => join(root, file)),
    concurrency: FILES_AT_ONCE,
    signal: stop.signal,
    execArgv: [
      `--test-timeout=${TEST_TIMEOUT_MS}`,
      `--import=${pathToFileURL(join(root, 'test/support/file-limit.ts')).href}`,
    ],
  });
  let passed = false;
  events.on('test:summary', ({ file, success }) => {
    if (file === undefined) passed = success;
  });
  for await (const text of events.compose(new spec())) process.stdout.write(String(text));
  return passed;
}

/**
 * The folder of this run: the database, the compiled modules, and what the tests put into the folder for temporary files. All of it
 * goes at the end, also what a test that failed or was killed has left.
 */
function makeRunFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), RUN_FOLDER));
  // Others may pass through: as root, the database and some tests run as other users, who need to reach their own files.
  chmodSync(folder, 0o711);
  mkdirSync(join(folder, 'tmp'));
  // As /tmp: everybody may make files, and only their owner may remove them.
  chmodSync(join(folder, 'tmp'), 0o1777);
  return folder;
}

/** Runs a program and prints what it says once it has ended, so that it does not mix with what the tests say meanwhile. */
function command(program: string, args: readonly string[]): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      // Kept where a person watches; it goes to a pipe here.
      env: { ...process.env, ...(process.stdout.isTTY && { FORCE_COLOR: '1' }) },
      // A group of its own: most of these programs start another one that does the work, which has to end with them.
      detached: true,
    });
    if (chosen.includes(TESTS) && child.pid !== undefined) setPriority(child.pid, BESIDE_TESTS);
    stop.signal.addEventListener('abort', () => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
    });
    const said: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (piece: Buffer) => said.push(piece));
    }
    child.on('error', reject);
    child.on('close', (code) => {
      process.stdout.write(Buffer.concat(said));
      resolve(code === 0);
    });
  });
}
