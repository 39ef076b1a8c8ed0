/**
 * No statement reads a large table from its beginning to its end: a payment goes from token to settlement, the loops beside it run, and every page
 * of the console is read, over tables of some ten thousand rows, and PostgreSQL itself counts what it has scanned. The book of money has ten
 * times as many: its index of days summarises more pages than a smaller one has.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { openDatabase, type Database } from '@duebridge/runtime';
import { force, testDatabase, until } from '@duebridge/runtime/testing';
import { startTestPartner, startTestPlatform } from './checkout/testing.ts';
import { forget } from './checkout/retention.ts';
import { migrations } from './migrations.ts';
import { fillTables } from '../test/month.ts';
import { readEverything, scansOf } from '../test/reads.ts';

const PAYMENTS = 30_000;

/** Runs `work` with a pool of its own, whose scans PostgreSQL has counted once this returns. */
async function apart(url: string, work: (database: Database) => Promise<void>): Promise<void> {
  const database = openDatabase({ url, applicationName: 'apart', statementTimeoutMs: 60_000 });
  await work(database);
  await database.close();
}

/** Rows that the other tables have of the payments of fillTables. */
const MORE = [
  `UPDATE duebridge_platform.payments SET status = 'failed', stage = 'ended', failure_reason = 'closed', review_reason = NULL, slot = 1,
          ended_by = 'operator', ended_at = now(), settled_at = now() WHERE settled_at IS NULL`,
  `INSERT INTO duebridge_platform.flows (flow_id, partner_id, biller_id, account_id, latest_payment_id, made, minted_at)
   SELECT fp.flow_id, p.partner_id, p.biller_id, p.account_id, p.platform_payment_id, 1, p.created_at
     FROM duebridge_platform.payments p JOIN duebridge_platform.flow_payments fp USING (platform_payment_id)`,
  `INSERT INTO duebridge_platform.attempts (platform_payment_id, at, entries) SELECT platform_payment_id, created_at, '[]' FROM duebridge_platform.payments`,
  `INSERT INTO duebridge_platform.mails (platform_payment_id, kind, sent_at) SELECT platform_payment_id, 'receipt', created_at FROM duebridge_platform.payments`,
  `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state)
   SELECT platform_payment_id, 'stripe', 'pi_' || platform_payment_id, 'captured' FROM duebridge_platform.payments`,
  `INSERT INTO duebridge_platform.funding_events (adapter, event_id, kind, platform_payment_id, received_at)
   SELECT 'stripe', 'evt_' || platform_payment_id, 'captured', platform_payment_id, created_at FROM duebridge_platform.payments ORDER BY 2`,
  `INSERT INTO duebridge_platform.sessions (session_hash, session_id, token_hash, partner_id, customer_id, expires_at)
   SELECT decode(md5(n::text) || md5(n::text), 'hex'), gen_random_uuid(), decode(md5(n::text), 'hex'), 'partner-1', gen_random_uuid(), now() + interval '1 hour'
     FROM generate_series(1, ${PAYMENTS}) n`,
  `INSERT INTO duebridge_platform.tokens (token_hash, client_id, partner_id, customer_id, expires_at)
   SELECT decode(md5(n::text) || md5(n::text), 'hex'), 'a client', 'partner-1', gen_random_uuid(), now() + interval '1 hour'
     FROM generate_series(1, ${PAYMENTS}) n`,
  `INSERT INTO duebridge_platform.transfers (id, act, partner_id, biller_id, debit, credit, amount_in_cents, day)
   SELECT gen_random_uuid()::text, 'settled', 'partner-1', 'biller-' || n % 50, 'taken', 'owed', 100, now()::date - 30 + n / ${PAYMENTS / 3}
     FROM generate_series(0, ${10 * PAYMENTS - 1}) n`,
  'UPDATE duebridge_platform.book_progress SET summed_to = now()::date - 4',
  // The money of all of them has gone to its billers.
  `UPDATE duebridge_platform.batches SET closed_at = now(),
          statement = jsonb_build_object('platform_batch_id', platform_batch_id, 'count', 0, 'totals', '[]'::jsonb, 'sha256', repeat('0', 64))`,
  'INSERT INTO duebridge_platform.remitted_batches (platform_batch_id) SELECT platform_batch_id FROM duebridge_platform.batches',
];

test('a payment, the loops beside it and every page of the console read large tables by their indexes', async () => {
  const partner = await startTestPartner({ after });
  const database = await testDatabase({ after }, { migrations, name: 'large' });
  await apart(database.url, async (own) => {
    await fillTables(own, PAYMENTS);
    for (const statement of MORE) await force(own, statement);
    await own.withConnection((connection) => connection.query('VACUUM ANALYZE'));
  });
  const before = await scansOf(database);
  const tables = [...before.keys()].map((name) => name.replace(/_\d{4}_\d\d$/, ''));
  for (const name of [
    'payments',
    'audit',
    'attempts',
    'flows',
    'funds',
    'mails',
    'tokens',
    'transfers',
  ]) {
    assert.ok(tables.includes(name), `${name} is large`);
  }

  // Only now, as what it repeats begins at its start, and rightly reads the whole of a small table.
  const platform = await startTestPlatform({ after }, { databaseUrl: database.url });
  const { partner_id } = await platform.register(partner, { partner_id: 'water' });
  const credentials = await platform.credentials(partner_id);
  partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });
  const { id } = await platform.pay(credentials, 'a1', 'pat@canary.example', 5_000);
  await until('the payment is settled', async () => {
    const rows = await database.query(
      'SELECT 1 FROM duebridge_platform.payments WHERE platform_payment_id = $1 AND settled_at IS NOT NULL',
      [id],
    );
    return rows.length === 1;
  });
  // What is not sealed yet is counted up to a bound, which reads the lines as they come while most of them are not.
  await until('the lines of an hour ago are sealed', async () => {
    const rows = await database.query(
      `SELECT 1 FROM duebridge_platform.audit_seals WHERE to_at > now() - interval '1 hour'`,
    );
    return rows.length > 0;
  });
  await readEverything((path, body) =>
    platform.admin(body === undefined ? 'GET' : 'POST', path, body),
  );
  await apart(database.url, async (own) => void (await forget(own)));
  await platform.stop();

  const now = await scansOf(database);
  const scanned = [...now].filter(([name, scans]) => scans > (before.get(name) ?? 0));
  assert.deepEqual(scanned, []);
});
