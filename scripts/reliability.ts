/**
 * `npm run reliability`: proves the guarantees under faults. The simulator over many seeds, the planted bugs that it must catch, and the
 * crash rig on real processes; each is a program of test/ that prints what it saw.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { readWords, whole } from './words.ts';

const HELP = `Usage:
  npm run reliability                               1,000 seeds, the planted bugs, 10 rounds of the crash rig
  npm run reliability -- --seeds 20000 --rounds 0   more seeds, no rig; --no-planted leaves the bugs out
  npm run reliability -- --rounds 500 --seed 7      more rounds, beginning with another seed
  node test/simulation/seeds.ts --from 4711 --count 1 --events FILE.jsonl   one seed, with its events

Exit code 0 when every guarantee held, 1 when one was broken, 3 for wrong arguments.`;

/** Seeds per process: one that starts spends as long as twenty seeds on a new database and on compiling. */
const SEEDS_PER_PROCESS = 250;
/** Rounds per process; two run side by side, because a round mostly waits for leases to run out. */
const ROUNDS_PER_PROCESS = 60;

const { values } = readWords('reliability', HELP, {
  allowNegative: true,
  options: {
    seeds: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '1' },
    rounds: { type: 'string', default: '10' },
    planted: { type: 'boolean', default: true },
  },
});
const number = (name: 'seeds' | 'seed' | 'rounds'): number =>
  whole('reliability', name, values[name]);
const [seed, seeds, rounds] = [number('seed'), number('seeds'), number('rounds')];

await side(availableParallelism(), [
  ...parts(seeds, SEEDS_PER_PROCESS).map(({ from, count }) => {
    return ['simulation/seeds.ts', '--from', String(seed + from), '--count', String(count)];
  }),
  ...(values.planted ? [['simulation/planted.test.ts']] : []),
]);
await side(
  2,
  parts(rounds, ROUNDS_PER_PROCESS).map(({ from, count }) => {
    return ['rig/rounds.ts', '--seed', String(seed + from), '--rounds', String(count)];
  }),
);

function parts(all: number, size: number): { from: number; count: number }[] {
  return Array.from({ length: Math.ceil(all / size) }, (_, at) => ({
    from: at * size,
    count: Math.min(size, all - at * size),
  }));
}

/** Runs programs of test/, at most so many at a time. One that ends with another code than 0 makes ours 1. */
async function side(atOnce: number, programs: readonly (readonly string[])[]): Promise<void> {
  const queue = programs.values();
  const worker = async (): Promise<void> => {
    for (const [file = '', ...args] of queue) {
      const program = join(import.meta.dirname, '../test', file);
      const child = spawn(process.execPath, [program, ...args], { stdio: 'inherit' });
      const [code] = (await once(child, 'exit')) as [number | null];
      if (code !== 0) process.exitCode = 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
