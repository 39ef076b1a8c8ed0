/**
 * Runs rounds of the crash rig and prints one line of JSON for each, and one at the end with what could not be tried here.
 *
 *   node test/rig/rounds.ts --rounds 100 --seed 7 [--minutes 30] [--only TEXT] [--mode books|own] [--folder DIR]
 *
 * A rig lives for some dozens of rounds; the next one keeps its accounts in the other way. Each ends with a failover.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { seededRandom } from '@duebridge/runtime/testing';
import { Disk } from './disk.ts';
import { FAILOVER } from './failover.ts';
import { faultsOf, notHere, oneRound, type Fault } from './faults.ts';
import { Rig, type Judged } from './rig.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '20' },
    minutes: { type: 'string' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    mode: { type: 'string' },
    folder: { type: 'string', default: tmpdir() },
  },
});
const seed = Number(values.seed);
const rounds = Number(values.rounds);
const until =
  performance.now() + (values.minutes === undefined ? Infinity : Number(values.minutes) * 60_000);
const random = seededRandom(seed);
mkdirSync(values.folder, { recursive: true });

/** Rounds after which everything is restarted from scratch. */
const ROUNDS_PER_RIG = 60;
/** Size of the disk that gets filled: clusters, their log, and what the rounds write. */
const DISK_MB = 1_500;

const state = { made: 0, broken: false };
let mode: Rig['mode'] = values.mode === 'books' || seed % 2 === 0 ? 'books' : 'own';
if (values.mode === 'own') mode = 'own';
let missing: string[] = [];
const isOver = (spare = 0): boolean => state.made >= rounds - spare || performance.now() > until;
while (!isOver()) {
  await oneRig(mode);
  if (values.mode === undefined) mode = mode === 'own' ? 'books' : 'own';
}
console.log(JSON.stringify({ not_here: missing }));

async function oneRig(mode: Rig['mode']): Promise<void> {
  state.broken = false;
  const folder = mkdtempSync(join(values.folder, 'duebridge-rig-'));
  // Only PostgreSQL's: logs and marks of the rig itself have room.
  const disk = Disk.mount(join(folder, 'data'), DISK_MB);
  missing = notHere(disk);
  const rig = await Rig.open({ folder, seed: Math.floor(random() * 1e9), mode });
  try {
    const chosen = shuffled(faultsOf(mode, disk)).filter(({ name }) => name.includes(values.only));
    const failsOver = FAILOVER.name.includes(values.only);
    for (let count = 0; count < ROUNDS_PER_RIG && chosen.length > 0; count += 1) {
      if (isOver(failsOver ? 1 : 0)) break;
      const fault = chosen[count % chosen.length];
      if (fault !== undefined && !(await reportRound(rig, fault, () => oneRound(rig, fault))))
        return;
    }
    if (!failsOver || state.made >= rounds) return;
    await reportRound(rig, FAILOVER, async () => ({ reached: true, ...(await FAILOVER.run(rig)) }));
  } finally {
    await rig.close();
    disk?.remove();
    if (!state.broken) rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs a round and prints it; returns whether the rig can continue. */
async function reportRound(
  rig: Rig,
  { name, kind }: Pick<Fault, 'name' | 'kind'>,
  run: () => Promise<Judged & { readonly reached: boolean }>,
): Promise<boolean> {
  state.made += 1;
  const started = performance.now();
  const outcome = await run().catch((error: unknown) => ({
    reached: true,
    payments: 0,
    acknowledged: 0,
    convergedMs: 0,
    violations: [
      {
        rule: 'rig',
        what: error instanceof Error ? (error.stack ?? error.message) : String(error),
      },
    ],
  }));
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  const did = rig.injected();
  console.log(
    JSON.stringify({
      round: state.made,
      seed,
      mode: rig.mode,
      name,
      kind,
      seconds,
      ...outcome,
      did,
    }),
  );
  state.broken ||= outcome.violations.some(({ rule }) => rule === 'rig');
  return !state.broken;
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .toSorted((one, other) => one.at - other.at)
    .map(({ item }) => item);
}
