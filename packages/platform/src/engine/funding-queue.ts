/**
 * Payments whose next step is a call to the funding port: one queue for each method, with two lanes for each partner, one of them for
 * payments whose last call failed.
 *
 * holds: a method that hangs fills its own queue and no other. Lanes take turns, so that 10,000 payments of one partner do not delay
 *        another. A call that has run for a second counts as hung and no longer counts against the cap of its method. When too many
 *        hang, the oldest is given up for a payment that waits for its first call; it is tried again among the retries, which have
 *        half of the places, and keep them for their full time (decision 235).
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
  readonly isRetry: boolean;
  /** Ends the call as if its time were up; set while it is under way. */
  giveUp: (() => void) | undefined;
}

/** Calls under way, those of retries apart: each in the order in which they started. */
class Calls {
  readonly first = new Set<FundingCall>();
  readonly retries = new Set<FundingCall>();

  get size(): number {
    return this.first.size + this.retries.size;
  }

  of({ isRetry }: { readonly isRetry: boolean }): Set<FundingCall> {
    return isRetry ? this.retries : this.first;
  }
}

/** What waits of one partner: payments before their first call, or after one that failed. */
interface FundingLane<T extends Due> {
  readonly isRetry: boolean;
  readonly heap: DueHeap<T>;
}

/** What could start now. */
export type FundingTurn<T> =
  | { readonly kind: 'start'; readonly item: T; readonly call: FundingCall }
  /** This call hangs, and others wait for its place, which is free now: `giveUp` it. */
  | { readonly kind: 'give_up'; readonly call: FundingCall }
  | { readonly kind: 'wait'; readonly until: number }
  /** Nothing waits, or only for a call to end. */
  | { readonly kind: 'idle' };

/** The queue of one funding method. */
export class FundingQueue<T extends Due> {
  /** By partner and kind, in order of turns: the lane served last is last. */
  readonly #lanes = new Map<string, FundingLane<T>>();
  readonly #recent = new Calls();
  readonly #hanging = new Calls();
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

  /** `isRetry`: the payment's last call failed. */
  push(item: T, partner_id: string, isRetry: boolean): void {
    const key = `${isRetry ? 'retry' : 'first'} ${partner_id}`;
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      lane = { isRetry, heap: new DueHeap() };
      this.#lanes.set(key, lane);
    }
    lane.heap.push(item);
  }

  /**
   * Takes what may start at `now`; it counts as in flight until `ended`. `isCurrent` is false for an entry that must be dropped instead.
   */
  take(now: number, isCurrent: (item: T) => boolean): FundingTurn<T> {
    this.#age(now);
    let next = Number.POSITIVE_INFINITY;
    for (const [key, lane] of this.#lanes) {
      const { heap } = lane;
      let head = heap.peek();
      for (; head !== undefined && !isCurrent(head); head = heap.peek()) heap.pop();
      if (head === undefined) {
        this.#lanes.delete(key);
        continue;
      }
      const from = Math.max(head.at, this.#roomAt(lane));
      if (from > now) {
        next = Math.min(next, from);
        continue;
      }
      if (this.#recent.size + this.#hanging.size >= MAX_WITH_HANGING) {
        // Oldest first. One that waits for the database instead of the port cannot be given up.
        const call = [...this.#hanging.first].find(({ giveUp }) => giveUp !== undefined);
        if (call === undefined) continue;
        this.#hanging.first.delete(call);
        return { kind: 'give_up', call };
      }
      heap.pop();
      this.#lanes.delete(key);
      if (heap.size > 0) this.#lanes.set(key, lane);
      const call: FundingCall = { startedAt: now, isRetry: lane.isRetry, giveUp: undefined };
      this.#recent.of(call).add(call);
      return { kind: 'start', item: head, call };
    }
    return next === Number.POSITIVE_INFINITY ? { kind: 'idle' } : { kind: 'wait', until: next };
  }

  /** Releases the place of a call that has ended. */
  ended(call: FundingCall): void {
    for (const calls of [this.#recent, this.#hanging]) calls.of(call).delete(call);
  }

  /** Counts the calls that have run for a second as hung. */
  #age(now: number): void {
    for (const isRetry of [false, true]) {
      const recent = this.#recent.of({ isRetry });
      for (const call of recent) {
        if (call.startedAt + HANGS_AFTER_MS > now) break;
        recent.delete(call);
        this.#hanging.of(call).add(call);
      }
    }
  }

  /** When a call of the lane may start: now, when one under way counts as hung, or, as Infinity says, when a retry ends. */
  #roomAt({ isRetry }: FundingLane<T>): number {
    const { first, retries } = this.#recent;
    if (isRetry) {
      const isFull = retries.size + this.#hanging.retries.size >= MAX_WITH_HANGING / 2;
      // A retry waits for a place. It has waited before.
      if (isFull || this.#recent.size + this.#hanging.size >= MAX_WITH_HANGING)
        return Number.POSITIVE_INFINITY;
      if (retries.size >= MAX_CALLS / 2) return oldestOf(retries) + HANGS_AFTER_MS;
    }
    if (this.#recent.size < MAX_CALLS) return 0;
    return Math.min(oldestOf(first), oldestOf(retries)) + HANGS_AFTER_MS;
  }
}

/** When the oldest of these calls started; Infinity for none. */
function oldestOf(calls: ReadonlySet<FundingCall>): number {
  const [oldest] = calls;
  return oldest?.startedAt ?? Number.POSITIVE_INFINITY;
}
