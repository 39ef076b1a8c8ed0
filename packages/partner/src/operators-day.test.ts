/** A day of the kit's operator: batches, payments that another system ended, credentials that change, and their audit. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import type {
  BatchStatement,
  KitAuditPage,
  KitBatchPage,
  KitCredential,
  KitCredentialGrant,
  KitCredentialList,
} from '@duebridge/contract';
import { systemClock } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { AccountsInOwnSystem } from './account-system.ts';
import { openAuthenticator } from './auth.ts';
import { openCredentials } from './credentials.ts';
import {
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startAdmin,
  startKit,
  TEST_KEY,
  untilOneWaits,
  watchingTransactions,
  type TestPartner,
} from '../test/kit.ts';

const reason = 'a test';

test('batches are listed, with the statement that the platform reads and a file of the same digest [PF3]', async (t) => {
  const admin = await startAdmin(t);
  await haveAccounts(admin.database);
  const put = (id: string, batch: string): Promise<unknown> =>
    admin.partner.call('PUT', paymentPath(id), { body: instruction(100, batch) });
  await Promise.all(Array.from({ length: 23 }, (_, index) => put(`p-${index}`, `b-${index % 5}`)));
  for (let index = 0; index < 23; index += 1) await ended(admin.partner, `p-${index}`);

  const seen: string[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const query: string = cursor === '' ? '' : `&cursor=${cursor}`;
    const page = await admin.call<KitBatchPage>('GET', `/batches?limit=2${query}`);
    for (const batch of page.body.batches) {
      seen.push(batch.platform_batch_id);
      assert.equal(batch.amount_in_cents, batch.count * 100);
      assert.equal(batch.processing, 0);
    }
    cursor = page.body.next_cursor;
  }
  assert.deepEqual(seen, ['b-4', 'b-3', 'b-2', 'b-1', 'b-0']);

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
  assert.equal((await admin.call('GET', '/batches?cursor=a/b')).status, 400);
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

/** Reads an account with a static key; returns the status of the answer. */
const readsWithKey =
  ({ partner }: { partner: TestPartner }) =>
  async (key: string): Promise<number> => {
    const headers = { 'x-api-key': key };
    return (await partner.call('GET', '/biller/acme/account/A-1', { headers })).status;
  };

test('a static key is replaced while the server runs: both work, then only the new one [KY1 KY2]', async (t) => {
  const admin = await startAdmin(t);
  await haveAccounts(admin.database);
  const read = readsWithKey(admin);
  const list = async (): Promise<readonly KitCredential[]> =>
    (await admin.call<KitCredentialList>('GET', '/credentials')).body.credentials;
  const [first] = await list();
  assert(first);
  assert.deepEqual(
    [first.client_id, first.source, first.revoked_at],
    ['static-key', 'environment', null],
  );
  const revoke = (id: string) =>
    admin.call<KitCredential>('POST', `/credentials/${id}/revoke`, { reason });
  assert.equal((await revoke(first.credential_id)).status, 409, 'the last one stays');
  assert.equal((await revoke('0123456789abcdef')).status, 404);

  const issue = () =>
    admin.call<KitCredentialGrant>('POST', '/clients/static-key/credentials', { reason });
  const { body: grant } = await issue();
  assert.deepEqual([await read(TEST_KEY), await read(grant.secret)], [200, 200]);
  assert.equal((await revoke(first.credential_id)).status, 200);
  assert.deepEqual([await read(TEST_KEY), await read(grant.secret)], [401, 200]);
  assert.notEqual(
    (await revoke(first.credential_id)).body.revoked_at,
    null,
    'a repeat is harmless',
  );
  // This applies to a replica that starts now, whatever its environment still contains.
  const authenticator = openAuthenticator({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    database: admin.database,
    clock: systemClock,
  });
  await assert.rejects(async () => authenticator.authenticate({ 'x-api-key': TEST_KEY }, 'read'));

  assert.equal((await admin.call('POST', '/clients/nobody/credentials', { reason })).status, 404);
  for (let count = 0; count < 4; count += 1) assert.equal((await issue()).status, 200);
  assert.equal((await issue()).status, 409, 'five at a time');
  // A change of one leaves it at its place in the list.
  const order = async (): Promise<string[]> => (await list()).map((one) => one.credential_id);
  const before = await order();
  assert.equal(before[0], first.credential_id);
  assert.equal((await revoke(grant.credential_id)).status, 200);
  assert.deepEqual(await order(), before);
  const shown = JSON.stringify([await list(), (await admin.call('GET', '/audit')).body]);
  assert(!shown.includes(grant.secret) && !shown.includes(TEST_KEY));
});

test('of the last two keys of a client, revoked at once, one stays: the platform is not cut off [KY1]', async (t) => {
  const database = await kitDatabase(t);
  const bothHaveRead = Promise.withResolvers<void>();
  let reads = 0;
  const held = watchingTransactions(
    database,
    () => undefined,
    async (statement) => {
      if (typeof statement !== 'string' && statement.name === 'kit_credentials') reads += 1;
      // The first goes on once the second has read the same, or waits for it.
      if (reads === 1) await Promise.race([untilOneWaits(database), bothHaveRead.promise]);
      else if (reads > 1) bothHaveRead.resolve();
    },
  );
  const credentials = openCredentials({
    configured: new Map([['static-key', [TEST_KEY, `${TEST_KEY} of the rotation`]]]),
    database: held,
    clock: systemClock,
  });
  const ids = (await credentials.list()).map((one) => one.credential_id);
  const outcomes = await Promise.allSettled(
    ids.map((id) => credentials.revoke(id, 'operator', reason)),
  );
  assert.deepEqual(outcomes.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  assert.equal((await credentials.valid()).get('static-key')?.length, 1);
});

test('a key that was issued for some days ends with them, warns before, and makes room [KY1]', async (t) => {
  const admin = await startAdmin(t);
  await haveAccounts(admin.database);
  const read = readsWithKey(admin);
  const issue = (valid_for_days?: number) =>
    admin.call<KitCredentialGrant>('POST', '/clients/static-key/credentials', {
      reason,
      ...(valid_for_days === undefined ? {} : { valid_for_days }),
    });
  assert.equal((await issue(0)).status, 400);
  const { body: grant } = await issue(10);
  assert.ok(grant.expires_at !== null);
  const { body: list } = await admin.call<KitCredentialList>('GET', '/credentials');
  const [first] = list.credentials;
  assert.deepEqual(
    list.credentials.map((one) => one.expires_at),
    [null, grant.expires_at],
  );
  // With the environment's key, which has no end, there is nothing to warn of.
  const clock = manualClock();
  const credentials = openCredentials({
    configured: new Map([['static-key', [TEST_KEY]]]),
    database: admin.database,
    clock,
  });
  await credentials.valid();
  assert.equal(credentials.ending(), 0);
  await admin.call('POST', `/credentials/${first?.credential_id ?? ''}/revoke`, { reason });
  await clock.advance(5_000);
  await credentials.valid();
  assert.equal(credentials.ending(), 1);
  assert.equal(await read(grant.secret), 200);

  await admin.database.query(
    `UPDATE duebridge_partner.credential SET expires_at = now() WHERE source = 'issued'`,
  );
  const { body: next } = await issue();
  assert.deepEqual([await read(grant.secret), await read(next.secret)], [401, 200]);
  // The expired one is not the last valid one, although only one is valid: it may be revoked.
  const revoke = (id: string) => admin.call('POST', `/credentials/${id}/revoke`, { reason });
  assert.equal((await revoke(next.credential_id)).status, 409);
  assert.equal((await revoke(grant.credential_id)).status, 200);
  await clock.advance(5_000);
  await credentials.valid();
  assert.equal(credentials.ending(), 0);
});

test('a client secret is replaced and tokens are ended while the server runs, everywhere within five seconds [OA1 OA3]', async (t) => {
  const old = 'a-client-secret-of-the-tests';
  const auth = { method: 'oauth', clients: [{ client_id: 'platform', secrets: [old] }] } as const;
  const admin = await startAdmin(t, { auth });
  const other = await startKit(admin.database, { auth });
  await haveAccounts(admin.database);
  const token = async (at: TestPartner, client_secret: string): Promise<string | undefined> => {
    const body = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: 'platform',
      client_secret,
    }).toString();
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    return (await at.call('POST', '/oauth/token', { headers, body })).body['access_token'] as
      string | undefined;
  };
  const read = async (at: TestPartner, access_token: string | undefined): Promise<number> => {
    const headers = { authorization: `Bearer ${access_token ?? ''}` };
    return (await at.call('GET', '/biller/acme/account/A-1', { headers })).status;
  };
  const held = await token(other, old);
  assert.equal(await read(other, held), 200);
  const { body: grant } = await admin.call<KitCredentialGrant>(
    'POST',
    '/clients/platform/credentials',
    { reason },
  );
  const { body: list } = await admin.call<KitCredentialList>('GET', '/credentials');
  const before = list.credentials.find(({ source }) => source === 'environment');
  await admin.call('POST', `/credentials/${before?.credential_id ?? ''}/revoke`, { reason });
  assert.equal(await token(admin.partner, old), undefined);
  assert.equal(typeof (await token(admin.partner, grant.secret)), 'string');
  // A token outlives the secret that obtained it, until its client's tokens are revoked.
  assert.equal(await read(other, held), 200);
  const ended = await admin.call<{ tokens_revoked: number }>(
    'POST',
    '/clients/platform/revoke-tokens',
    { reason },
  );
  assert.equal(ended.body.tokens_revoked, 2);
  const until = performance.now() + 60_000;
  const holds = async (): Promise<boolean> =>
    (await read(other, held)) === 401 && (await token(other, old)) === undefined;
  while (!(await holds())) {
    assert(performance.now() < until, 'a revocation reaches the other replica');
    await new Promise((resolve) => setTimeout(resolve, 200));
  }

  const { body: audit } = await admin.call<KitAuditPage>('GET', '/audit?limit=2');
  assert.deepEqual(
    audit.entries.map(({ event, actor }) => [event, actor]),
    [
      ['tokens_revoked', 'operator'],
      ['credential_revoked', 'operator'],
    ],
  );
  const next = await admin.call<KitAuditPage>('GET', `/audit?cursor=${audit.next_cursor ?? ''}`);
  assert.deepEqual(
    next.body.entries.map(({ event }) => event),
    ['credential_issued'],
  );
});
