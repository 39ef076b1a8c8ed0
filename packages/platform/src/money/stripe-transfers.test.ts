/** Billers paid by Stripe Connect, against the imitation of its API: each remittance is one transfer, whatever is lost on the way. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { testDatabase } from '@duebridge/runtime/testing';
import { CLOSED_ACCOUNT, startStripe } from '../../test/stripe.ts';
import { migrations } from '../migrations.ts';
import { openDesk } from './desk.ts';
import type { RemittanceChannel, RemittanceOrder } from './remittance.ts';
import { eitherChannel, openStripeTransfers } from './stripe-transfers.ts';

const order: RemittanceOrder = {
  remittance_id: '01a20cd6-3fcc-7267-8d53-cdbf7feff4b0',
  amount_in_cents: 1_400,
  way: 'stripe',
  mode: 'test',
  creditor: { holder_name: 'Acme Water', stripe_account: 'acct_water' },
};
const id = order.remittance_id;

/** Stripe needs no database. */
const nowhere = { query: () => Promise.reject(new Error('no database')) };

/** Nothing was ever sent by it, unless `has` says so. */
const desk = (has: readonly string[] = []): RemittanceChannel => ({
  send: () => Promise.reject(new Error('not for the desk')),
  find: (one) => Promise.resolve(has.includes(one) ? { kind: 'sent' } : undefined),
  state: () => Promise.resolve({ kind: 'under_way' }),
});

async function rigOf(t: TestContext) {
  const stripe = await startStripe(t);
  return { stripe, channel: eitherChannel(desk(), openStripeTransfers(stripe.settings)) };
}

test('a remittance is one transfer, although its answer was lost and Stripe has forgotten its key', async (t) => {
  const { stripe, channel } = await rigOf(t);
  assert.equal(await channel.find(id, nowhere), undefined);
  stripe.script = ({ method }) => (method === 'POST' ? { kind: 'lose' } : undefined);
  // The library asks once more by the same key.
  await channel.send(order);
  stripe.script = () => undefined;
  stripe.forgetKeys();
  const [transfer] = stripe.transfers;
  assert.deepEqual(await channel.find(id, nowhere), { kind: 'sent', reference: transfer?.id });
  assert.deepEqual(await channel.send(order), { kind: 'sent', reference: transfer?.id });
  assert.equal(stripe.transfers.length, 1);
  assert.deepEqual(
    [transfer?.amount, transfer?.currency, transfer?.destination],
    [1_400, 'usd', 'acct_water'],
  );
  assert.deepEqual(await channel.state(id, nowhere), { kind: 'paid', reference: transfer?.id });
});

test('a low balance is asked again, a closed account is refused, and a reversed transfer came back', async (t) => {
  const { stripe, channel } = await rigOf(t);
  stripe.script = ({ method }) =>
    method === 'POST'
      ? { kind: 'fail', status: 400, code: 'balance_insufficient', keepsKey: true }
      : undefined;
  await assert.rejects(channel.send(order), { code: 'balance_insufficient' });
  assert.equal(await channel.find(id, nowhere), undefined);
  // Stripe would repeat the stored refusal under the same key for a day.
  stripe.script = () => undefined;
  assert.equal((await channel.send(order)).kind, 'sent');
  const closed = { holder_name: 'Acme Water', stripe_account: CLOSED_ACCOUNT };
  assert.deepEqual(await channel.send({ ...order, remittance_id: 'another', creditor: closed }), {
    kind: 'refused',
    reason: 'Stripe refused it (insufficient_capabilities_for_transfer)',
  });
  Object.assign(stripe.transfers[0] ?? {}, { reversed: true });
  assert.equal((await channel.state(id, nowhere)).kind, 'returned');
});

test('live money does not leave by a test key, and an order is followed where it was sent', async (t) => {
  const { stripe, channel } = await rigOf(t);
  await assert.rejects(channel.send({ ...order, mode: 'live' }), /not one for live money/);
  assert.equal(stripe.transfers.length, 0);
  await assert.rejects(channel.state(id, nowhere), /Stripe has no transfer/);
  await assert.rejects(eitherChannel(desk(), undefined).send(order), /Stripe is not configured/);
  const sentBefore = eitherChannel(desk([id]), openStripeTransfers(stripe.settings));
  assert.equal((await sentBefore.find(id, nowhere))?.kind, 'sent');
  assert.equal((await sentBefore.state(id, nowhere)).kind, 'under_way');
});

test('a transaction asks the desk and Stripe by its own connection', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'desk', maxConnections: 1 });
  const stripe = await startStripe(t);
  const channel = eitherChannel(openDesk(database), openStripeTransfers(stripe.settings));
  await channel.send(order);
  const state = await database.transaction((tx) => channel.state(id, tx));
  assert.equal(state.kind, 'paid');
});

test('the desk takes no transfer by Stripe, not even from a server that knows no other channel', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'desk' });
  await assert.rejects(openDesk(database).send(order), { constraint: 'bank_transfers_way_check' });
});
