/** The scripted platform: it issues tokens like the platform, and drives payments against a partner. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { request } from 'undici';
import { MACHINE_CLOCK } from '../clock.ts';
import { drivePayment, type DriveExchange } from './drive.ts';
import { SANDBOX_BILLER, startScriptedPartner, type ScriptedAuth } from './partner.ts';
import { startScriptedPlatform, UNKNOWN_ACCOUNT } from './platform.ts';

const customer = {
  first_name: 'Ada',
  last_name: 'Example',
  email: 'ada@example.test',
  phone_number: '+15125550100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
};

async function start(t: TestContext, kind: 'biller' | 'aggregator' = 'biller') {
  const platform = await startScriptedPlatform({
    client: { client_id: 'client-1', api_key: 'key-1', kind },
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
  return { platform, post };
}

test('a token is the only field, is valid for 30 minutes, and is never repeated [A2 TK1]', async (t) => {
  const { platform, post } = await start(t);
  const [first, second] = [await post(customer), await post(customer)];
  assert.deepEqual(Object.keys(first.body), ['token']);
  assert.match(String(first.body['token']), /^dbt_[A-Za-z0-9_-]{43}$/);
  assert.notEqual(first.body['token'], second.body['token']);
  assert.ok(Date.parse(String(first.headers['token-expires-at'])) > Date.now());
  assert.ok(platform.isGood(String(first.body['token'])));
  platform.advance(30 * 60_000 + 1);
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

test('a drive pays a correct partner with either authentication, and shows no secret', async (t) => {
  const auths: readonly ScriptedAuth[] = [
    { method: 'key', header: 'x-api-key', key: 'the-secret' },
    { method: 'oauth', client_id: 'platform', client_secret: 'the-secret' },
  ];
  for (const auth of auths) {
    const partner = await startScriptedPartner({ auth, processing_ms: 50 });
    t.after(() => partner.stop());
    const shown: DriveExchange[] = [];
    const result = await drivePayment(
      {
        base_url: partner.url,
        auth: auth.method === 'key' ? auth : { ...auth, token_url: partner.token_url },
      },
      { biller_id: SANDBOX_BILLER, account_id: 'active', amount_in_cents: 1_250 },
      { clock: MACHINE_CLOCK, shown: (exchange) => shown.push(exchange), withinMs: 10_000 },
    );
    assert.equal(result.status, 'succeeded');
    assert.equal(partner.postings().length, 1);
    assert.ok(shown.filter(({ method }) => method === 'PUT').length >= 2, 'the same PUT again');
    assert.doesNotMatch(JSON.stringify(shown), /the-secret/);
  }
});

test('a drive never treats an unknown outcome as failed, and reports what breaks the interface', async (t) => {
  const auth = { method: 'key', header: 'x-api-key', key: 'k' } as const;
  const drive = async (options: Partial<Parameters<typeof startScriptedPartner>[0]>) => {
    const partner = await startScriptedPartner({ auth, processing_ms: 20, ...options });
    t.after(() => partner.stop());
    const shown: DriveExchange[] = [];
    const result = await drivePayment(
      { base_url: partner.url, auth },
      { biller_id: SANDBOX_BILLER, account_id: 'active', amount_in_cents: 1_250 },
      { clock: MACHINE_CLOCK, shown: (exchange) => shown.push(exchange), withinMs: 2_000 },
    );
    return { result, shown, partner };
  };
  const broken = await drive({ scenario: 'F08', faults: 2 });
  assert.equal(broken.result.status, 'succeeded');
  assert.equal(broken.partner.postings().length, 1);
  const puts = broken.shown.filter(({ method }) => method === 'PUT');
  assert.equal(new Set(puts.map(({ url, body }) => `${url} ${body ?? ''}`)).size, 1);

  const forgetful = await drive({ behaviour: { key: (call) => `${call.number}` } });
  assert.equal(forgetful.result.status, undefined);
  assert.match(String(forgetful.result.problem), /RU5/);
});

test('the page drives a payment and shows its exchanges, without a script', async (t) => {
  const { platform } = await start(t);
  const auth = { method: 'key', header: 'x-api-key', key: 'the-secret' } as const;
  const partner = await startScriptedPartner({ auth, processing_ms: 20 });
  t.after(() => partner.stop());
  const form = {
    base_url: partner.url,
    header: 'x-api-key',
    key: 'the-secret',
    biller_id: SANDBOX_BILLER,
    account_id: 'active',
    amount_in_cents: '1250',
  };
  const send = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    request(`${platform.url}/sandbox/drive`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body: new URLSearchParams(fields).toString(),
    });
  assert.equal((await send(form, { origin: 'https://elsewhere.example' })).statusCode, 403);
  assert.equal((await send({ ...form, amount_in_cents: '1.5' })).statusCode, 400);
  assert.equal(partner.exchanges().length, 0);
  assert.equal((await send(form)).statusCode, 303);
  const page = async () => (await request(`${platform.url}/sandbox`)).body.text();
  let text = await page();
  // The page reloads itself while a payment is in progress; the limit keeps a broken page from hanging the test.
  for (let round = 0; round < 200 && text.includes('In progress'); round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    text = await page();
  }
  assert.match(text, /<p>\s*succeeded\s*<\/p>/);
  assert.match(text, /PUT http/);
  assert.doesNotMatch(text, /<script/);
  assert.ok(!text.includes('the-secret'));
});
