/**
 * `npm run bench`: runs the benchmarks, one after the other, each in a process of its own.
 *
 *     npm run bench                       all
 *     npm run bench -- peers adopt        some
 *     npm run bench -- peers --rounds 5   one, with its own options
 *     npm run bench -- --json adopt       the figures as one JSON value on standard output, everything else on standard error
 *
 * Close everything else first: both cores are used by the benchmark itself, and a figure taken beside other work is noise.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The benchmarks, in the order in which they run: what they measure, and the program with its words where it is not of the name. */
const BENCHMARKS: Readonly<Record<string, readonly [what: string, ...words: string[]]>> = {
  accept: [
    'durable PUTs at the partner kit, and posted in its ledger; beside pgbench and a plain handler',
  ],
  drive: ['payments driven by the platform, beside plain loops; writes of a poll without news'],
  peers: [
    'the same job by the least that is durable and by graphile-worker',
    'drive',
    '--only=bare,least,loop,graphile,graphile-local,elsewhere',
  ],
  adopt: ['a million payments in flight: memory, and how soon another worker has them'],
  'close-day': ['a day of a million payments for 500 billers: closed and remitted'],
  years: [
    'years of payments in the tables: sizes, reads, accepting and driving beside them, a month archived',
  ],
  upgrade: ['an update of a database of version 0.1.0 while payments are made'],
  weight: ['bytes that a payment leaves in the tables of both sides'],
  neighbours: ['time to the end of payments whose neighbours hang, fail or are refused'],
  'kit-neighbours': [
    'the same at the partner kit: locked accounts, cores that hang, fail or are slow',
  ],
  'kit-far': [
    'payments at a partner kit whose database is 100 and 300 ms away',
    'kit-neighbours',
    '--only=far-100,far-300',
    '--rate=50',
  ],
};

const words = process.argv.slice(2).filter((word) => word !== '--');
const isJson = words.includes('--json');
const rest = words.filter((word) => word !== '--json');
const firstOption = rest.findIndex((word) => word.startsWith('-'));
const names = firstOption < 0 ? rest : rest.slice(0, firstOption);
const options = firstOption < 0 ? [] : rest.slice(firstOption);

if (names.length === 0 && options.some((word) => word === '--help' || word === '-h')) {
  console.log('npm run bench [-- NAME …] [--json] [options of the one NAME]\n');
  for (const [name, [what]] of Object.entries(BENCHMARKS))
    console.log(`  ${name.padEnd(16)}${what}`);
  process.exit(0);
}
const unknown = names.find((name) => !Object.hasOwn(BENCHMARKS, name));
if (unknown !== undefined) {
  console.error(`There is no benchmark "${unknown}"; npm run bench -- --help lists them.`);
  process.exit(3);
}
if (options.length > 0 && names.length !== 1) {
  console.error(`Options such as ${options[0]} belong to one benchmark: name it first.`);
  process.exit(3);
}

const folder = mkdtempSync(join(tmpdir(), 'duebridge-bench-'));
const results = join(folder, 'figures.jsonl');
const chosen = names.length > 0 ? names : Object.keys(BENCHMARKS);
let failed = 0;
for (const [index, name] of chosen.entries()) {
  console.error(`[${index + 1}/${chosen.length}] ${name} …`);
  const started = performance.now();
  const code = await run(name);
  const seconds = ((performance.now() - started) / 1_000).toFixed(0);
  if (code !== 0) failed += 1;
  console.error(
    `[${index + 1}/${chosen.length}] ${name} ${code === 0 ? 'done' : 'FAILED'} after ${seconds} s`,
  );
}
if (isJson) console.log(JSON.stringify(read(), null, 2));
rmSync(folder, { recursive: true, force: true });
process.exitCode = failed === 0 ? 0 : 1;

function run(name: string): Promise<number> {
  const [, program = name, ...first] = BENCHMARKS[name] ?? [];
  const file = join(import.meta.dirname, `${program}.ts`);
  const child = spawn(process.execPath, [file, ...first, ...options], {
    // Progress of a benchmark goes to standard error when standard output is for the figures.
    stdio: ['ignore', isJson ? 2 : 'inherit', 'inherit'],
    env: { ...process.env, BENCH_RESULTS: results },
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

function read(): unknown[] {
  try {
    return readFileSync(results, 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as unknown);
  } catch {
    return [];
  }
}
