import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { bearer, startTestPartner, startTestPlatform } from './testing.ts';
import { forget } from './retention.ts';
import { openSealer } from '../partners/seal.ts';

const sealKey = Buffer.alloc(32, 9).toString('base64');
const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after }, { sealKey, paidRetentionDays: 90 });
const { database } = platform;
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
}

test('who only looked is forgotten in a day, who paid in ninety, and the payment stays', async () => {
  const looked = await platform.session(credentials, 'a1', 'looked@example.com');
  const paid = await platform.session(credentials, 'a2', 'paid@example.com');
  const made = await platform.call('POST', '/v1/flow/payments', {
    headers: bearer(paid.session),
    body: { amount_in_cents: 500, funding_method: 'sandbox_bank' },
  });
  const id = String(made.body['platform_payment_id']);
  assert.equal((await customerOf(looked.session_id)).days, 1);
  const payer = await customerOf(paid.session_id);
  assert.equal(payer.days, 90);
  const { email } = JSON.parse(
    openSealer(sealKey).open(payer.sealed ?? '', `customers/${payer.customer_id}`),
  ) as { email: string };
  assert.equal(email, 'paid@example.com');

  assert.deepEqual(await forget(database), { customers: 0, tokens: 0, sessions: 0 });
  await pass(2);
  assert.deepEqual(await forget(database), { customers: 1, tokens: 2, sessions: 2 });
  const left = async (): Promise<boolean[]> =>
    (
      await database.query<{ sealed: boolean }>(
        'SELECT sealed IS NOT NULL AS sealed FROM duebridge_platform.customers ORDER BY created_at',
      )
    ).map((row) => row.sealed);
  assert.deepEqual(await left(), [false, true]);
  await pass(89);
  assert.deepEqual(await forget(database), { customers: 1, tokens: 0, sessions: 0 });
  assert.deepEqual(await left(), [false, false]);
  const payments = await database.query(
    `SELECT p.amount_in_cents, f.customer_id = $2 AS traced
       FROM duebridge_platform.payments p JOIN duebridge_platform.flow_payments f USING (platform_payment_id) WHERE p.platform_payment_id = $1`,
    [id, payer.customer_id],
  );
  assert.deepEqual(payments, [{ amount_in_cents: 500, traced: true }]);
});
