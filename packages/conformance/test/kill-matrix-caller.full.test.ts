/** The part of the kill matrix for platforms that call a partner. */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { CALLER_CASES } from '../src/cases/index.ts';
import { platformTarget, type Draft } from '../src/check/target.ts';
import { judgePlatform, type RunReport } from '../src/run.ts';
import { CALLERS_AT_ONCE, isCaught, QUICK, tell } from './kill.ts';
import { CALLER_MUTANTS, type CallerMutant } from './mutants.ts';
import { openPlatformProxy, smallPlatform, type SmallPlatform } from './wrong-platform.ts';

const CALLER_CHECKS = CALLER_CASES.map(({ id }) => id);

/**
 * How long the judge waits for a call. A correct platform needs some seconds on a loaded machine; for a wrong one that gives up, the judge
 * waits the full time. Where many checks may fail, none can fail wrongly by a shorter wait.
 */
const PATIENCE_SECONDS = { correct: 40, wrong: 8, wrong_in_many: 4 };

/** Judges the calls of a small platform, wrong or correct. */
async function judgeCaller(
  fault: CallerMutant['name'] | undefined,
  method: 'key' | 'oauth',
  patience_seconds: number,
): Promise<RunReport> {
  const proxy = await openPlatformProxy('biller');
  const stop = new AbortController();
  const authentication =
    method === 'key'
      ? ({ method, header: 'x-api-key', key: 'a-key-of-the-kill-matrix' } as const)
      : ({
          method,
          client_id: 'judge',
          client_secret: 'a-secret-of-the-kill-matrix',
          scope: 'read write',
          token_url: 'http://127.0.0.1:1/',
        } as const);
  try {
    const draft: Draft = {
      base_url: proxy.url,
      client_id: proxy.client_id,
      api_key: proxy.api_key,
      caller: {
        port: 0,
        authentication,
        biller_id: 'judge',
        account_id: 'A-1',
        other_account_id: 'A-2',
        patience_seconds,
      },
    };
    let platform: SmallPlatform | undefined;
    return await judgePlatform(platformTarget(draft, {}), {
      pace: QUICK,
      only: CALLER_CHECKS,
      driver: (url) => (platform = smallPlatform(authentication, fault, stop.signal)(url)),
      restart: async () => platform?.restart(),
    });
  } finally {
    stop.abort();
    await proxy.stop();
  }
}

describe('a correct caller passes', { concurrency: CALLERS_AT_ONCE }, () => {
  test('a caller with OAuth', async () => {
    const report = await judgeCaller(undefined, 'oauth', PATIENCE_SECONDS.correct);
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, CALLER_CHECKS.length);
  });

  test('a caller with a static key', async () => {
    const report = await judgeCaller(undefined, 'key', PATIENCE_SECONDS.correct);
    assert.equal(tell(report), '');
    assert.equal(report.counts.PASS, CALLER_CHECKS.length - 1);
  });
});

describe('each wrong caller is caught by its check', { concurrency: CALLERS_AT_ONCE }, () => {
  for (const mutant of CALLER_MUTANTS) {
    test(`${mutant.breaks.join(' ')}: it ${mutant.wrong}`, async () => {
      const { name, auth = 'key', also } = mutant;
      const { wrong, wrong_in_many } = PATIENCE_SECONDS;
      isCaught(mutant, await judgeCaller(name, auth, also === 'many' ? wrong_in_many : wrong));
    });
  }
});
