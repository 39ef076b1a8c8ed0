/**
 * The scripted partner itself: correct by default, wrong in one way when a behaviour says so. The judge and its
 * wrong peers prove most of it; these tests cover what they cannot see: clock, controls, ledger.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { request } from 'undici';
import {
  SANDBOX_BILLER,
  SLOW_MS,
  startScriptedPartner,
  type ScriptedPartnerOptions,
  MACHINE_CLOCK,
} from './partner.ts';

/** A fixed instant: 2026-03-21T12:00:00Z. */
const START_MS = Date.UTC(2026, 2, 21, 12);

/** A partner whose clock moves only when it is advanced. */
async function start(t: TestContext, options: Partial<ScriptedPartnerOptions> = {}) {
  const partner = await startScriptedPartner({
    auth: { method: 'key', header: 'Authorization', key: 'the-key' },
    clock: { ...MACHINE_CLOCK, now: () => START_MS },
    ...options,
  });
  t.after(() => partner.stop());
  const send = async (
    method: 'GET' | 'PUT' | 'POST',
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const reply = await request(`${partner.url}${path}`, {
      method,
      headers: {
        authorization: 'the-key',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? null : text,
    });
    const answered = await reply.body.text();
    return {
      status: reply.statusCode,
      headers: reply.headers,
      text: answered,
      body: (answered.startsWith('{') ? JSON.parse(answered) : {}) as Record<string, unknown>,
    };
  };
  const paymentPath = (id: string, account = 'active') =>
    `/biller/${SANDBOX_BILLER}/account/${account}/payment/${id}`;
  const put = (id: string, amount_in_cents: unknown = 1_250, account = 'active') =>
    send('PUT', paymentPath(id, account), { amount_in_cents, platform_batch_id: 'b1' });
  const get = (id: string, account = 'active', headers: Record<string, string> = {}) =>
    send('GET', paymentPath(id, account), undefined, headers);
  return { partner, send, put, get };
}

test('a payment starts as processing, is posted once, and is returned for its id forever [RU1 RU5 ST2 PF8]', async (t) => {
  const { partner, put, get } = await start(t);
  const first = await put('p1');
  assert.equal(first.status, 200);
  assert.deepEqual(
    [first.body['status'], first.body['posted_at'], first.body['initiated_at']],
    ['processing', null, new Date(START_MS).toISOString()],
  );
  partner.advance(99);
  assert.equal((await get('p1')).body['status'], 'processing');
  partner.advance(1);
  const ended = await get('p1');
  assert.equal(ended.body['status'], 'succeeded');
  assert.equal(ended.body['posted_at'], new Date(START_MS + 100).toISOString());
  partner.advance(400 * 24 * 3_600_000);
  assert.deepEqual((await put('p1', 9_999)).body, ended.body);
  assert.equal(partner.postings().length, 1);
  const account = partner.accounts().find(({ account_id }) => account_id === 'active');
  assert.equal(account?.balance?.amount_due_in_cents, 12_500 - 1_250);
});

test('magic accounts and amounts end payments as documented [FR1 ST3 ST4]', async (t) => {
  const { partner, put, get } = await start(t);
  const cases: readonly [string, number, string][] = [
    ['active', 1_250, 'succeeded'],
    ['inactive', 1_250, 'failed'],
    ['nobody', 1_250, 'failed'],
    ['maximum', 50_000, 'succeeded'],
    ['maximum', 50_001, 'failed'],
    ['failing', 1_250, 'failed'],
    ['canceled', 1_250, 'canceled'],
    ['slow', 1_250, 'processing'],
    ['stuck', 1_250, 'processing'],
    ['active', 66_601, 'failed'],
    ['active', 66_602, 'failed'],
    ['active', 66_603, 'failed'],
    ['active', 66_604, 'canceled'],
    ['active', 66_605, 'processing'],
    ['active', 66_606, 'processing'],
  ];
  for (const [index, [account, amount]] of cases.entries()) await put(`p${index}`, amount, account);
  partner.advance(1_000);
  for (const [index, [account, amount, status]] of cases.entries()) {
    const { body } = await get(`p${index}`, account);
    assert.equal(body['status'], status, `${account} ${amount}`);
    assert.equal('failure_reason' in body, status === 'failed');
  }
  partner.advance(SLOW_MS);
  assert.equal((await get('p7', 'slow')).body['status'], 'succeeded');
  assert.equal((await get('p13')).body['status'], 'succeeded');
  assert.equal((await get('p8', 'stuck')).body['status'], 'processing');
});

test('access tokens carry scopes and expire by the sandbox’s clock [OA2 OA3 OA4 SC1]', async (t) => {
  const { partner, send } = await start(t, {
    auth: { method: 'oauth', client_id: 'platform', client_secret: 'se+cr&et%é', expires_in: 60 },
  });
  const ask = async (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    send('POST', '/oauth/token', new URLSearchParams(fields).toString(), {
      'content-type': 'application/x-www-form-urlencoded',
      authorization: '',
      ...headers,
    });
  const client = { client_id: 'platform', client_secret: 'se+cr&et%é' };
  const grant_type = 'client_credentials';
  const granted = await ask({ grant_type, ...client, scope: 'read' });
  assert.equal(granted.status, 200);
  const { access_token, ...rest } = granted.body;
  assert.deepEqual(rest, { token_type: 'Bearer', expires_in: 60, scope: 'read' });
  const bearer = { authorization: `Bearer ${String(access_token)}` };
  const account = `/biller/${SANDBOX_BILLER}/account/active`;
  assert.equal((await send('GET', account, undefined, bearer)).status, 200);
  const write = { amount_in_cents: 1, platform_batch_id: 'b1' };
  const refused = await send('PUT', `${account}/payment/p1`, write, bearer);
  assert.equal(refused.status, 403);
  assert.match(String(refused.headers['www-authenticate']), /insufficient_scope/);
  partner.advance(60_000);
  assert.equal((await send('GET', account, undefined, bearer)).status, 401);

  const wrong: readonly [
    Promise<{ status: number; body: Record<string, unknown> }>,
    number,
    string,
  ][] = [
    [ask({ grant_type, ...client, client_secret: 'no' }), 401, 'invalid_client'],
    [ask({ grant_type: 'password', ...client }), 400, 'unsupported_grant_type'],
    [ask({ ...client }), 400, 'invalid_request'],
    [ask({ grant_type, ...client, scope: 'admin' }), 400, 'invalid_scope'],
  ];
  for (const [reply, status, error] of wrong) {
    const seen = await reply;
    assert.deepEqual([seen.status, seen.body['error']], [status, error]);
  }
  assert.ok(!JSON.stringify(partner.exchanges()).includes('se+cr&et'), 'secrets are masked');
});

test('what it holds is shown without a credential, and without its own', async (t) => {
  const { send, put } = await start(t);
  await put('p1', 1_250, 'stuck');
  const listed = await send('GET', '/sandbox/payments', undefined, { authorization: '' });
  assert.equal((listed.body['payments'] as unknown[]).length, 1);
  assert.ok(!(await send('GET', '/sandbox/exchanges')).text.includes('the-key'));
});
