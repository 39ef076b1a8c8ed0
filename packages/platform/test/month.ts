/**
 * Tables like those of a platform after a month of work: as many payments as are asked for, written directly into the tables, with
 * everything that searches and pages read. Used by the test of search cost.
 */
import type { Database } from '@duebridge/runtime';

/** Rows per statement. */
const chunk = 50_000;
const days = 30;
const partners = 4;

/**
 * Fills the tables with `count` payments over the last 30 days: 97 of 100 succeeded, 2 failed, 1 canceled; one in 1,000 is still
 * in flight, one in 20,000 in review. Bypasses the triggers that guard a payment's life, because these rows start in their final
 * state.
 */
export async function fillTables(database: Database, count: number): Promise<void> {
  await database.query(
    `INSERT INTO duebridge_platform.partners (partner_id, name, kind, base_url, auth_method, auth_public, auth_sealed)
     SELECT 'partner-' || n, 'Partner ' || n, 'aggregator', 'https://partner.example', 'key', '{"header":"x-key"}', 'sealed'
       FROM generate_series(1, ${partners}) AS n`,
  );
  await database.query(
    `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at)
     SELECT 'batch-' || p || '-' || d, 'partner-' || p, date_trunc('day', now()) + interval '1 day' - make_interval(days => d)
       FROM generate_series(1, ${partners}) AS p, generate_series(0, ${days}) AS d`,
  );
  for (let from = 0; from < count; from += chunk) {
    const to = Math.min(count, from + chunk);
    await database.transaction(async (tx) => {
      await tx.query('SET LOCAL session_replication_role = replica');
      await tx.query('SET LOCAL statement_timeout = 0');
      await tx.query(
        `CREATE TEMP TABLE made ON COMMIT DROP AS
         SELECT n, now() - make_interval(days => ${days}) * ($3 - n)::float8 / $3 AS at,
                1 + n % ${partners} AS partner,
                CASE WHEN n % 20000 = 7 THEN 'review' WHEN n % 1000 = 5 THEN 'accepted' ELSE 'ended' END AS stage,
                CASE WHEN n % 1000 = 5 OR n % 20000 = 7 THEN 'processing'
                     WHEN n % 100 IN (1, 2) THEN 'failed' WHEN n % 100 = 3 THEN 'canceled' ELSE 'succeeded' END AS status
           FROM generate_series($1::bigint, $2::bigint) AS n`,
        [from, to - 1, count],
      );
      await tx.query(`ALTER TABLE made ADD COLUMN id text`);
      // UUIDv7 of the moment, made distinct by the number.
      await tx.query(
        `UPDATE made SET id = substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0')
           FROM (SELECT n AS m, lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS h FROM made) AS stamp
          WHERE stamp.m = made.n`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id,
                amount_in_cents, session_id, funding_method, status, stage, review_reason, slot, payment_id, failure_reason, ended_by,
                initiated_at, posted_at, created_at, accepted_at, ended_at, settled_at)
         SELECT id, 'partner-' || partner, 'biller-' || n % 50, 'account-' || n % 100000,
                'batch-' || partner || '-' || least(${days}, greatest(0, (date_trunc('day', now())::date - date_trunc('day', at)::date))),
                100 + (n * 7919) % 100000, 'session-' || n, 'sandbox_bank', status, stage,
                CASE WHEN stage = 'review' THEN 'rejected_422_CODE' END, CASE WHEN stage <> 'review' THEN n % 1024 END,
                CASE WHEN stage <> 'review' THEN 'there-' || n END,
                CASE WHEN status = 'failed' THEN 'The account is closed.' END,
                CASE WHEN stage = 'ended' THEN 'partner' END, at,
                CASE WHEN status = 'succeeded' THEN at + interval '3 seconds' * (1 + n % 10) END, at,
                at, CASE WHEN stage = 'ended' THEN at + interval '40 seconds' END, CASE WHEN stage = 'ended' THEN at + interval '41 seconds' END
           FROM made`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.audit (at, actor, event, platform_payment_id, partner_id, detail)
         SELECT at, 'session ' || n, 'payment_created', id, 'partner-' || partner, jsonb_build_object('amount_in_cents', n) FROM made
         UNION ALL
         SELECT at + interval '40 seconds', 'worker-x', 'payment_ended', id, 'partner-' || partner,
                jsonb_build_object('status', status, 'payment_id', 'there-' || n) FROM made WHERE stage = 'ended'
         UNION ALL
         SELECT at, 'ada', 'account_unmasked', id, 'partner-' || partner, '{"reason":"asked"}' FROM made WHERE n % 5000 = 0`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.customers (customer_id, partner_id, sealed, email_digest, erase_after)
         SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'partner-' || partner, 'sealed',
                decode(lpad(to_hex(n % 200000), 64, '0'), 'hex'), now() + interval '90 days' FROM made`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, customer_id)
         SELECT id, decode(lpad(to_hex(n), 64, '0'), 'hex'), decode(lpad(to_hex(n), 64, '0'), 'hex'),
                ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid FROM made`,
      );
    });
  }
  for (const table of ['payments', 'audit', 'customers', 'flow_payments']) {
    await database.withConnection(async (connection) => {
      await connection.query('SET statement_timeout = 0');
      await connection.query(`VACUUM ANALYZE duebridge_platform.${table}`);
      await connection.query('RESET statement_timeout');
    });
  }
}
