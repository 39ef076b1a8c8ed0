/**
 * The short form of `npm run mutation -- core`: a few mutants of the engine, each a realistic bug, are killed
 * by the fast tests; and the recorded results of the last run (docs/mutation.md) agree with the current files.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { CORE, mutantsOf, mutateCore } from './mutation/core.ts';
import { CORE_SURVIVORS, coreExplanationOf, keptCore } from './mutation/core-scores.ts';

/** Keyed by the end of the path and Mutation.name. */
const BUGS: readonly (readonly [bug: string, file: string, name: string])[] = [
  ['a lease relied on too long', 'lease.ts', 'const KEPT_PART = 0.7; | 0.7 -> 1.7'],
  [
    'a breaker that opens late',
    'partner-queue.ts',
    'return this.#failures >= BREAKER_THRESHOLD || this.held !== undefined; | >= -> >',
  ],
  [
    'a refusal that is not final ends a payment',
    'payment-steps.ts',
    'if (isFinal && found.believed && payment.payment_id === null) { | && -> || (2)',
  ],
  [
    'refused credentials taken for trouble',
    'outcome.ts',
    "if (status === 401) return { kind: 'held', reason: 'credentials' }; | 401 -> 4010",
  ],
];

for (const [bug, end, name] of BUGS) {
  test(`${bug}: the fast tests kill it`, async () => {
    const file = Object.keys(CORE).find((path) => path.endsWith(`/${end}`));
    const fates = await mutateCore({
      ...(file === undefined ? {} : { file }),
      wanted: (_, one) => one === name,
    });
    assert.equal(fates.length, 1, `${end} has no mutant "${name}" any more: choose another`);
    assert.equal(fates[0]?.caught.length, 1, 'it survives');
  });
}

test('every survivor of the core is explained or listed as open, and every explanation has a survivor', () => {
  for (const [file, { mutants, seed, killed, by, survivors, unreached }] of Object.entries(
    keptCore(),
  )) {
    assert.ok(file in CORE, file);
    const tried = killed + survivors.length + unreached.length;
    assert.ok(tried > 0 && tried <= mutants, file);
    assert.equal(tried === mutants, seed === undefined, file);
    assert.equal(
      Object.values(by).reduce((sum, one) => sum + one, 0),
      killed,
      file,
    );
    // A survivor whose line no longer exists says nothing about the current code.
    const present = new Set(mutantsOf(file).map((mutation) => mutation.name));
    const gone = [...survivors, ...unreached].filter((one) => !present.has(one));
    assert.deepEqual(gone, [], `${file}: try its mutants again`);
    for (const { places, why } of CORE_SURVIVORS[file] ?? []) {
      for (const place of places) {
        assert.ok(
          survivors.some((one) => place.test(one) && coreExplanationOf(file, one) === why),
          `${file}: nothing survives at ${place} (${why})`,
        );
      }
    }
  }
});
