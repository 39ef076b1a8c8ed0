/**
 * The one command for people and CI: types, lint, format, dead code, documents and tests.
 *
 * One embedded PostgreSQL serves every test file; each file creates its own database in it.
 */
import { spawn } from 'node:child_process';
import { chmodSync, globSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { readWords, refuse } from './words.ts';

const root = join(import.meta.dirname, '..');
const bin = (name: string): string => join(root, 'node_modules', '.bin', name);

/** Limits of one test and of one test file: what takes longer hangs. The slowest file takes about a third of it. */
const TEST_TIMEOUT_MS = 240_000;
const FILE_TIMEOUT_MS = 420_000;

interface Step {
  readonly name: string;
  readonly run: () => Promise<boolean>;
}

const HELP = `Usage:
  npm test                               types, lint, format, dead code and every test; about 15 minutes on 2 cores
  npm test -- --only types,lint          some steps: types, lint, format, dead-code, tests
  npm test -- --tests packages/partner   the tests below a folder, or of one file; may be repeated

Exit codes: 0 everything passed, 1 something failed, 3 wrong arguments.`;

const { values: options } = readWords('test', HELP, {
  options: { only: { type: 'string' }, tests: { type: 'string', multiple: true } },
});

const steps: readonly Step[] = [
  {
    name: 'types',
    run: async () =>
      (await command(bin('tsc'), ['--noEmit', '-p', 'tsconfig.json'])) &&
      command(bin('tsc'), ['--noEmit', '-p', 'packages/web/tsconfig.json']),
  },
  { name: 'lint', run: () => command(bin('oxlint'), ['--type-aware', '--deny-warnings']) },
  { name: 'format', run: () => command(bin('prettier'), ['--check', '--log-level=warn', '.']) },
  { name: 'dead-code', run: () => command(bin('knip'), ['--no-progress']) },
  { name: 'tests', run: tests },
];

const chosen = choose();
let failed = 0;
if (chosen.length === steps.length) {
  console.log(
    'duebridge checks itself: types, lint, format, dead code, then every test, with real PostgreSQL, HTTP and browsers.\n' +
      'On 2 cores this takes about 15 minutes; npm test -- --tests packages/partner runs the tests of one folder.',
  );
}
for (const [index, step] of chosen.entries()) {
  const started = performance.now();
  console.log(`[${index + 1}/${chosen.length}] ${step.name} …`);
  const passed = await step.run();
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(
    `[${index + 1}/${chosen.length}] ${step.name} ${passed ? 'ok' : 'FAILED'} ${seconds} s`,
  );
  if (!passed) failed += 1;
}
if (failed > 0) {
  console.error(`${failed} of ${chosen.length} steps failed.`);
  process.exitCode = 1;
}

function choose(): readonly Step[] {
  if (options.tests !== undefined) return steps.filter((step) => step.name === 'tests');
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
  const { startEmbeddedPostgres } = await import('@duebridge/runtime');
  const folder = makeRunFolder();
  const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'database') });
  try {
    return await command(
      process.execPath,
      [
        '--test',
        '--test-reporter=spec',
        '--test-concurrency=2',
        `--test-timeout=${TEST_TIMEOUT_MS}`,
        `--import=${pathToFileURL(join(root, 'test/support/file-limit.ts')).href}`,
        ...files.sort(),
      ],
      {
        DUEBRIDGE_TEST_DATABASE_URL: postgres.url,
        DUEBRIDGE_TEST_FILE_MS: String(FILE_TIMEOUT_MS),
        // The modules are compiled once for all files and the programs they start, which halves the time of a start.
        NODE_COMPILE_CACHE: join(folder, 'compiled'),
        TMPDIR: join(folder, 'tmp'),
      },
    );
  } finally {
    await postgres.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * The folder of this run: the database, the compiled modules, and what the tests put into the folder for temporary files. All of it
 * goes at the end, also what a test that failed or was killed has left.
 */
function makeRunFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-check-'));
  // Others may pass through: as root, the database and some tests run as other users, who need to reach their own files.
  chmodSync(folder, 0o711);
  mkdirSync(join(folder, 'tmp'));
  // As /tmp: everybody may make files, and only their owner may remove them.
  chmodSync(join(folder, 'tmp'), 0o1777);
  return folder;
}

function command(
  program: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: root,
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { ...process.env, ...environment },
    });
    child.on('error', reject);
    child.on('exit', (code) => resolve(code === 0));
  });
}
