/**
 * Payments to accounts in the kit's own database, on a real one: posting and status in one commit, what other sessions lock, and errors
 * that say nothing about a payment. posting.test.ts has how long payments wait beside others, in virtual time.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable, type Database, type Transaction } from '@duebridge/runtime';
import { holdLock, manualClock, until } from '@duebridge/runtime/testing';
import type { AccountsInTransaction } from './account-system.ts';
import { readRules } from './business-rules.ts';
import { ledger } from './ledger.ts';
import { kitMetrics, type KitMetrics } from './metrics.ts';
import { inTransaction } from './post-in-transaction.ts';
import { Posting, type Tried } from './posting.ts';
import type { PaymentRow } from './store.ts';
import { accepted, haveAccounts, kitDatabase } from '../test/kit.ts';

function posterOn(
  database: Database,
  accounts: Partial<AccountsInTransaction> = {},
  clock = manualClock(),
) {
  const figures = new Map<string, () => number>();
  const metrics: KitMetrics = {
    ...kitMetrics(undefined),
    watch: (name, value) => void figures.set(name, value),
  };
  const way = inTransaction({
    database,
    accounts: { ...ledger(database), ...accounts },
    rules: readRules([{ biller_id: 'acme', max_amount_in_cents: 100 }]),
    announce: () => undefined,
    metrics,
    clock,
  });
  const poster = new Posting(way, { clock, metrics });
  return {
    poster,
    post: (row: PaymentRow, isRepeat = false): Promise<Tried> => poster.post({ ...row }, isRepeat),
    /** How many accounts are suspected. */
    locked: () => figures.get('locked_accounts')?.(),
  };
}

const statuses = async (database: Database): Promise<Record<string, string>> => {
  const rows = await database.query<{ id: string; status: string }>(
    'SELECT platform_payment_id AS id, status FROM duebridge_partner.payment',
  );
  return Object.fromEntries(rows.map(({ id, status }) => [id, status]));
};

test('payments of one turn share a transaction, in which all outcomes are stored [ST2 ST3 FR1 KT6]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const sizes: number[] = [];
  const later = '2026-01-02T00:00:00.000Z';
  const { post, poster } = posterOn(database, {
    async post(payments, tx) {
      sizes.push(payments.length);
      const due = payments.filter((payment) => payment.platform_payment_id !== 'later');
      const posted = await ledger(database).post(due, tx);
      return payments.map(
        (payment) => posted[due.indexOf(payment)] ?? { outcome: 'later', until: later },
      );
    },
  });
  const rows = [
    ...(await accepted(database, ['good', 'later'])),
    ...(await accepted(database, ['unknown'], { account_id: 'none' })),
    ...(await accepted(database, ['dear'], { amount_in_cents: 101 })),
  ];
  const tried = await Promise.all(rows.map((row) => post(row)));
  assert.deepEqual(tried.map(({ result }) => result).toSorted(), ['done', 'done', 'done', 'later']);
  assert.deepEqual(sizes, [3]);
  assert.deepEqual(await statuses(database), {
    dear: 'failed',
    good: 'succeeded',
    later: 'processing',
    unknown: 'failed',
  });
  await poster.stop();
});

test('accounts and payments that another session holds are skipped; the others of their group are posted [ST2 LV3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'locked' });
  const rows = [
    ...(await accepted(database, ['good', 'held'])),
    ...(await accepted(database, ['waits'], { account_id: 'locked' })),
  ];
  const release = [
    await holdLock(
      database.url,
      "SELECT FROM duebridge_partner.account WHERE account_id = 'locked' FOR UPDATE",
    ),
    await holdLock(
      database.url,
      "SELECT FROM duebridge_partner.payment WHERE platform_payment_id = 'held' FOR UPDATE",
    ),
  ];
  const { post, poster, locked } = posterOn(database);
  const tried = await Promise.all(rows.map((row) => post(row)));
  assert.equal(locked(), 1, 'the account of a payment that another session holds is not suspected');
  assert.deepEqual(
    Object.fromEntries(
      tried.map(({ result }, index) => [rows[index]?.platform_payment_id, result]),
    ),
    { good: 'done', held: 'busy', waits: 'locked' },
  );
  assert.deepEqual(await statuses(database), {
    good: 'succeeded',
    held: 'processing',
    waits: 'processing',
  });
  // Payments of it that come now are tried alone, and wait in vain.
  const [more] = await accepted(database, ['more'], { account_id: 'locked' });
  assert(more);
  assert.deepEqual(await post(more), { result: 'locked' });
  for (const end of release) await end();
  await poster.stop();
});

test('a transaction of the biller that takes the same accounts in another order meets no deadlock, and its payments are posted after it [ST2 LV3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const lock = (tx: Transaction, account_id: string): Promise<unknown> =>
    tx.query('SELECT FROM duebridge_partner.account WHERE account_id = $1 FOR UPDATE', [
      account_id,
    ]);
  const [jobHasOne, postingHasOne] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { post, poster } = posterOn(database, {
    async post(payments, tx) {
      await jobHasOne.promise;
      await lock(tx, payments[0]?.account_id ?? '');
      postingHasOne.resolve();
      for (const { account_id } of payments.slice(1)) await lock(tx, account_id);
      return ledger(database).post(payments, tx);
    },
  });
  let tries = 0;
  const job = database.transaction(async (tx) => {
    tries += 1;
    await lock(tx, 'A-2');
    jobHasOne.resolve();
    await postingHasOne.promise;
    await lock(tx, 'A-1');
  });
  const rows = [
    ...(await accepted(database, ['p-1'])),
    ...(await accepted(database, ['p-2'], { account_id: 'A-2' })),
  ];
  await Promise.all(rows.map((row) => post(row)));
  await job;
  assert.equal(tries, 1, 'PostgreSQL did not end the biller’s transaction');
  await Promise.all(rows.map((row) => post(row)));
  assert.deepEqual(await statuses(database), { 'p-1': 'succeeded', 'p-2': 'succeeded' });
  await poster.stop();
});

test('a posting that runs no statement is ended, one that does may be far away; alone it has more time [LV3]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  let hangs: Promise<unknown> = new Promise(() => undefined);
  const began: string[] = [];
  const { post, poster } = posterOn(
    database,
    {
      async post(payments) {
        began.push(payments.map((one) => one.platform_payment_id).join(' '));
        await hangs;
        return payments.map(() => ({ outcome: 'posted' }));
      },
    },
    clock,
  );
  const [row] = await accepted(database, ['p']);
  assert(row);
  const first = post(row);
  await until('the group', () => began.length === 1);
  await clock.advance(800);
  await until('alone', () => began.length === 2);
  await clock.advance(500);
  assert.equal((await first).result, 'failed');
  await clock.advance(500);
  const answer = Promise.withResolvers<void>();
  hangs = answer.promise;
  const second = post(row, true);
  await until('the second try', () => began.length === 3);
  await clock.advance(9_999);
  answer.resolve();
  assert.equal((await second).result, 'done');
  await poster.stop();
});

test('an outage of the database is the fault of no payment; an error of its own is [LV8 PL5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const down = new DatabaseUnavailable('the connection was lost', 'not_executed');
  let isUp = false;
  const { post, poster } = posterOn({
    ...database,
    transaction: () => Promise.reject(down),
    query: <Row>(...args: Parameters<Database['query']>) =>
      isUp ? database.query<Row>(...args) : Promise.reject(down),
  });
  const [row] = await accepted(database, ['p']);
  assert(row);
  assert.deepEqual(await post(row), { result: 'outage', error: down });
  // The database answers: the session alone was lost.
  isUp = true;
  assert.deepEqual(await post(row), { result: 'failed', error: down });
  await poster.stop();
});

test('a posting whose payment could not be ended is rolled back, never left half done [KT6]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const [row] = await accepted(database, ['p']);
  assert(row);
  const { post, poster } = posterOn(database, {
    async post(payments, tx) {
      const outcomes = await ledger(database).post(payments, tx);
      await tx.query(
        `UPDATE duebridge_partner.payment SET status = 'canceled', ended_at = clock_timestamp()`,
      );
      return outcomes;
    },
  });
  assert.equal((await post(row)).result, 'failed');
  assert.deepEqual(await statuses(database), { p: 'processing' });
  assert.deepEqual(
    await database.query(`SELECT FROM duebridge_partner.payment WHERE in_ledger`),
    [],
  );
  await poster.stop();
});

test('a payment is an entry of its account when the ledger posted it, whoever asked the ledger to [ST2 KT6 KT12]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const balance = async (): Promise<{ owed: number; entries: number } | undefined> => {
    const [row] = await database.query<{ owed: number; entries: number }>(
      `SELECT amount_due_in_cents AS owed, (SELECT sum(amount_in_cents)::int FROM duebridge_partner.movement) AS entries
         FROM duebridge_partner.account`,
    );
    return row;
  };
  const done = { outcome: 'posted' } as const;
  // An account system of the biller's own that uses the ledger for some of its payments, in words of its own.
  const { post, poster } = posterOn(database, {
    async post(payments, tx) {
      const ours = payments.filter(({ platform_payment_id: id }) => id !== 'elsewhere');
      await ledger(database).post(ours, tx);
      return payments.map(({ platform_payment_id: id }) =>
        id === 'undecided' ? { outcome: 'later' } : done,
      );
    },
  });
  const rows = await accepted(database, ['here', 'elsewhere', 'undecided']);
  const tried = await Promise.all(rows.map((row) => post(row)));
  assert.deepEqual(
    tried.map(({ result }) => result),
    ['done', 'done', 'failed'],
  );
  assert.deepEqual(
    await database.query(
      'SELECT platform_payment_id AS id FROM duebridge_partner.payment WHERE in_ledger',
    ),
    [{ id: 'here' }],
  );
  assert.deepEqual(await balance(), { owed: 99_900, entries: 99_900 });
  assert.equal((await statuses(database))['undecided'], 'processing');
  await poster.stop();
});

test('a stop gives back what waits behind a posting that hangs, and does not wait for it [LV5]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const stuck = Promise.withResolvers<never>();
  let transactions = 0;
  const { post, poster } = posterOn(
    {
      ...database,
      transaction: () => {
        transactions += 1;
        return stuck.promise;
      },
    },
    {},
    clock,
  );
  const [first, second] = await accepted(database, ['p', 'q']);
  assert(first && second);
  void post(first);
  await until('the transaction', () => transactions === 1);
  const waiting = post(second);
  const stopping = poster.stop();
  await clock.advance(4_000);
  assert.deepEqual(await waiting, { result: 'busy' });
  await clock.advance(1_000);
  await stopping;
  assert.deepEqual(await post(second), { result: 'busy' });
  assert.equal(transactions, 1);
});
