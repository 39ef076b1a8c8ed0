/** The interface between apply.ts and both ways of posting, and what both share. */
import { DatabaseUnavailable, kindOfError, type Clock } from '@duebridge/runtime';
import { WrongAnswer, type CheckedOutcome, type Posting } from './account-system.ts';
import type { PaymentEnd, PaymentRow, UnfinishedPayment } from './store.ts';

/**
 * The result of one try. `done`: it has ended, here or elsewhere. Otherwise it stays processing. `later`: the account system
 * postponed it. `busy`: nothing was tried, because a call, a lock or another replica holds the payment or its account. `failed`:
 * the try ended in an error that this payment may have caused. `outage`: it ended in an error that says nothing about the
 * payment.
 */
export type Tried =
  | { readonly result: 'done' }
  | { readonly result: 'later'; readonly until: string | null }
  | { readonly result: 'busy' }
  | { readonly result: 'failed'; readonly error: unknown }
  | { readonly result: 'outage'; readonly error: unknown };

/** One way of posting. */
export interface Poster {
  /** Tries one payment. Never throws. `isRepeat`: an earlier try failed, so it must not delay first tries. */
  post(payment: UnfinishedPayment, isRepeat: boolean): Promise<Tried>;
  /** Resolves when all work in progress has ended or a limit has passed. */
  stop(): Promise<void>;
}

/** The data of a payment that an account system receives. */
export function toPosting(payment: PaymentRow): Posting {
  const { platform_payment_id, payment_id, platform_batch_id, biller_id, account_id } = payment;
  const { amount_in_cents, initiated_at } = payment;
  return {
    platform_payment_id,
    payment_id,
    platform_batch_id,
    biller_id,
    account_id,
    amount_in_cents,
    initiated_at,
  };
}

/** The end described by an outcome; undefined for `later`. */
export function endOf(
  platform_payment_id: string,
  outcome: CheckedOutcome,
): PaymentEnd | undefined {
  switch (outcome.outcome) {
    case 'posted': {
      const { posted_at } = outcome;
      return { platform_payment_id, status: 'succeeded', failure_reason: null, posted_at };
    }
    case 'failed': {
      const { reason } = outcome;
      return { platform_payment_id, status: 'failed', failure_reason: reason, posted_at: null };
    }
    case 'canceled':
      return { platform_payment_id, status: 'canceled', failure_reason: null, posted_at: null };
    case 'later':
      return undefined;
  }
}

/** A call that exceeded its deadline. */
export class TooLate extends Error {
  override readonly name = 'TooLate';
}

/**
 * What the log may contain of an account system's error: our own messages in full; of anything else only its type and location,
 * because its message may quote the customer.
 */
export function describeAccountSystemError(error: unknown): string {
  const isOurs =
    error instanceof WrongAnswer ||
    error instanceof TooLate ||
    error instanceof DatabaseUnavailable;
  return isOurs ? error.message : kindOfError(error);
}

/** Returns the result of `work`, or throws TooLate after `ms`. The work continues; later errors of it are ignored. */
export async function within<T>(
  clock: Clock,
  ms: number,
  what: string,
  work: Promise<T>,
): Promise<T> {
  const over = new AbortController();
  work.catch(() => undefined);
  const late = clock.sleep(ms, over.signal).then((): T => {
    throw new TooLate(`${what} took longer than ${ms} ms`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}
