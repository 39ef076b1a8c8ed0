/** Figures over time: from sums that several replicas keep, of a table of which they read each end once. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { Figures } from '@duebridge/contract';
import { force, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { quantileOf, readFigures, sumUp } from './figures.ts';

const database = await testDatabase({ after }, { migrations, name: 'figures' });

/** Payments made `ago` before now, under ids of that time, each ended two seconds later, by the audit as by the row. */
async function paid(count: number, partner_id: string, ago: string, status: string): Promise<void> {
  await force(
    database,
    `WITH made AS (
         INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
                funding_method, slot, created_at, stage, status, payment_id, failure_reason, posted_at, ended_at, settled_at)
         SELECT substr(stamp, 1, 8) || '-' || substr(stamp, 9) || substr(gen_random_uuid()::text, 14), $2, 'b', 'A', 'x', 1, 'sandbox_bank', 1, at, 'ended', $4, 'P', CASE WHEN $4 = 'failed' THEN 'no' END,
                CASE WHEN $4 = 'succeeded' THEN at + interval '2 seconds' END, at + interval '2 seconds', at + interval '2 seconds'
           FROM generate_series(1, $1::int), (SELECT clock_timestamp() - $3::interval AS at) AS t,
                LATERAL (SELECT lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS stamp) AS s RETURNING *
       )
       INSERT INTO duebridge_platform.audit (at, actor, event, platform_payment_id, partner_id, detail)
       SELECT ended_at, 'test', 'payment_ended', platform_payment_id, partner_id, jsonb_build_object('status', status) FROM made`,
    [count, partner_id, ago, status],
  );
}

const totals = ({ points }: Figures) => ({
  succeeded: points.reduce((sum, point) => sum + point.succeeded, 0),
  failed: points.reduce((sum, point) => sum + point.failed, 0),
  samples: points.reduce((sum, point) => sum + point.samples, 0),
});

test('each end is counted once, by whichever replica, and a week is read from the sums', async () => {
  await database.query(
    `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed)
     SELECT id, id, 'biller', 'b', 'https://p.example', 'key', '{}', 'x' FROM unnest('{p,q}'::text[]) AS id`,
  );
  await paid(300, 'p', '5 hours', 'succeeded');
  await paid(200, 'p', '2 hours', 'succeeded');
  await paid(20, 'q', '2 hours', 'failed');
  await database.query(
    `INSERT INTO duebridge_platform.ended_counts_progress (read_to) VALUES (clock_timestamp() - interval '5 hours 1 minute')`,
  );
  const replica = async (): Promise<void> => {
    while (await sumUp(database));
  };
  await Promise.all([replica(), replica(), replica()]);
  await replica();

  const week = await readFigures(database, { range: '7d' }, Date.now());
  assert.deepEqual(totals(week), { succeeded: 500, failed: 20, samples: 500 });
  const day = await readFigures(database, { range: '24h', partner_id: 'p' }, Date.now());
  assert.deepEqual(totals(day), { succeeded: 500, failed: 0, samples: 500 });
  const [busiest] = day.points.toSorted((a, b) => b.succeeded - a.succeeded);
  assert.ok(Math.abs((busiest?.p99_ms ?? 0) - 2_000) < 200, `${busiest?.p99_ms} ms for 2,000`);
  const rows = await database.query('SELECT 1 FROM duebridge_platform.ended_counts');
  assert.ok(rows.length <= 8, `${rows.length} rows`);
});

test('a quantile is the middle of the class of times that it falls into', () => {
  assert.equal(quantileOf([], 0.5), null);
  const times: number[] = [];
  times[10] = 90;
  times[40] = 10;
  const [half, most] = [quantileOf(times, 0.5), quantileOf(times, 0.95)];
  assert.ok(half !== null && most !== null && half < 120 && most > 8_000);
});
