import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { ERRORS, platformAdminRoutes, type ErrorCode, type PaymentPage } from '@duebridge/contract';
import { bearer, startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';
import { openPaymentList } from './payment-list.ts';
import type { Services } from '../services.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const biller = await platform.register(partner, { partner_id: 'water' });
const credentials = await platform.credentials(biller.partner_id);

function assertCode(answer: Answer, code: ErrorCode): void {
  assert.equal(answer.body['code'], code, answer.text);
  assert.equal(answer.status, ERRORS[code].status);
}

let customers = 0;
/** Confirms a payment of a new customer; returns its id. */
async function pay(account_id: string): Promise<string> {
  customers += 1;
  const email = `c${customers}@example.com`;
  const { id, session } = await platform.pay(credentials, account_id, email, 100 + customers);
  if (partner.endings.has(account_id)) await platform.ended(session, id);
  return id;
}

test('no admin operation answers without the admin key, or to a different one', async () => {
  let limited = 0;
  for (const route of Object.values(platformAdminRoutes)) {
    const path = route.path.replaceAll(/\{\w+\}/g, 'x');
    for (const headers of [{}, bearer('wrong'), bearer(`${platform.adminKey}x`)]) {
      const { method } = route;
      const response = await fetch(new URL(path, platform.adminUrl), { method, headers });
      const { code } = (await response.json()) as { code: string };
      if (response.status === 429) {
        // This many wrong keys cannot be typing errors.
        assert.equal(code, 'TOO_MANY_REQUESTS');
        limited += 1;
        continue;
      }
      assert.equal(response.status, 401, route.id);
      assert.equal(response.headers.get('www-authenticate'), 'Bearer');
      assert.equal(code, 'UNAUTHORIZED');
    }
  }
  assert.ok(limited < 100, 'the first hundred are told what is wrong');
});

test('admin operations and figures are not on the public listener', async () => {
  const headers = bearer(platform.adminKey);
  for (const path of ['/admin/v1/partners', '/admin/v1/payments', '/metrics']) {
    assert.equal((await platform.call('GET', path, { headers })).status, 404);
  }
  const figures = await fetch(new URL('/metrics', platform.adminUrl));
  assert.match(await figures.text(), /^duebridge_http_request_duration_seconds_count/m);
});

test('a partner is registered once, read, changed and paused, and no answer contains its secret', async () => {
  const registration = {
    partner_id: 'gas',
    name: 'Gas',
    kind: 'aggregator',
    base_url: partner.url,
    origins: [],
    auth: {
      method: 'oauth',
      token_url: `${partner.url}/oauth/token`,
      client_id: 'platform',
      client_secret: 'oauth-canary-secret',
    },
  };
  const added = await platform.admin('POST', '/admin/v1/partners', registration);
  assert.equal(added.status, 200, added.text);
  assertCode(await platform.admin('POST', '/admin/v1/partners', registration), 'CONFLICT');
  for (const change of [{ colour: 'red' }, { kind: 'biller' }]) {
    const wrong = { ...registration, ...change };
    assertCode(await platform.admin('POST', '/admin/v1/partners', wrong), 'INVALID_REQUEST');
  }
  const paused = await platform.admin('PATCH', '/admin/v1/partners/gas', { paused: true });
  assert.equal(paused.body['paused'], true);
  const read = await platform.admin('GET', '/admin/v1/partners/gas');
  assert.deepEqual(read.body, paused.body);
  const list = await platform.admin('GET', '/admin/v1/partners');
  assert.equal((list.body['partners'] as object[]).length, 2);
  for (const answer of [added, paused, read, list]) {
    assert.ok(!answer.text.includes('canary'));
  }
  assertCode(await platform.admin('GET', '/admin/v1/partners/nobody'), 'NOT_FOUND');
  assertCode(await platform.admin('PATCH', '/admin/v1/partners/nobody', {}), 'NOT_FOUND');
  assertCode(await platform.admin('GET', '/admin/v1/partners/%00'), 'INVALID_REQUEST');
});

test('payments are listed newest first, page by page, none twice and none missed', async () => {
  partner.endings.set('a2', { status: 'succeeded', posted_at: new Date().toISOString() });
  const made: string[] = [];
  for (let count = 0; count < 5; count += 1) made.unshift(await pay(count % 2 ? 'a1' : 'a2'));
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${cursor}`;
    const answer = await platform.admin('GET', `/admin/v1/payments?limit=2${query}`);
    const page = answer.body as unknown as PaymentPage;
    assert.ok(page.payments.length <= 2);
    seen.push(...page.payments.map((payment) => payment.platform_payment_id));
    cursor = page.next_cursor;
  } while (cursor !== null);
  assert.deepEqual(seen, made);
  const ended = await platform.admin('GET', '/admin/v1/payments?status=succeeded&partner_id=water');
  const { payments } = ended.body as unknown as PaymentPage;
  assert.equal(payments.length, 3);
  assert.ok(payments.every((payment) => payment.stage === 'ended' && payment.posted_at !== null));
  assert.ok(!ended.text.includes('"a2"'));
  for (const query of ['?limit=0', '?limit=1001', '?status=done', '?cursor=%00', '?page=2']) {
    assertCode(await platform.admin('GET', `/admin/v1/payments${query}`), 'INVALID_REQUEST');
  }
  const id = '00000000-0000-4000-8000-000000000000';
  for (const at of ['1111111111', '2026-02-31T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z x']) {
    const cursor = encodeURIComponent(`${at}~${id}`);
    assertCode(await platform.admin('GET', `/admin/v1/audit?cursor=${cursor}`), 'INVALID_REQUEST');
  }
});

test('a page of payments reads each of its partners once', async () => {
  const asked: string[] = [];
  const list = openPaymentList({
    database: platform.database,
    registry: {
      get: async (partner_id: string) => {
        asked.push(partner_id);
        return undefined;
      },
    },
    attempts: { callsOf: async () => new Map() },
    engine: { nextStepAt: () => undefined },
  } as unknown as Services);
  const { payments } = await list.paymentPage({});
  assert.ok(payments.length >= 3);
  assert.deepEqual(asked, [biller.partner_id]);
});
