/** A day of the kit's operator: batches, payments that another system ended, and their audit. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import type { BatchStatement } from '@duebridge/contract';
import type { AccountsInOwnSystem } from './account-system.ts';
import { ended, haveAccounts, instruction, paymentPath, startAdmin } from '../test/kit.ts';

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
