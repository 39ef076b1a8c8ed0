import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { until } from '@duebridge/runtime/testing';
import { ended, instruction, kitDatabase, paymentPath, startKit } from '../../test/kit.ts';
import { waterworks } from './own-accounts.ts';

test('a biller’s own tables take the place of the ledger: found, read, paid once, refused when closed [S2 B1 B2 ST2 ST3]', async (t) => {
  const database = await kitDatabase(t);
  await database.query(await readFile(new URL('./own-accounts.sql', import.meta.url), 'utf8'));
  await database.query(
    `INSERT INTO waterworks.customers VALUES (4711, 'Grace Hopper', false, 120.55, '2026-12-24'), (4712, 'Gone Away', true, 10, '2026-01-01')`,
  );
  const partner = await startKit(database, { accounts: waterworks(database) });
  const account = await partner.call('GET', '/biller/waterworks/account/4711');
  assert.deepEqual(account.body, {
    biller_id: 'waterworks',
    account_id: '4711',
    status: 'active',
    balance: { amount_due_in_cents: 12_055, due_date: '2026-12-24' },
    payment_rules: {},
  });
  for (const unknown of ['/biller/waterworks/account/04711', '/biller/acme/account/4711']) {
    assert.equal((await partner.call('GET', unknown)).status, 404);
  }
  const path = (id: string, no = '4711'): string => paymentPath(id, no, 'waterworks');
  await Promise.all(
    Array.from({ length: 30 }, (_, index) =>
      partner.call('PUT', path(`p-${index % 3}`), { body: instruction(1_001) }),
    ),
  );
  await partner.call('PUT', path('closed', '4712'), { body: instruction() });
  await partner.call('PUT', path('nobody', 'x'), { body: instruction() });
  for (const id of ['p-0', 'p-1', 'p-2']) {
    assert.equal((await ended(partner, id, path(id))).body['status'], 'succeeded');
  }
  assert.equal((await ended(partner, 'closed', path('closed', '4712'))).body['status'], 'failed');
  assert.equal((await ended(partner, 'nobody', path('nobody', 'x'))).body['status'], 'failed');
  const balance = await partner.call('GET', '/biller/waterworks/account/4711/balance');
  assert.equal(balance.body['amount_due_in_cents'], 12_055 - 3 * 1_001);
  assert.equal((await database.query('SELECT 1 FROM waterworks.receipts')).length, 3);
});

test('account limits apply, and existing receipts are not repeated [FR1 PF2 PF8]', async (t) => {
  const database = await kitDatabase(t);
  await database.query(await readFile(new URL('./own-accounts.sql', import.meta.url), 'utf8'));
  await database.query(
    `INSERT INTO waterworks.customers VALUES (1, 'Grace Hopper', false, 100, '2026-12-24', 5, 50)`,
  );
  await database.query(
    `INSERT INTO waterworks.receipts VALUES ('booked', 1, 20, now() + interval '1 minute')`,
  );
  const partner = await startKit(database, { accounts: waterworks(database) });
  const pay = async (id: string, cents: number) => {
    const path = paymentPath(id, '1', 'waterworks');
    await partner.call('PUT', path, { body: instruction(cents) });
    return (await ended(partner, id, path)).body;
  };
  assert.match(String((await pay('small', 499))['failure_reason']), /minimum/);
  assert.match(String((await pay('large', 5_001))['failure_reason']), /maximum/);
  assert.equal((await pay('good', 500))['status'], 'succeeded');
  // Booked before, by a kit that crashed or by the former server: final, and not booked twice.
  assert.equal((await pay('booked', 2_000))['status'], 'succeeded');
  const balance = await partner.call('GET', '/biller/waterworks/account/1/balance');
  assert.equal(balance.body['amount_due_in_cents'], 9_500);
});

test('a posting waits while an account is being closed, and then fails [FR1 ST3]', async (t) => {
  const database = await kitDatabase(t);
  await database.query(await readFile(new URL('./own-accounts.sql', import.meta.url), 'utf8'));
  await database.query(
    `INSERT INTO waterworks.customers VALUES (1, 'Grace Hopper', false, 100, '2026-12-24')`,
  );
  const posting = {
    platform_payment_id: 'p-1',
    payment_id: 'there-p-1',
    platform_batch_id: 'batch-1',
    biller_id: 'waterworks',
    account_id: '1',
    amount_in_cents: 500,
    initiated_at: '2026-06-01T12:00:00.000Z',
  };
  // A clerk closes the account; the payment arrives before that is committed.
  const posted = await database.transaction(async (clerk) => {
    await clerk.query('UPDATE waterworks.customers SET closed = true WHERE customer_no = 1');
    const outcome = database.transaction((tx) => waterworks(database).post([posting], tx));
    const isWaiting = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await until('the posting waits', async () => (await database.query(isWaiting)).length > 0);
    return { outcome };
  });
  assert.deepEqual(
    (await posted.outcome).map(({ outcome }) => outcome),
    ['failed'],
  );
  assert.equal((await database.query('SELECT 1 FROM waterworks.receipts')).length, 0);
});

test('the example is as short as the documentation says', async () => {
  const text = await readFile(new URL('./own-accounts.ts', import.meta.url), 'utf8');
  assert.ok(text.split('\n').length <= 100);
});
