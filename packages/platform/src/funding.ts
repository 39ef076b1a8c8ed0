/**
 * The customer's funds, in the words that the engine and funding/funds.ts share (decision 19). Behind it are the adapters of processors; the
 * sandbox, which moves no money, is one of them.
 *
 * holds: each act is idempotent by platform_payment_id, so that the engine may repeat it after any crash; funds are captured at
 *        most once and never both captured and voided (PL7): what must be given back after a capture is refunded (decision 110). Card
 *        and bank numbers never come here.
 */
import type { OfferedMethod } from '@duebridge/contract';

/**
 * When a method takes the customer's money:
 * `reserved`    authorized before the first PUT, and captured after the payment succeeded;
 * `afterwards`  nothing is reserved: captured once the biller has posted, such as a debit by mandate;
 * `elsewhere`   by the platform's own means, such as a ledger of its own: the port is never asked, and the end settles the payment.
 * Where nothing is reserved, a payment whose PUT can leave at once begins as `dispatching`.
 */
export type Collection = NonNullable<OfferedMethod['collection']>;

/** Which funds: always those of one payment. */
export interface FundingOrder {
  readonly platform_payment_id: string;
  readonly funding_method: string;
  readonly amount_in_cents: number;
}

/** Reserved funds. `expires_at`: wall milliseconds at which the processor drops the reservation, where it does. */
export interface Hold {
  readonly expires_at?: number;
}

/**
 * A hold that ends sooner than this is not relied on for a PUT: after it, the sweep captures what is about to expire (funding/funds.ts),
 * once a minute.
 */
const HOLD_MARGIN_MS = 5 * 60_000;

/** Whether a hold lasts long enough for a PUT that leaves at `now`, in wall milliseconds. Pure. */
export function lasts({ expires_at }: Hold, now: number): boolean {
  return expires_at === undefined || expires_at - now >= HOLD_MARGIN_MS;
}

/**
 * What came of an authorization. `authorized` is not written by the port: the engine writes it with the step that relies on it, and asks
 * again after a crash in between. `reason` is for the customer, at most 500 characters. `waits`: the customer or the processor has yet
 * to act; ask again after so many milliseconds.
 */
export type Authorization =
  | ({ readonly kind: 'authorized' } & Hold)
  | { readonly kind: 'declined'; readonly reason: string }
  | { readonly kind: 'waits'; readonly afterMs: number };

/**
 * What became of the funds after the end, where it is not what the payment's status says. `source`: the account of the book
 * (store/money-book.ts) from which they come, where they are not taken at that moment.
 */
export type SettledFunds =
  | { readonly kind: 'captured'; readonly source: 'under_way' | 'elsewhere' }
  /** They had been taken although the payment failed, and were given back. */
  | { readonly kind: 'refunded'; readonly source?: 'under_way' }
  /** The biller was paid, and the customer's funds cannot be collected any more: an operator's to solve. */
  | { readonly kind: 'uncollected'; readonly reason: string };

/** How long a call to the port may take: aborted at its deadline, and when the worker stops. */
export interface FundingCallOptions {
  readonly signal: AbortSignal;
}
