/**
 * Following a payment to its end, by polls. Only a terminal status counts as the end.
 */
import type { FlowPayment } from '@duebridge/contract';
import { callError, spent, type Api } from './api.ts';
import { FIRST_WAIT_MS, longer, type Waiting } from './waiting.ts';

/** Between polls while the customer watches: the receipt is at most this late, and a request, after the payment has ended. */
const POLL_MS = 1_000;
/** A payment that takes more polls than this, about two minutes, is with a biller that takes hours. */
const EAGER_POLLS = 120;
/** Between polls from then on: pages that stay open must not become a load. */
const LATE_POLL_MS = 5_000;

export interface Following {
  readonly api: Pick<Api, 'payment'>;
  readonly waiting: Pick<Waiting, 'pause' | 'attempt'>;
  /** Runs a call; when the session has ended, renews it and runs the call again. */
  readonly renewed: <T>(act: () => Promise<T>) => Promise<T>;
  readonly heard: (payment: FlowPayment) => void;
  readonly connection: (lost: boolean) => void;
  readonly signal: AbortSignal;
}

/**
 * Follows until the payment has ended or the signal aborts (both `done`), or until the session ends and cannot be replaced
 * (`ended`). Never rejects.
 */
export async function followPayment(id: string, by: Following): Promise<'done' | 'ended'> {
  let polls = 0;
  for (let wait = FIRST_WAIT_MS; !by.signal.aborted;) {
    try {
      const payment = await by.waiting.attempt(() => by.renewed(() => by.api.payment(id)));
      // Asked again at once: the network or the customer is back.
      if (!payment) continue;
      if (by.signal.aborted) break;
      by.heard(payment);
      if (payment.progress === 'ended') break;
      polls += 1;
      wait = FIRST_WAIT_MS;
      await by.waiting.pause(polls < EAGER_POLLS ? POLL_MS : LATE_POLL_MS);
    } catch (error) {
      const failed = callError(error);
      if (spent(failed)) return 'ended';
      // Also for "not found": the payment was confirmed, so it exists or will exist.
      if (failed.wire === 'network') by.connection(true);
      await by.waiting.pause(Math.max(failed.retryAfterMs ?? 0, wait));
      wait = longer(wait);
    }
  }
  return 'done';
}
