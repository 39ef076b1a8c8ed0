/**
 * What scenarios do on the wire where no check can see it: what is stored meanwhile, which status comes when, and what is not accepted. That
 * each is a fault at all is proved by the platforms that it misleads (kill-matrix.test.ts).
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { Agent, request } from 'undici';
import { until } from '@duebridge/runtime/testing';
import {
  findScenario,
  SCENARIOS,
  SANDBOX_BILLER,
  startScriptedPartner,
  type ScriptedPartnerOptions,
} from './partner.ts';

/** How long a call waits for an answer that must come, and for one that must not. */
const [PATIENCE_MS, HANGS_MS] = [120_000, 600];

const KEY = { 'x-api-key': 'right' };
const path = (id: string) => `/biller/${SANDBOX_BILLER}/account/active/payment/${id}`;
const instruction = JSON.stringify({ amount_in_cents: 1_250, platform_batch_id: 'batch-1' });

/** The result of one call: a complete answer, or the code of the error. */
interface Seen {
  readonly status: number | undefined;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly text: string;
  readonly error: string | undefined;
}

async function see(url: string, options: Parameters<typeof request>[1]): Promise<Seen> {
  try {
    const reply = await request(url, options);
    const { statusCode: status, headers } = reply;
    try {
      return { status, headers, text: await reply.body.text(), error: undefined };
    } catch (error) {
      return { status, headers, text: '', error: codeOf(error) };
    }
  } catch (error) {
    return { status: undefined, headers: {}, text: '', error: codeOf(error) };
  }
}

function codeOf(error: unknown): string {
  const { code, name } = error as Error & { code?: unknown };
  return typeof code === 'string' ? code : name;
}

async function start(t: TestContext, options: Partial<ScriptedPartnerOptions>, connections = 1) {
  const needs = options.scenario === undefined ? undefined : findScenario(options.scenario)?.needs;
  const partner = await startScriptedPartner({
    auth:
      needs === 'oauth'
        ? { method: 'oauth', client_id: 'platform', client_secret: 'secret' }
        : { method: 'key', header: 'x-api-key', key: 'right' },
    processing_ms: 50,
    ...options,
  });
  const dispatcher = new Agent({
    maxResponseSize: 2_000_000,
    connections,
  });
  t.after(async () => {
    await dispatcher.destroy();
    await partner.stop();
  });
  const call = (method: 'PUT' | 'GET', id = 'p1', giveUpMs = PATIENCE_MS) =>
    see(`${partner.url}${path(id)}`, {
      dispatcher,
      method,
      signal: AbortSignal.timeout(giveUpMs),
      headers: {
        ...KEY,
        ...(method === 'PUT' ? { 'content-type': 'application/json' } : {}),
      },
      ...(method === 'PUT' ? { body: instruction } : {}),
    });
  return { partner, call };
}

test('each scenario describes what a correct caller does', () => {
  assert.equal(new Set(SCENARIOS.map((scenario) => scenario.name)).size, SCENARIOS.length);
  for (const scenario of SCENARIOS) {
    assert.match(scenario.name, /^F\d\d(-[a-z0-9]+)+$/);
    assert.ok(scenario.title.length > 5 && scenario.caller.length > 5, scenario.name);
  }
  assert.equal(findScenario('f02')?.name, 'F02-timeout-after-commit');
  assert.equal(findScenario('F99'), undefined);
});

test('F01 and F02 never answer a PUT; only F02 stores it', async (t) => {
  for (const [scenario, stored] of [
    ['F01', 0],
    ['F02', 1],
  ] as const) {
    const { partner, call } = await start(t, { scenario });
    assert.equal((await call('PUT', 'p1', HANGS_MS)).error, 'TimeoutError');
    await until('it has come', () => partner.exchanges().length === 1);
    await until('it is stored', () => partner.payments().length === stored);
    assert.equal((await call('PUT', 'p1', HANGS_MS)).status, undefined);
    await until('the second has come', () => partner.exchanges().length === 2);
    assert.equal((await call('PUT')).status, 200, 'the third is right again');
    assert.equal(partner.payments().length, 1);
  }
});

test('F03 refuses connections until it heals, at the same port', async (t) => {
  const { partner, call } = await start(t, { scenario: 'F03' });
  assert.equal((await call('PUT')).error, 'ECONNREFUSED');
  await partner.heal();
  assert.equal((await call('PUT')).status, 200);
});

test('F04 resets before any byte, and stores every other payment', async (t) => {
  const { partner, call } = await start(t, { scenario: 'F04' });
  const stored: number[] = [];
  for (let round = 0; round < 4; round += 1) {
    const { status, error } = await call('PUT', `p${round}`);
    assert.equal(status, undefined);
    assert.match(String(error), /ECONNRESET|UND_ERR_SOCKET/);
    stored.push(partner.payments().length);
  }
  assert.deepEqual(stored, [0, 1, 1, 2]);
});

test('scenarios return their statuses before or after the payment is stored', async (t) => {
  const expected: readonly [string, readonly number[], boolean][] = [
    ['F07', [500, 502, 503, 504, 200], false],
    ['F08', [500, 502, 503, 504, 200], true],
    ['F09', [503, 429, 429, 200], false],
    ['F11', [422, 400, 422], false],
    ['F12', [401, 401], false],
    ['F13', [403, 403], false],
    ['F14', [404, 404, 200], false],
    ['F17', [409, 423, 425, 200], false],
    ['F18', [405, 501, 505, 200], false],
    ['F19', [307, 308, 301, 302, 200], false],
    ['F20', [303, 303, 200], false],
    ['F21', [302, 307, 308, 200], false],
  ];
  await Promise.all(
    expected.map(async ([scenario, statuses, stored]) => {
      const { partner, call } = await start(t, { scenario });
      const seen: unknown[] = [];
      for (const [index] of statuses.entries()) {
        if (index === 1) assert.equal(partner.payments().length, stored ? 1 : 0, scenario);
        seen.push((await call('PUT')).status);
      }
      assert.deepEqual(seen, statuses, scenario);
    }),
  );
});

test('F15 acknowledges a PUT and answers 404 to GET; F16 stores only after the caller has given up', async (t) => {
  const f15 = await start(t, { scenario: 'F15' });
  assert.equal((await f15.call('PUT')).status, 200);
  assert.equal((await f15.call('GET')).status, 404);
  assert.equal((await f15.call('GET')).status, 404);
  assert.equal((await f15.call('GET')).status, 200);
  const f16 = await start(t, { scenario: 'F16', faults: 1 }, 2);
  const put = f16.call('PUT', 'p1', HANGS_MS);
  assert.equal((await f16.call('GET')).status, 404);
  assert.equal((await put).error, 'TimeoutError');
  await until('the payment', () => f16.partner.payments().length === 1);
  assert.equal((await f16.call('PUT')).status, 200);
  assert.equal(f16.partner.payments().length, 1);
});

test('F40 leaves no listener behind when a caller reads it slowly', async (t) => {
  const warnings: string[] = [];
  const note = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', note);
  t.after(() => process.off('warning', note));
  const { partner } = await start(t, { scenario: 'F40' });
  const reply = await request(`${partner.url}${path('p1')}`, {
    method: 'PUT',
    headers: { ...KEY, 'content-type': 'application/json' },
    body: instruction,
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  let read = 0;
  for await (const piece of reply.body) {
    read += (piece as Buffer).length;
    if (read > 20_000_000) break;
  }
  assert.deepEqual(warnings, []);
});

test('F47 presents a certificate that no caller accepts', async (t) => {
  const { partner, call } = await start(t, { scenario: 'F47-bad-certificate' });
  assert.match(String((await call('PUT')).error), /SELF_SIGNED|CERT/);
  assert.equal(partner.exchanges().length, 0);
});
