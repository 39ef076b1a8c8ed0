/**
 * The sandbox: an adapter that moves no money and says so, for registrations in test mode.
 *
 * enters: orders, as every adapter gets them.  leaves: answers that follow from the method alone.
 * holds:  nothing is kept of an order, so that every call may be repeated. Servers of the last version use the table `sandbox_funds`.
 */
import type { FundingAdapter } from './adapter.ts';

export const sandbox: FundingAdapter = {
  name: 'sandbox',
  methods: () => [
    { funding_method: 'sandbox_bank', label: 'Sandbox bank account', sandbox: true },
    { funding_method: 'sandbox_declined', label: 'Sandbox account that declines', sandbox: true },
  ],
  authorize: ({ funding_method }) =>
    Promise.resolve(
      funding_method === 'sandbox_bank'
        ? { kind: 'authorized' }
        : { kind: 'declined', reason: 'The funding method was declined.' },
    ),
  // No money moves, so nothing has to be kept to move it once.
  capture: () => Promise.resolve({ kind: 'captured' }),
  void: () => Promise.resolve('released'),
  refund: () => Promise.resolve(),
  refundPart: () => Promise.resolve({ kind: 'refunded' }),
};
