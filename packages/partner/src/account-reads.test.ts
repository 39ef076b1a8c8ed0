import assert from 'node:assert/strict';
import test from 'node:test';
import { AccountRecord, compileCheck, Refusal } from '@duebridge/contract';
import { DatabaseUnavailable, type Log } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { openAccountReads } from './account-reads.ts';
import type { AccountSystem } from './account-system.ts';
import { kitMetrics } from './metrics.ts';
import { haveAccounts, kitDatabase, startKit } from '../test/kit.ts';

const account = compileCheck(AccountRecord);

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
  const { findAccount = () => Promise.resolve(undefined) } = accounts;
  const reads = openAccountReads({ accounts: { findAccount }, billers, metrics, log, clock });
  return { clock, logged, measured, reads };
}

const path = { biller_id: 'acme', account_id: 'A-1' };
const record: AccountRecord = { ...path, status: 'active' };

test('of a biller that is not served no account is asked for; an account without a balance has an empty one [B1 B2 TR3 PF2]', async () => {
  const asked: string[] = [];
  const findAccount = (biller_id: string): Promise<AccountRecord> => {
    asked.push(biller_id);
    return Promise.resolve(record);
  };
  const { reads } = readsOf({ findAccount }, [{ biller_id: 'acme' }]);
  const unserved = { ...path, biller_id: 'other' };
  await assert.rejects(reads.account(unserved), { code: 'ACCOUNT_NOT_FOUND' });
  await assert.rejects(reads.balance(unserved), { code: 'ACCOUNT_NOT_FOUND' });
  assert.deepEqual(asked, []);
  assert.deepEqual([await reads.account(path), await reads.balance(path)], [record, {}]);
});

test('each read is measured in seconds, however it ends, and an invalid answer is logged by its fields [B1 B2 AC1]', async () => {
  const { clock, reads, logged, measured } = readsOf({
    async findAccount(_biller, account_id) {
      await clock.advance(1_500);
      return { ...record, ...(account_id === 'A-1' ? { status: 'gone' as 'active' } : {}) };
    },
  });
  await clock.advance(10_000);
  const unavailable = { code: 'SERVICE_UNAVAILABLE', headers: { 'Retry-After': '5' } };
  await assert.rejects(reads.account(path), unavailable);
  await assert.rejects(reads.account({ ...path, account_id: 'A-2' }), unavailable);
  assert.deepEqual(measured, [
    ['find_account', 1.5],
    ['find_account', 1.5],
  ]);
  const [status, other] = logged as { operation: string; error: string }[];
  assert.match(String(status?.error), /^find_account returned an invalid answer: account\.status /);
  assert.equal(
    other?.error,
    'find_account returned an invalid answer: account is not the one that was asked for',
  );
});

test('an answer that is no record of this account, and an error, say nothing of the account: 503 [B1 B2 AC1 ER3]', async () => {
  const answers: Record<string, () => unknown> = {
    'no record': () => 'A-1',
    'cents as text': () => ({ ...record, balance: { amount_due_in_cents: '100' } }),
    'half a cent': () => ({ ...record, balance: { amount_due_in_cents: 0.5 } }),
    'another account': () => ({ ...record, account_id: 'a-1' }),
    'another biller': () => ({ ...record, biller_id: 'other' }),
    'an error': () => Promise.reject(new Error('the core is down')),
    'a throw': () => {
      throw new TypeError('a bug');
    },
  };
  for (const [name, answer] of Object.entries(answers)) {
    const { reads } = readsOf({ findAccount: answer as AccountSystem['findAccount'] });
    for (const read of [reads.account(path), reads.balance(path)]) {
      await assert.rejects(read, { code: 'SERVICE_UNAVAILABLE' }, name);
    }
  }
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
