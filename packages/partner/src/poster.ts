/** The interface between apply.ts and both ways of posting, and what both share. */
import { DatabaseUnavailable, kindOfError, type Clock } from '@duebridge/runtime';
import { WrongAnswer, type CheckedOutcome, type Posting } from './account-system.ts';
import type { PaymentEnd, PaymentRow } from './store.ts';

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
  /** Tries one payment. Never throws. `isRepeat`: an earlier try failed or left it claimed, so it must not delay first tries. */
  post(payment: PaymentRow, isRepeat: boolean): Promise<Tried>;
  /** Whether a call to a biller's own system is open; payments in hand may then be waiting for its answer. */
  isCalling(): boolean;
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

/** A payment that waits for its try. */
export interface Waiting {
  readonly payment: PaymentRow;
  readonly resolve: (tried: Tried) => void;
}

/** How long a stop waits for what is in hand; then it gives back what has not begun, and waits for a quarter of that once more. */
const STOP_MS = 4_000;

/** What both posters share: payments wait, and a stop gives back what has not begun; the next start finds it in the table. */
export abstract class Lanes {
  protected isStopping = false;
  #isScheduled = false;
  readonly #whenIdle: (() => void)[] = [];
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts what may start. */
  protected abstract start(): void;
  /** Removes and returns what waits. */
  protected abstract giveBack(): readonly Waiting[];
  protected abstract isIdle(): boolean;

  /** Starts in the next turn of the event loop: payments accepted in this turn share a transaction or a call. */
  protected schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.isStopping) for (const { resolve } of this.giveBack()) resolve({ result: 'busy' });
      else this.start();
      if (this.isIdle()) for (const done of this.#whenIdle.splice(0)) done();
    });
  }

  /** Ends all work, or waits as long as it may. `abort` is called when the rest should hurry. */
  protected async drain(abort: () => void = () => undefined): Promise<void> {
    const idle = new Promise<void>((resolve) => {
      this.#whenIdle.push(resolve);
      this.schedule();
    });
    await within(this.#clock, STOP_MS, 'the stop', idle).catch(() => undefined);
    this.isStopping = true;
    this.schedule();
    abort();
    await within(this.#clock, STOP_MS / 4, 'the stop', idle).catch(() => undefined);
  }
}

/** The end described by an outcome. */
export function endOf(
  platform_payment_id: string,
  outcome: Exclude<CheckedOutcome, { outcome: 'later' }>,
): PaymentEnd {
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
