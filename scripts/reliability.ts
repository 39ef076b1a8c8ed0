/**
 * `npm run reliability`: proves the guarantees under faults and prints what was seen. The simulator over many seeds, the planted bugs that
 * it must catch, and the crash rig on real processes.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { PLANTED } from '../test/simulation/planted.ts';
import { readWords, whole } from './words.ts';

const HELP = `Usage:
  npm run reliability                                   1,000 seeds, the planted bugs, 10 rounds of the crash rig
  npm run reliability -- --seeds 20000 --rounds 0       more seeds, no rig; --no-planted leaves the bugs out
  npm run reliability -- --rounds 500 --minutes 60      as many rounds as fit into an hour; --seed N begins with another seed
  npm run reliability -- --replay 4711                  one seed, with its events as JSON lines (simulation-4711.jsonl)
  npm run reliability -- --shrink 4711                  the fewest faults and payments with which that seed still fails

Exit code 0 when every guarantee held, 1 when one was broken, 3 for wrong arguments.`;

const root = join(import.meta.dirname, '..');
/** Seeds per process: one that starts spends as long as twenty seeds on a new database and on compiling. */
const SEEDS_PER_PROCESS = 250;
/** Rigs side by side: a round mostly waits for leases to run out. */
const RIGS = 2;

/** A guarantee that did not hold. */
interface Broken {
  readonly seed: number;
  readonly rule: string;
  readonly what: string;
}
/** What test/simulation/seeds.ts prints. */
interface Simulated {
  readonly seeds: number;
  readonly payments: number;
  readonly virtual_hours: number;
  readonly converged_p99_ms: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly violations: readonly Broken[];
}
/** A line that test/rig/rounds.ts prints. */
interface Round {
  readonly name: string;
  readonly kind: string;
  readonly seed: number;
  readonly reached: boolean;
  readonly payments: number;
  readonly convergedMs: number;
  readonly violations: readonly { readonly rule: string; readonly what: string }[];
}

const { values } = readWords('reliability', HELP, {
  allowNegative: true,
  options: {
    seeds: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '1' },
    rounds: { type: 'string', default: '10' },
    minutes: { type: 'string' },
    planted: { type: 'boolean', default: true },
    replay: { type: 'string' },
    shrink: { type: 'string' },
  },
});
const number = (name: 'seeds' | 'seed' | 'rounds'): number =>
  whole('reliability', name, values[name]);
const [seed, seeds, rounds] = [number('seed'), number('seeds'), number('rounds')];

if (values.replay !== undefined) {
  const file = `simulation-${whole('reliability', 'replay', values.replay)}.jsonl`;
  const { violations } = await simulate(Number(values.replay), 1, ['--events', file]);
  console.log(`Seed ${values.replay}: its events are in ${file}.`);
  end(violations);
} else if (values.shrink !== undefined) {
  whole('reliability', 'shrink', values.shrink);
  console.log(await run('test/simulation/shrink.ts', ['--seed', values.shrink]));
} else {
  const sheets = await manySeeds();
  const caught = values.planted ? await plantedBugs() : PLANTED.length;
  const driven = await manyRounds();
  const all: Broken[] = [
    ...sheets.flatMap(({ violations }) => violations),
    ...driven.flatMap(({ seed: at, name, violations }) =>
      violations.map(({ rule, what }) => ({ seed: at, rule, what: `${name}: ${what}` })),
    ),
  ];
  if (caught < PLANTED.length) {
    all.push({
      seed,
      rule: 'planted',
      what: `${caught} of ${PLANTED.length} planted bugs were caught`,
    });
  }
  end(all);
}

/** Prints what was broken, and sets the exit code. */
function end(violations: readonly Broken[]): void {
  for (const { seed: at, rule, what } of violations.slice(0, 50)) {
    console.error(`seed ${at}: ${rule} ${what}`);
  }
  console.log(`${violations.length} violations`);
  if (violations.length > 0) process.exitCode = 1;
}

// The simulator -------------------------------------------------------------------------------------------------------------

async function manySeeds(): Promise<Simulated[]> {
  const started = performance.now();
  const size = Math.min(SEEDS_PER_PROCESS, Math.ceil(seeds / availableParallelism()));
  const starts = Array.from({ length: Math.ceil(seeds / size) }, (_, at) => seed + at * size);
  const sheets = await inParallel(starts, availableParallelism(), (from) =>
    simulate(from, Math.min(size, seed + seeds - from), []),
  );
  const sum = (pick: (one: Simulated) => number): number =>
    sheets.reduce((total, one) => total + pick(one), 0);
  const slowest = Math.max(0, ...sheets.map((one) => one.converged_p99_ms)) / 1_000;
  console.log(
    `${seeds} seeds from ${seed} in ${seconds(started)} s: ${sum((one) => one.payments)} payments in ${Math.round(sum((one) => one.virtual_hours))} hours of virtual time, converged after healing in ${Math.round(slowest)} s (p99)`,
  );
  console.log(`  faults: ${listed(sheets.flatMap(({ faults }) => Object.entries(faults)))}`);
  return sheets;
}

async function simulate(from: number, count: number, more: readonly string[]): Promise<Simulated> {
  const args = ['--from', String(from), '--count', String(count), ...more];
  return JSON.parse(await run('test/simulation/seeds.ts', args)) as Simulated;
}

/** How many planted bugs the simulator catches. */
async function plantedBugs(): Promise<number> {
  const started = performance.now();
  const parts = await inParallel([...PLANTED.keys()], availableParallelism(), (bug) =>
    run('test/simulation/catch.ts', ['--bugs', String(bug)]),
  );
  const caught = parts.filter((line) => (JSON.parse(line) as { caught: unknown }).caught !== null);
  console.log(`${caught.length} of ${PLANTED.length} planted bugs caught in ${seconds(started)} s`);
  return caught.length;
}

// The crash rig -------------------------------------------------------------------------------------------------------------

async function manyRounds(): Promise<Round[]> {
  const found: Round[] = [];
  const rigs = Math.min(RIGS, Math.ceil(rounds / 10));
  await inParallel([...Array(rigs).keys()], rigs, (index) => {
    const share = String(Math.ceil((rounds - index) / rigs));
    const args = ['--rounds', share, '--seed', String(seed + index)];
    if (values.minutes !== undefined) args.push('--minutes', values.minutes);
    return run('test/rig/rounds.ts', args, (line) => {
      const value = JSON.parse(line) as Round | { readonly not_here: readonly string[] };
      if ('not_here' in value) {
        if (value.not_here.length > 0) console.log(`  not tested: ${value.not_here.join('; ')}`);
        return;
      }
      found.push(value);
      const how =
        value.violations.length > 0 ? 'BROKEN' : value.reached ? 'held' : 'held, not reached';
      console.error(`${found.length} of ${rounds}: ${value.name}: ${how}`);
    });
  });
  if (found.length === 0) return found;
  const converged = found.map(({ convergedMs }) => convergedMs / 1_000).sort((a, b) => a - b);
  const at = (share: number): string =>
    (converged[Math.floor((converged.length - 1) * share)] ?? 0).toFixed(1);
  const paid = found.reduce((total, { payments }) => total + payments, 0);
  console.log(
    `${found.length} rounds on real processes: ${paid} payments, converged after healing in ${at(0.5)} s (p50), ${at(0.99)} s (p99)`,
  );
  console.log(`  faults: ${listed(found.map(({ kind }) => [kind, 1]))}`);
  return found;
}

// Small things --------------------------------------------------------------------------------------------------------------

function seconds(from: number): string {
  return ((performance.now() - from) / 1_000).toFixed(0);
}

/** Counts by name, added up and in the order of the names. */
function listed(counts: readonly (readonly [string, number])[]): string {
  const sums = new Map<string, number>();
  for (const [name, times] of counts) sums.set(name, (sums.get(name) ?? 0) + times);
  return [...sums]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, times]) => `${name} ${times}`)
    .join(', ');
}

/** Runs `work` for each item, at most `atOnce` at a time; the results in the order of the items. */
async function inParallel<T, R>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

/** Runs a program of this repository and returns its output; `line` is called with each line at once. */
async function run(
  file: string,
  args: readonly string[],
  line: (text: string) => void = () => undefined,
): Promise<string> {
  const child = spawn(process.execPath, [join(root, file), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  let rest = '';
  for await (const text of child.stdout.setEncoding('utf8') as AsyncIterable<string>) {
    printed += text;
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const one of lines) line(one);
  }
  if (printed === '') throw new Error(`${file} printed nothing`);
  return printed;
}
