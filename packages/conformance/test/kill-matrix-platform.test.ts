/** The part of the kill matrix in which wrong token endpoints are caught. */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { TOKEN_CASES } from '../src/cases/index.ts';
import { platformTarget } from '../src/check/target.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { AT_ONCE, isCaught, QUICK, tell } from './kill.ts';
import { TOKEN_MUTANTS, type TokenMutant } from './mutants.ts';
import { platformDraft } from './peers.ts';
import { openPlatformProxy } from './wrong-platform.ts';

const TOKEN_CHECKS = TOKEN_CASES.map(({ id }) => id);

/** Judges a token endpoint, wrong or right. */
async function judgeTokens(
  peer: Pick<TokenMutant, 'behaviour' | 'kind' | 'profile'>,
): Promise<RunReport> {
  const proxy = await openPlatformProxy(peer.kind ?? 'biller', peer.behaviour());
  try {
    return await judgePlatform(platformTarget(platformDraft(proxy, peer.kind ?? 'biller'), {}), {
      pace: QUICK,
      only: TOKEN_CHECKS,
      profile: peer.profile ?? 'contract',
    });
  } finally {
    await proxy.stop();
  }
}

describe('a right platform passes', { concurrency: AT_ONCE }, () => {
  test('a token endpoint, for a biller', async () => {
    const report = await judgeTokens({ behaviour: () => ({}) });
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, TOKEN_CHECKS.length);
  });

  test('a token endpoint, for an aggregator', async () => {
    const report = await judgeTokens({ behaviour: () => ({}), kind: 'aggregator' });
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, TOKEN_CHECKS.length);
  });
});

describe('a wrong platform is caught by its check', { concurrency: AT_ONCE * 2 }, () => {
  for (const mutant of TOKEN_MUTANTS) {
    test(`${mutant.breaks.join(' ')}: it ${mutant.wrong}`, async () => {
      isCaught(mutant, await judgeTokens(mutant));
    });
  }
});
