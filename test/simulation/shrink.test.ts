/** A failing world is reduced to what matters: tested with planted bugs, whose causes are known. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { SimulatedPostgres } from './database.ts';
import { withBug } from './plant.ts';
import { PLANTED } from './planted.ts';
import { History } from './history.ts';
import { shrink } from './shrink.ts';
import { runWorld } from './world.ts';

test('a bug that affects every payment is reduced to one payment and no fault', async () => {
  const name = 'a cent too much is captured';
  const runWorld = await withBug(PLANTED.findIndex((planted) => planted.name === name));
  const postgres = await SimulatedPostgres.open();
  const found = await shrink((without) => runWorld(postgres, 1, without));
  await postgres.close();
  assert.ok(found, `"${name}" breaks nothing`);
  const { parts, of, violation } = found;
  assert.ok(of >= 10, `the whole world has only ${of} parts`);
  assert.equal(violation.rule, 'EE3');
  assert.equal(parts.length, 1, parts.join(', '));
  assert.match(parts[0] ?? '', /^payment \d+$/);
});

test('parts that break something only together are all kept', async () => {
  const parts = Array.from({ length: 23 }, (_, index) => `part ${index}`);
  const needed = ['part 3', 'part 11', 'part 20'];
  const tried: string[] = [];
  const found = await shrink((without) => {
    tried.push([...without].join(' '));
    const breaks = needed.every((part) => !without.has(part));
    return Promise.resolve({
      seed: 1,
      violations: breaks ? [{ rule: 'EE1', what: 'all three' }] : [],
      history: new History(() => 0),
      parts,
      payments: 0,
      faults: new Map(),
      virtualMs: 0,
      convergedMs: 0,
    });
  });
  assert.deepEqual(found?.parts, needed);
  assert.equal(found.worlds, tried.length);
});

test('a world that breaks nothing is not reduced', async () => {
  const postgres = await SimulatedPostgres.open();
  assert.equal(await shrink((without) => runWorld(postgres, 42, without)), undefined);
  await postgres.close();
});
