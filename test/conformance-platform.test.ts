/**
 * Our own platform before the judge, at its token endpoint and as a caller. What holds for others holds for us.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { judgePlatform, platformTarget } from '@duebridge/conformance';
import { freePort } from '@duebridge/runtime/testing';
import { BothSides } from './support/both-sides.ts';
import { CLIENT, findings, judgedPartner, KEY, PACE, unjudged } from './support/judged.ts';

const sides = new BothSides();
after(() => sides.stop());

const TOKEN_CHECKS = Array.from({ length: 20 }, (_, n) => `T${String(n + 1).padStart(2, '0')}`);
const CALLER_CHECKS = Array.from({ length: 13 }, (_, n) => `C${String(n + 1).padStart(2, '0')}`);

for (const [method, profile] of [
  ['key', 'contract'],
  ['oauth', 'strict'],
] as const) {
  test(`the judge has no finding about our platform, as token endpoint and as caller: ${method}, ${profile}`, async () => {
    const { draft } = await judgedPartner(sides, 'key');
    const { platform, register } = await sides.platform({
      clientRate: { perSecond: 300, burst: 100 },
    });
    // T: a biller whose partner is the kit. C: the same platform, registered with the scripted partner.
    const port = await freePort();
    const authentication =
      method === 'key'
        ? ({ method, header: 'authorization', key: KEY } as const)
        : ({ method, ...CLIENT, token_url: `http://127.0.0.1:${port}/oauth/token` } as const);
    const biller = await register({
      partner_id: 'gas',
      name: 'Gas Company',
      kind: 'biller',
      biller_id: 'gas',
      base_url: String(draft['base_url']),
      auth: { method: 'key', header: 'x-api-key', key: KEY },
    });
    const scripted = await register({
      partner_id: 'scripted',
      name: 'Scripted',
      kind: 'aggregator',
      base_url: `http://127.0.0.1:${port}`,
      auth:
        authentication.method === 'key'
          ? authentication
          : { ...authentication, scope: 'read write' },
    });
    const common = {
      base_url: platform.url,
      flow: true,
      token_sample: 200,
      burst: 150,
      rate: { requests_per_second: 300, burst: 100 },
    };
    const tokens = await judgePlatform(
      platformTarget(
        {
          ...common,
          client_id: biller.client_id,
          api_key: biller.api_key,
          biller_id: 'gas',
          account_id: 'A-1',
          unknown_account_id: 'nobody',
        },
        {},
      ),
      { profile, pace: PACE, only: TOKEN_CHECKS },
    );
    assert.equal(findings(tokens), '');
    assert.deepEqual(unjudged(tokens), ['T12', 'T20']);
    const calls = await judgePlatform(
      platformTarget(
        {
          ...common,
          client_id: scripted.client_id,
          api_key: scripted.api_key,
          kind: 'aggregator',
          biller_id: 'judge',
          account_id: 'A-1',
          caller: {
            port,
            authentication,
            biller_id: 'judge',
            account_id: 'A-1',
            patience_seconds: 20,
          },
        },
        {},
      ),
      {
        profile,
        pace: { ...PACE, quiet_ms: 600 },
        // By OAuth everything; by a static key what depends on it, and one payment to each of its ends.
        only: ['T08', ...(method === 'oauth' ? CALLER_CHECKS : ['C03', 'C05', 'C06', 'C09'])],
      },
    );
    assert.equal(findings(calls), '');
    assert.deepEqual(unjudged(calls), method === 'key' ? ['C05'] : []);
  });
}
