/**
 * The kit in somebody else's database, with names and defaults that it did not choose. test/grants.test.ts has its limited role,
 * test/pooler.full.test.ts a pooler.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { openDatabase } from '@duebridge/runtime';
import { emptyDatabase, testServer } from '@duebridge/runtime/testing';
import { importAccounts } from './ledger.ts';
import { startPartner } from './server.ts';
import { instruction, paymentPath, testAccount, TEST_KEY, withKey } from '../test/kit.ts';

test('a kit is migrated and serves among tables of the same names, in Berlin, at serializable [B4 PF7 PF8]', async (t) => {
  const server = await testServer();
  const { url, drop } = await emptyDatabase(server.url, 'foreign');
  t.after(async () => {
    await drop();
    await server.stop();
  });
  const owner = openDatabase({ url, applicationName: 'test', maxConnections: 1 });
  const name = new URL(url).pathname.slice(1);
  for (const [setting, value] of Object.entries({
    timezone: 'Europe/Berlin',
    default_transaction_isolation: 'serializable',
    datestyle: 'German, DMY',
    standard_conforming_strings: 'off',
  })) {
    await owner.query(`ALTER DATABASE ${name} SET ${setting} = '${value}'`);
  }
  await owner.query('CREATE TABLE payment (id integer); CREATE TABLE account (x text)');
  await owner.close();
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: url,
    adminKey: 'admin-key-of-the-tests',
    port: 0,
    adminPort: 0,
  });
  try {
    await importAccounts(partner.database, [testAccount]);
    const call = async (
      method: string,
      at: string,
      body?: string,
    ): Promise<Record<string, unknown>> => {
      const response = await fetch(`${partner.url}${at}`, {
        method,
        headers: { ...withKey, prefer: 'wait=20', 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body }),
      });
      assert.equal(response.status, 200, at);
      return (await response.json()) as Record<string, unknown>;
    };
    for (let index = 0; index < 5; index += 1) {
      const put = await call('PUT', paymentPath(`p-${index}`), instruction(100));
      assert.match(String(put['initiated_at']), /Z$/);
      const end = await call('GET', paymentPath(`p-${index}`));
      assert.equal(end['status'], 'succeeded');
      assert.ok(Math.abs(Date.parse(String(end['posted_at'])) - Date.now()) < 60_000, 'UTC');
      await call('PUT', paymentPath(`p-${index}`), instruction(200));
    }
    const account = await call('GET', '/biller/acme/account/A-1');
    assert.deepEqual((account['balance'] as { due_date: string }).due_date, '2026-12-01');
    assert.equal((await call('GET', '/batch/batch-1'))['count'], 5);
    const listed = await fetch(`${partner.adminUrl}/admin/v1/payments`, {
      headers: { authorization: 'Bearer admin-key-of-the-tests' },
    });
    assert.equal(((await listed.json()) as { payments: unknown[] }).payments.length, 5);
  } finally {
    await partner.stop();
  }
});
