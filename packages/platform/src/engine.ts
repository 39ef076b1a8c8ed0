/**
 * The loop that drives every payment of this process: submit or poll, judge, record.
 */
import type { PaymentRow } from './record.ts';

/** The running loop. */
export interface Engine {
  /**
   * The worker id of this process, for `insertPayment`. Read it at every insert: a worker that lost its lease comes back under
   * another id.
   */
  readonly workerId: string;
  /** Registers the worker and begins: adopts what nobody drives, then beats and drives until `stop`. */
  start(): Promise<void>;
  /** Finishes or gives up what is under way, releases ownership and takes the worker off the list; at most 10 s (F82). */
  stop(): Promise<void>;
  /** Drives a payment just committed with `owner = workerId`, at once. Never throws, returns before anything is sent. */
  take(payment: PaymentRow): void;
  /**
   * Calls back with the row each time the payment's stage or status changes, whichever worker drives it; gives the function
   * that ends it. Read the row once after subscribing.
   */
  watch(platform_payment_id: string, changed: (payment: PaymentRow) => void): () => void;
  /** One round at once: heartbeat, adoption, watched payments of other workers, closing of batches. Resolves when it is done. */
  tick(): Promise<void>;
}
