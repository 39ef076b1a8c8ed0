import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import test, { after } from 'node:test';
import { Refusal } from '@duebridge/contract';
import { silentLog, type Database } from '@duebridge/runtime';
import { manualClock, testDatabase, until } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { openClientKeys, type ClientKeys } from './keys.ts';

const database = await testDatabase({ after }, { migrations, name: 'keys' });
const pepper = createSecretKey(Buffer.alloc(32, 7));
const clock = manualClock();
const open = (under = pepper): ClientKeys =>
  openClientKeys({ database, pepper: under, clock, log: silentLog });

let partners = 0;
async function newPartner(): Promise<string> {
  partners += 1;
  const partner_id = `p${partners}`;
  await database.query(
    `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed)
     VALUES ($1, 'P', 'biller', 'b', 'https://p.example', 'key', '{}', 'x')`,
    [partner_id],
  );
  return partner_id;
}

/** The code of the Refusal that a promise ends with. */
async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'none',
    (error: unknown) => {
      assert.ok(error instanceof Refusal, String(error));
      return error.code;
    },
  );
}

test('a database that leaks gives nobody a key: only a digest under the pepper is stored', async () => {
  const keys = open();
  const { client_id, api_key } = await keys.issue(await newPartner(), undefined, 'test');
  assert.match(api_key, /^dbk_live_[A-Za-z0-9_-]{48}$/);
  const rows = await database.query(
    'SELECT * FROM duebridge_platform.client_keys WHERE client_id = $1',
    [client_id],
  );
  assert.equal(rows.length, 1);
  assert.ok(!JSON.stringify(rows).includes(api_key));
  const elsewhere = open(createSecretKey(Buffer.alloc(32, 8)));
  assert.equal(await codeOf(elsewhere.verify(client_id, api_key)), 'UNAUTHORIZED');
});

test('a key is rotated without a gap: two are active, a third is refused until one is revoked [AU1]', async () => {
  const keys = open();
  const partner_id = await newPartner();
  const old = await keys.issue(partner_id, undefined, 'test');
  const fresh = await keys.issue(partner_id, old.client_id, 'test');
  assert.equal(fresh.client_id, old.client_id);
  await keys.verify(old.client_id, old.api_key);
  await keys.verify(old.client_id, fresh.api_key);
  assert.equal(await codeOf(keys.issue(partner_id, old.client_id, 'test')), 'CONFLICT');
  await keys.revoke(partner_id, old.key_id, 'test');
  assert.equal(await codeOf(keys.verify(old.client_id, old.api_key)), 'UNAUTHORIZED');
  await keys.verify(old.client_id, fresh.api_key);
  const third = await keys.issue(partner_id, old.client_id, 'test');
  await keys.verify(old.client_id, third.api_key);
  await keys.verify(old.client_id, fresh.api_key);
});

test('an API key works until it expires, then makes room for the next one [AU1]', async () => {
  const keys = open();
  const partner_id = await newPartner();
  const first = await keys.issue(partner_id, undefined, 'test', 30);
  const { client_id } = first;
  const [now] = await database.query<{ now: string }>('SELECT now() AS now');
  const days = (Date.parse(String(first.expires_at)) - Date.parse(String(now?.now))) / 86_400_000;
  assert.ok(days > 29.9 && days <= 30, `expires in ${days} days`);
  await keys.verify(client_id, first.api_key);
  const second = await keys.issue(partner_id, client_id, 'test');
  assert.equal(second.expires_at, null);
  assert.equal(await codeOf(keys.issue(partner_id, client_id, 'test')), 'CONFLICT');

  await database.query(
    `UPDATE duebridge_platform.client_keys SET expires_at = now() WHERE key_id = $1`,
    [first.key_id],
  );
  // Keys are cached for five seconds.
  await clock.advance(5_000);
  assert.equal(await codeOf(keys.verify(client_id, first.api_key)), 'UNAUTHORIZED');
  await keys.verify(client_id, second.api_key);
  const other = await newPartner();
  assert.equal(await codeOf(keys.issue(other, client_id, 'test')), 'NOT_FOUND');
  const third = await keys.issue(partner_id, client_id, 'test', 1);
  await keys.verify(client_id, third.api_key);
  await keys.verify(client_id, second.api_key);
  const [ended] = await keys.list(partner_id);
  assert.equal(ended?.revoked_at, ended?.expires_at);
});

test('ten operators who issue at once leave two keys, never three [AU1]', async () => {
  const keys = open();
  const partner_id = await newPartner();
  const { client_id } = await keys.issue(partner_id, undefined, 'test');
  const results = await Promise.all(
    Array.from({ length: 10 }, () => codeOf(keys.issue(partner_id, client_id, 'test'))),
  );
  assert.equal(results.filter((code) => code === 'none').length, 1);
  assert.equal(results.filter((code) => code === 'CONFLICT').length, 9);
});

test('a key revoked at another replica is refused here within five seconds [AU1 F95]', async () => {
  const [here, there] = [open(), open()];
  const partner_id = await newPartner();
  const { client_id, api_key, key_id } = await there.issue(partner_id, undefined, 'test');
  await here.verify(client_id, api_key);
  await there.revoke(partner_id, key_id, 'test');
  assert.equal(await codeOf(there.verify(client_id, api_key)), 'UNAUTHORIZED');
  await clock.advance(4_999);
  await here.verify(client_id, api_key);
  await clock.advance(1);
  assert.equal(await codeOf(here.verify(client_id, api_key)), 'UNAUTHORIZED');
});

test('a wrong key costs as much as a right one: the same number of queries, cached or not [AU1]', async () => {
  let asked = 0;
  const counting: Database = {
    ...database,
    query(statement, values) {
      if (typeof statement !== 'string' && statement.text.includes('LEFT JOIN')) asked += 1;
      return database.query(statement, values);
    },
  };
  const { client_id, api_key } = await open().issue(await newPartner(), undefined, 'test');
  const costs = [];
  for (const given of [api_key, 'dbk_wrong', '', undefined]) {
    const keys = openClientKeys({ database: counting, pepper, clock, log: silentLog });
    asked = 0;
    await keys.verify(client_id, given).catch(() => undefined);
    const cold = asked;
    await keys.verify(client_id, given).catch(() => undefined);
    costs.push([cold, asked - cold]);
  }
  assert.deepEqual(costs.map(String), Array(4).fill('1,0'));
});

test('nobody issues or revokes for another partner', async () => {
  const keys = open();
  const [a, b] = [await newPartner(), await newPartner()];
  const { client_id, key_id, api_key } = await keys.issue(a, undefined, 'test');
  assert.equal(await codeOf(keys.issue(b, client_id, 'test')), 'NOT_FOUND');
  assert.equal(await codeOf(keys.issue('nobody', undefined, 'test')), 'NOT_FOUND');
  assert.equal(await codeOf(keys.revoke(b, key_id, 'test')), 'NOT_FOUND');
  assert.equal(await codeOf(keys.revoke(a, 'key_\0', 'test')), 'NOT_FOUND');
  await keys.verify(client_id, api_key);
  assert.deepEqual(await keys.list(b), []);
});

test('an operator sees which key is in use, and every issue and revocation is in the audit', async () => {
  const keys = open();
  const partner_id = await newPartner();
  const { client_id, api_key, key_id } = await keys.issue(partner_id, undefined, 'ann');
  assert.equal((await keys.list(partner_id))[0]?.last_used_at, null);
  await keys.verify(client_id, api_key);
  await until('its use is written', async () => {
    return (await keys.list(partner_id))[0]?.last_used_at !== null;
  });
  const revoked = await keys.revoke(partner_id, key_id, 'ben');
  assert.equal((await keys.revoke(partner_id, key_id, 'cid')).revoked_at, revoked.revoked_at);
  const audit = await database.query(
    'SELECT actor, event, detail FROM duebridge_platform.audit WHERE partner_id = $1 ORDER BY at',
    [partner_id],
  );
  const detail = { client_id, key_id };
  assert.deepEqual(audit, [
    { actor: 'ann', event: 'key_issued', detail },
    { actor: 'ben', event: 'key_revoked', detail },
  ]);
});
