/**
 * What a payment processor's adapter provides (decision 110): the form in which a bank, a card processor or a wallet is plugged in.
 *
 * holds: the platform stores `prepare`'s reference before it calls `authorize`, so that after any crash the authorization can be found,
 *        captured or released. Every call may be repeated with the same order, also while an earlier one is still under way; an adapter
 *        uses `platform_payment_id` as its idempotency key. A call that throws is repeated later: throw for everything that is not
 *        known for certain. Card and bank numbers never pass through here: `instrument` is the processor's own name for them.
 */
import type { FundingAction, FundingCallOptions, FundingMethod, FundingOrder } from '../funding.ts';

/** A method as its adapter offers it. */
export interface AdapterMethod extends Omit<FundingMethod, 'frame'> {
  /** The customer enters details in the adapter's page (`page`), whose result is the instrument. */
  readonly asks?: boolean;
}

/** An order with what the processor needs to begin. */
export interface FundsOrder extends FundingOrder {
  /** From the adapter's page; undefined where the method asks for nothing. */
  readonly instrument: string | undefined;
  /** Where the processor sends a customer back to after a redirect; undefined when DUEBRIDGE_PUBLIC_URL is not set. */
  readonly return_url: string | undefined;
}

/** An order whose reference is stored. */
export interface PreparedOrder extends FundsOrder {
  readonly reference: string;
}

/** What the processor says of an authorization. */
export type ProcessorAuthorization =
  /** `expires_at`: wall milliseconds at which the processor drops it, where it does. */
  | { readonly kind: 'authorized'; readonly expires_at?: number }
  /** For good: nothing is held, and nothing can be held by this reference any more. `reason`, for the customer, in one sentence. */
  | { readonly kind: 'declined'; readonly reason: string }
  | { readonly kind: 'requires_action'; readonly action: FundingAction }
  /** Neither yet: the processor is asked again. */
  | { readonly kind: 'pending' };

/** What came of a capture. `uncollectable`: certain, and for good; say why, for the operator. */
export type ProcessorCapture =
  { readonly kind: 'captured' } | { readonly kind: 'uncollectable'; readonly reason: string };

/** What a webhook told. Events are never the only way to learn: most of them only cause the processor to be asked. */
export interface ProcessorEvent {
  /** The processor's id of the event: each is applied once. */
  readonly event_id: string;
  readonly platform_payment_id: string;
  /**
   * `news`: something changed; ask. `taken`: the funds are held or captured, whatever is believed here: released if the payment has
   * failed. `disputed` and `returned` are for operators: the customer or their bank wants, or took, the money back. `refunded`: somebody
   * refunded it at the processor.
   */
  readonly kind: 'news' | 'taken' | 'disputed' | 'returned' | 'refunded';
  /** For the audit; no personal data. */
  readonly detail?: Readonly<Record<string, string | number | null>>;
}

/** A request of a processor to its webhook. */
export interface ProcessorRequest {
  /** The bytes as they came: signatures are over them. */
  readonly body: Buffer;
  header(name: string): string | undefined;
}

/** Thrown by `readEvent` when the signature is missing or wrong, or the request cannot be read. */
export class UnverifiedEvent extends Error {
  override readonly name = 'UnverifiedEvent';
}

/** The adapter's part of the payment page: a document of its own in a frame, with a policy of its own. */
export interface AdapterPage {
  /** The built script that the frame runs. */
  readonly script: URL;
  /** Public settings for that script, such as a publishable key. */
  readonly settings: Readonly<Record<string, string>>;
  /** Additions to the frame's content policy, by directive. */
  readonly policy: Readonly<Record<string, readonly string[]>>;
}

/** A payment processor. */
export interface FundingAdapter {
  /** `[a-z0-9_]`, such as `stripe`: in rows, metrics and in the address of its webhook, /v1/funding/{name}/events. */
  readonly name: string;
  /** The methods on offer, each with a `funding_method` of this adapter alone. */
  methods(): readonly AdapterMethod[];
  /** Makes the authorization known to the processor without any money held, and returns its reference. */
  prepare(order: FundsOrder, call: FundingCallOptions): Promise<string>;
  /** Holds the funds, or tells how that stands. */
  authorize(order: PreparedOrder, call: FundingCallOptions): Promise<ProcessorAuthorization>;
  /** Takes the funds, once. */
  capture(order: PreparedOrder, call: FundingCallOptions): Promise<ProcessorCapture>;
  /** Releases the funds; `captured` when they have been taken already: the platform then calls `refund`. */
  void(order: PreparedOrder, call: FundingCallOptions): Promise<'released' | 'captured'>;
  /** Gives captured funds back in full, once. */
  refund(order: PreparedOrder, call: FundingCallOptions): Promise<void>;
  readonly page?: AdapterPage;
  /** Verifies and reads a webhook; undefined for an event that concerns nothing here. Throws UnverifiedEvent. */
  readEvent?(request: ProcessorRequest): Promise<ProcessorEvent | undefined>;
}
