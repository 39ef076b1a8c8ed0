/**
 * Our own servers before the judge: the partner kit in both profiles and by both ways to prove who
 * calls. What holds for others holds for us.
 */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import {
  judgePartner,
  MACHINE_CLOCK,
  memoryHistory,
  partnerTarget,
  type Profile,
} from '@duebridge/conformance';
import { assertInTime, testInRealTime } from '@duebridge/runtime/testing';
import { BothSides } from './support/both-sides.ts';
import { findings, judgedPartner, PACE, unjudged } from './support/judged.ts';

const sides = new BothSides();
after(() => sides.stop());

for (const [method, profile, skipped] of [
  ['key', 'contract', ['P03', 'P04', 'P05', 'P07']],
  ['key', 'strict', ['P03', 'P04', 'P05', 'P07']],
  ['oauth', 'contract', ['P07', 'P08']],
  ['oauth', 'strict', ['P07', 'P08']],
] as const satisfies readonly (readonly ['key' | 'oauth', Profile, readonly string[]])[]) {
  testInRealTime(
    `the judge has no finding about our partner kit: ${method}, ${profile}`,
    async () => {
      const { draft } = await judgedPartner(sides, method);
      const target = partnerTarget(draft, {});
      const history = memoryHistory();
      const first = await judgePartner(target, { profile, pace: PACE, history });
      // It gives each answer the time that a quiet machine needs.
      assertInTime(findings(first) === '', findings(first));
      assert.equal(first.exit_code, 0);
      assert.deepEqual(
        unjudged(first),
        [...skipped, 'P35', 'P53'].sort((one, other) => one.localeCompare(other)),
      );
      // The next day, as far as the judge's history can tell.
      const next = await judgePartner(target, {
        profile,
        pace: PACE,
        history,
        only: ['P35', 'P54'],
        clock: { ...MACHINE_CLOCK, now: () => Date.now() + 25 * 60 * 60 * 1_000 },
      });
      assertInTime(next.counts.PASS === 2, findings(next));
    },
  );
}
