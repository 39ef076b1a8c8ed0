/**
 * Acceptances that are written a little later: most payments end at their first poll, and then one write is enough.
 *
 * enters: a payment that its partner has accepted.  leaves: its row, after 50 ms, unless its end was written before.
 * holds:  a crash before the write only repeats the PUT (RU5). An error affects one payment alone: it returns to the state of its row.
 */
import { type Clock, type Log } from '@duebridge/runtime';
import type { ActivePayment } from './active-payment.ts';
import type { StepWrite } from './payment-steps.ts';

/** How long the write of an acceptance is deferred for the first poll, which may make it unnecessary. */
const SAVE_AFTER_MS = 50;
/** Shortest time between two looks for deferred acceptances, so that many are written in one statement. */
const SAVE_EVERY_MS = 10;

/** What the deferred writes depend on. */
interface Dependencies {
  readonly clock: Clock;
  readonly log: Log;
  /** Aborted when nothing more is written. */
  readonly signal: AbortSignal;
  /** Writes a step of a payment whose row is at `dispatching`. */
  readonly write: (payment: ActivePayment, write: StepWrite) => Promise<unknown>;
  /** Called around each write, with the payment's slot. */
  readonly began: (slot: number) => void;
  readonly finished: (slot: number) => void;
}

/** The deferred acceptances of one worker. */
export class Acceptances {
  readonly #on: Dependencies;
  readonly #unsaved = new Map<ActivePayment, { readonly write: StepWrite; readonly at: number }>();
  readonly #saving = new Map<ActivePayment, Promise<void>>();
  /** A loop is running that writes what is deferred. */
  #savesLater = false;

  constructor(dependencies: Dependencies) {
    this.#on = dependencies;
  }

  /** Defers the write of an acceptance. */
  add(payment: ActivePayment, write: StepWrite): void {
    this.#unsaved.set(payment, { write, at: this.#on.clock.monotonic() });
    if (!this.#savesLater) void this.#saveLater();
  }

  /** Drops a deferred write; true if there was one, whose acceptance another write must then contain. */
  drop(payment: ActivePayment): boolean {
    return this.#unsaved.delete(payment);
  }

  /** Resolves when no write of this payment is under way. */
  async settled(payment: ActivePayment): Promise<void> {
    await this.#saving.get(payment);
  }

  clear(): void {
    this.#unsaved.clear();
  }

  saveAll(): void {
    for (const payment of this.#unsaved.keys()) void this.save(payment);
  }

  /** Writes the acceptance of a payment if it is still deferred. */
  async save(payment: ActivePayment): Promise<void> {
    const acceptance = this.#unsaved.get(payment);
    if (acceptance === undefined) return this.#saving.get(payment);
    this.#unsaved.delete(payment);
    const { log, write, began, finished } = this.#on;
    const { slot } = payment;
    began(slot);
    const saving = (async () => {
      try {
        await write(payment, acceptance.write);
      } catch (error) {
        const { platform_payment_id } = payment;
        log.error({ platform_payment_id, error }, 'could not write an acceptance');
        // Return to the state in the row: a PUT may have left. Repeating the same PUT tells the outcome.
        payment.stage = 'dispatching';
      } finally {
        this.#saving.delete(payment);
        finished(slot);
      }
    })();
    this.#saving.set(payment, saving);
    return saving;
  }

  /** Writes each deferred acceptance once it is SAVE_AFTER_MS old, until none is left. */
  async #saveLater(): Promise<void> {
    const { clock, signal } = this.#on;
    this.#savesLater = true;
    for (;;) {
      // Maps keep the order of insertion, so the first is the oldest.
      const [oldest] = this.#unsaved.values();
      if (oldest === undefined || signal.aborted) break;
      const left = oldest.at + SAVE_AFTER_MS - clock.monotonic();
      await clock.sleep(Math.max(SAVE_EVERY_MS, left), signal);
      const now = clock.monotonic();
      for (const [payment, { at }] of this.#unsaved) {
        if (at + SAVE_AFTER_MS > now) break;
        void this.save(payment);
      }
    }
    this.#savesLater = false;
  }
}
