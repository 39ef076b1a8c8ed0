/**
 * Proves the guarantees under faults and prints the sheet: the simulator over many seeds, the planted bugs and forged histories that it
 * must catch, and the crash rig on real processes.
 *
 * `npm run reliability -- --help` lists its options.
 */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { PLANTED } from '../test/simulation/planted.ts';
import { withSheet, type Sheet } from './reliability-sheet.ts';
import { readWords, whole } from './words.ts';

const HELP = `Usage:
  npm run reliability                                  1,000 seeds, the planted bugs, 10 rounds of the crash rig
  npm run reliability -- --seeds 20000 --rounds 0      more seeds, no rig
  npm run reliability -- --long                        500 rounds of the crash rig, in two rigs side by side
  npm run reliability -- --long --minutes 60 --seed 7  as many as fit into an hour, from another seed
  npm run reliability -- --rounds 0 --log FILE         adds an earlier run, as test/rig/rounds.ts or test/simulation/seeds.ts printed it
  npm run reliability -- --write                       puts the sheet into docs/reliability.md; what people wrote there stays
  npm run reliability -- --replay 4711                 one seed, with its events as a page (simulation-4711.html)
  npm run reliability -- --shrink 4711                 the fewest faults and payments with which that seed still fails

Exit code 0 when every guarantee held, 1 when one was broken, 3 for wrong arguments.`;

const root = join(import.meta.dirname, '..');
const PAGE = join(root, 'docs/reliability.md');
/**
 * Seeds per process. One that starts spends as long as twenty seeds on a new database and on compiling, so it is kept for many; with
 * several to each core, no core is idle for long at the end.
 */
const SEEDS_PER_PROCESS = 250;
/** Rigs side by side: a round mostly waits for leases to run out. */
const RIGS = 2;
/** Hours of a year. */
const YEAR_H = 8_766;

interface Simulated {
  /** The first seed. */
  readonly from: number;
  readonly seeds: number;
  readonly payments: number;
  readonly virtual_hours: number;
  readonly cpu_seconds: number;
  readonly converged_p99_ms: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly answers: Readonly<Record<string, number>>;
  readonly violations: readonly Broken[];
}
interface Round {
  readonly name: string;
  readonly kind: string;
  readonly seed: number;
  readonly mode: string;
  readonly reached: boolean;
  readonly payments: number;
  readonly acknowledged: number;
  readonly convergedMs: number;
  readonly violations: readonly { rule: string; what: string }[];
  readonly did: Readonly<Record<string, number>>;
}
interface Broken {
  readonly seed: number;
  readonly rule: string;
  readonly what: string;
}

const options = readOptions();
if (options.replay !== undefined) {
  const page = `simulation-${options.replay}.html`;
  const sheet = await simulate(options.replay, 1, ['--chart', page]);
  console.log(
    `Seed ${options.replay}: ${sheet.violations.length} violations; its events are in ${page}.`,
  );
  report(sheet.violations);
  process.exitCode = sheet.violations.length === 0 ? 0 : 1;
} else if (options.shrink !== undefined) {
  process.exitCode = await passThrough('test/simulation/shrink.ts', [
    '--seed',
    String(options.shrink),
  ]);
} else {
  process.exitCode = await everything();
}

async function everything(): Promise<number> {
  const started = performance.now();
  const fresh = await manySeeds(options.seed, options.seeds);
  const seconds = Math.round((performance.now() - started) / 1_000);
  const caught = options.planted ? await plantedBugs() : undefined;
  const canaries = await forgedHistories();
  const driven = await manyRounds(options.seed, options.rounds, options.minutes);
  const simulated = [...options.logs.flatMap(readSeeds), ...fresh];
  const rounds = [...options.logs.flatMap(readRounds), ...driven.rounds];
  const told: Broken[] = [
    ...simulated.flatMap((sheet) => sheet.violations),
    ...rounds.flatMap(({ seed, name, violations }) =>
      violations.map(({ rule, what }) => ({ seed, rule, what: `${name}: ${what}` })),
    ),
  ];
  /** A round that the rig itself could not finish has shown nothing, in either way. */
  const violations = told.filter(({ rule }) => rule !== 'rig');
  const sum = <T>(from: readonly T[], pick: (one: T) => number): number =>
    from.reduce((total, one) => total + pick(one), 0);
  const converged = rounds.map(({ convergedMs }) => convergedMs).sort((a, b) => a - b);
  const of = (...rules: readonly string[]): number =>
    violations.filter(({ rule }) => rules.includes(rule)).length;
  const seeds = sum(simulated, (one) => one.seeds);
  const sheet: Sheet = {
    'payments driven': `${sum(simulated, (one) => one.payments)} simulated, ${sum(rounds, (one) => one.payments)} on real processes`,
    seeds: `${seeds} from ${simulated.length === 0 ? options.seed : Math.min(...simulated.map(({ from }) => from))}, ${simulated.length > fresh.length ? '' : `in ${seconds} s on ${availableParallelism()} cores, `}${(sum(simulated, (one) => one.cpu_seconds) / Math.max(1, seeds)).toFixed(2)} s of one processor each`,
    'simulated time': `${Math.round(sum(simulated, (one) => one.virtual_hours))} hours (${(sum(simulated, (one) => one.virtual_hours) / YEAR_H).toFixed(2)} years)`,
    'rounds on real processes': `${rounds.length}, of them ${rounds.filter(({ kind }) => kind.includes('KILL')).length} with kills`,
    'rounds that the rig could not finish': told.length - violations.length,
    'fault not reached in its round': rounds.filter(({ reached }) => !reached).length,
    violations: violations.length,
    'acknowledged and lost': of('PL1', 'KT3'),
    'posted or charged twice': of('KT2', 'PL3', 'PL7'),
    'stuck after healing': of('LV6'),
    'planted bugs caught': caught === undefined ? 'not run' : `${caught} of ${PLANTED.length}`,
    'forged histories refused': canaries,
    'time to converge after healing': `simulated p99 ${Math.round(Math.max(0, ...simulated.map((one) => one.converged_p99_ms)) / 1_000)} s (virtual); real processes p50 ${at(converged, 0.5)} s, p99 ${at(converged, 0.99)} s`,
    'faults on real processes, rounds': counted(rounds.map(({ kind }) => ({ [kind]: 1 }))),
    'faults on real processes, single': counted(rounds.map(({ did }) => did)),
    'faults in the simulation': counted(simulated.map(({ faults }) => faults)),
    'answers in the simulation': counted(simulated.map(({ answers }) => answers)),
  };
  const notTested = [
    'a disk that says it has written what it has not, and pages that are torn in the middle: the disk whose power fails here is honest, and the servers refuse to start on a database with fsync or full_page_writes off',
    'lock waits, deadlocks and serialization failures in the simulation, whose database has one session; the crash rig and the tests on a server have them',
    'parsing of HTTP in the simulation, where answers are handed over as the client would parse them; the gateway of the crash rig sends bytes',
    ...(rounds.length === 0
      ? ['real processes: no round of the crash rig was run']
      : driven.notHere),
  ];
  if (options.json) {
    console.log(JSON.stringify({ ...sheet, not_tested: notTested, broken: told }, undefined, 2));
  } else {
    for (const [name, value] of Object.entries(sheet)) {
      console.log(`${name.padEnd(34)} ${typeof value === 'object' ? listed(value) : value}`);
    }
    for (const what of notTested) console.log(`${'not tested'.padEnd(34)} ${what}`);
  }
  report(told);
  if (options.write) {
    const written = withSheet(readFileSync(PAGE, 'utf8'), sheet, notTested);
    writeFileSync(
      PAGE,
      await format(written, { ...(await resolveConfig(PAGE)), parser: 'markdown' }),
    );
  }
  const isProven = caught === undefined || caught === PLANTED.length;
  return told.length === 0 && isProven ? 0 : 1;
}

// The simulator -------------------------------------------------------------------------------------------------------------

async function manySeeds(from: number, seeds: number): Promise<Simulated[]> {
  const chunks: [number, number][] = [];
  const size = Math.min(SEEDS_PER_PROCESS, Math.ceil(seeds / availableParallelism()));
  for (let at = from; at < from + seeds; at += size) {
    chunks.push([at, Math.min(size, from + seeds - at)]);
  }
  const sheets: Simulated[] = [];
  if (seeds > 0) console.error(`Simulating ${seeds} seeds from ${from}.`);
  await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      for (let next = chunks.shift(); next !== undefined; next = chunks.shift()) {
        sheets.push(await simulate(...next, []));
        const done = sheets.reduce((sum, sheet) => sum + sheet.seeds, 0);
        console.error(`${done} of ${seeds} seeds`);
      }
    }),
  );
  return sheets;
}

async function simulate(from: number, count: number, more: readonly string[]): Promise<Simulated> {
  const printed = await run('test/simulation/seeds.ts', [
    '--from',
    String(from),
    '--count',
    String(count),
    ...more,
  ]);
  return JSON.parse(printed) as Simulated;
}

/** How many planted bugs the simulator catches. */
async function plantedBugs(): Promise<number> {
  console.error(`Planting ${PLANTED.length} bugs, one after the other.`);
  const parts = await Promise.all(
    Array.from({ length: RIGS }, (_, part) =>
      run('test/simulation/catch.ts', [
        '--bugs',
        PLANTED.map((_bug, index) => index)
          .filter((index) => index % RIGS === part)
          .join(','),
      ]),
    ),
  );
  const lines = parts.flatMap((part) => part.trim().split('\n'));
  return lines.filter((line) => (JSON.parse(line) as { caught: unknown }).caught !== null).length;
}

/** Each checker refuses the histories that were forged for it. */
async function forgedHistories(): Promise<string> {
  const printed = await run(
    'test/simulation/checkers.test.ts',
    [],
    ['--test', '--test-reporter=tap'],
  );
  const count = (word: string): number =>
    Number(new RegExp(`^# ${word} (\\d+)`, 'm').exec(printed)?.[1] ?? 0);
  return `${count('pass')} of ${count('tests')}`;
}

// The crash rig -------------------------------------------------------------------------------------------------------------

async function manyRounds(
  seed: number,
  rounds: number,
  minutes: number | undefined,
): Promise<{ rounds: Round[]; notHere: string[] }> {
  const found: Round[] = [];
  const notHere = new Set<string>();
  if (rounds === 0) return { rounds: found, notHere: [] };
  console.error(`Running ${rounds} rounds on real processes from seed ${seed}.`);
  const rigs = Math.min(RIGS, Math.ceil(rounds / 10));
  await Promise.all(
    Array.from({ length: rigs }, (_, index) =>
      run(
        'test/rig/rounds.ts',
        [
          '--rounds',
          String(Math.ceil((rounds - index) / rigs)),
          '--seed',
          String(seed + index),
          ...(minutes === undefined ? [] : ['--minutes', String(minutes)]),
        ],
        [],
        (line) => {
          const value = JSON.parse(line) as Round | { not_here: string[] };
          if ('not_here' in value) {
            for (const what of value.not_here) notHere.add(what);
            return;
          }
          found.push(value);
          const { name, reached, violations } = value;
          const end = violations.length > 0 ? 'BROKEN' : reached ? 'held' : 'held, not reached';
          console.error(`${found.length} of ${rounds}: ${name}: ${end}`);
        },
      ),
    ),
  );
  return { rounds: found, notHere: [...notHere] };
}

/** The rounds in the output of an earlier run. */
function readRounds(file: string): Round[] {
  return linesOf<Round>(file, '{"round"');
}

/** The seeds in the output of an earlier run. */
function readSeeds(file: string): Simulated[] {
  return linesOf<Simulated>(file, '{"from"');
}

/** The lines of a run that begin so; the last may be cut off. */
function linesOf<T>(file: string, begin: string): T[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(begin) && line.endsWith('}'))
    .map((line) => JSON.parse(line) as T);
}

// Small things --------------------------------------------------------------------------------------------------------------

function report(violations: readonly Broken[]): void {
  for (const { seed, rule, what } of violations.slice(0, 50)) {
    console.error(`seed ${seed}: ${rule} ${what}`);
  }
}

function counted(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const one of all) {
    for (const [name, times] of Object.entries(one)) sums[name] = (sums[name] ?? 0) + times;
  }
  return Object.fromEntries(Object.entries(sums).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function listed(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .map(([name, times]) => `${name} ${times}`)
    .join(', ');
}

/** A quantile of sorted milliseconds, as seconds. */
function at(sorted: readonly number[], share: number): string {
  const ms = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return ms === undefined ? '-' : (ms / 1_000).toFixed(1);
}

/** Runs a program of this repository and returns its output; `line` is called with each line at once. */
function run(
  file: string,
  args: readonly string[],
  node: readonly string[] = [],
  line: (text: string) => void = () => undefined,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...node, join(root, file), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let printed = '';
    let rest = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const one of lines) line(one);
    });
    child.on('error', reject);
    child.on('close', (code) => {
      if (printed === '') reject(new Error(`${file} ended with ${code ?? 'a signal'}`));
      else resolve(printed);
    });
  });
}

function passThrough(file: string, args: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [join(root, file), ...args], { stdio: 'inherit' });
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 1));
  });
}

interface Options {
  readonly seeds: number;
  readonly seed: number;
  readonly rounds: number;
  readonly minutes: number | undefined;
  readonly logs: readonly string[];
  readonly planted: boolean;
  readonly replay: number | undefined;
  readonly shrink: number | undefined;
  readonly json: boolean;
  readonly write: boolean;
}

function readOptions(): Options {
  const { values } = readWords('reliability', HELP, {
    allowNegative: true,
    options: {
      seeds: { type: 'string', default: '1000' },
      seed: { type: 'string', default: '1' },
      long: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      minutes: { type: 'string' },
      log: { type: 'string', multiple: true, default: [] },
      planted: { type: 'boolean', default: true },
      replay: { type: 'string' },
      shrink: { type: 'string' },
      json: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
    },
  });
  const maybe = (name: string, text: string | undefined): number | undefined =>
    text === undefined ? undefined : whole('reliability', name, text);
  return {
    seeds: whole('reliability', 'seeds', values.seeds),
    seed: whole('reliability', 'seed', values.seed),
    rounds: maybe('rounds', values.rounds) ?? (values.long ? 500 : 10),
    minutes: maybe('minutes', values.minutes),
    logs: values.log,
    planted: values.planted,
    replay: maybe('replay', values.replay),
    shrink: maybe('shrink', values.shrink),
    json: values.json,
    write: values.write,
  };
}
