import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import {
  compileCheck,
  KitPaymentPage,
  type BatchStatement,
  type PaymentRecord,
} from '@duebridge/contract';
import { ConfigurationError, createServer } from '@duebridge/runtime';
import type { AccountsInOwnSystem } from './account-system.ts';
import { mountPartnerAdmin } from './admin.ts';
import {
  ended,
  haveAccounts,
  instruction,
  paymentPath,
  ADMIN_KEY,
  startAdmin,
} from '../test/kit.ts';

test('without the admin key nobody lists or cancels [ST4]', async (t) => {
  const admin = await startAdmin(t, { holdMs: 600_000 });
  for (const headers of [
    {},
    { authorization: 'Bearer wrong-key-of-somebody' },
    { authorization: ADMIN_KEY },
    { 'x-api-key': ADMIN_KEY },
  ] as Record<string, string>[]) {
    for (const [method, path, body] of [
      ['GET', '/payments', undefined],
      ['POST', '/payments/p/cancel', { reason: 'x' }],
    ] as const) {
      const answer = await admin.call(method, path, body, headers);
      assert.deepEqual([answer.status, answer.body['code']], [401, 'UNAUTHORIZED'], path);
    }
  }
  assert.throws(
    () =>
      mountPartnerAdmin(createServer(), {
        database: admin.database,
        kit: admin.partner.app.partnerKit,
        adminKey: 'short',
      }),
    ConfigurationError,
  );
});

test('a canceled payment is terminal, with its reason in the audit; canceling again changes nothing [ST4 RU2]', async (t) => {
  const admin = await startAdmin(t, { holdMs: 600_000 });
  await admin.partner.call('PUT', paymentPath('p'), { body: instruction() });
  const path = '/payments/p/cancel';
  const first = await admin.call('POST', path, { reason: 'asked by the customer' });
  assert.deepEqual([first.status, first.body['status']], [200, 'canceled']);
  const again = await admin.call('POST', path, { reason: 'again' });
  assert.deepEqual([again.status, again.text], [first.status, first.text]);
  assert.deepEqual((await admin.partner.call('GET', paymentPath('p'))).body, first.body);
  assert.deepEqual(
    await admin.database.query(
      'SELECT platform_payment_id, actor, event, detail FROM duebridge_partner.payment_audit',
    ),
    [
      {
        platform_payment_id: 'p',
        actor: 'operator',
        event: 'canceled',
        detail: { reason: 'asked by the customer' },
      },
    ],
  );
  const unknown = await admin.call('POST', '/payments/q/cancel', { reason: 'x' });
  assert.deepEqual([unknown.status, unknown.body['code']], [404, 'PAYMENT_NOT_FOUND']);
  for (const body of [{}, { reason: '' }, { reason: ' ' }, { reason: 'x', force: true }]) {
    assert.equal((await admin.call('POST', path, body)).status, 400);
  }
});

test('the list shows every payment once, newest first, page by page, filtered as requested [PF3 PF4]', async (t) => {
  const admin = await startAdmin(t, { holdMs: 600_000 });
  const ids = Array.from({ length: 25 }, (_, index) => `p-${index}`);
  await Promise.all(
    ids.map((id, index) =>
      admin.partner.call('PUT', paymentPath(id, `A-${index % 2}`), {
        body: instruction(100, `b-${index % 3}`),
      }),
    ),
  );
  await admin.call('POST', '/payments/p-7/cancel', { reason: 'x' });
  const seen: PaymentRecord[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page = await admin.call('GET', `/payments?limit=10${query}`);
    assert.deepEqual(compileCheck(KitPaymentPage).problems(page.body, 'body'), []);
    const { payments, next_cursor } = page.body as unknown as KitPaymentPage;
    seen.push(...payments);
    cursor = next_cursor;
  }
  assert.deepEqual(seen.map((payment) => payment.platform_payment_id).sort(), ids.toSorted());
  const times = seen.map(({ initiated_at }) => initiated_at);
  assert.deepEqual(times, times.toSorted().toReversed());
  const count = async (query: string): Promise<number> => {
    const { body } = await admin.call('GET', `/payments?${query}`);
    return (body['payments'] as unknown[]).length;
  };
  assert.equal(await count('status=canceled'), 1);
  assert.equal(await count('status=succeeded'), 0);
  assert.equal(await count('account_id=A-0&biller_id=acme'), 13);
  assert.equal(await count('platform_batch_id=b-0&account_id=A-1'), 4);
  for (const query of [
    'limit=0',
    'limit=1001',
    'status=done',
    'cursor=x',
    'staus=failed',
    'cursor=2026-13-01T00:00:00.000Z_p',
    'cursor=2026-02-31T00:00:00.000Z_p',
  ]) {
    assert.equal((await admin.call('GET', `/payments?${query}`)).status, 400, query);
  }
});

test('a batch has the statement that the platform reads, and a file of the same digest [PF3]', async (t) => {
  const admin = await startAdmin(t);
  await haveAccounts(admin.database);
  const put = (id: string, batch: string): Promise<unknown> =>
    admin.partner.call('PUT', paymentPath(id), { body: instruction(100, batch) });
  await Promise.all(Array.from({ length: 23 }, (_, index) => put(`p-${index}`, `b-${index % 5}`)));
  for (let index = 0; index < 23; index += 1) await ended(admin.partner, `p-${index}`);

  const here = await admin.call<BatchStatement>('GET', '/batches/b-1');
  const there = await admin.partner.call('GET', '/batch/b-1');
  assert.deepEqual(here.body, there.body);
  const { text: file } = await admin.call('GET', '/batches/b-1/lines');
  const [head = '', ...lines] = file.split(/(?<=\n)/);
  assert.equal(head, 'platform_payment_id,status,amount_in_cents\n');
  assert.equal(lines.length, here.body.count);
  assert.equal(createHash('sha256').update(lines.join('')).digest('hex'), here.body.sha256);

  assert.equal((await admin.call('GET', '/batches/b-9')).status, 404);
  assert.equal((await admin.call('GET', '/batches/b-9/lines')).status, 404);
});

test('an operator ends a payment held in another system, once, with the reason in the audit [ST2 ST3 ST4 RU2]', async (t) => {
  const accounts: AccountsInOwnSystem = {
    posts: 'in_own_system',
    findAccount: (biller_id, account_id) =>
      Promise.resolve({ biller_id, account_id, status: 'active' as const }),
    post: (payments) => Promise.resolve(payments.map(() => ({ outcome: 'later' as const }))),
  };
  const admin = await startAdmin(t, { accounts });
  for (const id of ['p-1', 'p-2', 'p-3']) {
    await admin.partner.call('PUT', paymentPath(id), { body: instruction() });
  }
  const settle = (id: string, body: object) =>
    admin.call<{ status: string; posted_at: string | null; code: string }>(
      'POST',
      `/payments/${id}/settle`,
      { reason: 'ticket 7', ...body },
    );
  for (const bad of [
    { outcome: 'later' },
    { outcome: 'failed' },
    { outcome: 'posted', failure_reason: 'x' },
    { outcome: 'canceled', posted_at: '2026-03-01T09:30:00Z' },
    { outcome: 'posted', reason: '' },
  ]) {
    assert.equal((await settle('p-1', bad)).status, 400, JSON.stringify(bad));
  }
  const posted = await settle('p-1', { outcome: 'posted' });
  assert.deepEqual([posted.status, posted.body.status], [200, 'succeeded']);
  assert.deepEqual((await settle('p-1', { outcome: 'posted' })).body, posted.body);
  const contradiction = await settle('p-1', { outcome: 'canceled' });
  assert.deepEqual([contradiction.status, contradiction.body.code], [409, 'CONFLICT']);
  const failed = await settle('p-2', { outcome: 'failed', failure_reason: 'The account moved.' });
  assert.equal(failed.body.status, 'failed');
  assert.equal((await settle('p-3', { outcome: 'canceled' })).body.status, 'canceled');
  assert.equal((await settle('p-4', { outcome: 'posted' })).status, 404);
  assert.deepEqual((await admin.partner.call('GET', paymentPath('p-1'))).body, posted.body);

  interface Detail {
    readonly audit: { event: string; actor: string; detail: Record<string, unknown> }[];
  }
  const shown = await admin.call<Detail>('GET', '/payments/p-1');
  assert.deepEqual(
    shown.body.audit.map(({ event, actor, detail }) => [event, actor, detail['reason']]),
    [
      ['contradicted', 'operator', 'ticket 7'],
      ['settled', 'operator', 'ticket 7'],
    ],
  );
});
