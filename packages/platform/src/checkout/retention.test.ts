import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { until } from '@duebridge/runtime/testing';
import { startTestPartner, startTestPlatform } from './testing.ts';
import { ATTEMPT_DAYS, forget, MAIL_DAYS } from './retention.ts';
import { openSealer } from '../partners/seal.ts';

const sealKey = Buffer.alloc(32, 9).toString('base64');
const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after }, { sealKey, paidRetentionDays: 90 });
const { database } = platform;
// The platform sweeps at its start, and then in an hour: its own sweep must not remove what the tests count.
await until('its first sweep', () =>
  platform.logged.some((line) => line.includes('retention sweep done')),
);
const { partner_id } = await platform.register(partner);
const credentials = await platform.credentials(partner_id);

interface Customer {
  customer_id: string;
  sealed: string | null;
  erased: boolean;
  days: number;
}

async function customerOf(session_id: string): Promise<Customer> {
  const [row] = await database.query<Customer>(
    `SELECT c.customer_id, c.sealed, c.erased_at IS NOT NULL AS erased,
            round(extract(epoch FROM c.erase_after - now()) / 86400)::int AS days
       FROM duebridge_platform.customers c JOIN duebridge_platform.sessions s USING (customer_id) WHERE s.session_id = $1`,
    [session_id],
  );
  assert.ok(row);
  return row;
}

/** As if so many days had passed: every date of the front moves back. */
async function pass(days: number): Promise<void> {
  const back = `make_interval(days => ${days})`;
  await database.query(
    `UPDATE duebridge_platform.customers SET erase_after = erase_after - ${back}`,
  );
  await database.query(`UPDATE duebridge_platform.tokens SET expires_at = expires_at - ${back}`);
  await database.query(`UPDATE duebridge_platform.sessions SET expires_at = expires_at - ${back}`);
  await database.query(`UPDATE duebridge_platform.flows SET minted_at = minted_at - ${back}`);
}

const nothing = {
  customers: 0,
  tokens: 0,
  sessions: 0,
  flows: 0,
  mails: 0,
  events: 0,
  attempts: 0,
  asks: 0,
  sums: 0,
  answers: 0,
};

test('a customer who only looked is erased after a day, one who paid after ninety, and the payment stays', async () => {
  const looked = await platform.session(credentials, 'a1', 'looked@example.com');
  const paid = await platform.session(credentials, 'a2', 'paid@example.com');
  const made = await platform.confirm(paid.session);
  const id = String(made.body['platform_payment_id']);
  assert.equal((await customerOf(looked.session_id)).days, 1);
  const payer = await customerOf(paid.session_id);
  assert.equal(payer.days, 90);
  const { email } = JSON.parse(
    openSealer(sealKey).open(payer.sealed ?? '', `customers/${payer.customer_id}`),
  ) as { email: string };
  assert.equal(email, 'paid@example.com');

  assert.deepEqual(await forget(database), nothing);
  await pass(2);
  assert.deepEqual(await forget(database), {
    ...nothing,
    customers: 1,
    tokens: 2,
    sessions: 2,
    flows: 1,
  });
  const left = async (): Promise<boolean[]> =>
    (
      await database.query<{ sealed: boolean }>(
        'SELECT sealed IS NOT NULL AS sealed FROM duebridge_platform.customers ORDER BY created_at',
      )
    ).map((row) => row.sealed);
  assert.deepEqual(await left(), [true]);
  // One that the same flow made before, on whose place nothing stands any more.
  await database.query(
    `INSERT INTO duebridge_platform.flow_payments (platform_payment_id, flow_id, token_hash, customer_id)
     SELECT 'an-older-one', flow_id, token_hash, customer_id FROM duebridge_platform.flow_payments`,
  );
  await pass(89);
  assert.deepEqual(await forget(database), { ...nothing, customers: 1 });
  assert.deepEqual(await left(), []);
  const visits = await database.query(
    'SELECT platform_payment_id FROM duebridge_platform.flow_payments',
  );
  assert.deepEqual(visits, [{ platform_payment_id: id }], 'the latest of a flow alone stays');
  const payments = await database.query(
    `SELECT p.amount_in_cents, f.customer_id = $2 AS traced
       FROM duebridge_platform.payments p JOIN duebridge_platform.flow_payments f USING (platform_payment_id) WHERE p.platform_payment_id = $1`,
    [id, payer.customer_id],
  );
  assert.deepEqual(payments, [{ amount_in_cents: 500, traced: true }]);
});

/** Payments made and settled so many days ago, or made then and not settled yet, each with the evidence of one PUT. Gives their ids. */
async function tried(count: number, days: number, settled: boolean): Promise<string[]> {
  const at = Date.now() - days * 86_400_000;
  const ids = Array.from({ length: count }, () => uuidv7({ msecs: at }));
  const when = new Date(at).toISOString();
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
              funding_method, slot, created_at, stage, status, review_reason, failure_reason, ended_at, settled_at)
       SELECT id, $2, 'b', 'A', 'old', 1, 'sandbox_bank', CASE WHEN $3 THEN 1 END, $4::timestamptz,
              CASE WHEN $3 THEN 'ended' ELSE 'review' END, CASE WHEN $3 THEN 'failed' ELSE 'processing' END,
              CASE WHEN NOT $3 THEN 'asked' END, CASE WHEN $3 THEN 'no' END,
              CASE WHEN $3 THEN $4::timestamptz END, CASE WHEN $3 THEN $4::timestamptz END
         FROM unnest($1::text[]) AS id`,
      [ids, partner_id, settled, when],
    );
    await tx.query(
      `INSERT INTO duebridge_platform.attempts (platform_payment_id, at, entries)
       SELECT id, $2::timestamptz, '[]' FROM unnest($1::text[]) AS id`,
      [ids, when],
    );
  });
  return ids;
}

test('evidence is deleted long after its payment was settled, and kept while it is not settled', async () => {
  const old = await tried(3, ATTEMPT_DAYS + 1, true);
  const stuck = await tried(2, ATTEMPT_DAYS + 1, false);
  const young = await tried(2, ATTEMPT_DAYS - 1, true);
  const ids = [...old, ...stuck, ...young];
  assert.equal((await forget(database)).attempts, old.length);
  const left = await database.query<{ id: string }>(
    'SELECT platform_payment_id AS id FROM duebridge_platform.attempts WHERE platform_payment_id = ANY($1)',
    [ids],
  );
  assert.deepEqual(new Set(left.map((row) => row.id)), new Set([...stuck, ...young]));
  const payments = await database.query(
    'SELECT 1 FROM duebridge_platform.payments WHERE platform_payment_id = ANY($1)',
    [ids],
  );
  assert.equal(payments.length, ids.length, 'a payment went with its evidence');
  assert.equal((await forget(database)).attempts, 0);
});

test('mails leave after two months, and the shell of an erased person with its time', async () => {
  const idOf = (days: number): string => uuidv7({ msecs: Date.now() - days * 86_400_000 });
  const old = MAIL_DAYS + 1;
  // That of a refund is young, however old its payment: without its row it would be queued again in the next minute.
  const [sent, refused, waiting, refunded, young] = [old, old, old, old, 1].map(idOf);
  await database.query(
    `INSERT INTO duebridge_platform.mails (platform_payment_id, kind, queued_at, sent_at, given_up_at)
     VALUES ($1, 'receipt', $6, now(), NULL), ($2, 'receipt', $6, NULL, now()), ($3, 'receipt', $6, NULL, NULL),
            ($4, 'receipt', now(), now(), NULL), ($5, 'receipt', now(), now(), NULL)`,
    [sent, refused, waiting, refunded, young, new Date(Date.now() - old * 86_400_000)],
  );
  await database.query(
    `INSERT INTO duebridge_platform.customers (customer_id, partner_id, erase_after, erased_at)
     VALUES (gen_random_uuid(), $1, now() - interval '1 second', now())`,
    [partner_id],
  );
  assert.deepEqual(await forget(database), { ...nothing, mails: 3, customers: 1 });
});

test('what waited for a second person leaves after a week, when it counts no more', async () => {
  const ask = (subject: string, days: number) =>
    database.query(
      `INSERT INTO duebridge_platform.asks (subject, act, version, asked_by, reason, asked_at)
       VALUES ($1, 'close', '', 'admin-key', 'why', now() - make_interval(days => $2))`,
      [subject, days],
    );
  await ask('payment/old', 8);
  await ask('payment/young', 6);
  assert.equal((await forget(database)).asks, 1);
  const left = await database.query('SELECT subject FROM duebridge_platform.asks');
  assert.deepEqual(left, [{ subject: 'payment/young' }]);
});
