/**
 * Each check is worth something: it catches a peer that is wrong on purpose, alone and at the usual pace. One wrong peer for each check, in
 * virtual time; kill-matrix.full.test.ts judges all of them by all checks, and the right ones too.
 */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { CLAUSES } from '@duebridge/contract';
import {
  CALLER_CASES,
  OF_THE_WHOLE_RUN,
  PARTNER_CASES,
  SCENARIO_CASES,
  TOKEN_CASES,
} from '../src/cases/index.ts';
import type { RunReport } from '../src/run.ts';
import { isFailed, judgeCallerPeer, judgePartnerPeer, judgeTokenPeer, tell } from './judged.ts';
import { WRONG_CALLERS, WRONG_IN_SCENARIOS } from './peers/callers.ts';
import { WRONG_PARTNERS } from './peers/partners.ts';
import { WRONG_PLATFORMS } from './peers/platforms.ts';
import type { Wrong } from './peers/wrong.ts';

const CASES = [...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES];

/** Runs judged side by side: all of their waits end together. */
const AT_ONCE = 40;

/** A test for each check: the first peer that it must catch. */
function catches<P extends Wrong<unknown>>(
  checks: readonly { readonly id: string }[],
  peers: readonly P[],
  judge: (peer: P, only?: readonly string[]) => Promise<RunReport>,
): void {
  for (const { id } of checks) {
    const peer = peers.find(({ breaks }) => breaks === id);
    if (peer === undefined) {
      test(`${id} has a wrong peer`, () => assert.fail('none of the tables names it'));
      continue;
    }
    test(`${id}: it ${peer.wrong}`, async () => {
      const report = await judge(peer, OF_THE_WHOLE_RUN.includes(id) ? undefined : [id]);
      assert.deepEqual(report.judge_failed, []);
      const result = report.results.find((one) => one.id === id);
      assert.equal(result?.verdict, peer.verdict, tell(report) || result?.skipped);
    });
  }
}

describe('a check of a partner catches a wrong one', { concurrency: AT_ONCE }, () => {
  catches(PARTNER_CASES, WRONG_PARTNERS, judgePartnerPeer);
});

describe('a check of a token endpoint catches a wrong one', { concurrency: AT_ONCE }, () => {
  catches(TOKEN_CASES, WRONG_PLATFORMS, judgeTokenPeer);
});

describe('a check of a caller catches a wrong one', { concurrency: AT_ONCE }, () => {
  catches(CALLER_CASES, WRONG_CALLERS, judgeCallerPeer);
});

describe('a scenario catches a platform that takes it wrongly', { concurrency: AT_ONCE }, () => {
  const seen = new Set<string>();
  for (const [behaviour, auth, ids] of WRONG_IN_SCENARIOS) {
    const only = ids.split(' ').filter((id) => !seen.has(id));
    for (const id of only) seen.add(id);
    if (only.length === 0) continue;
    test(`${only.join(' ')}: ${behaviour}`, () => isFailed(behaviour, auth, only));
  }

  test('every scenario is failed by a wrong platform', () => {
    assert.deepEqual(
      SCENARIO_CASES.map(({ id }) => id).filter((id) => !seen.has(id)),
      [],
    );
  });
});

test('every check names existing rules, and says what it suspects', () => {
  assert.equal(new Set(CASES.map(({ id }) => id)).size, CASES.length);
  for (const one of CASES) {
    assert.ok(one.clauses.length > 0, one.id);
    for (const clause of one.clauses) assert.ok(clause in CLAUSES, `${one.id} ${clause}`);
    for (const text of [one.title, one.likely_cause]) {
      assert.ok(text.length > 10, one.id);
    }
  }
});
