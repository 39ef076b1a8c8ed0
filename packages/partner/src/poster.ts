/** What apply.ts asks of either way of posting, and what both share. */
import { DatabaseUnavailable, kindOfError } from '@duebridge/runtime';
import { WrongAnswer, type CheckedOutcome, type Posting } from './account-system.ts';
import type { PaymentEnd, PaymentRow, UnfinishedPayment } from './store.ts';

/**
 * What became of one try. `done`: it has ended, here or elsewhere. Else it stays processing:
 * `later` by the word of its account system; `busy`, and nothing was tried: a call, a lock or another replica holds it or its
 * account; `failed`: the try ended in an error that may be its own; `outage`: in one that says nothing about it.
 */
export type Tried =
  | { readonly result: 'done' }
  | { readonly result: 'later'; readonly until: string | null }
  | { readonly result: 'busy' }
  | { readonly result: 'failed'; readonly error: unknown }
  | { readonly result: 'outage'; readonly error: unknown };

/** One way of posting. */
export interface Poster {
  /** Tries one payment. Never throws. `isRepeat`: an earlier try failed, so it must not hold up those that are tried first. */
  post(payment: UnfinishedPayment, isRepeat: boolean): Promise<Tried>;
  /** Resolves when what is under way has ended or a limit has passed. */
  stop(): Promise<void>;
}

/** What an account system is told of a payment. */
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

/** The end that an outcome means; undefined for `later`. */
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

/** A call that took longer than it may. */
export class TooLate extends Error {
  override readonly name = 'TooLate';
}

/**
 * What the log may say of an error of an account system: our own sentences whole, of everything else only its kind and place, because
 * its message may quote the customer.
 */
export function describeAccountSystemError(error: unknown): string {
  const isOurs =
    error instanceof WrongAnswer ||
    error instanceof TooLate ||
    error instanceof DatabaseUnavailable;
  return isOurs ? error.message : kindOfError(error);
}

/** Returns what `work` gives, or throws TooLate after `ms`. The work goes on; what it throws then is nobody's any more. */
export async function within<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new TooLate(`${what} took longer than ${ms} ms`)), ms);
  });
  work.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
