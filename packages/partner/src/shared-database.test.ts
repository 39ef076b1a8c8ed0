/** The kit in somebody else's database, with names, defaults and rights that it did not choose; test/pooler.full.test.ts has a pooler. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { importAccounts } from './ledger.ts';
import { migratePartner, startPartner } from './server.ts';
import { instruction, paymentPath, testAccount, TEST_KEY, withKey } from '../test/kit.ts';

const page = path.join(import.meta.dirname, '../../..', 'docs/operations.md');

/**
 * A database with its own tables, time zone and isolation level, migrated by its owner; returns the address of the server's role.
 */
async function foreignDatabase(t: TestContext): Promise<{ url: string; owner: string }> {
  const server = await testServer();
  const name = `test_foreign_${randomBytes(6).toString('hex')}`;
  const role = `kit_${randomBytes(6).toString('hex')}`;
  const admin = openDatabase({ url: server.url, applicationName: 'test', maxConnections: 1 });
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.query(`ALTER DATABASE ${name} SET timezone = 'Europe/Berlin'`);
  await admin.query(`ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`);
  await admin.query(`ALTER DATABASE ${name} SET datestyle = 'German, DMY'`);
  await admin.query(`ALTER DATABASE ${name} SET standard_conforming_strings = off`);
  const owner = new URL(server.url);
  owner.pathname = `/${name}`;
  t.after(async () => {
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.query(`DROP ROLE IF EXISTS ${role}`);
    await admin.close();
    await server.stop();
  });
  const database = openDatabase({ url: owner.href, applicationName: 'test' });
  try {
    await database.query('CREATE TABLE payment (id integer); CREATE TABLE account (x text)');
    await migratePartner(database);
    // The grants as printed in the documentation.
    const marked = /<!-- grants of partner: begin -->\s+```sql\n([\s\S]*?)```/;
    const grants = marked.exec(await readFile(page, 'utf8'))?.[1];
    assert.ok(grants !== undefined, 'docs/operations.md shows the grants');
    await database.query(`CREATE ROLE ${role} LOGIN PASSWORD 'change-me'`);
    await database.query(grants.replaceAll('duebridge_partner_service', role));
    await importAccounts(database, [testAccount]);
  } finally {
    await database.close();
  }
  const url = new URL(owner);
  url.username = role;
  url.password = 'change-me';
  return { url: url.href, owner: owner.href };
}

/** A whole partner server without the right to create anything: everything it does for a payment. */
async function carriesOutAll(url: string): Promise<void> {
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: url,
    adminKey: 'admin-key-of-the-tests',
    migrate: false,
    port: 0,
    adminPort: 0,
  });
  try {
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
    await call('PUT', paymentPath('p-nobody', 'nobody'), instruction(100));
    const refused = await call('GET', paymentPath('p-nobody', 'nobody'));
    assert.equal(refused['status'], 'failed');
    assert.match(String(refused['failure_reason']), /\S/);
  } finally {
    await partner.stop();
  }
}

test('a role that may only read and write serves, among tables of the same names, in Berlin, at serializable [B4 PF7 PF8]', async (t) => {
  const { url } = await foreignDatabase(t);
  await carriesOutAll(url);
  const database = openDatabase({ url, applicationName: 'test' });
  t.after(() => database.close());
  await assert.rejects(database.query('CREATE TABLE duebridge_partner.more (x text)'), {
    code: '42501',
  });
  await assert.rejects(database.query('DELETE FROM duebridge_partner.payment'), { code: '42501' });
});
