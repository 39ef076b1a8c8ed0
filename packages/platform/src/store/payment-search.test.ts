/**
 * The cost of a search does not grow with the table: each list reads little more than a screenful, however many payments there
 * are.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Statement } from '@duebridge/runtime';
import { force, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { listAudit } from './audit.ts';
import { firstIdAt, madeAt } from '../payment-id.ts';
import { listPayments, type PaymentFilter } from './payment-search.ts';
import type { Queryable } from './payments.ts';
import { fillTables } from '../../test/month.ts';

const payments = 40_000;
const database = await testDatabase({ after }, { migrations, name: 'search' });
await fillTables(database, payments);
// A partner that left: the newest payments are all of others.
await force(
  database,
  `UPDATE duebridge_platform.payments SET partner_id = 'gone' WHERE platform_payment_id IN
       (SELECT platform_payment_id FROM duebridge_platform.payments WHERE settled_at IS NOT NULL ORDER BY 1 LIMIT 1000)`,
);
await database.query('VACUUM ANALYZE duebridge_platform.payments');

interface Plan {
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly Plan[];
}

/** Rows that a plan read: those that its leaves returned or filtered out. */
function touched(plan: Plan): number {
  const below = (plan.Plans ?? []).reduce((sum, one) => sum + touched(one), 0);
  const thrown = (plan['Rows Removed by Filter'] ?? 0) * plan['Actual Loops'];
  return plan.Plans === undefined
    ? plan['Actual Rows'] * plan['Actual Loops'] + thrown
    : below + thrown;
}

/** Runs a search; returns its result and the number of rows that its statements read. */
async function cost<T>(
  search: (on: Queryable) => Promise<T[]>,
): Promise<{ found: T[]; rows: number }> {
  let rows = 0;
  const watched: Queryable = {
    async query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
      const text = typeof statement === 'string' ? statement : statement.text;
      const [explained] = await database.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
        `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
        values,
      );
      assert.ok(explained);
      rows += touched(explained['QUERY PLAN'][0].Plan);
      return database.query<Row>(statement, values);
    },
  };
  return { found: await search(watched), rows };
}

const [known] = await database.query<{
  platform_payment_id: string;
  amount_in_cents: number;
  account_id: string;
  n: number;
}>(
  `SELECT platform_payment_id, amount_in_cents, account_id, substr(session_id, 9)::int AS n FROM duebridge_platform.payments
    WHERE session_id = 'session-20051'`,
);
assert.ok(known);
await database.transaction(async (tx) => {
  await tx.query(
    `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at)
     SELECT 'batch-of-one', partner_id, now() + interval '9 days' FROM duebridge_platform.payments WHERE platform_payment_id = $1`,
    [known.platform_payment_id],
  );
  await tx.query('SET LOCAL session_replication_role = replica');
  await tx.query(
    `UPDATE duebridge_platform.payments SET platform_batch_id = 'batch-of-one' WHERE platform_payment_id = $1`,
    [known.platform_payment_id],
  );
});
const day = new Date(Date.now() - 3 * 86_400_000).toISOString();
const dayAfter = new Date(Date.now() - 2 * 86_400_000).toISOString();

const searches: readonly (readonly [string, Omit<PaymentFilter, 'limit'>, 'some' | 'none'])[] = [
  ['the newest', {}, 'some'],
  ['succeeded', { status: 'succeeded' }, 'some'],
  ['failed', { status: 'failed' }, 'some'],
  ['canceled', { status: 'canceled' }, 'some'],
  ['processing', { status: 'processing' }, 'some'],
  ['in review', { status: 'review' }, 'some'],
  ['overdue', { status: 'overdue' }, 'some'],
  ['unsettled', { status: 'unsettled' }, 'none'],
  ['paused', { status: 'paused' }, 'none'],
  ['with a case', { status: 'case' }, 'none'],
  ['what needs a human', { status: 'needs_human' }, 'some'],
  ['a partner', { partner_id: 'partner-2' }, 'some'],
  ['a partner that left', { partner_id: 'gone' }, 'some'],
  ['a partner that is none', { partner_id: 'nobody' }, 'none'],
  ['an amount', { amount_in_cents: known.amount_in_cents }, 'some'],
  ['an amount that nobody paid', { amount_in_cents: 99_999_999_999 }, 'none'],
  ['an account', { account_id: known.account_id }, 'some'],
  ['failed of an account', { account_id: known.account_id, status: 'failed' }, 'none'],
  ['a day', { from: day, to: dayAfter }, 'some'],
  ['failed on a day', { from: day, to: dayAfter, status: 'failed' }, 'some'],
  ['its id', { id: known.platform_payment_id }, 'some'],
  ['its id at the partner', { id: `there-${known.n}` }, 'some'],
  ['an id that nothing has', { id: 'nothing' }, 'none'],
  [
    'a person',
    { email_digests: [Buffer.from((known.n % 200_000).toString(16).padStart(64, '0'), 'hex')] },
    'some',
  ],
  ['a person we do not know', { email_digests: [Buffer.alloc(32, 255)] }, 'none'],
  ['the longest wait', { status: 'processing', sort: 'oldest' }, 'some'],
  ['the oldest', { sort: 'oldest' }, 'some'],
  ['a page from the middle', { cursor: known.platform_payment_id }, 'some'],
  [
    'a page from the middle of a partner',
    { partner_id: 'partner-2', cursor: known.platform_payment_id },
    'some',
  ],
  ['a day of a partner', { partner_id: 'partner-2', from: day, to: dayAfter }, 'some'],
];

for (const [name, filter, expected] of searches) {
  test(`finding by ${name} reads little of a large table`, async () => {
    const limit = 50;
    const { found, rows } = await cost((on) => listPayments(on, { ...filter, limit }));
    assert.equal(found.length > 0, expected === 'some', `${found.length} found`);
    // Some screenfuls, not a part of the table: one in fifty failed, and a plan that sorts those reads twice as many.
    assert.ok(rows <= 10 * limit, `${rows} rows of ${payments} were touched`);
  });
}

test('a batch of one payment is found by its index, also where the planner takes it for larger', async () => {
  // A short page, as the batches of this table are larger in proportion than those of years.
  const filter = { id: 'batch-of-one', limit: 2 };
  const { found, rows } = await cost((on) => listPayments(on, filter));
  assert.deepEqual(
    found.map((row) => row.platform_payment_id),
    [known.platform_payment_id],
  );
  // A few more where a bitmap of the index is read.
  assert.ok(rows < 1_000, `${rows} rows of ${payments} were touched`);
});

test('what needs a human is all that is in review, paused, a case, late or with open funds, and nothing else', async () => {
  const own = await testDatabase({ after }, { migrations, name: 'human' });
  await fillTables(own, 2_000);
  const idsWhere = async (condition: string): Promise<string[]> => {
    const rows = await own.query<{ id: string }>(
      `SELECT p.platform_payment_id AS id FROM duebridge_platform.payments p WHERE ${condition} ORDER BY 1`,
    );
    return rows.map(({ id }) => id);
  };
  const [marked, paused, late, young] = await idsWhere(`p.status = 'succeeded'`);
  await own.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `UPDATE duebridge_platform.payments SET settled_at = NULL, slot = -2, stage = 'accepted', status = 'processing',
              ended_by = NULL, ended_at = NULL, posted_at = NULL WHERE platform_payment_id = $1`,
      [paused],
    );
    const unsettled = `UPDATE duebridge_platform.payments SET settled_at = NULL, slot = 1, ended_at = now() - $2::interval
      WHERE platform_payment_id = $1`;
    await tx.query(unsettled, [late, '16 minutes']);
    await tx.query(unsettled, [young, '14 minutes']);
    await tx.query(
      `INSERT INTO duebridge_platform.cases (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code, amount_in_cents,
              state, note, opened_by) VALUES ('c', $1, 'p', 'b', 'f', 'other', 0, 'open', 'asked', 'ada')`,
      [marked],
    );
  });
  const expected = await idsWhere(
    `p.stage = 'review' OR (p.status = 'processing' AND p.created_at < now() - interval '1 day')`,
  );
  const found: string[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await listPayments(own, {
      status: 'needs_human',
      sort: 'oldest',
      cursor,
      limit: 10,
    });
    found.push(...page.map((row) => row.platform_payment_id));
    if (page.length < 10) break;
    cursor = page.at(-1)?.platform_payment_id;
  }
  assert.equal(found.length, new Set(found).size, 'none twice');
  assert.deepEqual(new Set(found), new Set([...expected, marked, paused, late]));
});

test('the audit is read by who, what and about whom without reading all of it', async () => {
  for (const filter of [
    {},
    { actor: 'ada' },
    { event: 'account_unmasked' },
    { event: 'never_happened' },
    { event: 'payment_ended' },
    { partner_id: 'partner-1' },
    { platform_payment_id: known.platform_payment_id },
  ]) {
    const { rows } = await cost((on) => listAudit(on, { ...filter, limit: 50 }));
    assert.ok(rows < payments / 20, `${JSON.stringify(filter)}: ${rows} rows were touched`);
  }
});

test('pages follow each other without a gap or a repetition, also in searches through the audit', async () => {
  for (const status of ['failed', 'succeeded'] as const) {
    const all = await listPayments(database, { status, limit: 300 });
    const first = await listPayments(database, { status, limit: 100 });
    const next = await listPayments(database, {
      status,
      limit: 200,
      cursor: first.at(-1)?.platform_payment_id,
    });
    assert.deepEqual(
      [...first, ...next].map((one) => one.platform_payment_id),
      all.map((one) => one.platform_payment_id),
    );
    assert.ok(all.every((one) => one.status === status));
  }
});

test('the least id of a moment sorts before every id of that moment and after every one before', () => {
  const at = Date.parse('2026-03-21T10:00:00.123Z');
  const stamp = firstIdAt(at).slice(0, 13);
  const before = firstIdAt(at - 1).slice(0, 13);
  assert.ok(firstIdAt(at) <= `${stamp}-7000-8000-000000000000`);
  assert.ok(firstIdAt(at) > `${before}-7fff-bfff-ffffffffffff`);
  assert.deepEqual(
    [madeAt(firstIdAt(at)), madeAt(`${before}-7fff-bfff-ffffffffffff`)],
    [at, at - 1],
  );
});
