/**
 * Our own platform before the judge, at its token endpoint and as a caller. What holds for others holds for us.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  CONFORMANCE_CASES,
  judgePlatform,
  platformTarget,
  type Draft,
  type Driver,
  type RunReport,
  type PlatformTarget,
} from '@duebridge/conformance';
import { platformRoutes } from '@duebridge/contract';
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

/**
 * Scenarios in which the platform rightly calls the partner no more for a minute: each has a partner of its own, and the judge waits less
 * long for the next call.
 */
const PAUSES = ['F59', 'F60', 'F61', 'F62', 'F64', 'F68'];
const PATIENCE_SECONDS = { usual: 20, paused: 3 };

/** A secret with characters that a form must encode (F66). */
const SECRET = 'a+secret & more: 100 % é=';

/** The platform under test, and what every target names. */
async function openPlatform() {
  const side = await sides.platform({
    clientRate: { perSecond: 300, burst: 100 },
  });
  const door = await openFaultDoor(side.platform.url, side.books);
  after(() => door.close());
  const common = {
    base_url: door.url,
    token_sample: 200,
    burst: 150,
    internal_fault_headers: { [FAULT_HEADER]: '1' },
  };
  return { side, common };
}

/** Registers a scripted partner and judges how the platform calls it. */
async function judgeCalls(
  { register }: PlatformSide,
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
    driver: () => byFlow(target),
    profile,
    pace: { ...PACE, quiet_ms: 600 },
    only,
  });
}

/** Makes our platform pay by its flow (decision 31): token, session, payment, each for a customer of its own. */
function byFlow({ base_url, client_id, api_key }: PlatformTarget): Driver {
  const family = randomUUID().slice(0, 8);
  let customers = 0;
  const ask = async (path: string, headers: Record<string, string>, body?: object) => {
    const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
    const all = { 'content-type': 'application/json', ...headers };
    return fetch(base_url + path, { ...init, headers: all });
  };
  const read = async (reply: Response) => (await reply.json()) as Record<string, unknown>;
  return {
    at_once: 50,
    async pay(amount_in_cents, account_id = 'A-1') {
      customers += 1;
      const credentials = { 'x-client-id': client_id, 'x-api-key': api_key };
      const { token } = await read(
        await ask(platformRoutes.create_token.path, credentials, {
          first_name: 'Ada',
          last_name: `Example ${family} ${customers}`,
          email: `ada.${family}.${customers}@example.com`,
          phone_number: `+1512555${String(1_000 + customers).padStart(4, '0')}`,
          address: { address_line_1: '1 Main Street', city: 'Austin', state: 'TX', zip: '78701' },
          external_identifiers: { account_id, biller_id: 'judge' },
        }),
      );
      const bearer = (secret: unknown) => ({ authorization: `Bearer ${String(secret)}` });
      const opened = await ask(platformRoutes.create_flow_session.path, bearer(token), {});
      const session = bearer((await read(opened))['session']);
      const show = () => ask(platformRoutes.get_flow_session.path, session);
      // A platform that found nobody at the partner's address a moment ago waits before its next attempt.
      let shown = await show();
      for (; shown.status === 503; shown = await show()) await delay(200);
      const { funding_methods, next_payment_id } = await read(shown);
      const [method] = funding_methods as { funding_method: string }[];
      const { path } = platformRoutes.create_flow_payment;
      const order = {
        platform_payment_id: next_payment_id,
        amount_in_cents,
        funding_method: method?.funding_method,
      };
      const { platform_payment_id: id } = await read(await ask(path, session, order));
      return {
        platform_payment_id: String(id),
        status: async () =>
          String((await read(await ask(`${path}/${String(id)}`, session)))['status']),
      };
    },
  };
}

/** On a slow machine the judge's patience ends before the last call: what it has not judged then says nothing about the platform. */
function allJudged(reports: readonly RunReport[]): void {
  const left = reports.flatMap(unjudged);
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
      allJudged([report]);
    });
  }

  testInRealTime('as a caller with a static key, to each end of a payment', async () => {
    const { side, common } = await openPlatform();
    const checks = ['T08', 'C03', 'C09', 'F12', 'F13'];
    const report = await judgeCalls(side, common, 'scripted', 'key', checks);
    assert.equal(findings(report), '');
    allJudged([report]);
  });

  testInRealTime(
    'as a caller with OAuth, under every scenario, in the strict profile',
    async () => {
      const { side, common } = await openPlatform();
      const rest = SCENARIO_CHECKS.filter((id) => !PAUSES.includes(id));
      const reports = await Promise.all([
        judgeCalls(side, common, 'scripted', 'oauth', [...CALLER_CHECKS, ...rest]),
        ...PAUSES.map((id) =>
          judgeCalls(
            side,
            common,
            `scripted-${id.toLowerCase()}`,
            'oauth',
            [id],
            PATIENCE_SECONDS.paused,
          ),
        ),
      ]);
      assert.equal(reports.map(findings).filter(Boolean).join('\n'), '');
      allJudged(reports);
    },
  );
});
