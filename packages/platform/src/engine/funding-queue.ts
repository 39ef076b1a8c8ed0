/**
 * Payments whose next step is a call to the funding port: one queue for each method, with a lane for each partner.
 *
 * holds: a method that hangs fills its own queue and no other. Partners take turns, so that 10,000 payments of one do not delay
 *        another. A call that has run for a second counts as hung and no longer counts against the cap of its method.
 */
import { DueHeap, type Due } from './due-heap.ts';

/** Concurrent calls of one method, not counting those that have run for longer than a second. */
const MAX_CALLS = 256;
/** A call that takes longer counts as hung. */
const HANGS_AFTER_MS = 1_000;
/** Concurrent calls of one method, including hung ones, which must not grow without bound. */
const MAX_WITH_HANGING = 1_024;

/** Failures in a row after which the method is taken to be down. */
const DOWN_AFTER = 5;

/** A call under way. */
export interface FundingCall {
  readonly startedAt: number;
}

/** What could start now. */
export type FundingTurn<T> =
  | { readonly kind: 'start'; readonly item: T; readonly call: FundingCall }
  | { readonly kind: 'wait'; readonly until: number }
  /** A call that ends makes room. */
  | { readonly kind: 'full' }
  | { readonly kind: 'empty' };

/** The queue of one funding method. */
export class FundingQueue<T extends Due> {
  /** By partner, in order of turns: the partner served last is last. */
  readonly #lanes = new Map<string, DueHeap<T>>();
  /** In the order in which they started. */
  readonly #recent = new Set<FundingCall>();
  readonly #hanging = new Set<FundingCall>();
  #failures = 0;

  /** The last calls all failed. It changes what is logged, not what is called: each payment has a delay of its own. */
  get isDown(): boolean {
    return this.#failures >= DOWN_AFTER;
  }

  /** Records that a call failed. */
  failed(): void {
    this.#failures += 1;
  }

  /** Records that a call was answered; true if the method had been down. */
  answered(): boolean {
    const was = this.isDown;
    this.#failures = 0;
    return was;
  }

  push(item: T, partner_id: string): void {
    let lane = this.#lanes.get(partner_id);
    if (lane === undefined) {
      lane = new DueHeap();
      this.#lanes.set(partner_id, lane);
    }
    lane.push(item);
  }

  /**
   * Takes what may start at `now`; it counts as in flight until `ended`. `isCurrent` is false for an entry that must be dropped instead.
   */
  take(now: number, isCurrent: (item: T) => boolean): FundingTurn<T> {
    for (const call of this.#recent) {
      if (call.startedAt + HANGS_AFTER_MS > now) break;
      this.#recent.delete(call);
      this.#hanging.add(call);
    }
    let next = Number.POSITIVE_INFINITY;
    for (const [partner_id, lane] of this.#lanes) {
      let head = lane.peek();
      for (; head !== undefined && !isCurrent(head); head = lane.peek()) lane.pop();
      if (head === undefined) {
        this.#lanes.delete(partner_id);
      } else if (head.at > now) {
        next = Math.min(next, head.at);
      } else {
        if (this.#recent.size + this.#hanging.size >= MAX_WITH_HANGING) return { kind: 'full' };
        const [oldest] = this.#recent;
        if (this.#recent.size >= MAX_CALLS && oldest !== undefined) {
          return { kind: 'wait', until: oldest.startedAt + HANGS_AFTER_MS };
        }
        lane.pop();
        this.#lanes.delete(partner_id);
        if (lane.size > 0) this.#lanes.set(partner_id, lane);
        const call = { startedAt: now };
        this.#recent.add(call);
        return { kind: 'start', item: head, call };
      }
    }
    return next === Number.POSITIVE_INFINITY ? { kind: 'empty' } : { kind: 'wait', until: next };
  }

  /** Releases the place of a call that has ended. */
  ended(call: FundingCall): void {
    if (!this.#recent.delete(call)) this.#hanging.delete(call);
  }
}
