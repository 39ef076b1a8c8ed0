/** Billers paid by Stripe Connect, against the imitation of its API: each remittance is one transfer, whatever is lost on the way. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { CLOSED_ACCOUNT, startStripe } from '../../test/stripe.ts';
import type { RemittanceOrder } from './remittance.ts';
import { openStripeTransfers } from './stripe-transfers.ts';

const order: RemittanceOrder = {
  remittance_id: '01a20cd6-3fcc-7267-8d53-cdbf7feff4b0',
  amount_in_cents: 1_400,
  mode: 'test',
  creditor: { holder_name: 'Acme Water', stripe_account: 'acct_water' },
};
const id = order.remittance_id;

async function rigOf(t: TestContext) {
  const stripe = await startStripe(t);
  return { stripe, channel: openStripeTransfers(stripe.settings) };
}

test('a remittance is one transfer, although its answer was lost and Stripe has forgotten its key', async (t) => {
  const { stripe, channel } = await rigOf(t);
  assert.equal(await channel.find(id), undefined);
  stripe.script = ({ method }) => (method === 'POST' ? { kind: 'lose' } : undefined);
  // The library asks once more by the same key.
  await channel.send(order);
  stripe.script = () => undefined;
  stripe.forgetKeys();
  const [transfer] = stripe.transfers;
  assert.deepEqual(await channel.find(id), { kind: 'sent', reference: transfer?.id });
  assert.deepEqual(await channel.send(order), { kind: 'sent', reference: transfer?.id });
  assert.equal(stripe.transfers.length, 1);
  assert.deepEqual(
    [transfer?.amount, transfer?.currency, transfer?.destination],
    [1_400, 'usd', 'acct_water'],
  );
  assert.deepEqual(await channel.state(id), { kind: 'paid', reference: transfer?.id });
});

test('a low balance is asked again, a closed account is refused, and a reversed transfer came back', async (t) => {
  const { stripe, channel } = await rigOf(t);
  stripe.script = ({ method }) =>
    method === 'POST'
      ? { kind: 'fail', status: 400, code: 'balance_insufficient', keepsKey: true }
      : undefined;
  // Two replicas, each hour for half a day.
  for (let asked = 0; asked < 24; asked += 1) {
    await assert.rejects(channel.send(order), { code: 'balance_insufficient' });
  }
  assert.equal(await channel.find(id), undefined);
  // Stripe would repeat the stored refusal under the same key for a day.
  stripe.script = () => undefined;
  assert.equal((await channel.send(order)).kind, 'sent');
  const closed = { holder_name: 'Acme Water', stripe_account: CLOSED_ACCOUNT };
  assert.deepEqual(await channel.send({ ...order, remittance_id: 'another', creditor: closed }), {
    kind: 'refused',
    reason: 'Stripe refused it (insufficient_capabilities_for_transfer)',
  });
  Object.assign(stripe.transfers[0] ?? {}, { reversed: true });
  assert.equal((await channel.state(id)).kind, 'returned');
});

test('live money does not leave by a test key, and a transfer that Stripe does not have is no answer', async (t) => {
  const { stripe, channel } = await rigOf(t);
  await assert.rejects(channel.send({ ...order, mode: 'live' }), /not one for live money/);
  assert.equal(stripe.transfers.length, 0);
  await assert.rejects(channel.state(id), /Stripe has no transfer/);
});
