/**
 * The payments of one worker in memory, by id, and the steps under way in each slot.
 *
 * enters: payments, by `add`; the beginning and the end of each step.  leaves: what the worker asks about its slots.
 * holds:  an id is in here once. A payment that is forgotten is not current any more, and whoever reads pages meanwhile is told of it, so
 *         that a payment that ended since its page was read is not driven again (PL8).
 */
import { OVERDUE_AFTER_MS } from '../store/payment-search.ts';
import { GONE, isCurrent, type ActivePayment } from './active-payment.ts';
import { SLOTS } from './slots.ts';

/** The payments, and the steps under way. */
export class DrivenPayments {
  readonly #payments = new Map<string, ActivePayment>();
  readonly #underWayIn = new Int32Array(SLOTS);
  /** Each holds what was forgotten since its reader began. */
  readonly #readers = new Set<Set<string>>();
  #underWay = 0;
  #idle: (() => void) | undefined;

  get size(): number {
    return this.#payments.size;
  }

  get(platform_payment_id: string): ActivePayment | undefined {
    return this.#payments.get(platform_payment_id);
  }

  has(platform_payment_id: string): boolean {
    return this.#payments.has(platform_payment_id);
  }

  add(payment: ActivePayment): void {
    this.#payments.set(payment.platform_payment_id, payment);
  }

  /** Forgets a payment, if this object is its current state. Its queue drops it when its turn comes. */
  forget(payment: ActivePayment): boolean {
    if (!isCurrent(payment)) return false;
    const { platform_payment_id } = payment;
    this.#payments.delete(platform_payment_id);
    payment.slot = GONE;
    for (const forgotten of this.#readers) forgotten.add(platform_payment_id);
    return true;
  }

  inSlots(slots: ReadonlySet<number>): ActivePayment[] {
    return [...this.#payments.values()].filter((payment) => slots.has(payment.slot));
  }

  /** Age of the oldest payment, and how many stand on the operator's list for their age (decision 23). `beganAt`: what ages count from. */
  ages(now: number, beganAt: number): { readonly oldestSeconds: number; readonly overdue: number } {
    let oldest = now;
    let overdue = 0;
    for (const payment of this.#payments.values()) {
      const createdAt = beganAt + payment.createdAt;
      oldest = Math.min(oldest, createdAt);
      if (now - createdAt > OVERDUE_AFTER_MS) overdue += 1;
    }
    return { oldestSeconds: (now - oldest) / 1_000, overdue };
  }

  /** A set of the payments that are forgotten from here to `unwatchForgotten`. */
  watchForgotten(): ReadonlySet<string> {
    const forgotten = new Set<string>();
    this.#readers.add(forgotten);
    return forgotten;
  }

  unwatchForgotten(forgotten: ReadonlySet<string>): void {
    this.#readers.delete(forgotten as Set<string>);
  }

  clear(): void {
    this.#payments.clear();
  }

  /** A step begins in this slot. A payment that is forgotten meanwhile has no slot any more, so it is passed to `finished` again. */
  began(slot: number): void {
    this.#underWay += 1;
    this.#underWayIn[slot] = (this.#underWayIn[slot] ?? 0) + 1;
  }

  finished(slot: number): void {
    this.#underWay -= 1;
    this.#underWayIn[slot] = (this.#underWayIn[slot] ?? 0) - 1;
    if (this.#underWay === 0) this.#idle?.();
  }

  /** Whether a step is under way in one of these slots. */
  isBusyIn(slots: ReadonlySet<number>): boolean {
    return [...slots].some((slot) => (this.#underWayIn[slot] ?? 0) > 0);
  }

  /** Resolves when no step is under way. */
  idle(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle = resolve;
    });
  }
}
