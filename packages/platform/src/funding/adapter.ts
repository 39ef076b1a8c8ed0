/**
 * What a payment processor's adapter provides (decision 110): the form in which a bank, a card processor or a wallet is plugged in.
 *
 * holds: the platform stores the reference before it calls `authorize` or `capture`, so that after any crash the authorization can be found,
 *        captured or released. Every call may be repeated with the same order, also while an earlier one is still under way; an adapter
 *        uses `platform_payment_id` as its idempotency key. A call that throws is repeated later: throw for everything that is not
 *        known for certain. Card and bank numbers never pass through here: `instrument` is the processor's own name for them.
 */
import type { FlowAction, OfferedMethod } from '@duebridge/contract';
import type { FundingCallOptions, FundingOrder } from '../funding.ts';

/** A method as its adapter offers it; the contract's schema says what its fields are. */
export type AdapterMethod = Readonly<OfferedMethod>;

/** An order with the data that the processor needs to begin. */
export interface FundsOrder extends FundingOrder {
  /** From the adapter's page; undefined when the method needs no input. */
  readonly instrument: string | undefined;
  /** The processor's customer object, where the method saves and the customer has one. */
  readonly customer?: string | undefined;
  /** Where the processor sends a customer back to after a redirect; undefined when DUEBRIDGE_PUBLIC_URL is not set. */
  readonly return_url: string | undefined;
}

/** An order whose reference has been stored. */
export interface PreparedOrder extends FundsOrder {
  readonly reference: string;
}

/** The processor's answer about an authorization. */
export type ProcessorAuthorization =
  /** `expires_at`: wall milliseconds at which the processor drops it, where it does. */
  | { readonly kind: 'authorized'; readonly expires_at?: number }
  /**
   * Final: nothing is held, and nothing can be held under this reference any more. `reason`, for the customer, in one sentence.
   */
  | { readonly kind: 'declined'; readonly reason: string }
  | { readonly kind: 'requires_action'; readonly action: FlowAction }
  /** Undecided: the processor is asked again. */
  | { readonly kind: 'pending' };

/** The result of a capture. `uncollectable` is certain and final; give the reason, for the operator. */
export type ProcessorCapture =
  | { readonly kind: 'captured' }
  | { readonly kind: 'uncollectable'; readonly reason: string };

/** A part of a payment that is refunded. */
export interface RefundPart {
  /** Ours, forever: the processor must be able to find the refund by it, however much later. */
  readonly refund_id: string;
  readonly amount_in_cents: number;
}

/** The result of a partial refund; `reason` for the operator. */
export type RefundedPart =
  | { readonly kind: 'refunded' }
  | { readonly kind: 'refused'; readonly reason: string };

/** What moved at the processor; applied once for its `reference`, however many events tell of it and in whatever order. */
export interface EventMoney {
  /** The processor's id of the dispute, the debit or the refund. */
  readonly reference: string;
  readonly amount_in_cents: number;
  /** Of a dispute: by when it wants an answer, ISO 8601, and how it ended. */
  readonly deadline?: string;
  readonly outcome?: 'won' | 'lost';
  /** The processor's word for it. */
  readonly reason?: string;
}

/** The contents of a webhook. The platform never relies on events alone: most of them only cause it to ask the processor. */
export interface ProcessorEvent {
  /** The processor's id of the event; each event is applied once. */
  readonly event_id: string;
  readonly platform_payment_id: string;
  /**
   * `news`: something changed; ask. `taken`: the funds are held or captured, whatever the row here says; they are released if the
   * payment has failed. `disputed` and `returned` open a case: the customer or their bank wants, or took, the money back.
   * `refunded`: somebody refunded it at the processor, not through the platform. `refund_failed`: a refund that was made came back to the
   * platform; the reference of its money is the `refund_id` of a part, or the processor's id of one made there.
   */
  readonly kind: 'news' | 'taken' | 'disputed' | 'returned' | 'refunded' | 'refund_failed';
  /** What the last four are about; default: all of the payment, under the event's id. */
  readonly money?: readonly EventMoney[];
  /** For the audit; no personal data. */
  readonly detail?: Readonly<Record<string, string | number | null>>;
}

/** A request of a processor to its webhook. */
export interface ProcessorRequest {
  /** The bytes as received: signatures cover them. */
  readonly body: Buffer;
  header(name: string): string | undefined;
}

/** Thrown by `readEvent` when the signature is missing or wrong, or the request cannot be parsed. */
export class UnverifiedEvent extends Error {
  override readonly name = 'UnverifiedEvent';
}

/** The adapter's part of the payment page: a separate document in a frame, with its own policy. */
export interface AdapterPage {
  /** The built script that the frame runs. */
  readonly script: URL;
  /** Public settings for that script, such as a publishable key. */
  readonly settings: Readonly<Record<string, string>>;
  /** Origins that may open the device's wallet (`payment` of the Permissions-Policy); none when left out. */
  readonly wallets?: readonly string[];
  /** Additions to the frame's content policy, by directive. */
  readonly policy: Readonly<Record<string, readonly string[]>>;
}

/** Methods whose money the platform collects by its own means, such as a ledger of its own: they need no functions. */
export interface CollectedElsewhere {
  readonly name: string;
  readonly methods: readonly (AdapterMethod & { readonly collection: 'elsewhere' })[];
}

/** A payment processor. */
export interface FundingAdapter {
  /**
   * `[a-z0-9_]`, such as `stripe`. It appears in rows, in metrics and in the address of its webhook, /v1/funding/{name}/events.
   */
  readonly name: string;
  /** The methods offered; each `funding_method` belongs to this adapter alone. */
  methods(): readonly AdapterMethod[];
  /**
   * Registers the authorization with the processor without holding money, and returns its reference. Left out where the processor finds
   * everything by `platform_payment_id`: that is then the reference, and a payment needs one call and one write less.
   */
  prepare?(order: FundsOrder, call: FundingCallOptions): Promise<string>;
  /** Holds the funds, or reports the state of the hold. */
  authorize(order: PreparedOrder, call: FundingCallOptions): Promise<ProcessorAuthorization>;
  /** Takes the funds, once. */
  capture(order: PreparedOrder, call: FundingCallOptions): Promise<ProcessorCapture>;
  /** Releases the funds; returns `captured` when they have been taken already: the platform then calls `refund`. */
  void(order: PreparedOrder, call: FundingCallOptions): Promise<'released' | 'captured'>;
  /** Refunds captured funds in full, once. */
  refund(order: PreparedOrder, call: FundingCallOptions): Promise<void>;
  /**
   * Refunds a part of what was captured, once for each `refund_id`, however often it is called; left out where the processor cannot. Only
   * `refused` means that nothing was refunded and nothing will be; throw for everything that is not certain.
   */
  refundPart?(
    order: PreparedOrder,
    part: RefundPart,
    call: FundingCallOptions,
  ): Promise<RefundedPart>;
  readonly page?: AdapterPage;
  /** Methods that customers save at the processor, under a customer object without personal data. Each may be called again. */
  readonly saved?: {
    /** Makes an object; returns its reference. */
    create(): Promise<string>;
    /** What the adapter's page needs to show, keep and remove the methods of this customer, for the next minutes. */
    open(reference: string): Promise<string>;
    /** Deletes the object with all that is saved under it. */
    forget(reference: string): Promise<void>;
  };
  /**
   * Registers a domain whose pages show the buttons of wallets, again as often as it is called. Returns why the processor shows none there,
   * in its own words; undefined when it does.
   */
  registerDomain?(domain: string): Promise<string | undefined>;
  /** Verifies and parses a webhook; returns undefined for an event that is not relevant here. Throws UnverifiedEvent. */
  readEvent?(request: ProcessorRequest): Promise<ProcessorEvent | undefined>;
}
