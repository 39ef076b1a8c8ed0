import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test, { after } from 'node:test';
import {
  ERRORS,
  platformAdminRoutes,
  type BatchComparison,
  type ErrorCode,
  type PaymentDetail,
  type PaymentPage,
} from '@duebridge/contract';
import { bearer, startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';

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
  const { session } = await platform.session(credentials, account_id, `c${customers}@example.com`);
  const made = await platform.call('POST', '/v1/flow/payments', {
    headers: bearer(session),
    body: { amount_in_cents: 100 + customers, funding_method: 'sandbox_bank' },
  });
  assert.equal(made.status, 200, made.text);
  const id = String(made.body['platform_payment_id']);
  if (partner.endings.has(account_id)) {
    const stream = await fetch(new URL(`/v1/flow/payments/${id}/events`, platform.url), {
      headers: bearer(session),
    });
    await stream.text();
  }
  return id;
}

test('no admin operation answers without the admin key, or to a different one', async () => {
  let limited = 0;
  for (const route of Object.values(platformAdminRoutes)) {
    const path = route.path.replaceAll(/\{\w+\}/g, 'x');
    for (const headers of [{}, bearer('wrong'), bearer(`${platform.adminKey}x`)]) {
      const response = await fetch(new URL(path, platform.adminUrl), {
        method: route.method,
        headers,
      });
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

test('both listeners serve /healthz, /readyz and their API document', async () => {
  for (const base of [platform.url, platform.adminUrl]) {
    assert.equal((await fetch(new URL('/healthz', base))).status, 200);
    assert.equal((await fetch(new URL('/readyz', base))).status, 200);
    assert.equal((await fetch(new URL('/docs', base))).status, 200);
    const document = (await (await fetch(new URL('/openapi.json', base))).json()) as {
      paths: object;
    };
    assert.ok(Object.keys(document.paths).length > 3);
  }
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
  assertCode(
    await platform.admin('POST', '/admin/v1/partners', { ...registration, colour: 'red' }),
    'INVALID_REQUEST',
  );
  assertCode(
    await platform.admin('POST', '/admin/v1/partners', { ...registration, kind: 'biller' }),
    'INVALID_REQUEST',
  );
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

test('a payment that has not ended after a day is listed for operators, and is not failed for it [ST3]', async () => {
  await pay('a1');
  await platform.database.query(
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id,
                           amount_in_cents, funding_method, created_at)
     SELECT 'a-day-old', partner_id, biller_id, 'a1', platform_batch_id, 100, funding_method,
            now() - interval '25 hours'
       FROM duebridge_platform.payments LIMIT 1`,
  );
  const answer = await platform.admin('GET', '/admin/v1/payments?status=overdue');
  const { payments } = answer.body as unknown as PaymentPage;
  assert.deepEqual(
    payments.map(({ platform_payment_id, status }) => [platform_payment_id, status]),
    [['a-day-old', 'processing']],
  );
  assertCode(await platform.admin('GET', '/admin/v1/payments?overdue=yes'), 'INVALID_REQUEST');
});

test('a payment is read with every step of its life, each with its time and who took it [EE8]', async () => {
  partner.endings.set('a2', { status: 'succeeded', posted_at: new Date().toISOString() });
  const id = await pay('a2');
  const answer = await platform.admin('GET', `/admin/v1/payments/${id}`);
  const { payment, audit } = answer.body as unknown as PaymentDetail;
  assert.equal(payment.status, 'succeeded');
  assert.equal(audit[0]?.event, 'payment_created');
  assert.ok(audit.some((entry) => entry.event === 'payment_ended'));
  assertCode(await platform.admin('GET', '/admin/v1/payments/never'), 'PAYMENT_NOT_FOUND');
});

test('an operator can withdraw only a payment that cannot have been sent, with a reason', async () => {
  const accepted = await pay('a3');
  const path = (id: string, verb: string): string => `/admin/v1/payments/${id}/${verb}`;
  const reason = { reason: 'customer called' };
  await platform.admin('PATCH', '/admin/v1/partners/water', { paused: true });
  const waiting = await pay('a3');
  const withdrawn = await platform.admin('POST', path(waiting, 'withdraw'), reason);
  assert.equal(withdrawn.status, 200, withdrawn.text);
  assert.equal(withdrawn.body['status'], 'canceled');
  await platform.admin('PATCH', '/admin/v1/partners/water', { paused: false });
  assertCode(await platform.admin('POST', path(waiting, 'withdraw'), reason), 'CONFLICT');
  assertCode(await platform.admin('POST', path(accepted, 'resume'), reason), 'CONFLICT');
  for (const verb of ['withdraw', 'resume']) {
    assertCode(await platform.admin('POST', path('never', verb), reason), 'PAYMENT_NOT_FOUND');
    assertCode(await platform.admin('POST', path(accepted, verb), {}), 'INVALID_REQUEST');
  }
  const detail = await platform.admin('GET', `/admin/v1/payments/${waiting}`);
  const { audit } = detail.body as unknown as PaymentDetail;
  assert.ok(audit.some((entry) => entry.detail['reason'] === 'customer called'));
});

test('a batch shows its statement and is compared with the partner, difference by difference', async () => {
  const list = await platform.admin('GET', '/admin/v1/batches?partner_id=water');
  const [batch] = list.body['batches'] as { platform_batch_id: string; statement: null }[];
  assert.ok(batch !== undefined && batch.statement === null, 'the batch is open');
  const path = `/admin/v1/batches/${batch.platform_batch_id}`;
  const read = await platform.admin('GET', path);
  assert.equal(read.status, 200);
  assert.ok((read.body['statement'] as { count: number }).count > 0);
  assert.equal(read.body['comparison'], null, 'nobody has compared it');
  const same = await platform.admin('POST', `${path}/reconcile`, {});
  assert.equal(same.status, 200, same.text);
  const first = (await platform.admin('GET', path)).body['comparison'] as BatchComparison;
  assert.deepEqual([first.actor, first.method], ['admin-key', same.body['method']]);
  const wrong = 'platform_payment_id,status,amount_in_cents\nnobody-knows,succeeded,5\n';
  const other = await platform.admin('POST', `${path}/reconcile-file`, wrong);
  const differences = other.body['differences'] as { kind: string; platform_payment_id: string }[];
  assert.ok(
    differences.some(
      ({ kind, platform_payment_id }) =>
        kind === 'missing_here' && platform_payment_id === 'nobody-knows',
    ),
    other.text,
  );
  // The totals of the partner's file are shown beside our own statement.
  const last = (await platform.admin('GET', path)).body['comparison'] as BatchComparison;
  assert.deepEqual([last.method, last.differences], ['csv', differences.length]);
  assert.deepEqual(last.partner_statement, {
    platform_batch_id: batch.platform_batch_id,
    count: 1,
    totals: [{ status: 'succeeded', count: 1, amount_in_cents: 5 }],
    sha256: createHash('sha256').update('nobody-knows,succeeded,5\n').digest('hex'),
  });
  assertCode(await platform.admin('GET', '/admin/v1/batches/never'), 'BATCH_NOT_FOUND');
  assertCode(
    await platform.admin('POST', '/admin/v1/batches/never/reconcile', {}),
    'BATCH_NOT_FOUND',
  );
});

test('the audit lists what was done, newest first, and no secret', async () => {
  const answer = await platform.admin('GET', '/admin/v1/audit');
  const entries = answer.body['entries'] as { at: string; event: string }[];
  assert.ok(entries.some((entry) => entry.event === 'partner_added'));
  const times = entries.map((entry) => entry.at);
  assert.deepEqual(times, times.toSorted().toReversed());
  assert.ok(!/canary|dbk_/.test(answer.text));
});
