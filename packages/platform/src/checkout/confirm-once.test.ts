import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test, { after } from 'node:test';
import type { FlowPaymentRequest } from '@duebridge/contract';
import { DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock, testDatabase } from '@duebridge/runtime/testing';
import { batchFor, cutoffAfter } from '../reconciliation/batch.ts';
import { isPayable, nextPaymentId, type Session } from './flow.ts';
import { LostPayments } from './lost-payments.ts';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import { migrations } from '../migrations.ts';
import { openPayments, type Payments } from './confirm.ts';
import type { PaymentRow } from '../store/payments.ts';

const database = await testDatabase({ after }, { migrations, name: 'confirm' });
await database.query(
  `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed)
   VALUES ('p', 'P', 'biller', 'b', 'https://p.example', 'key', '{}', 'x')`,
);
const partner = { partner_id: 'p', batch_time_zone: 'UTC', batch_cutoff: '00:00' } as Partner;
const clock = manualClock(Date.now());

let sessions = 0;
function newSession(): Session {
  sessions += 1;
  return {
    session_id: randomUUID(),
    token_hash: Buffer.alloc(32, sessions),
    partner_id: 'p',
    customer_id: randomUUID(),
    biller_id: 'b',
    account_id: 'a',
    flow_id: Buffer.alloc(32, sessions),
    balance: null,
    expires_at: new Date().toISOString(),
  };
}

/** What the page of a session confirms. */
async function confirmOf(session: Session, at = clock): Promise<FlowPaymentRequest> {
  assert.ok(isPayable(session));
  const platform_payment_id = await nextPaymentId(database, session, at.now());
  return { amount_in_cents: 500, funding_method: 'sandbox_bank', platform_payment_id };
}

function open(on: Database, taken: PaymentRow[], at = clock, read: unknown[] = []): Payments {
  const services = {
    database: on,
    registry: { get: () => Promise.resolve(partner) },
    client: {
      getAccount: () => Promise.resolve({ kind: 'found', account: { status: 'active' } }),
    },
    engine: {
      placeForNew: () => ({ slot: 7, stage: 'created' }),
      take: (payment: PaymentRow) => void taken.push(payment),
      lookAgain: (slot: number | null) => void read.push(slot),
    },
    funding: {
      methods: () => [{ funding_method: 'sandbox_bank', label: 'x', sandbox: true }],
      keep: () => Promise.resolve(),
    },
    clock: at,
    log: silentLog,
  } as unknown as Services;
  return openPayments({ ...services, lost: new LostPayments(services), paidRetentionDays: 90 });
}

test('the engine learns of a payment once, after its commit, and the payment is in one of its slots [S4 PL1]', async () => {
  const taken: PaymentRow[] = [];
  const payments = open(database, taken);
  const session = newSession();
  const request = await confirmOf(session);
  const payment = await payments.confirm(session, request);
  await payments.confirm(session, request);
  assert.deepEqual(
    taken.map((row) => row.platform_payment_id),
    [payment.platform_payment_id],
  );
  const [row] = await database.query<{ slot: number }>(
    'SELECT slot FROM duebridge_platform.payments WHERE platform_payment_id = $1',
    [payment.platform_payment_id],
  );
  assert.equal(row?.slot, 7);
});

test('the slot of a commit whose answer is lost is read again, and the next click meets the same payment [S4 PL1 PL9 F70]', async () => {
  let lost = 0;
  const cut: Database = {
    ...database,
    async transaction(work, options) {
      const result = await database.transaction(work, options);
      lost += 1;
      if (lost > 1) return result;
      throw new DatabaseUnavailable('the answer to COMMIT was lost', 'unknown');
    },
  };
  const [taken, read]: [PaymentRow[], unknown[]] = [[], []];
  const session = newSession();
  const payments = open(cut, taken, clock, read);
  const request = await confirmOf(session);
  await assert.rejects(payments.confirm(session, request), DatabaseUnavailable);
  assert.deepEqual([taken.length, read], [0, [7]]);
  const again = await payments.confirm(session, request);
  const rows = await database.query(
    `SELECT p.slot FROM duebridge_platform.payments p JOIN duebridge_platform.flow_payments f USING (platform_payment_id)
      WHERE f.flow_id = $1`,
    [session.flow_id],
  );
  assert.deepEqual(rows, [{ slot: 7 }], again.platform_payment_id);
  assert.deepEqual([taken.length, read], [0, [7]]);
});

test('a host whose clock is behind at the cut-off adds the payment to the next batch, not to a closed one', async () => {
  const cutoff = cutoffAfter(partner, Date.now());
  const behind = manualClock(cutoff - 60_000);
  await database.query(
    `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ('closed-early', 'p', $1)
     ON CONFLICT (partner_id, cutoff_at) DO NOTHING`,
    [new Date(cutoff).toISOString()],
  );
  await database.query(
    `UPDATE duebridge_platform.batches SET closed_at = now(), statement = '{}' WHERE partner_id = 'p' AND cutoff_at = $1 AND closed_at IS NULL`,
    [new Date(cutoff).toISOString()],
  );
  const taken: PaymentRow[] = [];
  const session = newSession();
  const request = await confirmOf(session, behind);
  const payment = await open(database, taken, behind).confirm(session, request);
  const [batch] = await database.query<{ cutoff_at: string }>(
    'SELECT cutoff_at FROM duebridge_platform.batches WHERE platform_batch_id = $1',
    [payment.platform_batch_id],
  );
  assert.ok(Date.parse(batch!.cutoff_at) > cutoff);
  assert.equal(taken.length, 1);
});

test('a confirm repeated with its id makes the same payment again after the database lost it, by any process [RU5]', async () => {
  const session = newSession();
  const request = await confirmOf(session);
  const { platform_payment_id } = request;
  const confirm = (): Promise<PaymentRow> => open(database, []).confirm(session, request);
  const made = await confirm();
  assert.equal(made.platform_payment_id, platform_payment_id);
  await database.transaction(async (tx) => {
    await tx.query('ALTER TABLE duebridge_platform.payments DISABLE TRIGGER payments_kept');
    for (const table of ['payments', 'flow_payments', 'flows']) {
      await tx.query(`DELETE FROM duebridge_platform.${table}`);
    }
    await tx.query('ALTER TABLE duebridge_platform.payments ENABLE TRIGGER payments_kept');
  });
  const again = await confirm();
  assert.equal(again.platform_payment_id, platform_payment_id);
  assert.equal(again.platform_batch_id, made.platform_batch_id);
});

test('a batch whose row the database has lost gets the id that its partner was told [PF3]', async () => {
  const now = Date.parse('2031-05-05T12:00:00Z');
  const id = await batchFor(database, partner, now);
  await database.transaction(async (tx) => {
    await tx.query('ALTER TABLE duebridge_platform.batches DISABLE TRIGGER batches_kept');
    await tx.query('DELETE FROM duebridge_platform.batches WHERE platform_batch_id = $1', [id]);
    await tx.query('ALTER TABLE duebridge_platform.batches ENABLE TRIGGER batches_kept');
  });
  assert.equal(await batchFor(database, partner, now), id);
});
