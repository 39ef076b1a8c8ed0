/**
 * `npm test` and `npm run test:full`, for people and CI. The first makes the static checks and runs every test file but those named
 * `*.full.test.ts`, which the second runs. Node's own runner gives each file a process, or several short ones together;
 * test/support/shared-server.ts gives all of them one PostgreSQL.
 */
import { execFile } from 'node:child_process';
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { testPrograms, toolFolder } from './tool.ts';
import { readWords, refuse } from './words.ts';

const root = join(import.meta.dirname, '..');

/**
 * Test files that run at once. Twice the cores of the smallest machine: most of them wait for polls and browsers half of the time. Of the
 * long ones fewer: each starts several servers, and some measure how long these take.
 */
const FILES_AT_ONCE = { test: 4, full: 3 };

/**
 * Packages whose test files share processes, eight files each: loading what they test takes a process longer than most of them run.
 * Each file of the platform starts a platform of its own, whose loops would run beside the tests of seven others.
 */
const TOGETHER = /^packages\/(contract|partner|runtime|web)\//;
const FILES_TOGETHER = 8;

/** What a run may take on 2 quiet cores, in minutes. A run that takes longer says so; it does not fail. */
const MINUTES = { test: 6, full: 20 };

/** Priority of the static checks beside the tests: they take the processor where no test wants it. */
const BESIDE_TESTS = 10;

const HELP = `Usage:
  npm test                               types, lint, dead code, format, and the tests that everybody runs before a commit
  npm run test:full                      the long tests (*.full.test.ts): whole kill matrices, every browser engine, crashes, consumers
  npm test -- --tests packages/partner   the tests below a folder, or of one file; may be repeated

On 2 quiet cores the first takes ${MINUTES.test} minutes, the second ${MINUTES.full}.
Exit codes: 0 everything passed, 1 something failed, 3 wrong arguments.`;

const { values: options } = readWords('test', HELP, {
  options: {
    full: { type: 'boolean', default: false },
    tests: { type: 'string', multiple: true },
  },
});

/** The static checks, one after the other, as commands of tools/test. The linter reports what the compiler reports (.oxlintrc.json): it knows all types anyway. */
const CHECKS: readonly (readonly [program: string, ...args: string[]])[] = [
  ['oxfmt', '--check'],
  ['knip', '--no-progress'],
  ['oxlint'],
];

/** Ctrl-C, or a signal to us alone, ends what runs and leaves the tests to clean up. A second one ends us at once. */
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

const started = performance.now();
const counts = { passed: 0, failed: 0 };
const isAll = options.tests === undefined;
await Promise.all([tests(), isAll && !options.full && checks()]);
if (counts.failed > 0) process.exitCode = 1;
const minutes = (performance.now() - started) / 60_000;
const limit = options.full ? MINUTES.full : MINUTES.test;
if (isAll) {
  console.log(
    `This took ${minutes.toFixed(1)} minutes${minutes > limit ? `, and must take at most ${limit} on 2 quiet cores` : ''}.`,
  );
}
console.log(`${counts.passed} passed, ${counts.failed} failed`);

async function checks(): Promise<void> {
  for (const [program, ...args] of CHECKS) {
    if (stop.signal.aborted) return;
    const begun = performance.now();
    const passed = await command(program, args);
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    console.log(`${passed ? '✔' : '✖'} ${program} (${seconds} s)`);
    counts[passed ? 'passed' : 'failed'] += 1;
  }
}

/** Runs the test files and prints what they report. */
async function tests(): Promise<void> {
  // The simulator, the browser and the judge first: a long file that begins last would run alone.
  const below = options.tests ?? ['test', 'packages', 'demo', 'scripts'];
  const files = below.flatMap((place) =>
    place.endsWith('.test.ts')
      ? [place]
      : globSync(`${place}/**/*.test.ts`, { cwd: root, exclude: (name) => name === 'node_modules' })
          .filter((file) => file.endsWith('.full.test.ts') === options.full)
          .sort(),
  );
  if (files.length === 0) refuse('test', `no test file is below ${below.join(', ')}`);
  // Once, before the first of several test files asks for them.
  await toolFolder('test', 'test');
  if (files.some((file) => file.startsWith('test/browser/'))) await toolFolder('browser', 'test');
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-together-'));
  const settings = {
    cwd: root,
    files: together(files, folder),
    concurrency: FILES_AT_ONCE[options.full ? 'full' : 'test'],
    signal: stop.signal,
    // Node's --test-global-setup, which the types of run() do not have.
    globalSetupPath: join(root, 'test/support/shared-server.ts'),
    execArgv: [`--import=${pathToFileURL(join(root, 'test/support/progress-limit.ts')).href}`],
  };
  const events = run(settings);
  events.on('test:summary', ({ file, success, counts: { passed: good, tests: all, skipped } }) => {
    // The last summary is of all files.
    if (file !== undefined) return;
    if (!success) process.exitCode = 1;
    counts.passed += good;
    counts.failed += all - good - skipped;
  });
  for await (const text of events.compose(new spec())) process.stdout.write(String(text));
  rmSync(folder, { recursive: true });
}

/** What the runner is given, as paths: a test file, or one made in `folder` that imports the test files of one process. */
function together(files: readonly string[], folder: string): readonly string[] {
  const alone = files.filter((file) => !TOGETHER.test(file));
  const rest = files.filter((file) => TOGETHER.test(file));
  const made = Array.from({ length: Math.ceil(rest.length / FILES_TOGETHER) }, (_, turn) => {
    const path = join(folder, `${turn}.test.mjs`);
    const urls = rest
      .slice(turn * FILES_TOGETHER, (turn + 1) * FILES_TOGETHER)
      .map((file) => pathToFileURL(join(root, file)).href);
    writeFileSync(path, urls.map((url) => `import ${JSON.stringify(url)};\n`).join(''));
    return path;
  });
  return [...made, ...alone.map((file) => join(root, file))];
}

/** Runs a program of tools/test and prints what it says once it has ended, so that it does not mix with what the tests say meanwhile. */
async function command(program: string, args: readonly string[]): Promise<boolean> {
  const env = await testPrograms('test');
  const options = {
    cwd: root,
    // Colours are kept where a person watches; it goes to a pipe here.
    env: { ...env, ...(process.stdout.isTTY && { FORCE_COLOR: '1' }) },
    signal: stop.signal,
    maxBuffer: 2 ** 26,
  };
  const nice = [`-n${BESIDE_TESTS}`, program, ...args];
  const { code, stdout, stderr } = await promisify(execFile)('nice', nice, options).then(
    (said) => ({ ...said, code: 0 }),
    (error: { code: number; stdout: string; stderr: string }) => error,
  );
  process.stdout.write(stdout + stderr);
  return code === 0;
}
