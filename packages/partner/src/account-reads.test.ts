import assert from 'node:assert/strict';
import test from 'node:test';
import { AccountRecord, Balance, compileCheck, Refusal } from '@duebridge/contract';
import { DatabaseUnavailable, type Log } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { onlyServed, openAccountReads } from './account-reads.ts';
import type { AccountSystem } from './account-system.ts';
import { kitMetrics } from './metrics.ts';
import {
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
} from '../test/kit.ts';

const account = compileCheck(AccountRecord);
const balance = compileCheck(Balance);

test('an account record holds what is known of the account and nothing else [B1 AC1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(
    database,
    { min_amount_in_cents: 100, max_amount_in_cents: 5_000_000 },
    { account_id: 'bare', first_name: null, last_name: null, due_date: null, status: 'inactive' },
    { account_id: 'capped', max_amount_in_cents: 900 },
    { account_id: 'floored', min_amount_in_cents: 50 },
  );
  const partner = await startKit(database);
  const full = await partner.call('GET', '/biller/acme/account/A-1');
  assert.equal(full.status, 200);
  assert.deepEqual(account.problems(full.body, 'body'), []);
  const { last_updated_at } = full.body['balance'] as { last_updated_at: string };
  assert.deepEqual(full.body, {
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'active',
    holder: { first_name: 'Ada', last_name: 'Lovelace' },
    balance: { amount_due_in_cents: 100_000, due_date: '2026-12-01', last_updated_at },
    payment_rules: { min_amount_in_cents: 100, max_amount_in_cents: 5_000_000 },
  });
  const bare = await partner.call('GET', '/biller/acme/account/bare');
  assert.deepEqual(account.problems(bare.body, 'body'), []);
  assert.equal(bare.body['status'], 'inactive');
  assert.deepEqual(Object.keys(bare.body).sort(), ['account_id', 'balance', 'biller_id', 'status']);
  for (const [id, rules] of [
    ['capped', { max_amount_in_cents: 900 }],
    ['floored', { min_amount_in_cents: 50 }],
  ] as const) {
    const { body } = await partner.call('GET', `/biller/acme/account/${id}`);
    assert.deepEqual(body['payment_rules'], rules);
  }
});

test('an unknown account, or one of another biller, is not found [B1 B2 ER3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database);
  for (const path of [
    '/biller/acme/account/a-1',
    '/biller/other/account/A-1',
    '/biller/acme/account/A-9',
  ]) {
    for (const suffix of ['', '/balance']) {
      const answer = await partner.call('GET', path + suffix);
      assert.deepEqual([answer.status, answer.body['code']], [404, 'ACCOUNT_NOT_FOUND'], path);
    }
  }
});

test('several billers in one deployment keep their accounts apart [B1 PF2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { biller_id: 'water', amount_due_in_cents: 700 });
  const billers = [{ biller_id: 'acme' }, { biller_id: 'water', max_amount_in_cents: 600 }];
  const partner = await startKit(database, { billers });
  await partner.call('PUT', paymentPath('p', 'A-1', 'water'), { body: instruction(600) });
  await ended(partner, 'p', paymentPath('p', 'A-1', 'water'));
  await haveAccounts(database, { biller_id: 'unserved' });
  const unserved = await partner.call('GET', '/biller/unserved/account/A-1');
  assert.equal(unserved.body['code'], 'ACCOUNT_NOT_FOUND');
  const water = await partner.call('GET', '/biller/water/account/A-1/balance');
  const acme = await partner.call('GET', '/biller/acme/account/A-1/balance');
  assert.deepEqual(
    [water.body['amount_due_in_cents'], acme.body['amount_due_in_cents']],
    [100, 100_000],
  );
});

test('the balance follows a payment, and reading changes nothing [B2 S5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database);
  const path = '/biller/acme/account/A-1/balance';
  const before = await partner.call('GET', path);
  assert.deepEqual(balance.problems(before.body, 'body'), []);
  for (let read = 0; read < 5; read += 1) {
    assert.deepEqual((await partner.call('GET', path)).body, before.body);
  }
  await partner.call('PUT', paymentPath('p'), { body: instruction(40_000) });
  await ended(partner, 'p');
  assert.equal((await partner.call('GET', path)).body['amount_due_in_cents'], 60_000);
  await partner.call('PUT', paymentPath('q'), { body: instruction(70_000) });
  await ended(partner, 'q');
  assert.equal((await partner.call('GET', path)).body['amount_due_in_cents'], -10_000);
});

test('an account system may return the balance separately, or have none [B2 TR3]', async (t) => {
  const database = await kitDatabase(t);
  const record = { biller_id: 'acme', account_id: 'A-1', status: 'active' } as const;
  const accountSystem = {
    posts: 'in_transaction',
    findAccount: (_biller: string, id: string) =>
      Promise.resolve(id === 'A-1' ? record : undefined),
    post: () => Promise.resolve([]),
  } as const;
  const without = await startKit(database, { accounts: accountSystem });
  const path = '/biller/acme/account/A-1/balance';
  assert.deepEqual((await without.call('GET', path)).body, {});
  const apart = await startKit(database, {
    accounts: {
      ...accountSystem,
      findBalance: (_biller, id) =>
        Promise.resolve(id === 'A-1' ? { amount_due_in_cents: 5 } : undefined),
    },
  });
  assert.deepEqual((await apart.call('GET', path)).body, { amount_due_in_cents: 5 });
  assert.equal((await apart.call('GET', '/biller/acme/account/A-2/balance')).status, 404);
});

/** The reads of an account system; what is logged and measured is in `logged` and `measured`. */
function readsOf(accounts: Partial<AccountSystem>, billers?: readonly { biller_id: string }[]) {
  const clock = manualClock();
  const logged: unknown[] = [];
  const measured: unknown[] = [];
  const log = { error: (fields: unknown) => void logged.push(fields) } as unknown as Log;
  const metrics = {
    ...kitMetrics(undefined),
    observeCore: (operation: string, seconds: number) => void measured.push([operation, seconds]),
  };
  const lookup = onlyServed(accounts as AccountSystem, billers);
  const reads = openAccountReads({ accounts: lookup, metrics, log, clock });
  return { clock, logged, measured, reads };
}

const path = { biller_id: 'acme', account_id: 'A-1' };
const record: AccountRecord = { ...path, status: 'active' };

test('of a biller that is not served neither account nor balance is asked for, whatever the account system knows [B1 B2 PF2]', async () => {
  const asked: string[][] = [];
  const accounts = {
    findAccount: (...ids: string[]) => {
      asked.push(ids);
      return Promise.resolve(record);
    },
    findBalance: (...ids: string[]) => {
      asked.push(ids);
      return Promise.resolve({ amount_due_in_cents: 1 });
    },
  };
  const { reads } = readsOf(accounts, [{ biller_id: 'acme' }]);
  const unserved = { ...path, biller_id: 'other' };
  await assert.rejects(reads.account(unserved), { code: 'ACCOUNT_NOT_FOUND' });
  await assert.rejects(reads.balance(unserved), { code: 'ACCOUNT_NOT_FOUND' });
  assert.deepEqual(asked, []);
  assert.deepEqual(await reads.account(path), record);
  assert.deepEqual(await reads.balance(path), { amount_due_in_cents: 1 });
  assert.deepEqual(asked, [
    ['acme', 'A-1'],
    ['acme', 'A-1'],
  ]);
});

test('each read is measured in seconds, however it ends, and an invalid answer is logged by its fields [B1 B2 AC1]', async () => {
  const { clock, reads, logged, measured } = readsOf({
    async findAccount(_biller, account_id) {
      await clock.advance(1_500);
      return { ...record, ...(account_id === 'A-1' ? { status: 'gone' as 'active' } : {}) };
    },
    async findBalance() {
      await clock.advance(250);
      return { due_date: 'soon' };
    },
  });
  await clock.advance(10_000);
  const unavailable = { code: 'SERVICE_UNAVAILABLE', headers: { 'Retry-After': '5' } };
  await assert.rejects(reads.account(path), unavailable);
  await assert.rejects(reads.account({ ...path, account_id: 'A-2' }), unavailable);
  await assert.rejects(reads.balance(path), unavailable);
  assert.deepEqual(measured, [
    ['find_account', 1.5],
    ['find_account', 1.5],
    ['find_balance', 0.25],
  ]);
  const [status, other, due] = logged as { operation: string; error: string }[];
  assert.match(String(status?.error), /^find_account returned an invalid answer: account\.status /);
  assert.equal(
    other?.error,
    'find_account returned an invalid answer: account is not the one that was asked for',
  );
  assert.match(String(due?.error), /^find_balance returned an invalid answer: balance\.due_date /);
  assert.equal(due?.operation, 'find_balance');
});

test('a refusal of the account system is its own answer, and a database that is away is not blamed on it [B1 ER3 LV7]', async () => {
  for (const error of [
    new Refusal('ACCOUNT_NOT_FOUND'),
    new DatabaseUnavailable('no connection', 'not_executed'),
  ]) {
    const { reads, logged } = readsOf({ findAccount: () => Promise.reject(error) });
    await assert.rejects(reads.account(path), (thrown) => thrown === error);
    assert.deepEqual(logged, []);
  }
});

test('the account system has five seconds for a read: a customer is waiting [B1]', async () => {
  const { clock, reads, logged } = readsOf({ findAccount: () => new Promise(() => undefined) });
  let outcome = 'waits';
  reads.account(path).catch(() => (outcome = 'refused'));
  await clock.advance(4_999);
  assert.equal(outcome, 'waits');
  await clock.advance(1);
  assert.equal(outcome, 'refused');
  assert.deepEqual(logged, [
    { operation: 'find_account', error: 'find_account took longer than 5000 ms' },
  ]);
});
