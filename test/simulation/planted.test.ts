/**
 * A simulator that catches nothing proves nothing: every bug planted on purpose has to be caught within a few worlds. The test of a bug
 * prints the world that caught it, which is the seed to write down in planted.ts.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { worldsApart } from './apart.ts';
import { MAX_WORLDS, PLANTED } from './planted.ts';

const runWorld = worldsApart();

for (const [bug, { name, seed: first = 1 }] of PLANTED.entries()) {
  test(`a planted bug is caught: ${name}`, async (t) => {
    const others = Array.from({ length: MAX_WORLDS }, (_, index) => index + 1);
    for (const seed of [first, ...others.filter((other) => other !== first)]) {
      const [violation] = (await runWorld({ seed, bug })).violations;
      if (violation === undefined) continue;
      t.diagnostic(`seed ${seed}: ${violation.rule} ${violation.what}`);
      return;
    }
    assert.fail(`not caught in ${MAX_WORLDS} worlds`);
  });
}
