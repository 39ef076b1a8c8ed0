/**
 * What this worker knows of one partner: its queue of calls, its part of the partner's budget, how long its payments take, and whether
 * it applies `Prefer: wait`.
 */
import type { Partner } from '../partners/registry.ts';
import { CallQueue, type Due } from './call-queue.ts';
import { newSettlementTimes, type SettlementTimes } from './poll-schedule.ts';

/** A partner that does not apply Prefer: wait is asked again after this, since it may have been upgraded. */
const ASK_TO_WAIT_AGAIN_MS = 10 * 60_000;

/**
 * Payments of a biller that are authorized ahead of their PUTs, so that what is begun is finished before more is begun. Enough for a
 * processor that takes 1.5 s while the partner takes 170 payments a second.
 */
const AHEAD = 256;

/** This worker among those that live: `rank` is its place in the order of their ids. */
export interface Part {
  readonly of: number;
  readonly rank: number;
}

/** One partner, as one worker calls it. */
export class PartnerCalls<T extends Due> {
  readonly partner_id: string;
  readonly queue: CallQueue<T>;
  readonly settlements: SettlementTimes = newSettlementTimes();
  /** Waiting reads under way: at most half of the places, so that plain calls always find room. */
  waiting = 0;
  /** Whether the partner applies Prefer: wait; undefined until it has answered one. */
  waits: boolean | undefined;
  /** Monotonic time at which it was last asked to wait. */
  askedToWaitAt = Number.NEGATIVE_INFINITY;
  #budget: Pick<Partner['budget'], 'max_concurrent_calls' | 'max_calls_per_second'> = {
    // Until the registration has been read: the first call reads it.
    max_concurrent_calls: 1,
    max_calls_per_second: 1,
  };
  #part: Part;

  constructor(partner_id: string, trialMs: number, part: Part) {
    this.partner_id = partner_id;
    this.#part = part;
    this.queue = new CallQueue(trialMs, { places: 1, rate: 1 });
  }

  /** What the partner allows all workers together, per second. */
  get callsPerSecond(): number {
    return this.#budget.max_calls_per_second;
  }

  /** Sets what the partner allows all workers together. True if that is news. */
  applyBudget(budget: Partner['budget']): boolean {
    if (budget === this.#budget) return false;
    this.#budget = budget;
    this.#share();
    return true;
  }

  applyPart(part: Part): void {
    this.#part = part;
    this.#share();
  }

  /**
   * How many authorizations of a biller's payments may be under way. A partner that takes nothing bounds none: its customers wait at
   * the page for a decision of their bank.
   */
  roomAt(now: number, biller_id: string): number {
    return this.queue.isHeld(now) ? Infinity : AHEAD - this.queue.waitingOf(biller_id);
  }

  /**
   * Whether a read may ask to wait now. Until the partner is known to apply it, only one read at a time asks, because a waiting
   * read notices a stalled partner only after its wait.
   */
  canWait(now: number): boolean {
    if (this.queue.isTroubled || this.waiting >= Math.floor(this.queue.places / 2)) return false;
    if (this.waits === true) return true;
    if (this.waiting > 0) return false;
    return this.waits === undefined || now - this.askedToWaitAt >= ASK_TO_WAIT_AGAIN_MS;
  }

  /** The budget, divided by the workers that live. Each has one place at least, or its payments would never move. */
  #share(): void {
    const { max_concurrent_calls: places, max_calls_per_second: rate } = this.#budget;
    const { of, rank } = this.#part;
    this.queue.places = Math.max(1, Math.floor(places / of) + (rank < places % of ? 1 : 0));
    this.queue.rate = rate / of;
  }
}
