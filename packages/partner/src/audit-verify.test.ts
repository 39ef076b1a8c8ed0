/** The kit's operator verifies the seals over its audit (decision 135). */
import assert from 'node:assert/strict';
import test from 'node:test';
import { AuditChain } from '@duebridge/runtime';
import { force, until } from '@duebridge/runtime/testing';
import { partnerCommand } from './main.ts';
import { startPartner } from './server.ts';
import { auditTables } from './store.ts';
import {
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  TEST_KEY,
  withKey,
} from '../test/kit.ts';

test('the audit of a payment is sealed, and a removed line is detected [EE8]', async (t) => {
  const database = await kitDatabase(t, 'seals');
  await haveAccounts(database);
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: database.url,
    adminKey: 'an-admin-key-of-the-test',
    port: 0,
    adminPort: 0,
  });
  database.closing(() => partner.stop());
  const run = async (...words: string[]): Promise<string> => {
    let out = '';
    const command = partnerCommand({
      env: { DUEBRIDGE_ADMIN_URL: partner.adminUrl, DUEBRIDGE_ADMIN_KEY: partner.adminKey },
      stdin: (async function* () {})(),
      write: (text) => {
        out += text;
      },
    });
    await command.parseAsync(words, { from: 'user' });
    return out;
  };

  // A repeat with another amount is recorded (decision 9).
  for (const amount of [100, 200, 300]) {
    const put = await fetch(`${partner.url}${paymentPath('p')}`, {
      method: 'PUT',
      headers: { ...withKey, 'content-type': 'application/json' },
      body: instruction(amount),
    });
    assert.equal(put.status, 200);
  }
  const chain = new AuditChain({ database, tables: auditTables, marginMs: 0 });
  await until('the lines are sealed', async () => {
    await chain.seal();
    return (await chain.verify(0, 50)).lines >= 2;
  });
  const said = await run('audit', 'verify');
  assert.match(said, /^The audit is intact: 2 lines under \d+ seals?, 0 not sealed yet\.\n/);
  const seal = /Newest seal: (\S+), up to /.exec(said)?.[1] ?? '';
  assert.match(await run('audit', 'verify', '--expect', seal), /^The audit is intact/);
  const json = JSON.parse(await run('audit', 'verify', '--json')) as Record<string, unknown>;
  assert.deepEqual([json['lines'], json['broken']], [2, null]);

  await force(
    database,
    `DELETE FROM duebridge_partner.payment_audit WHERE detail ->> 'amount_in_cents' = '300'`,
  );
  await assert.rejects(run('audit', 'verify'), {
    exitCode: 1,
    message: /^the audit is broken at seal \d+: a line after \S+ was removed$/,
  });
});
