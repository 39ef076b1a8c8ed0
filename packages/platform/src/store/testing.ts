/**
 * Tables like those of a platform after a month of work: as many payments as are asked for, written directly into the tables, with
 * everything that searches and pages read. Used by the test of search cost and by bench/operate.ts.
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
                jsonb_build_object('status', status, 'by', 'partner', 'payment_id', 'there-' || n) FROM made WHERE stage = 'ended'
         UNION ALL
         SELECT at, 'ada', 'account_unmasked', id, 'partner-' || partner, '{"reason":"asked"}' FROM made WHERE n % 5000 = 0`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.customers (customer_id, partner_id, sealed, email_digest, erase_after)
         SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'partner-' || partner, 'sealed',
                decode(lpad(to_hex(n % 200000), 64, '0'), 'hex'), now() + interval '90 days' FROM made`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, session_id, customer_id)
         SELECT id, decode(lpad(to_hex(n), 64, '0'), 'hex'), decode(lpad(to_hex(n), 64, '0'), 'hex'), gen_random_uuid(),
                ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid FROM made`,
      );
      // Two rows for one payment in 40, with twelve calls together; one row with two calls for the others.
      await tx.query(
        `WITH call AS (SELECT '{"at": 0, "last_at": 9, "took_ms": 20, "http_status": 200, "request_id": "r"}'::jsonb AS call)
         INSERT INTO duebridge_platform.attempts (platform_payment_id, at, entries)
         SELECT id, at, jsonb_build_array(call || jsonb_build_object('kind', 'put', 'count', 1, 'result', 'processing'),
                                          call || jsonb_build_object('kind', 'get', 'count', 1, 'result', status)) FROM made, call
         UNION ALL
         SELECT id, at + interval '1 second', jsonb_build_array(call || jsonb_build_object('kind', 'get', 'count', 10, 'result', 'processing'))
           FROM made, call WHERE n % 40 = 5`,
      );
      await tx.query(
        `INSERT INTO duebridge_platform.differences (difference_id, platform_batch_id, partner_id, platform_payment_id, kind, here, there)
         SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'batch-1-1', 'partner-1', id, 'status', 'failed', 'succeeded'
           FROM made WHERE n % 10000 = 1`,
      );
    });
  }
  // All batches but today's are closed.
  await database.query(
    `UPDATE duebridge_platform.batches b SET closed_at = now(), statement = jsonb_build_object('platform_batch_id', b.platform_batch_id,
            'count', 0, 'totals', '[]'::jsonb, 'sha256', repeat('0', 64)) WHERE cutoff_at <= now() AND closed_at IS NULL`,
  );
  for (const table of [
    'payments',
    'audit',
    'customers',
    'flow_payments',
    'attempts',
    'differences',
    'batches',
  ]) {
    await database.withConnection(async (connection) => {
      await connection.query('SET statement_timeout = 0');
      await connection.query(`VACUUM ANALYZE duebridge_platform.${table}`);
      await connection.query('RESET statement_timeout');
    });
  }
}

/**
 * Every page and search of an operator over such tables: a name, the path, and the body where it is a POST. `id` is a payment's id,
 * `number` its number; `email` belongs to a customer.
 */
export function pagesOf(payment: {
  readonly id: string;
  readonly number: number;
  readonly amount_in_cents: number;
  readonly email: string;
}): readonly (readonly [name: string, path: string, body?: object])[] {
  const hour = new Date(Math.floor((Date.now() - 86_400_000) / 3_600_000) * 3_600_000);
  const list = (query: string): string => `/admin/v1/payments?${query}`;
  const between = `from=${hour.toISOString()}&to=${new Date(hour.getTime() + 86_400_000).toISOString()}`;
  return [
    ['newest payments', list('limit=50')],
    ['succeeded', list('status=succeeded')],
    ['failed', list('status=failed')],
    ['canceled', list('status=canceled')],
    ['processing', list('status=processing')],
    ['in review', list('stage=review')],
    ['overdue', list('overdue=true')],
    ['unsettled', list('unsettled=true')],
    ['of a partner', list('partner_id=partner-2')],
    ['failed of a partner', list('partner_id=partner-2&status=failed')],
    ['of a partner that is none', list('partner_id=nobody')],
    ['of an amount', list(`amount_in_cents=${payment.amount_in_cents}`)],
    ['of an amount that nobody paid', list('amount_in_cents=99999999999')],
    ['failed for a reason', list('failure_reason=account+is+closed')],
    ['failed for a reason that is none', list('failure_reason=nothing+like+this')],
    ['failed for a reason in an hour', list(`failure_reason=closed&from=${hour.toISOString()}`)],
    ['in review for a reason', list('stage=review&failure_reason=rejected_422')],
    ['with many attempts', list('min_attempts=10')],
    ['with more attempts than any', list('min_attempts=500')],
    ['processing with many attempts', list('status=processing&min_attempts=10')],
    [
      'failed of a partner with many attempts',
      list('status=failed&partner_id=partner-2&min_attempts=10'),
    ],
    ['stuck', list('stuck=true')],
    ['paused', list('paused=true')],
    ['marked for follow-up', list('follow_up=true')],
    ['of a biller', list('biller_id=biller-7')],
    ['of a biller that is none', list('biller_id=nobody')],
    ['of a biller of a partner', list('biller_id=biller-7&partner_id=partner-4')],
    ['between two amounts', list('min_amount_in_cents=2500&max_amount_in_cents=2600')],
    ['above an amount', list('min_amount_in_cents=90000')],
    ['above an amount that nobody paid', list('min_amount_in_cents=99999999')],
    ['oldest first', list('sort=oldest')],
    ['oldest first, processing', list('sort=oldest&status=processing')],
    ['oldest first, failed', list('sort=oldest&status=failed')],
    ['oldest first, of a biller', list('sort=oldest&biller_id=biller-7')],
    ['largest first', list('sort=largest')],
    ['largest first, the next page', list(`sort=largest&cursor=50000~${payment.id}`)],
    ['largest first, failed of a partner', list('sort=largest&status=failed&partner_id=partner-2')],
    ['largest first, canceled', list('sort=largest&status=canceled')],
    ['largest first, processing', list('sort=largest&status=processing')],
    ['largest first, of a day', list(`sort=largest&${between}`)],
    ['largest first, of a biller', list('sort=largest&biller_id=biller-7')],
    ['largest first, for a reason that is none', list('sort=largest&failure_reason=nothing')],
    ['largest first, with many attempts', list('sort=largest&min_attempts=10')],
    ['smallest first', list('sort=smallest')],
    ['most attempts first, processing', list('sort=attempts&status=processing')],
    ['most attempts first, stuck', list('sort=attempts&stuck=true')],
    ['of a day', list(between)],
    ['of an amount on a day', list(`amount_in_cents=${payment.amount_in_cents}&${between}`)],
    ['failed on a day', list(`status=failed&${between}`)],
    ['of a batch', list('platform_batch_id=batch-1-3')],
    ['by its id', list(`id=${payment.id}`)],
    ['by the id at the partner', list(`id=there-${payment.number}`)],
    ['by its session', list(`id=session-${payment.number}`)],
    ['by an id that nothing has', list('id=nothing')],
    ['a page from the middle', list(`cursor=${payment.id}&limit=100`)],
    ['one payment', `/admin/v1/payments/${payment.id}`],
    ['audit', '/admin/v1/audit'],
    ['audit of a person', '/admin/v1/audit?actor=ada'],
    ['audit of a partner', '/admin/v1/audit?partner_id=partner-1'],
    ['audit of a payment', `/admin/v1/audit?platform_payment_id=${payment.id}`],
    ['audit of an event', '/admin/v1/audit?event=account_unmasked'],
    ['audit of an event that never was', '/admin/v1/audit?event=never'],
    ['a piece of the audit compared with its seals', '/admin/v1/audit/verification?limit=1'],
    ['differences', '/admin/v1/differences?state=open'],
    ['differences by age', '/admin/v1/differences/summary'],
    ['old differences', '/admin/v1/differences?state=open&age=older'],
    ['tokens and sessions', '/admin/v1/access'],
    ['overview', '/admin/v1/overview'],
    ['figures of an hour', '/admin/v1/figures?range=1h'],
    ['figures of a day', '/admin/v1/figures?range=24h'],
    ['figures of a week', '/admin/v1/figures?range=7d'],
    ['figures of a partner', '/admin/v1/figures?range=24h&partner_id=partner-3'],
    ['batches', '/admin/v1/batches'],
    ['one batch', '/admin/v1/batches/batch-1-3'],
    ['partners', '/admin/v1/partners'],
    ['one partner', '/admin/v1/partners/partner-1'],
    ['reasons of failures, an hour', '/admin/v1/failures?range=1h'],
    ['reasons of failures, a day', '/admin/v1/failures?range=24h'],
    ['reasons of failures, a week', '/admin/v1/failures?range=7d'],
    ['reasons of a partner, a week', '/admin/v1/failures?range=7d&partner_id=partner-1'],
    ['operators', '/admin/v1/operators'],
    ['of an account', '/admin/v1/payments/search', { account_id: 'account-17' }],
    ['of an account that is none', '/admin/v1/payments/search', { account_id: 'nothing' }],
    ['of a person', '/admin/v1/payments/search', { email: payment.email }],
    ['of a person that is none', '/admin/v1/payments/search', { email: 'nobody@example.com' }],
    ['a person', '/admin/v1/people/show', { email: payment.email, reason: 'asked' }],
    [
      'what an act would do',
      '/admin/v1/payments/preview',
      { act: 'close', platform_payment_ids: [payment.id] },
    ],
  ];
}
