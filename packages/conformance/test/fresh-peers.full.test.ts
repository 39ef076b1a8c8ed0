/**
 * The short form of `npm run fresh`: a few wrong peers that were written without knowledge of the checks, chosen by
 * a seed, are judged again, and the page of the last full run must match its results.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { describe } from 'node:test';
import { jobs } from './fresh/measure.ts';
import { EXPLAINED, fresh, kept, page, PAGE, WRITTEN_AFTER } from './fresh/results.ts';
import { QUICK } from './kill.ts';

const SEED = 5;

/** The same choice for the same seed. */
function sample<T>(all: readonly T[], count: number, seed: number): readonly T[] {
  let state = seed;
  const ranked = all.map((one) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return { one, rank: state };
  });
  ranked.sort((one, other) => one.rank - other.rank);
  return ranked.slice(0, count).map(({ one }) => one);
}

/** None of the callers: waiting for a call that never comes takes too long for this test. */
const COUNTS = { partners: 9, platforms: 7 } as const;

/** Faults that show only seconds after a payment, later than the tests wait, or only under load. */
const TAKES_SECONDS =
  /^(?:ReturnedByBank|CanceledIsPosted|PostedAgainEachRun|ArchivedAfterSeconds|TimestampsTouchedByPut|IdsForTenSeconds|ReasonTranslatedLater|RepeatReadsTheJournal|ReplicaOfItsOwn|ThreeCaches|LaggingReplica|StatusBehindOnOneOfThree|QueueInMemory|TwoPosters|LostUpdate|LastOfTheTickWins|EveryThirdReadIsOld|PostedAtLater|FailuresRetried|TimersInMemory|CacheOfForty|LockedWhileWritten|AmountOfTheLatest|StaleSecondReplica|GivesUpThenPosts|RunPostsFromASnapshot|RetryIsTheDuplicate|LastOfTheRunHasNoPostingTime|LockPerAccount|LoaderOutOfOrder|FailsOpenUnderLoad|AcceptedUnderLoad|ReplayEnqueuesAgain|TokenOfTheMillisecond|ThrottledIs404|TrustsAfterSuccess)$/;

/** Correct peers of unusual shape that are judged here; `npm run fresh` judges all. */
const UNUSUAL =
  /^Right (?:PrettyAndMore|ZippedIfAccepted|BareAccounts|PrettyTokens|ErrorsWithMore)$/;

/** The correct peers on which the wrong ones are based. */
const BASES = /^Right (?:key|oauth|biller|aggregator)$/;

describe(
  `a few wrong peers that nobody wrote a check against, seed ${SEED}`,
  { concurrency: 6 },
  () => {
    const results = kept();
    for (const [kind, count] of Object.entries(COUNTS)) {
      const found = jobs().filter((job) => {
        const now = results[`${job.kind} ${job.name}`]?.now;
        return job.kind === kind && (now?.failed.length ?? 0) > 0 && !TAKES_SECONDS.test(job.name);
      });
      for (const { name, how, judge } of sample(found, count, SEED)) {
        test(`${kind}: ${name}, ${how}`, async () => {
          const { failed, first } = await judge(QUICK);
          assert.notEqual(failed.length, 0, first.join('\n'));
        });
      }
    }
    for (const { kind, name, judge } of jobs().filter(({ how }) => how === 'right')) {
      if (kind === 'callers' || !(BASES.test(name) || UNUSUAL.test(name))) continue;
      test(`${kind}: the correct peer (${name}) passes`, async () => {
        const { failed, warned, first } = await judge(QUICK);
        assert.deepEqual([...failed, ...warned], [], first.join('\n'));
      });
    }
  },
);

test('every wrong peer was judged, and each one that passes is explained', () => {
  const results = kept();
  const keys = fresh().map(({ kind, name }) => `${kind} ${name}`);
  assert.deepEqual(Object.keys(results).sort(), [...keys].sort());
  for (const { kind, name, set } of fresh()) {
    const { before, now } = results[`${kind} ${name}`]!;
    assert.equal(before === undefined, set === WRITTEN_AFTER, name);
    const explained = EXPLAINED[`${kind} ${name}`];
    assert.equal(now.failed.length === 0, explained !== undefined, `${kind} ${name}`);
    const why = now.warned.length === 0 ? /^not tried: / : /^a warning: /;
    if (explained !== undefined) assert.match(explained, why, name);
  }
});

test('docs/fresh-peers.md matches the results of the last full run', () => {
  assert.equal(readFileSync(PAGE, 'utf8'), page(kept()), 'stale: npm run fresh -- partners Right');
});
