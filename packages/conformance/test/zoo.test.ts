/** No correct partner of the zoo fails a check, and docs/results/zoo.json contains three complete runs of each. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { describe } from 'node:test';
import { PARTNER_CASES } from '../src/cases/index.ts';
import { KIT_VERSION } from '../src/version.ts';
import { QUICK, tell } from './kill.ts';
import { idsOf, judgeZooPeer, RESULTS, ZOO, type ZooResult } from './zoo.ts';

describe('a correct partner that looks different is not accused', { concurrency: 4 }, () => {
  for (const peer of ZOO) {
    test(`a partner ${peer.name}`, async () => {
      const report = await judgeZooPeer(peer, QUICK);
      assert.deepEqual(report.judge_failed, []);
      const unexpected = idsOf(report, 'WARN').filter((id) => !(peer.warns ?? []).includes(id));
      assert.deepEqual(unexpected, [], tell(report));
      assert.equal(report.counts.FAIL, 0, tell(report));
      assert.equal(report.exit_code, 0, tell(report));
    });
  }
});

test('the published results of the zoo contain three runs of each peer without a failure', () => {
  const results = JSON.parse(readFileSync(RESULTS, 'utf8')) as readonly ZooResult[];
  assert.deepEqual(
    results.map(({ peer }) => peer),
    ZOO.map(({ name }) => name),
    'judge again: the zoo has changed',
  );
  const checks = PARTNER_CASES.filter(({ profile }) => profile === 'contract')
    .map(({ id }) => id)
    .sort();
  for (const [place, { peer, kit_version, runs, passed, others }] of results.entries()) {
    assert.equal(runs.length, 3, peer);
    for (const { verdict, counts } of runs) {
      assert.equal(verdict, 'passed', peer);
      assert.equal(counts.FAIL, 0, peer);
    }
    assert.equal(kit_version, KIT_VERSION, 'judge again: the kit has a new version');
    assert.deepEqual(
      [...passed, ...others.map(({ id }) => id)].sort(),
      checks,
      'judge again: the checks have changed',
    );
    assert.equal(passed.length, runs[2]?.counts.PASS, peer);
    for (const { id, verdict, findings, skipped } of others) {
      if (verdict === 'SKIP') assert.ok((skipped ?? '').length > 10, `${peer} ${id}`);
      else {
        assert.deepEqual(
          [verdict, ZOO[place]?.warns?.includes(id)],
          ['WARN', true],
          `${peer} ${id}`,
        );
        assert.notEqual(findings.length, 0, `${peer} ${id}`);
      }
    }
  }
});
