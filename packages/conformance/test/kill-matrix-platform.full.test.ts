/** The part of the kill matrix for token endpoints. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test, { describe } from 'node:test';
import { TOKEN_CASES } from '../src/cases/index.ts';
import { platformTarget } from '../src/check/target.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { AT_ONCE, isCaught, QUICK, tell } from './kill.ts';
import { TOKEN_MUTANTS, type TokenMutant } from './mutants.ts';
import { platformDraft } from './peers.ts';
import { json, openPlatformProxy } from './wrong-platform.ts';

const TOKEN_CHECKS = TOKEN_CASES.map(({ id }) => id);

/** Judges a token endpoint, wrong or correct. */
async function judgeTokens(
  peer: Pick<TokenMutant, 'behaviour' | 'kind' | 'profile' | 'rate'>,
  delay_ms = 0,
): Promise<RunReport> {
  const proxy = await openPlatformProxy(peer.kind ?? 'biller', peer.behaviour(), delay_ms);
  try {
    const draft = platformDraft(proxy, peer.kind ?? 'biller');
    const rate = peer.rate === undefined ? {} : { rate: peer.rate };
    return await judgePlatform(platformTarget({ ...draft, ...rate }, {}), {
      pace: QUICK,
      only: TOKEN_CHECKS,
      profile: peer.profile ?? 'contract',
    });
  } finally {
    await proxy.stop();
  }
}

/** Every check passes. On a machine too slow to exceed the limit, T14 has no verdict. */
function passes(report: RunReport): void {
  const others = report.results.filter(({ id, verdict }) => id !== 'T14' || verdict !== 'SKIP');
  assert.ok(others.every(({ verdict }) => verdict === 'PASS'));
  assert.ok(others.length >= TOKEN_CHECKS.length - 1);
}

describe('a correct platform passes', { concurrency: AT_ONCE }, () => {
  test('a token endpoint, for a biller', async () => {
    const report = await judgeTokens({ behaviour: () => ({}) });
    assert.equal(tell(report), '');
    passes(report);
  });

  test('a token endpoint, for an aggregator', async () => {
    const report = await judgeTokens({ behaviour: () => ({}), kind: 'aggregator' });
    assert.equal(tell(report), '');
    passes(report);
  });

  test('a slow token endpoint is not accused', async () => {
    // Two seconds per call, scaled to a tenth together with all waits of the judge.
    const report = await judgeTokens({ behaviour: () => ({}), profile: 'strict' }, 200);
    assert.equal(tell(report), '');
    passes(report);
  });

  test('a rate limit that the judge cannot reach is skipped, not passed', async () => {
    const proxy = await openPlatformProxy('biller', {
      request: (asked) =>
        asked.body.length < 100_000 && asked.path.endsWith('/token')
          ? json(200, { token: `dbt_${randomUUID()}` })
          : undefined,
    });
    const draft = {
      ...platformDraft(proxy, 'biller'),
      rate: { requests_per_second: 1e5, burst: 1e5 },
    };
    try {
      const report = await judgePlatform(platformTarget(draft, {}), { pace: QUICK, only: ['T14'] });
      const [result] = report.results;
      assert.equal(result?.verdict, 'SKIP', tell(report));
      assert.match(result.skipped ?? '', /^the limit could not be reached: 320 tokens in/);
      assert.equal(report.exit_code, 3);
    } finally {
      await proxy.stop();
    }
  });
});

describe('each wrong platform is caught by its check', { concurrency: AT_ONCE * 2 }, () => {
  for (const mutant of TOKEN_MUTANTS) {
    test(`${mutant.breaks.join(' ')}: it ${mutant.wrong}`, async () => {
      isCaught(mutant, await judgeTokens(mutant));
    });
  }
});
