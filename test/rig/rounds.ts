/**
 * Runs rounds of the crash rig and prints one line of JSON for each, and one at the end with what could not be tried here. The last round
 * is a failover. Exit code 1 when a round found something, whose logs are kept then, and 3 for wrong arguments.
 *
 *   node test/rig/rounds.ts --rounds 60 --seed 7 [--only TEXT]
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readWords, whole } from '../../scripts/words.ts';
import { startStandby } from '../support/standby.ts';
import { Disk } from './disk.ts';
import { failover, faultsOf, notHere, type Fault } from './faults.ts';
import { Rig } from './rig.ts';

const HELP = `Usage: node test/rig/rounds.ts [--rounds ROUNDS] [--seed SEED] [--only TEXT]

--only makes rounds of the faults whose names contain TEXT, before the failover.`;

const { values } = readWords('rounds', HELP, {
  options: {
    rounds: { type: 'string', default: '20' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
  },
});
const seed = whole('rounds', 'seed', values.seed);
const rounds = whole('rounds', 'rounds', values.rounds, 1);
/** Size of the disk that gets filled: clusters, their log, and what the rounds write. */
const DISK_MB = 1_500;

const folder = mkdtempSync(join(tmpdir(), 'duebridge-rig-'));
// Only PostgreSQL's: logs and marks of the rig itself have room.
const disk = Disk.mount(join(folder, 'data'), DISK_MB);
const rig = await Rig.open(folder, seed);
let isBroken = false;
try {
  const chosen = faultsOf(disk)
    .filter(({ name }) => name.includes(values.only))
    .map((fault) => ({ fault, at: rig.random() }))
    .toSorted((one, other) => one.at - other.at);
  assert.ok(chosen.length > 0, `no fault that can be tried here has ${values.only} in its name`);
  for (let made = 1; made < rounds && !isBroken; made += 1) {
    const fault = chosen[made % chosen.length]?.fault;
    if (fault) await report(fault);
  }
  const standby = await startStandby(rig.postgres.url, true);
  if (!isBroken) await report(failover(standby));
  await standby.stop();
} finally {
  await rig.close();
  disk?.remove();
  if (!isBroken) rmSync(folder, { recursive: true, force: true });
}
console.log(JSON.stringify({ not_here: notHere(disk) }));
process.exit(isBroken ? 1 : 0);

async function report({ name, kind, run }: Fault): Promise<void> {
  const started = performance.now();
  const outcome = await rig.round(run).catch((error: unknown) => {
    isBroken = true;
    return { broken: error instanceof Error ? error.message : String(error), folder };
  });
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  console.log(JSON.stringify({ seed: values.seed, name, kind, seconds, ...outcome }));
}
