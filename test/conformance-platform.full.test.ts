/**
 * Our own platform before the judge, at its token endpoint and as a caller. What holds for others holds for us.
 */
import assert from 'node:assert/strict';
import { after, describe } from 'node:test';
import {
  CONFORMANCE_CASES,
  judgePlatform,
  platformTarget,
  type Draft,
  type RunReport,
} from '@duebridge/conformance';
import { assertInTime, freePort, testInRealTime } from '@duebridge/runtime/testing';
import { BothSides, gasCompany, type PlatformSide } from './support/both-sides.ts';
import { FAULT_HEADER, openFaultDoor } from './support/fault-door.ts';
import { CLIENT, findings, judgedPartner, KEY, PACE, unjudged } from './support/judged.ts';

const sides = new BothSides();
after(() => sides.stop());

const IDS = CONFORMANCE_CASES.map(({ id }) => id);
const TOKEN_CHECKS = IDS.filter((id) => id.startsWith('T'));
const CALLER_CHECKS = IDS.filter((id) => id.startsWith('C'));
const SCENARIO_CHECKS = IDS.filter((id) => id.startsWith('F'));

/** Shows nothing to a platform that calls over plain http. */
const UNSEEN = ['F47'];

/**
 * Scenarios in which the platform rightly calls the partner no more for a minute: each has a partner of its own, and the judge waits less
 * long for the next call.
 */
const PAUSES = ['F59', 'F60', 'F61', 'F62', 'F64', 'F68'];
const PATIENCE_SECONDS = { usual: 20, paused: 3 };

/** A secret with characters that a form must encode (F66). */
const SECRET = 'a+secret & more: 100 % é=';

const RATE = { requests_per_second: 300, burst: 100 };

/** The platform under test, and what every target names. */
async function openPlatform() {
  const side = await sides.platform({
    clientRate: { perSecond: RATE.requests_per_second, burst: RATE.burst },
  });
  const door = await openFaultDoor(side.platform.url, side.books);
  after(() => door.close());
  const common = {
    base_url: door.url,
    flow: true,
    token_sample: 200,
    burst: 150,
    rate: RATE,
    internal_fault_headers: { [FAULT_HEADER]: '1' },
  };
  return { side, common };
}

/** Registers a scripted partner and judges how the platform calls it. With `restart` the judge may restart the platform (C14). */
async function judgeCalls(
  { register, restart }: Pick<PlatformSide, 'register'> & Partial<Pick<PlatformSide, 'restart'>>,
  common: Draft,
  partner_id: string,
  method: 'key' | 'oauth',
  only: readonly string[],
  patience = PATIENCE_SECONDS.usual,
): Promise<RunReport> {
  const port = await freePort();
  const authentication =
    method === 'key'
      ? ({ method, header: 'authorization', key: KEY } as const)
      : ({
          method,
          client_id: CLIENT.client_id,
          client_secret: SECRET,
          token_url: `http://127.0.0.1:${port}/oauth/token`,
        } as const);
  const client = await register({
    partner_id,
    name: 'Scripted',
    kind: 'aggregator',
    base_url: `http://127.0.0.1:${port}`,
    auth:
      authentication.method === 'key' ? authentication : { ...authentication, scope: 'read write' },
    // What hangs on purpose is given up sooner than in production.
    budget: { call_timeout_ms: 3_000 },
  });
  const target = platformTarget(
    {
      ...common,
      client_id: client.client_id,
      api_key: client.api_key,
      kind: 'aggregator',
      biller_id: 'judge',
      account_id: 'A-1',
      caller: {
        port,
        authentication,
        biller_id: 'judge',
        account_id: 'A-1',
        patience_seconds: patience,
      },
    },
    {},
  );
  const profile = method === 'key' ? 'contract' : 'strict';
  return judgePlatform(target, {
    profile,
    pace: { ...PACE, quiet_ms: 600 },
    only,
    ...(restart === undefined ? {} : { restart }),
  });
}

/** On a slow machine the judge's patience ends before the last call: what it has not judged then says nothing about the platform. */
function allJudged(reports: readonly RunReport[], besides: readonly string[] = []): void {
  const left = reports.flatMap(unjudged).filter((id) => !besides.includes(id));
  assertInTime(left.length === 0, `not judged: ${left.join(', ')}`);
}

describe('the judge has no finding about our platform', { concurrency: 3 }, () => {
  for (const profile of ['contract', 'strict'] as const) {
    testInRealTime(`at its token endpoint: ${profile}`, async () => {
      const { draft } = await judgedPartner(sides, 'key');
      const { side, common } = await openPlatform();
      const gas = gasCompany(String(draft['base_url']), KEY);
      const biller = await side.register(gas);
      const other = await side.register({ ...gas, partner_id: 'other', biller_id: 'other' });
      const report = await judgePlatform(
        platformTarget(
          {
            ...common,
            client_id: biller.client_id,
            api_key: biller.api_key,
            biller_id: 'gas',
            account_id: 'A-1',
            unknown_account_id: 'nobody',
            other_client: { client_id: other.client_id, api_key: other.api_key },
          },
          {},
        ),
        { profile, pace: PACE, only: TOKEN_CHECKS },
      );
      assert.equal(findings(report), '');
      // A slow machine cannot send more than the platform allows (T14).
      allJudged([report], ['T14']);
    });
  }

  testInRealTime(
    'as a caller with a static key, to each end of a payment and after a restart',
    async () => {
      const { side, common } = await openPlatform();
      const checks = ['T08', 'C03', 'C09', 'C14', 'F12', 'F13'];
      const report = await judgeCalls(side, common, 'scripted', 'key', checks);
      assert.equal(findings(report), '');
      allJudged([report]);
    },
  );

  testInRealTime(
    'as a caller with OAuth, under every scenario, in the strict profile',
    async () => {
      const {
        side: { register },
        common,
      } = await openPlatform();
      const rest = SCENARIO_CHECKS.filter((id) => !PAUSES.includes(id));
      const reports = await Promise.all([
        judgeCalls({ register }, common, 'scripted', 'oauth', [...CALLER_CHECKS, ...rest]),
        ...PAUSES.map((id) =>
          judgeCalls(
            { register },
            common,
            `scripted-${id.toLowerCase()}`,
            'oauth',
            [id],
            PATIENCE_SECONDS.paused,
          ),
        ),
      ]);
      assert.equal(reports.map(findings).filter(Boolean).join('\n'), '');
      // All these runs share the platform, so none may restart it (C14).
      allJudged(reports, ['C14', ...UNSEEN]);
    },
  );
});
