/**
 * Transfers to billers that have a connected account at Stripe (Connect), as a channel of remittances.
 *
 * enters: remittances whose biller is paid by Stripe.  leaves: one transfer each, from the platform's balance at Stripe to the biller's.
 * holds:  a transfer carries the id of its remittance as its group, and is looked for by it before one is made: Stripe forgets
 *         idempotency keys after a day. Live money leaves by a live key alone, test money by a test key alone.
 */
import type { Stripe } from 'stripe';
import {
  isRefusal,
  isTestKey,
  keyed,
  openStripeClient,
  type StripeAccess,
} from '../funding/stripe-client.ts';
import type { RemittanceChannel, Sent } from './remittance.ts';

/** Stripe's words for a transfer that it will never make to this account; with any other, such as a low balance, it is asked again. */
const NEVER_SENT = new Set([
  'resource_missing',
  'transfers_not_allowed',
  'insufficient_capabilities_for_transfer',
]);

/** Opens the channel without calling Stripe. */
export function openStripeTransfers(access: StripeAccess): RemittanceChannel {
  const stripe = openStripeClient(access);
  const look = async (transfer_group: string): Promise<Stripe.Transfer | undefined> => {
    const { data } = await stripe.transfers.list({ transfer_group, limit: 1 });
    return data[0];
  };
  const sent = ({ id }: Stripe.Transfer): Sent => ({ kind: 'sent', reference: id });
  return {
    async send({ remittance_id, amount_in_cents, mode, creditor }) {
      if (!('stripe_account' in creditor)) {
        throw new Error('it is sent by Stripe, and its biller has no account at Stripe any more');
      }
      if (isTestKey(access.secretKey) !== (mode === 'test')) {
        throw new Error(`the secret key of Stripe is not one for ${mode} money`);
      }
      const known = await look(remittance_id);
      if (known !== undefined) return sent(known);
      const order = {
        amount: amount_in_cents,
        currency: 'usd',
        destination: creditor.stripe_account,
        transfer_group: remittance_id,
      };
      try {
        return sent(await keyed(remittance_id, (key) => stripe.transfers.create(order, key)));
      } catch (error) {
        if (!isRefusal(error) || !NEVER_SENT.has(error.code ?? '')) throw error;
        return { kind: 'refused', reason: `Stripe refused it (${error.code})` };
      }
    },
    async find(remittance_id) {
      const known = await look(remittance_id);
      return known === undefined ? undefined : sent(known);
    },
    async state(remittance_id) {
      const transfer = await look(remittance_id);
      if (transfer === undefined) throw new Error(`Stripe has no transfer of ${remittance_id}`);
      // Between two balances at Stripe it arrives at once, and can only be reversed.
      return transfer.reversed
        ? { kind: 'returned', reason: `${transfer.id} was reversed` }
        : { kind: 'paid', reference: transfer.id };
    },
  };
}
