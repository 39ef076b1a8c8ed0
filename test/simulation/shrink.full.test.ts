/** A failing world is found again from its seed and reduced to what matters: with worlds whose causes are known, and real ones. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';
import { PLANTED } from './planted.ts';
import { History } from './history.ts';
import { shrink } from './shrink.ts';
import type { Outcome } from './world.ts';

/** Worlds of these parts that break something when all of `needed` happen. */
function worldsOf(parts: readonly string[], needed: readonly string[]) {
  return (without: ReadonlySet<string>): Promise<Outcome> => {
    const breaks = needed.length > 0 && needed.every((part) => !without.has(part));
    return Promise.resolve({
      seed: 1,
      violations: breaks ? [{ rule: 'EE1', what: 'all of them' }] : [],
      history: new History(() => 0),
      parts,
      payments: 0,
      faults: new Map(),
      virtualMs: 0,
      convergedMs: 0,
    });
  };
}

const parts = Array.from({ length: 23 }, (_, index) => `part ${index}`);

test('parts that break something only together are all kept, and no other', async () => {
  for (const needed of [['part 3', 'part 11', 'part 20'], ['part 7']]) {
    let tried = 0;
    const world = worldsOf(parts, needed);
    const found = await shrink((without) => {
      tried += 1;
      return world(without);
    });
    assert.deepEqual(found?.parts, needed);
    assert.equal(found.worlds, tried);
  }
});

test('a world that breaks nothing is not reduced', async () => {
  assert.equal(await shrink(worldsOf(parts, [])), undefined);
});

test('a world leaves out the payments that it is told to leave out, and with them what they break', async () => {
  const name = 'a cent too much is captured';
  const runWorld = await withBug(PLANTED.findIndex((planted) => planted.name === name));
  const postgres = await SimulatedPostgres.open();
  const whole = await runWorld(postgres, 1);
  assert.ok(whole.parts.length >= 10, `the whole world has only ${whole.parts.length} parts`);
  assert.equal(whole.violations[0]?.rule, 'EE3');
  const payments = whole.parts.filter((part) => part.startsWith('payment '));
  const none = await runWorld(postgres, 1, new Set(payments));
  await postgres.close();
  assert.deepEqual(none.parts, whole.parts);
  assert.deepEqual(none.violations, []);
});

test('a seed tells the same story each time', async () => {
  const program = join(import.meta.dirname, 'seeds.ts');
  const tell = async (): Promise<string> => {
    const args = [program, '--from', '42', '--count', '1'];
    const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 2 ** 26 });
    return (JSON.parse(stdout) as { story: string }).story;
  };
  const [first, second] = await Promise.all([tell(), tell()]);
  assert.ok(first.length > 0);
  assert.equal(first, second);
});
