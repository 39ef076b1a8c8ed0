/** The data held about a person: shown, and erased as far as a payment on its way allows. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { newCustomer, posted } from '../../test/paying.ts';
import { startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const { partner_id } = await platform.register(partner);
const place = { platform, partner, credentials: await platform.credentials(partner_id) };

test('a person is shown, erased and gone, but not before their payments have ended; the audit never names them', async () => {
  const customer = await newCustomer(place);
  const { email } = customer;
  const ask = (act: string): Promise<Answer> =>
    platform.admin('POST', `/admin/v1/people/${act}`, { email, reason: 'they asked' });
  const payment = await customer.pay({ amount_in_cents: 2_500, funding_method: 'sandbox_bank' });
  const { records, payments } = (await ask('show')).body as {
    records: { email: string }[];
    payments: { platform_payment_id: string }[];
  };
  assert.deepEqual(
    [records.map((one) => one.email), payments.map((one) => one.platform_payment_id)],
    [[email], [payment.id]],
  );
  const kept = await ask('erase');
  assert.deepEqual(kept.body, { customers: 0, kept_for_payments: 1, saved_methods: 0 });
  customer.ends(posted());
  await payment.settled();
  const erased = await ask('erase');
  assert.deepEqual(erased.body, { customers: 1, kept_for_payments: 0, saved_methods: 0 });
  assert.equal((await ask('show')).status, 404);
  assert.equal((await payment.read()).status, 'succeeded');
  const lines = await platform.database.query(
    `SELECT event, detail FROM duebridge_platform.audit WHERE event IN ('person_shown', 'person_erased') ORDER BY at`,
  );
  assert.equal(lines.length, 3);
  assert.ok(!JSON.stringify(lines).includes(email));
});
