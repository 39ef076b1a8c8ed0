import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { openAcceptance } from './accept.ts';
import { kitMetrics } from './metrics.ts';
import {
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
  type Answer,
} from '../test/kit.ts';

/** A payment without the fields that change with its progress. */
function lasting({ body }: Answer): unknown {
  const { status: _status, posted_at: _posted, failure_reason: _reason, ...rest } = body;
  return rest;
}

test('1,000 PUTs of one id over 50 connections give one row, one posting and equal answers [RU5 ID1 PF2 S5 KT1 KT10 F91]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database, { connections: 50 });
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, () =>
      partner.call('PUT', paymentPath('same'), { body: instruction(700) }),
    ),
  );
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  assert.equal(new Set(answers.map((answer) => JSON.stringify(lasting(answer)))).size, 1);
  await ended(partner, 'same');
  const [counts] = await database.query(
    `SELECT (SELECT count(*)::int FROM duebridge_partner.payment) AS payments, (SELECT count(*)::int FROM duebridge_partner.payment WHERE in_ledger) AS transfers,
            (SELECT amount_due_in_cents FROM duebridge_partner.account) AS owed, (SELECT count(*)::int FROM duebridge_partner.payment_processing) AS processing`,
  );
  assert.deepEqual(counts, { payments: 1, transfers: 1, owed: 99_300, processing: 0 });
});

test('one id put at two replicas at once is one payment at both [RU5 PF2 KT1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const replicas = [
    await startKit(database, { connections: 25 }),
    await startKit(database, { connections: 25 }),
  ];
  const ids = Array.from({ length: 40 }, (_, index) => `id-${index}`);
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, index) => {
      const id = ids[(index * 17) % ids.length]!;
      return replicas[index % 2]!.call('PUT', paymentPath(id), { body: instruction(10) });
    }),
  );
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  assert.equal(new Set(answers.map((answer) => JSON.stringify(lasting(answer)))).size, ids.length);
  for (const id of ids) assert.equal((await ended(replicas[0]!, id)).body['status'], 'succeeded');
  const [counts] = await database.query(
    `SELECT (SELECT count(*)::int FROM duebridge_partner.payment) AS payments, (SELECT count(*)::int FROM duebridge_partner.payment WHERE in_ledger) AS transfers,
            (SELECT amount_due_in_cents FROM duebridge_partner.account) AS owed`,
  );
  assert.deepEqual(counts, { payments: 40, transfers: 40, owed: 100_000 - 400 });
});

test('a payment for an unknown or inactive account is kept and fails with a reason [FR1 ST3 PF5 KT14]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, { status: 'inactive' });
  const partner = await startKit(database);
  for (const [id, account] of [
    ['inactive', 'A-1'],
    ['unknown', 'A-404'],
  ] as const) {
    const put = await partner.call('PUT', paymentPath(id, account), { body: instruction() });
    assert.equal(put.status, 200);
    assert.equal(put.body['status'], 'processing');
    assert.equal('failure_reason' in put.body, false);
    const end = await ended(partner, id, paymentPath(id, account));
    assert.equal(end.body['status'], 'failed');
    assert.equal(end.body['posted_at'], null);
    assert.match(String(end.body['failure_reason']), /\S/);
  }
  const [row] = await database.query(
    'SELECT amount_due_in_cents AS owed FROM duebridge_partner.account',
  );
  assert.equal(row?.['owed'], 100_000);
});

/** The accepting end alone, over the statements of `database`, with what it tells the others. */
function acceptance(database: Database) {
  const told: string[] = [];
  const counts = { accepted: 0, repeated: 0, mismatched: 0 };
  const accepting = openAcceptance({
    database,
    handOver: (payments) => told.push(...payments.map((row) => row.platform_payment_id)),
    metrics: {
      ...kitMetrics(undefined),
      count: (name, by = 1) => void (counts[name as keyof typeof counts] += by),
    },
    client_id: 'c',
  });
  const path = { biller_id: 'acme', account_id: 'A-1', platform_payment_id: 'one' };
  return {
    told,
    counts,
    put: (amount_in_cents: number, differences: Partial<typeof path> = {}) =>
      accepting.put({ ...path, ...differences }, { amount_in_cents, platform_batch_id: 'batch-1' }),
  };
}

test('of requests for one id in one moment the first counts, and the differences of the others are written down [RU5 KT1 KT4 F92]', async (t) => {
  const database = await kitDatabase(t);
  const { put, told, counts } = acceptance(database);
  const answers = await Promise.all([
    put(700),
    put(701),
    put(700),
    put(700, { account_id: 'A-2' }),
    put(1, { platform_payment_id: 'two' }),
  ]);
  const [first, ...same] = answers;
  const other = same.pop();
  assert.equal(first.amount_in_cents, 700);
  for (const one of same) assert.deepEqual(one, first);
  assert.equal(other?.platform_payment_id, 'two');
  assert.deepEqual(told, ['one', 'two'], 'each is handed over once');
  assert.deepEqual(counts, { accepted: 2, repeated: 3, mismatched: 2 });
  const lines = await database.query(
    'SELECT platform_payment_id AS id, actor, event, detail FROM duebridge_partner.payment_audit ORDER BY audit_id',
  );
  assert.deepEqual(lines, [
    { id: 'one', actor: 'client c', event: 'mismatch', detail: { amount_in_cents: 701 } },
    { id: 'one', actor: 'client c', event: 'mismatch', detail: { account_id: 'A-2' } },
  ]);

  // A repeat alone: nothing new is handed over. A new one alone: it is.
  assert.deepEqual(await put(700), first);
  assert.deepEqual([told.length, counts], [2, { accepted: 2, repeated: 4, mismatched: 2 }]);
  await put(1, { platform_payment_id: 'three' });
  assert.deepEqual(told, ['one', 'two', 'three']);
});
