/**
 * The short form of `npm run mutation`: a few mutants of the example server, chosen by a seed. Each is
 * caught by the judge, or stands below with the reason why nobody could see it (docs/conformance.md).
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { mutate } from './mutation.ts';

const SEED = 7;

/** Places of the example whose mutants change nothing that a partner owes anybody. */
const EXPLAINED: readonly RegExp[] = [
  /^line (?:17|98):/, // the limit of request bodies
  /^line 59: > -> >=/, // the maximum itself
  /^line 112: 400/, // another refusal of the same request
  /^line 164:/, // paths that nobody calls
  /^line 17[89]:/, // errors that never happen
  /^line 188: 200/, // how often it posts
];

test(`mutants of the example server, seed ${SEED}, are caught or explained`, async () => {
  const fates = await mutate({ count: 6, seed: SEED });
  assert.equal(fates.length, 6);
  const unexplained = fates
    .filter(({ caught }) => caught.length === 0)
    .map(({ mutation }) => mutation.told)
    .filter((told) => !EXPLAINED.some((pattern) => pattern.test(told)));
  assert.deepEqual(unexplained, []);
  assert.ok(fates.some(({ caught }) => caught.length > 0));
});
