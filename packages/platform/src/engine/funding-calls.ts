/**
 * The calls to the funding port: a queue for each method, and one call for one payment.
 *
 * enters: a payment whose next step is an authorization or a settlement.  leaves: the port's answer as an event for payment-steps.ts.
 * holds:  a call has a deadline, and a method that fails or hangs fills its own queue and no other.
 */
import { isDatabaseTrouble, kindOfError } from '@duebridge/runtime';
import { orderOf, type ActivePayment } from './active-payment.ts';
import { CallQueue } from './call-queue.ts';
import type { CallGround } from './options.ts';
import type { PaymentEvent } from './payment-steps.ts';

/** A call to the funding port that takes longer is aborted and retried: every operation of the port is idempotent. */
const FUNDING_DEADLINE_MS = 15_000;
/**
 * Calls at once of one funding method. Billers take turns in it, not partners: a slow biller must not delay another of the same
 * aggregator. Each has half of the places at most while there are others, captures do not queue behind authorizations, and a hung call
 * has a deadline.
 */
const FUNDING_PLACES = 1_024;
/** Ends the wait for a deadline. Without a reason of its own each abort would make an error, at 20 us for two calls of every payment. */
const ANSWERED = 'answered';

/** The funding calls of one worker. */
export class FundingCalls {
  readonly #on: CallGround;
  readonly #queues = new Map<string, CallQueue<ActivePayment>>();

  constructor(on: CallGround) {
    this.#on = on;
  }

  queueOf(funding_method: string): CallQueue<ActivePayment> {
    let queue = this.#queues.get(funding_method);
    if (queue === undefined) {
      const room = { places: FUNDING_PLACES, rate: Infinity };
      queue = new CallQueue(this.#on.times.trialMs, room);
      this.#queues.set(funding_method, queue);
    }
    return queue;
  }

  /** Authorizes or settles the funds of a payment. Throws only when the database is away. */
  async ask(payment: ActivePayment): Promise<PaymentEvent> {
    const { clock, log, signals } = this.#on;
    const { funding_method, funding_party } = payment.group;
    const queue = this.queueOf(funding_method);
    const deadline = new AbortController();
    const signal = AbortSignal.any([signals.calls, deadline.signal]);
    void clock.sleep(FUNDING_DEADLINE_MS, signal).then(() => deadline.abort());
    const wasFailing = queue.isTroubled;
    try {
      const event = await unlessAborted(this.#act(payment, signal), signal);
      queue.worked(funding_party, clock.monotonic());
      if (wasFailing && !queue.isTroubled) {
        log.info({ funding_method }, 'the funding method answers again');
      }
      return event;
    } catch (error) {
      // The port keeps its rows in the platform's own database, and fails when that does.
      if (isDatabaseTrouble(error)) throw error;
      // A stop, which aborts calls, is no fault of the port.
      if (!signals.waits.aborted) this.#failed(payment, error, deadline.signal.aborted);
      return { kind: 'funding_failed' };
    } finally {
      deadline.abort(ANSWERED);
    }
  }

  /** The port's own answer as an event. Funds of a payment that succeeded are captured, those of any other are released. */
  async #act(payment: ActivePayment, signal: AbortSignal): Promise<PaymentEvent> {
    const { funding } = this.#on;
    const order = orderOf(payment);
    if (payment.stage === 'ended') {
      const act = payment.status === 'succeeded' ? 'capture' : 'release';
      const settled = await funding[act](order, { signal });
      return { kind: 'funds_settled', ...(settled ? { settled } : {}) };
    }
    return funding.authorize(order, { signal });
  }

  /** Logs a payment's first failure, and once that all of its method fail: a processor may be away for an hour, with 10,000 waiting. */
  #failed({ platform_payment_id, tries, group }: ActivePayment, error: unknown, isLate: boolean) {
    const { log, clock } = this.#on;
    const { funding_method, funding_party } = group;
    const queue = this.queueOf(funding_method);
    const wasFailing = queue.isTroubled;
    queue.failed(funding_party, clock.monotonic(), clock.random(), !isLate);
    if (wasFailing) return;
    const why = kindOfError(error);
    if (queue.isTroubled) {
      log.error({ funding_method, error: why }, 'the funding method fails every call; retrying');
    } else if (tries === 0) {
      log.error({ platform_payment_id, error: why }, 'the funding port failed; retrying');
    }
  }
}

/** The answer, or a rejection as soon as the signal is aborted: a port that ignores it must not delay others. */
function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new Error('the funding port did not answer in time'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
