/**
 * The cost of a search does not grow with the table: each list reads little more than a screenful, however many payments there
 * are.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Statement } from '@duebridge/runtime';
import { manualClock, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { listAudit } from './audit.ts';
import { firstIdAt, madeAt } from '../payment-id.ts';
import { cursorOf } from './payment-order.ts';
import { listPayments, searchPayments, type PaymentFilter } from './payment-search.ts';
import type { Queryable } from './payments.ts';
import { fillTables } from './testing.ts';
import { openUsualTimes } from './usual-times.ts';

const payments = 40_000;
const database = await testDatabase({ after }, { migrations, name: 'search' });
await fillTables(database, payments);

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
const day = new Date(Date.now() - 3 * 86_400_000).toISOString();
const dayAfter = new Date(Date.now() - 2 * 86_400_000).toISOString();

const searches: readonly (readonly [string, Omit<PaymentFilter, 'limit'>, 'some' | 'none'])[] = [
  ['the newest', {}, 'some'],
  ['succeeded', { status: 'succeeded' }, 'some'],
  ['failed', { status: 'failed' }, 'some'],
  ['canceled', { status: 'canceled' }, 'some'],
  ['processing', { status: 'processing' }, 'some'],
  ['in review', { stage: 'review' }, 'some'],
  ['overdue', { openForMs: 86_400_000 }, 'some'],
  ['unsettled', { unsettled: true }, 'none'],
  ['a partner', { partner_id: 'partner-2' }, 'some'],
  ['a partner that is none', { partner_id: 'nobody' }, 'none'],
  ['an amount', { amount_in_cents: known.amount_in_cents }, 'some'],
  ['an amount that nobody paid', { amount_in_cents: 99_999_999_999 }, 'none'],
  ['an account', { account_id: known.account_id }, 'some'],
  ['failed of an account', { account_id: known.account_id, status: 'failed' }, 'none'],
  ['a day', { from: day, to: dayAfter }, 'some'],
  ['failed on a day', { from: day, to: dayAfter, status: 'failed' }, 'some'],
  ['its id', { id: known.platform_payment_id }, 'some'],
  ['its session', { id: `session-${known.n}` }, 'some'],
  ['its id at the partner', { id: `there-${known.n}` }, 'some'],
  ['an id that nothing has', { id: 'nothing' }, 'none'],
  [
    'a person',
    { email_digests: [Buffer.from((known.n % 200_000).toString(16).padStart(64, '0'), 'hex')] },
    'some',
  ],
  ['a person we do not know', { email_digests: [Buffer.alloc(32, 255)] }, 'none'],
  ['amounts between two', { min_amount_in_cents: 2_500, max_amount_in_cents: 2_560 }, 'some'],
  ['amounts above all', { min_amount_in_cents: 99_999_999 }, 'none'],
  ['the longest wait', { status: 'processing', sort: 'oldest' }, 'some'],
  ['the oldest', { sort: 'oldest' }, 'some'],
  ['the largest', { sort: 'largest' }, 'some'],
  ['the smallest', { sort: 'smallest' }, 'some'],
  ['the largest in flight', { sort: 'largest', status: 'processing' }, 'some'],
  ['those paused', { paused: true }, 'none'],
  ['those marked', { follow_up: true }, 'none'],
  ['a page from the middle', { cursor: known.platform_payment_id }, 'some'],
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

test('payments are found by the words of a reason and by how often the partner was called, page after page', async () => {
  const count = async (condition: string): Promise<number> => {
    const [row] = await database.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM duebridge_platform.payments p WHERE ${condition}`,
    );
    return row?.count ?? 0;
  };
  const n = 'substr(p.session_id, 9)::int';
  for (const [filter, condition] of [
    [{ failure_reason: 'ACCOUNT is' }, `p.status = 'failed'`],
    [{ failure_reason: 'is open' }, 'false'],
    [{ failure_reason: 'closed', status: 'succeeded' }, 'false'],
    // A number in it is any number.
    [{ failure_reason: 'rejected_400', stage: 'review' }, `p.stage = 'review'`],
    [{ min_attempts: 12 }, `${n} % 40 = 5`],
    [{ min_attempts: 13 }, 'false'],
    [
      { min_attempts: 2, amount_in_cents: known.amount_in_cents },
      `p.amount_in_cents = ${known.amount_in_cents}`,
    ],
    [{ min_attempts: 12, status: 'processing' }, `${n} % 40 = 5 AND p.status = 'processing'`],
    [
      { min_attempts: 2, status: 'failed', partner_id: 'partner-2' },
      `p.status = 'failed' AND p.partner_id = 'partner-2'`,
    ],
  ] as const) {
    const found = new Set<string>();
    let cursor: string | undefined;
    for (let steps = 0; ; steps += 1) {
      assert.ok(steps < 1_000, 'the search does not end');
      const { rows, searched_to } = await searchPayments(database, {
        ...filter,
        cursor,
        limit: 300,
      });
      for (const row of rows) {
        assert.ok(!found.has(row.platform_payment_id), 'found twice');
        found.add(row.platform_payment_id);
      }
      cursor = searched_to ?? (rows.length === 300 ? rows.at(-1)?.platform_payment_id : undefined);
      if (cursor === undefined) break;
    }
    assert.equal(found.size, await count(condition), JSON.stringify(filter));
  }
});

test('a sorted list is complete and in order, page after page, whatever filter comes with it', async () => {
  const number = 'substr(p.session_id, 9)::int';
  // Half of what is in flight has polls that only this process knows of.
  const inFlight = await database.query<{ id: string; n: number }>(
    `SELECT p.platform_payment_id AS id, ${number} AS n FROM duebridge_platform.payments p WHERE p.status = 'processing'`,
  );
  const unwritten = new Map(inFlight.filter(({ n }) => n % 2000 === 5).map(({ id, n }) => [id, n]));
  for (const [filter, order, condition] of [
    [{ sort: 'oldest', status: 'failed' }, 'p.platform_payment_id', `p.status = 'failed'`],
    [
      { sort: 'largest', status: 'canceled' },
      'p.amount_in_cents DESC, p.platform_payment_id DESC',
      `p.status = 'canceled'`,
    ],
    [
      { sort: 'smallest', biller_id: 'biller-7' },
      'p.amount_in_cents, p.platform_payment_id',
      `p.biller_id = 'biller-7'`,
    ],
    [
      {
        sort: 'largest',
        biller_id: 'biller-7',
        from: day,
        to: dayAfter,
        max_amount_in_cents: 80_000,
      },
      'p.amount_in_cents DESC, p.platform_payment_id DESC',
      `p.biller_id = 'biller-7' AND p.created_at >= '${day}' AND p.created_at < '${dayAfter}' AND p.amount_in_cents <= 80000`,
    ],
    [
      { sort: 'oldest', biller_id: 'biller-7', partner_id: 'partner-4' },
      'p.platform_payment_id',
      `p.biller_id = 'biller-7' AND p.partner_id = 'partner-4'`,
    ],
    [{ biller_id: 'nobody' }, 'p.platform_payment_id', 'false'],
    [{ sort: 'oldest', min_attempts: 12 }, 'p.platform_payment_id', `${number} % 40 = 5`],
    [
      { sort: 'largest', min_attempts: 12 },
      'p.amount_in_cents DESC, p.platform_payment_id DESC',
      `${number} % 40 = 5`,
    ],
    [
      { sort: 'largest', failure_reason: 'is closed' },
      'p.amount_in_cents DESC, p.platform_payment_id DESC',
      `p.status = 'failed'`,
    ],
    [
      { sort: 'attempts', status: 'processing', unwritten },
      `CASE WHEN ${number} % 40 = 5 THEN 12 ELSE 2 END + CASE WHEN ${number} % 2000 = 5 THEN ${number} ELSE 0 END DESC, p.platform_payment_id DESC`,
      `p.status = 'processing'`,
    ],
    [
      { sort: 'attempts', status: 'processing', unwritten, min_attempts: 13 },
      `${number} DESC, p.platform_payment_id DESC`,
      `p.status = 'processing' AND ${number} % 2000 = 5`,
    ],
  ] as const satisfies readonly (readonly [Omit<PaymentFilter, 'limit'>, string, string])[]) {
    const sort = 'sort' in filter ? filter.sort : 'newest';
    const found: string[] = [];
    let cursor: string | undefined;
    for (let steps = 0; ; steps += 1) {
      assert.ok(steps < 2_000, 'the search does not end');
      const page = await searchPayments(database, { ...filter, cursor, limit: 150 });
      found.push(...page.rows.map((row) => row.platform_payment_id));
      const last = page.rows.at(-1);
      const isFull = page.rows.length === 150 && last !== undefined;
      cursor = isFull ? cursorOf(sort, last) : page.searched_to;
      if (cursor === undefined) break;
    }
    const expected = await database.query<{ id: string }>(
      `SELECT p.platform_payment_id AS id FROM duebridge_platform.payments p WHERE ${condition} ORDER BY ${order}`,
    );
    assert.deepEqual(
      found,
      expected.map(({ id }) => id),
      JSON.stringify({ ...filter, unwritten: 0 }),
    );
  }
});

test('a payment is stuck when it takes longer than its own partner usually does', async (t) => {
  const own = await testDatabase(t, { migrations, name: 'stuck' });
  await fillTables(own, 2_000);
  const clock = manualClock(Date.now());
  const usual = openUsualTimes(own, clock);
  // Two partners: the quick one ends 95 of 100 within 20 s, the slow one within a day; a third has no payment that ended.
  await own.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `UPDATE duebridge_platform.payments SET ended_at = created_at + CASE partner_id WHEN 'partner-1' THEN interval '20 seconds' ELSE interval '1 day' END
        WHERE ended_at IS NOT NULL`,
    );
    await tx.query(
      `UPDATE duebridge_platform.payments SET status = 'processing', stage = 'accepted', slot = 1, ended_by = NULL, ended_at = NULL, posted_at = NULL,
              failure_reason = NULL, review_reason = NULL, settled_at = NULL
        WHERE partner_id = 'partner-3' OR platform_payment_id IN (SELECT max(platform_payment_id) FROM duebridge_platform.payments GROUP BY partner_id)`,
    );
    await tx.query(
      `UPDATE duebridge_platform.payments SET created_at = now() - interval '1 minute' WHERE status = 'processing'`,
    );
  });
  const stuckOf = async (): Promise<Record<string, number>> => {
    const rows = await listPayments(own, { stuck: await usual(), limit: 2_000 });
    const counts: Record<string, number> = {};
    for (const { partner_id } of rows) counts[partner_id] = (counts[partner_id] ?? 0) + 1;
    return counts;
  };
  const times = await usual();
  assert.equal(times.byPartner.get('partner-1'), 20_000);
  assert.equal(times.byPartner.get('partner-2'), 86_400_000);
  assert.equal(times.byPartner.has('partner-3'), false);
  const minute = await stuckOf();
  assert.ok((minute['partner-1'] ?? 0) >= 1, JSON.stringify(minute));
  assert.deepEqual([minute['partner-2'], minute['partner-3']], [undefined, undefined]);
  // After a quarter of an hour so is one of a partner of which nothing is known.
  await own.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `UPDATE duebridge_platform.payments SET created_at = now() - interval '20 minutes' WHERE status = 'processing'`,
    );
  });
  const later = await stuckOf();
  assert.equal(later['partner-3'], 500);
  assert.equal(later['partner-2'], undefined);
  // When a partner goes down, what is known of it stays.
  await own.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `UPDATE duebridge_platform.payments SET ended_by = 'operator' WHERE ended_by IS NOT NULL`,
    );
  });
  await clock.advance(120_000);
  assert.equal((await usual()).byPartner.get('partner-1'), 20_000);
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
