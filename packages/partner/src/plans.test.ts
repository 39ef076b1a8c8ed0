import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, type Database, type Statement, type Transaction } from '@duebridge/runtime';
import { refusals } from './business-rules.ts';
import { endByHand } from './end-by-hand.ts';
import { importAccounts } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { batchLines, batchStatement } from './statement.ts';
import {
  findEnded,
  findPayments,
  findUnfinished,
  listPayments,
  lockPayments,
  readAudit,
} from './store.ts';
import { haveAccounts, kitDatabase, testAccount } from '../test/kit.ts';

/** Enough payments that reading all of them would be the dearest way to any of these answers. */
const PAYMENTS = 200_000;

/** The same database, which asks PostgreSQL for the plan of each statement before it runs it. */
function explaining(database: Database, plans: Map<string, string>): Database {
  const on = <T extends Database | Transaction>(target: T): T => ({
    ...target,
    async query<Row>(statement: Statement, values?: readonly unknown[]) {
      const text = typeof statement === 'string' ? statement : statement.text;
      if (text.includes('duebridge_partner.')) {
        const lines = await target.query<Record<string, string>>(`EXPLAIN ${text}`, values);
        plans.set(text, lines.map((line) => line['QUERY PLAN']).join('\n'));
      }
      return target.query<Row>(statement, values);
    },
  });
  return {
    ...on(database),
    transaction: (work, options) => database.transaction((tx) => work(on(tx)), options),
  };
}

test('no statement reads all payments, however many there are: each finds its rows by an index [B3 B5 FR1 PF3]', async (t) => {
  const database = await kitDatabase(t, 'plans');
  await haveAccounts(database, { account_id: 'A-7' });
  // A query of the pool may take 15 s, and this takes longer on a busy machine.
  await database.withConnection((connection) =>
    connection.query(
      `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, status,
       amount_in_cents, initiated_at, posted_at, ended_at, in_ledger)
     SELECT 'p-' || n, 'there-' || n, 'batch-' || n / 500, 'acme', 'A-' || n % 6000, 'static-key', 'succeeded', 100,
            at, at + interval '1 second', at + interval '1 second', true
       FROM generate_series(1, $1::int) AS n, LATERAL (SELECT timestamptz '2026-01-01Z' + n * interval '1 second' AS at) AS times`,
      [PAYMENTS],
    ),
  );
  await database.withConnection((connection) => connection.query('VACUUM ANALYZE'));
  const plans = new Map<string, string>();
  const asked = explaining(database, plans);

  const place = { initiated_at: '2026-01-02T00:00:00.000Z', platform_payment_id: 'p-9' };
  const filters = [
    {},
    { status: 'failed' },
    { status: 'processing' },
    { biller_id: 'acme' },
    { account_id: 'A-7' },
    { platform_batch_id: 'batch-7' },
  ] as const;
  for (const filter of filters) {
    await listPayments(asked, filter, undefined, 100);
    await listPayments(asked, filter, place, 100);
  }
  assert.equal((await batchStatement(asked, 'batch-7')).count, 500);
  assert.ok(await batchLines(asked, 'batch-7'));
  assert.equal((await findPayments(asked, ['p-1', 'p-2'])).size, 2);
  assert.equal((await findEnded(asked, ['p-1'])).length, 1);
  await findUnfinished(asked, {
    ageMs: 0,
    replica_id: '00000000-0000-4000-8000-000000000000',
    after: '',
    limit: 1_000,
  });
  await readAudit(asked, { platform_payment_id: 'p-1' }, undefined, 200);
  await endByHand(
    { database: asked, metrics: kitMetrics(), log: silentLog },
    { platform_payment_id: 'p-1', status: 'canceled', failure_reason: null },
    { actor: 'operator', event: 'canceled' },
  );
  await importAccounts(
    asked,
    [{ ...testAccount, account_id: 'A-7', amount_due_in_cents: 5 }],
    '2026-01-02T00:00:00Z',
  );
  const rules = new Map([['acme', { biller_id: 'acme', duplicate_window_seconds: 60 }]]);
  const [payment] = (await findPayments(database, ['p-1'])).values();
  await asked.transaction(async (tx) => {
    await lockPayments(tx, ['p-1']);
    await refusals(tx, rules, [payment!]);
  });

  assert.ok(plans.size >= 20, 'the plans were not asked for');
  for (const [text, plan] of plans) {
    assert.doesNotMatch(plan, /Seq Scan on payment\b/, `${text}\n${plan}`);
  }
});
