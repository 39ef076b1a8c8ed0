/**
 * A short run of the crash rig: a few rounds of faults on real processes, the same ones in every run, and a failover. `npm run
 * reliability -- --rounds 500` runs all of them, many times.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { keptSecret } from '@duebridge/runtime';
import { startStandby } from '../support/standby.ts';
import { Disk } from './disk.ts';
import { failover, faultsOf } from './faults.ts';
import { Rig } from './rig.ts';

const seed = Number(process.env['DUEBRIDGE_SEED'] ?? 1);

/** The faults of this run. */
const ALWAYS = /^(?:every process killed|commits of the|the network|the next version|the power)/;
/** One of these kills as well. Those of single workers, each of which waits for a lease, belong to the long form, as do pauses, full disks and clocks. */
const KILL = /^killed at step \d+, kit/;
/** Two servers, with their log. */
const DISK_MB = 800;

test('kills, lost commits, power loss, a cut network, a newer version and a failover lose and duplicate nothing [EE1 EE2 EE4 EE5 EE10 LV6 S4 PF2 RU2 RU5 F69 F81 F88]', async (t) => {
  t.diagnostic(`DUEBRIDGE_SEED=${seed} runs the same faults again`);
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-rig-'));
  const disk = Disk.mount(join(folder, 'data'), DISK_MB);
  if (disk === undefined) t.diagnostic('no power loss: this user may not mount a loop device');
  const closers: (() => Promise<unknown> | void)[] = [];
  t.after(async () => {
    for (const close of closers.toReversed()) await close();
    disk?.remove();
    await rm(folder, { recursive: true, force: true });
  });
  const rig = await Rig.open(folder, seed);
  closers.push(() => rig.close());
  const faults = faultsOf(disk);
  const kills = faults.filter(({ name }) => KILL.test(name));
  const chosen = [...faults.filter(({ name }) => ALWAYS.test(name)), kills[seed % kills.length]!];
  assert.ok(chosen.length >= (disk ? 7 : 6));
  for (const { name, run } of chosen) {
    const { reached, payments } = await rig.round(run);
    t.diagnostic(`${name}: ${payments} payments`);
    assert.ok(reached, `${name}: did not happen`);
  }
  const standby = await startStandby(rig.postgres.url, true);
  closers.push(() => standby.stop());
  await rig.round(failover(standby).run);
});

test('a secret that a start has made is there after a power loss, like what the database wrote after it [F81]', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-secret-'));
  const disk = Disk.mount(join(folder, 'data'), 64);
  t.after(() => {
    disk?.remove();
    return rm(folder, { recursive: true });
  });
  if (disk === undefined) return t.skip('this user may not mount a loop device');
  const file = join(disk.folder, 'seal-key');
  const made = await keptSecret(file);
  await writeFile(join(disk.folder, 'wal'), 'a sealed row', { flush: true });
  assert.ok(disk.losePower(Number(spawn('sleep', ['60']).pid)));
  assert.equal(await keptSecret(file), made);
});
