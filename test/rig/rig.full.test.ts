/**
 * A short run of the crash rig: a few rounds of faults on real processes, different ones each day, and a failover. `npm run
 * reliability -- --rounds 500` runs all of them, many times.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import { FAILOVER } from './failover.ts';
import { Disk } from './disk.ts';
import { faultsOf, oneRound } from './faults.ts';
import { Rig, type Judged } from './rig.ts';

const seed = Number(process.env['DUEBRIDGE_SEED'] ?? Math.floor(Date.now() / 86_400_000));

/** The faults of every run; the kills of single workers, each of which waits for a lease, belong to the long form. */
const ALWAYS = [
  'every process killed at once',
  'commits of the platform',
  'a gateway does',
  'the next version',
];
/** Where a loop device may be mounted. */
const POWER = "the power of PostgreSQL's host";
/** Two servers, with their log. */
const DISK_MB = 800;

test('kills, lost commits, power loss, a bad gateway, a newer version and a failover lose and duplicate nothing [EE1 EE2 EE4 EE5 EE10 LV6 S4 PF2 RU2 RU5 F69 F81 F88]', async (t) => {
  t.diagnostic(`DUEBRIDGE_SEED=${seed} runs the same faults again`);
  const random = seededRandom(seed);
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-rig-'));
  const mode = seed % 2 === 0 ? 'books' : 'own';
  const disk = Disk.mount(join(folder, 'data'), DISK_MB);
  let opened: Rig | undefined;
  t.after(async () => {
    await opened?.close();
    disk?.remove();
    await rm(folder, { recursive: true, force: true });
  });
  const rig = (opened = await Rig.open({ folder, seed, mode, accounts: 2_000 }));
  const hasPower = disk?.hasPower === true;
  if (!hasPower) t.diagnostic('no power loss: this user may not mount a loop device');
  const always = hasPower ? [...ALWAYS, POWER] : ALWAYS;
  const faults = faultsOf(mode, disk);
  const kitSteps = faults.filter(({ name }) => /^killed at step \d+, kit/.test(name));
  const today = kitSteps[Math.floor(random() * kitSteps.length)];
  const chosen = faults.filter(
    (fault) => fault === today || always.some((name) => fault.name.startsWith(name)),
  );
  assert.equal(chosen.length, 1 + always.length);
  const held = (name: string, { violations, acknowledged, convergedMs }: Judged): void => {
    t.diagnostic(`${name}: ${acknowledged} payments, all ended ${convergedMs} ms after healing`);
    assert.deepEqual(violations, [], name);
    assert.ok(acknowledged >= 10, `${name}: only ${acknowledged} payments, the load was no load`);
  };
  for (const fault of chosen) {
    const { reached, ...judged } = await oneRound(rig, fault);
    assert.ok(reached, `${fault.name}: did not happen`);
    held(fault.name, judged);
  }
  held(FAILOVER.name, await FAILOVER.run(rig));
  t.diagnostic('pauses in locks, full disks and stepped clocks are left to the long form');
});
