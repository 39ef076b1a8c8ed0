import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { ended, instruction, kitDatabase, paymentPath, startKit } from '../testing.ts';
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

test('the example is as short as it is said to be', async () => {
  const text = await readFile(new URL('./own-accounts.ts', import.meta.url), 'utf8');
  assert.ok(text.split('\n').length <= 60);
});
