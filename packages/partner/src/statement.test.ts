import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { BatchStatement, compileCheck } from '@duebridge/contract';
import type { Database, Transaction } from '@duebridge/runtime';
import { batchLines, batchStatement } from './statement.ts';
import { endPayments, insertPayments } from './store.ts';
import { kitDatabase, startKit } from '../test/kit.ts';

const payment = {
  platform_batch_id: 'b',
  biller_id: 'acme',
  account_id: 'A-1',
  client_id: 'static-key',
  amount_in_cents: 100,
};

test('a statement counts and sums each status of its own batch, and hashes the sorted lines [PF3 B3]', async (t) => {
  const database = await kitDatabase(t);
  // Upper case sorts before lower case by byte, unlike in the collations of most languages.
  const ids = ['b-2', 'B-1', 'a-3', 'a_4', 'Z-5'];
  await insertPayments(
    database,
    ids.map((platform_payment_id, index) => ({
      ...payment,
      platform_payment_id,
      amount_in_cents: 10 ** index,
    })),
  );
  await insertPayments(database, [
    { ...payment, platform_payment_id: 'other-batch', platform_batch_id: 'c' },
  ]);
  await endPayments(database, [
    { platform_payment_id: 'b-2', status: 'succeeded', failure_reason: null },
    { platform_payment_id: 'a-3', status: 'succeeded', failure_reason: null },
    { platform_payment_id: 'Z-5', status: 'failed', failure_reason: 'no' },
  ]);
  const lines = [
    'B-1,processing,10',
    'Z-5,failed,10000',
    'a-3,succeeded,100',
    'a_4,processing,1000',
    'b-2,succeeded,1',
  ];
  const sha256 = createHash('sha256')
    .update(lines.map((line) => `${line}\n`).join(''))
    .digest('hex');
  const partner = await startKit(database, { holdMs: 600_000 });
  const answer = await partner.call('GET', '/batch/b');
  assert.equal(answer.status, 200);
  assert.deepEqual(compileCheck(BatchStatement).problems(answer.body, 'body'), []);
  assert.deepEqual(answer.body, {
    platform_batch_id: 'b',
    count: 5,
    totals: [
      { status: 'processing', count: 2, amount_in_cents: 1_010 },
      { status: 'succeeded', count: 2, amount_in_cents: 101 },
      { status: 'failed', count: 1, amount_in_cents: 10_000 },
    ],
    sha256,
  });
  const none = await partner.call('GET', '/batch/nothing');
  assert.deepEqual([none.status, none.body['code']], [404, 'BATCH_NOT_FOUND']);
});

test('a batch of several pages is summed to the cent, and hashed in the order of its ids [PF3]', async (t) => {
  const database = await kitDatabase(t);
  const count = 20_001;
  const payments = Array.from({ length: count }, (_, index) => ({
    ...payment,
    platform_payment_id: `p-${index}`,
    amount_in_cents: 99_999_999_999 - index,
  }));
  // They did not come in the order of their ids.
  await insertPayments(
    database,
    payments.filter((_, index) => index % 2 === 0),
  );
  await insertPayments(
    database,
    payments.filter((_, index) => index % 2 === 1),
  );
  let fetches = 0;
  const counting: Database = {
    ...database,
    transaction: (work, options) =>
      database.transaction((tx) => {
        const query: Transaction['query'] = (text, values) => {
          if (text === 'FETCH 1 FROM batch_pages') fetches += 1;
          return tx.query(text, values);
        };
        return work({ ...tx, query });
      }, options),
  };
  const statement = await batchStatement(counting, 'b');
  assert.equal(fetches, 6, 'five pages of 5,000 rows, so that memory stays small');
  const sum = count * 99_999_999_999 - (count * (count - 1)) / 2;
  assert.deepEqual(statement.totals, [{ status: 'processing', count, amount_in_cents: sum }]);
  const lines = payments
    .map((one) => `${one.platform_payment_id},processing,${one.amount_in_cents}\n`)
    .toSorted();
  assert.equal(
    statement.sha256,
    createHash('sha256').update(lines.join('')).digest('hex'),
    'the pages are in the order of the ids, as one list',
  );
});

test('a batch that has no payment has no statement and no lines [PF3]', async (t) => {
  const database = await kitDatabase(t);
  await assert.rejects(batchStatement(database, 'd'), { code: 'BATCH_NOT_FOUND' });
  await assert.rejects(batchLines(database, 'd'), { code: 'BATCH_NOT_FOUND' });
});
