/** The scripted platform issues tokens like the platform. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { request } from 'undici';
import { MACHINE_CLOCK } from '../clock.ts';
import { SANDBOX_BILLER } from './magic.ts';
import { startScriptedPlatform, UNKNOWN_ACCOUNT } from './platform.ts';

const customer = {
  first_name: 'Ada',
  last_name: 'Example',
  email: 'ada@example.test',
  phone_number: '+15125550100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
};

async function start(t: TestContext, kind: 'biller' | 'aggregator' = 'biller') {
  let passed = 0;
  const platform = await startScriptedPlatform({
    client: { client_id: 'client-1', api_key: 'key-1', kind },
    clock: { ...MACHINE_CLOCK, now: () => Date.now() + passed },
  });
  t.after(() => platform.stop());
  const post = async (
    body: unknown,
    headers: Record<string, string> = {},
    method: 'POST' | 'GET' = 'POST',
  ) => {
    const reply = await request(`${platform.url}/v1/sbi/token`, {
      method,
      headers: {
        'content-type': 'application/json',
        'x-client-id': 'client-1',
        'x-api-key': 'key-1',
        ...headers,
      },
      body: method === 'GET' ? null : typeof body === 'string' ? body : JSON.stringify(body),
    });
    return {
      status: reply.statusCode,
      headers: reply.headers,
      body: (await reply.body.json()) as Record<string, unknown>,
    };
  };
  const advance = (ms: number): void => void (passed += ms);
  return { platform, post, advance };
}

test('a token is the only field, is valid for 30 minutes, and is never repeated [A2 TK1]', async (t) => {
  const { platform, post, advance } = await start(t);
  const [first, second] = [await post(customer), await post(customer)];
  assert.deepEqual(Object.keys(first.body), ['token']);
  assert.match(String(first.body['token']), /^dbt_[A-Za-z0-9_-]{43}$/);
  assert.notEqual(first.body['token'], second.body['token']);
  assert.ok(Date.parse(String(first.headers['token-expires-at'])) > Date.now());
  assert.ok(platform.isGood(String(first.body['token'])));
  advance(30 * 60_000 + 1);
  assert.ok(!platform.isGood(String(first.body['token'])));
});

test('the token endpoint refuses invalid requests [A1 AU1 ER1 TR2 TR4]', async (t) => {
  const { post } = await start(t);
  const codes: readonly [Awaited<ReturnType<typeof post>>, number, string][] = [
    [await post(customer, { 'x-client-id': 'nobody' }), 404, 'NOT_FOUND'],
    [await post(customer, { 'x-api-key': 'wrong' }), 401, 'UNAUTHORIZED'],
    [
      await post({ ...customer, external_identifiers: { account_id: UNKNOWN_ACCOUNT } }),
      404,
      'NOT_FOUND',
    ],
    [await post({ ...customer, external_identifiers: {} }), 400, 'INVALID_REQUEST'],
    [
      await post({ ...customer, address: { ...customer.address, state: 'Texas' } }),
      400,
      'INVALID_REQUEST',
    ],
    [await post('{"first_name":"A","first_name":"B"}'), 400, 'INVALID_REQUEST'],
    [await post(customer, { 'content-type': 'text/plain' }), 415, 'UNSUPPORTED_MEDIA_TYPE'],
    [await post(`"${'x'.repeat(70_000)}"`), 413, 'PAYLOAD_TOO_LARGE'],
    [await post(undefined, {}, 'GET'), 405, 'METHOD_NOT_ALLOWED'],
  ];
  for (const [reply, status, code] of codes) {
    assert.deepEqual([reply.status, reply.body['code']], [status, code]);
  }
  const aggregator = await start(t, 'aggregator');
  const identifiers = { account_id: 'active' };
  const refused = await aggregator.post({ ...customer, external_identifiers: identifiers });
  assert.equal(refused.status, 400);
  const external_identifiers = { ...identifiers, biller_id: SANDBOX_BILLER };
  assert.equal((await aggregator.post({ ...customer, external_identifiers })).status, 200);
});

test('a burst gets 429 with Retry-After [LI1]', async (t) => {
  const { post } = await start(t);
  const replies = await Promise.all(Array.from({ length: 120 }, () => post(customer)));
  const waiting = replies.filter(({ status }) => status === 429);
  assert.ok(waiting.length > 0);
  assert.equal(waiting[0]?.headers['retry-after'], '1');
});
