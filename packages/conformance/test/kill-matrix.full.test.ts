/**
 * The whole matrix: every wrong peer is caught by its check and fails no unrelated must-check, every check has one, and no right peer is
 * accused. In virtual time, at the usual pace.
 */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { CALLER_CASES, SCENARIO_CASES } from '../src/cases/index.ts';
import {
  idsOf,
  isCaught,
  isFailed,
  judgeCallerPeer,
  judgePartnerPeer,
  judgeTokenPeer,
  tell,
} from './judged.ts';
import { WRONG_CALLERS, WRONG_IN_SCENARIOS } from './peers/callers.ts';
import { WRONG_PARTNERS } from './peers/partners.ts';
import { WRONG_PLATFORMS } from './peers/platforms.ts';
import { RIGHT_CALLERS, RIGHT_PARTNERS, RIGHT_PLATFORMS } from './peers/right.ts';
import type { RunReport } from '../src/run.ts';
import type { Wrong } from './peers/wrong.ts';

/** Runs judged side by side: all of their waits end together. */
const AT_ONCE = 40;

/** A right peer: nothing failed, and nothing warned but what is named. */
function isClean(report: RunReport, warns: readonly string[] = []): void {
  assert.deepEqual(report.judge_failed, []);
  assert.deepEqual(idsOf(report, 'FAIL'), [], tell(report));
  const unexpected = idsOf(report, 'WARN').filter((id) => !warns.includes(id));
  assert.deepEqual(unexpected, [], tell(report));
  assert.equal(report.exit_code, 0, tell(report));
}

describe('a right peer is not accused', { concurrency: AT_ONCE }, () => {
  for (const peer of RIGHT_PARTNERS) {
    test(`a partner ${peer.name}`, async () => {
      const report = await judgePartnerPeer(peer);
      isClean(report, peer.warns);
      assert.ok(report.duration_ms <= (peer.within_ms ?? Infinity), `${report.duration_ms} ms`);
    });
  }
  for (const peer of RIGHT_PLATFORMS) {
    test(`a platform ${peer.name}`, async () => isClean(await judgeTokenPeer(peer)));
  }
  for (const [auth, behaviour] of RIGHT_CALLERS) {
    test(`a caller by ${auth}, ${behaviour ?? 'as usual'}`, async () => {
      const checks = [...CALLER_CASES, ...SCENARIO_CASES].map(({ id }) => id);
      const peer = { auth, profile: 'strict' as const, ...(behaviour && { behaviour }) };
      const report = await judgeCallerPeer(peer, checks);
      isClean(report);
      if (auth === 'oauth') assert.deepEqual(idsOf(report, 'SKIP'), []);
    });
  }
});

/** A test for each wrong peer of a side. */
function eachIsCaught<P extends Wrong<unknown>>(
  peers: readonly P[],
  judge: (peer: P) => Promise<RunReport>,
): void {
  for (const peer of peers) {
    test(`${peer.breaks}: it ${peer.wrong}`, async () => isCaught(peer, await judge(peer)));
  }
  test('each is described once', () => {
    const words = peers.map(({ wrong }) => wrong);
    assert.deepEqual(
      words.filter((one, index) => words.indexOf(one) !== index),
      [],
    );
  });
}

describe('a wrong partner is caught by its check', { concurrency: AT_ONCE }, () => {
  eachIsCaught(WRONG_PARTNERS, async (peer) => {
    const report = await judgePartnerPeer(peer);
    const caught = report.results.find(({ id }) => id === peer.breaks);
    // A warning may be of many exchanges together.
    const isShown =
      peer.verdict === 'WARN' || caught?.findings.some(({ curl }) => curl !== undefined);
    assert.ok(isShown, `${peer.breaks} shows no curl`);
    return report;
  });
});

describe('a wrong platform is caught by its check', { concurrency: AT_ONCE }, () => {
  eachIsCaught(WRONG_PLATFORMS, (peer) => judgeTokenPeer(peer));
});

describe('a wrong caller is caught by its check', { concurrency: AT_ONCE }, () => {
  eachIsCaught(WRONG_CALLERS, (peer) => judgeCallerPeer(peer));
});

describe('a scenario catches a platform that takes it wrongly', { concurrency: AT_ONCE }, () => {
  for (const [behaviour, auth, ids] of WRONG_IN_SCENARIOS) {
    test(`${ids}: ${behaviour}`, () => isFailed(behaviour, auth, ids.split(' ')));
  }
});
