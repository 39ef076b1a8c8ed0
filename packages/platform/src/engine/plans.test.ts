/**
 * What the engine asks of a database costs as much as it touches, although nothing is known of a new table: a plan that was made
 * while it was empty is kept while it fills.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { openDatabase, type Database } from '@duebridge/runtime';
import { ARRIVALS, findPayments, type Queryable } from '../store/payments.ts';
import { takeSteps } from '../store/steps.ts';
import { idsInSlots, placeArrivals } from './slots.ts';
import { idleWorker, engineRig, writer } from '../../test/engine-rig.ts';
import { advance, endPayments, settlePayments } from '../../test/standing.ts';

/** Payments that are in flight while the statements are watched, all of the worker that asks. */
const FILLED = 20_000;
/** Payments that one statement names. */
const NAMED = 32;

/** A database without statistics, as the engine uses it through one connection, and what fills it. */
async function newTable(t: TestContext): Promise<{
  database: Database;
  fill: (from: number, count: number) => Promise<string[]>;
}> {
  const rig = await engineRig(t);
  // Ids that are no times are in the partition of the others.
  await rig.database.query(
    'ALTER TABLE duebridge_platform.payments_other SET (autovacuum_enabled = false)',
  );
  await rig.register('acme', 'http://127.0.0.1:9');
  const all = Array.from({ length: 1_024 }, (_, slot) => slot);
  await idleWorker(rig.database, 'me', all);
  const database = openDatabase({
    url: rig.database.url,
    applicationName: 'engine under test',
    // One connection, so that each plan is that of the first executions.
    maxConnections: 1,
    plansByKey: true,
  });
  rig.database.closing(() => database.close());
  const first = await rig.pay(rig.engine(), 'acme', { slot: 1 });
  const fill = async (from: number, count: number): Promise<string[]> => {
    const rows = await rig.database.query<{ id: string }>(
      `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id,
                                               amount_in_cents, funding_method, slot)
       SELECT 'made-' || lpad(n::text, 7, '0'), partner_id, biller_id, account_id, platform_batch_id, 1, 'sandbox_bank', n % 1024
         FROM duebridge_platform.payments, generate_series($2::int, $3::int) n WHERE platform_payment_id = $1
       RETURNING platform_payment_id AS id`,
      [first.platform_payment_id, from, from + count - 1],
    );
    return rows.map((row) => row.id);
  };
  return { database, fill };
}

test('with plans of an empty table, no statement of the engine reads payments that it does not name', async (t) => {
  const { database, fill } = await newTable(t);
  const early = await fill(1, 8 * NAMED);
  // Six times each: from the fifth on PostgreSQL keeps one plan.
  for (let round = 0; round < 6; round += 1) {
    await everything(database, early.slice(round * NAMED, (round + 1) * NAMED));
  }
  const ids = await fill(8 * NAMED + 1, FILLED);
  const before = await read(database);
  await everything(database, ids.slice(0, NAMED));
  const after = await read(database);
  // Eight statements of 32 payments each, and one slot of twenty; ten times that is still far from twenty thousand.
  assert.ok(after - before < FILLED / 4, `${after - before} rows of payments were read`);
});

test('a plan that is made for many payments at once in a small table reads no others', async (t) => {
  const { database, fill } = await newTable(t);
  const ids = await fill(1, 2_500);
  const before = await read(database);
  const ended = await endPayments(
    database,
    writer('me'),
    ids.slice(0, 500).map((id) => ({
      platform_payment_id: id,
      from: 'created',
      by: 'funding',
      ending: FAILED,
    })),
  );
  assert.equal(ended.filter(Boolean).length, 500);
  const after = await read(database);
  // With the number of payments in sight, PostgreSQL would read the whole table and compare each row with each payment: 2.5 s.
  assert.ok(after - before < 1_000, `${after - before} rows of payments were read`);
});

test('what the engine asks about payments of a month opens no other month, however many years there are', async (t) => {
  const rig = await engineRig(t);
  const { database } = rig;
  await rig.register('acme', 'http://127.0.0.1:9');
  await idleWorker(database, 'me', [1]);
  const ids: string[] = [];
  for (const slot of [ARRIVALS, 1, 1]) {
    ids.push((await rig.pay(rig.engine(), 'acme', { slot })).platform_payment_id);
  }
  const asked: [text: string, values: readonly unknown[]][] = [];
  const on: Queryable = {
    query(statement, values = []) {
      if (typeof statement === 'object') asked.push([statement.text, values]);
      return database.query(statement, values);
    },
  };
  await findPayments(on, ids);
  await placeArrivals(on, 'me', [1]);
  const all = ids.map((platform_payment_id) => ({ platform_payment_id, from: 'created' as const }));
  await takeSteps(
    on,
    writer('me'),
    all.map((one) => ({ ...one, kind: 'advance', to: 'dispatching' })),
  );
  // As every connection of the engine plans: once, before the payments are known.
  const plans = await database.withConnection(async (connection) => {
    await connection.query('SET plan_cache_mode = force_generic_plan');
    const said: string[] = [];
    for (const [text, values] of asked.filter(([, { length }]) => length > 1)) {
      await connection.query(`PREPARE asked AS ${text}`);
      // An array as PostgreSQL writes one: none of these texts has a comma of its own.
      const given = values.map((one) =>
        Array.isArray(one) ? `'{${one.join()}}'` : `'${one as string}'`,
      );
      const lines = await connection.query<Record<string, string>>(
        `EXPLAIN EXECUTE asked (${given.join(', ')})`,
      );
      await connection.query('DEALLOCATE asked');
      said.push(lines.map((line) => line['QUERY PLAN']).join('\n'));
    }
    return said;
  });
  assert.equal(plans.length, 4);
  for (const plan of plans) {
    const months = new Set(plan.match(/ on payments_\w+/g));
    assert.equal(months.size, 1, plan);
  }
});

const FAILED = {
  status: 'failed',
  payment_id: null,
  initiated_at: null,
  posted_at: null,
  failure_reason: 'closed',
} as const;

/** Every statement that the engine runs for payments. */
async function everything(database: Database, ids: readonly string[]): Promise<void> {
  const all = ids.map((platform_payment_id) => ({ platform_payment_id }));
  const changed = (rows: readonly unknown[]): void => {
    assert.equal(rows.filter((row) => row !== false).length, ids.length);
  };
  changed(
    await advance(
      database,
      writer('me'),
      all.map((one) => ({ ...one, from: 'created', to: 'dispatching' })),
    ),
  );
  changed(
    await advance(
      database,
      writer('me'),
      all.map((one) => ({
        ...one,
        from: 'dispatching',
        to: 'accepted',
        payment_id: `P-${one.platform_payment_id}`,
        initiated_at: '2026-01-01T00:00:00Z',
      })),
    ),
  );
  changed(await findPayments(database, ids));
  const inSlots = await idsInSlots(database, [3]);
  assert.ok(inSlots.length <= 21);
  changed(await findPayments(database, ids));
  await placeArrivals(database, 'me', [1, 2, 3]);
  changed(
    await endPayments(
      database,
      writer('me'),
      all.map((one) => ({ ...one, from: 'accepted', by: 'partner', ending: FAILED })),
    ),
  );
  changed(await settlePayments(database, writer('me'), all));
  assert.equal(
    (await findPayments(database, ids)).some((row) => row.slot === ARRIVALS),
    false,
  );
}

/** Rows of payments that scans of the table or of its indexes have given so far. */
async function read(database: Database): Promise<number> {
  await database.query('SELECT pg_stat_force_next_flush()');
  const rows = await database.query<{ n: string }>(
    `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) AS n FROM pg_stat_user_tables
      WHERE schemaname = 'duebridge_platform' AND relname LIKE 'payments\\_%'`,
  );
  return Number(rows[0]?.n ?? 0);
}
