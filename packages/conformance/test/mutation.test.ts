/**
 * The short form of `npm run mutation`: a few mutants of correct servers, chosen by a seed, and the
 * recorded results of the last full run. Each mutant is caught by the judge or listed in survivors.ts with the
 * reason why it cannot be observed.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test, { describe } from 'node:test';
import { mutate } from './mutation/main.ts';
import { keptCore } from './mutation/core-scores.ts';
import { SUBJECTS } from './mutation/subjects.ts';
import { kept, page, PAGE } from './mutation/summary.ts';
import { explanationOf, SURVIVORS } from './mutation/survivors.ts';

const SEED = 11;

/** Mutants of each peer. None of the callers: waiting for a call that never comes takes too long for this test. */
const COUNTS: Readonly<Record<string, number>> = {
  'partner.mjs': 4,
  'partner.py': 3,
  'sandbox-platform': 5,
};

const python = spawnSync('python3', ['--version']).status === 0;

describe(`a few mutants of correct servers, seed ${SEED}`, { concurrency: 3 }, () => {
  for (const [name, count] of Object.entries(COUNTS)) {
    test(`${count} of ${name} are caught or explained`, async (t) => {
      if (name.endsWith('.py') && !python) {
        t.diagnostic('python3 is not installed');
        return;
      }
      const fates = await mutate(name, { count, seed: SEED });
      assert.equal(fates.length, count);
      const unexplained = fates
        .filter(({ caught, reached }) => reached && caught.length === 0)
        .map((fate) => `${fate.file} ${fate.name}`)
        .filter((mutant) => explanationOf(name, mutant) === undefined);
      assert.deepEqual(unexplained, []);
    });
  }
});

test('every survivor of the last full run is explained, and every explanation has a survivor', () => {
  const scores = kept();
  assert.ok(Object.keys(scores).every((name) => name in SUBJECTS));
  for (const [name, { mutants, survivors, unreached, caught }] of Object.entries(scores)) {
    assert.ok(mutants > 100, name);
    assert.equal(caught + survivors.length + unreached.length, mutants);
    assert.deepEqual(
      survivors.filter((one) => explanationOf(name, one) === undefined),
      [],
      name,
    );
    for (const { places, why } of SURVIVORS[name] ?? []) {
      for (const place of places) {
        assert.ok(
          survivors.some((one) => place.test(one)),
          `${name}: nothing survives at ${place} (${why})`,
        );
      }
    }
  }
});

test('docs/mutation.md matches the results of the last full run', () => {
  assert.equal(
    readFileSync(PAGE, 'utf8'),
    page(kept(), keptCore()),
    'stale: run packages/conformance/test/mutation/summary.ts again',
  );
});
