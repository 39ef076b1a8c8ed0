/**
 * Our own platform before the judge, at its token endpoint and as a caller. What holds for others holds for us.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { judgePlatform, platformTarget, type Draft, type RunReport } from '@duebridge/conformance';
import { freePort } from '@duebridge/runtime/testing';
import { BothSides, type PartnerSide } from './support/both-sides.ts';

const sides = new BothSides();
after(() => sides.stop());

const KEY = 'the-key-that-the-biller-chose';
const CLIENT = { client_id: 'platform', client_secret: 'a-long-secret-of-the-biller' };
const MAXIMUM = 3_000_000_000;

const TOKEN_CHECKS = Array.from({ length: 20 }, (_, n) => `T${String(n + 1).padStart(2, '0')}`);
const CALLER_CHECKS = Array.from({ length: 13 }, (_, n) => `C${String(n + 1).padStart(2, '0')}`);

/** What a real run does, in less time. */
const PACE = {
  poll_first_ms: 20,
  poll_longest_ms: 200,
  burst_per_second: 10,
  burst_seconds: 2,
  after_end_ms: 20,
  balance_lag_ms: 2_000,
  request_timeout_ms: 15_000,
  quiet_ms: 600,
};

/** A kit with three accounts. With `holdMs` its operator has time to cancel, and P53 can be judged. */
async function partner(
  method: 'key' | 'oauth',
  holdMs = 0,
): Promise<{ side: PartnerSide; draft: Draft }> {
  const side = await sides.partner({
    auth:
      method === 'key'
        ? { method, header: 'x-api-key', keys: [KEY] }
        : {
            method,
            clients: [{ client_id: CLIENT.client_id, secrets: [CLIENT.client_secret] }],
          },
    billers: [{ biller_id: 'gas', max_amount_in_cents: MAXIMUM }],
    holdMs,
  });
  await side.importAccounts(
    'biller_id,account_id,status,amount_due\ngas,A-1,active,99.00\ngas,A-2,active,10.00\ngas,A-3,inactive,1.00\n',
  );
  const draft: Draft = {
    base_url: side.server.url,
    authentication:
      method === 'key'
        ? { method, header: 'x-api-key', key: KEY }
        : { method, ...CLIENT, token_url: `${side.server.url}/oauth/token` },
    biller_id: 'gas',
    accounts: { payable: 'A-1', other: 'A-2', unknown: 'nobody', inactive: 'A-3' },
    limits: { max_amount_in_cents: MAXIMUM },
    terminal_window_seconds: 10,
    ...(holdMs === 0
      ? {}
      : {
          cancel: {
            url: `${side.server.adminUrl}/admin/v1/payments/{platform_payment_id}/cancel`,
            headers: {
              authorization: `Bearer ${side.server.adminKey}`,
              'content-type': 'application/json',
            },
            body: '{"reason":"judged"}',
          },
        }),
  };
  return { side, draft };
}

function findings(report: RunReport): string {
  return report.results
    .filter(({ findings }) => findings.length > 0)
    .map(({ id, verdict, findings }) => `${id} ${verdict} ${JSON.stringify(findings)}`)
    .concat(report.judge_failed, report.config?.sentence ?? [])
    .join('\n');
}

function unjudged(report: RunReport): string[] {
  return report.results.filter(({ verdict }) => verdict === 'SKIP').map(({ id }) => id);
}

for (const [method, profile] of [
  ['key', 'contract'],
  ['oauth', 'strict'],
] as const) {
  test(`our platform gives the judge nothing to say, as token endpoint and as caller: ${method}, ${profile}`, async () => {
    const { draft } = await partner('key');
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
      // What OAuth and the strict profile add: the rest does not depend on how the platform shows who it is.
      {
        profile,
        pace: PACE,
        only: ['T08', ...(method === 'key' ? CALLER_CHECKS : ['C05', 'C06', 'C09'])],
      },
    );
    assert.equal(findings(calls), '');
    assert.deepEqual(unjudged(calls), method === 'key' ? ['C05'] : []);
  });
}
