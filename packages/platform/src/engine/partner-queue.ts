/**
 * One partner's queue: what is due when, and how much may be under way (decision 25, P16). A slow or dead partner fills its own
 * queue and no other. No timers and no calls in here: the engine asks, with the time of its monotonic clock.
 */
import { newSettlementTimes, type SettlementTimes } from './poll-schedule.ts';

/** Something that is due at a time. */
export interface Due {
  /** Monotonic milliseconds. */
  at: number;
}

/** A heap by due time. */
export class DueHeap<T extends Due> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  peek(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent];
      if (above === undefined || above.at <= item.at) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (last === undefined || top === last) return top;
    let at = 0;
    for (;;) {
      const left = items[2 * at + 1];
      const right = items[2 * at + 2];
      const lesser = right !== undefined && left !== undefined && right.at < left.at ? right : left;
      if (lesser === undefined || lesser.at >= last.at) break;
      items[at] = lesser;
      at = 2 * at + (lesser === right ? 2 : 1);
    }
    items[at] = last;
    return top;
  }
}

/** Failures in a row, from any payments, after which the partner is taken to be down. */
const BREAKER_THRESHOLD = 5;
/** The bucket holds this much of a second: enough for an even stream, too little for a burst the partner would feel. */
const BURST_S = 0.1;

/** One partner's queue, budget and breaker. */
export class PartnerQueue<T extends Due> {
  readonly partner_id: string;
  readonly due = new DueHeap<T>();
  readonly settlements: SettlementTimes = newSettlementTimes();
  /** Calls under way, waiting reads among them. */
  inFlight = 0;
  /** Waiting reads under way: at most half of the share, so that plain calls always find room. */
  waiting = 0;
  /** Whether the partner applies Prefer: wait; undefined until it has answered one. */
  waits: boolean | undefined;
  /** Calls at once that this worker has registered for. */
  share = 0;
  /** Calls per second that this worker has registered for. */
  rate = 0;
  /** At the last beat other workers held what this one wanted. */
  isShort = false;
  /** What the partner allows all workers together. */
  cap = 1;
  callsPerSecond = 1;
  /** Calls started since this was last set to 0: what was used of the calls per second. */
  started = 0;
  /** Why the calls are held back for an operator, if they are. */
  held: string | undefined;
  readonly #firstBreakMs: number;
  readonly #maxBreakMs: number;
  #tokens = 0;
  #filledAt = 0;
  #failures = 0;
  #trips = 0;
  #closedUntil = 0;
  #startedAt = 0;

  /** `maxBreakMs` is how late the recovery of a partner that was down is noticed at worst (P9). */
  constructor(partner_id: string, firstBreakMs: number, maxBreakMs: number) {
    this.partner_id = partner_id;
    this.#firstBreakMs = firstBreakMs;
    this.#maxBreakMs = maxBreakMs;
  }

  /** Takes over what the partner allows all workers together. */
  applyBudget(budget: { max_concurrent_calls: number; max_calls_per_second: number }): void {
    this.cap = budget.max_concurrent_calls;
    this.callsPerSecond = budget.max_calls_per_second;
  }

  /** True while failures in a row, or a hold, let only one trial through at a time. */
  get onTrial(): boolean {
    return this.#failures >= BREAKER_THRESHOLD || this.held !== undefined;
  }

  /** Calls that could be under way now. */
  get room(): number {
    if (this.rate === 0) return 0;
    return this.onTrial ? Math.min(1, this.share) : this.share;
  }

  /** Waiting reads that could be under way now. */
  get waitingRoom(): number {
    return this.onTrial ? 0 : Math.floor(this.share / 2);
  }

  /** When the next call may start, not before `now`; the count of those under way is not looked at. */
  readyAt(now: number): number {
    this.#fill(now);
    const token = this.#tokens >= 1 ? now : now + ((1 - this.#tokens) / this.rate) * 1_000;
    return Math.max(now, token, this.#closedUntil);
  }

  /** True when a payment that is due now would not have to wait for the partner to come back. */
  isOpen(now: number): boolean {
    return this.#closedUntil <= now && !this.onTrial;
  }

  /**
   * For how long a call has been due although one could have started: since it was due, since the partner was last held back, and
   * since a call last started, whichever is latest. A queue that moves slowly, because the budget is small or the partner is down,
   * still starts a call now and then; one whose engine has died does not (L2).
   */
  stalledMs(now: number): number {
    const next = this.due.peek();
    // What other workers hold is waited for, not stalled.
    if (next === undefined || this.isShort) return 0;
    return Math.max(0, now - Math.max(next.at, this.#closedUntil, this.#startedAt));
  }

  /** Counts a call that starts. */
  start(now: number): void {
    this.#fill(now);
    this.#startedAt = now;
    this.#tokens -= 1;
    this.inFlight += 1;
    this.started += 1;
  }

  /** Blocks new calls for `ms`: Retry-After, a pause, a hold. */
  closeFor(now: number, ms: number): void {
    this.#closedUntil = Math.max(this.#closedUntil, now + ms);
  }

  /** The partner answered as one that works. True when it had been down or held. */
  succeeded(): boolean {
    const was = this.onTrial;
    this.#failures = 0;
    this.#trips = 0;
    this.held = undefined;
    return was;
  }

  /** The partner did not answer as one that works. True when this opened the breaker. */
  failed(now: number, random: number): boolean {
    this.#failures += 1;
    if (this.#failures < BREAKER_THRESHOLD) return false;
    // Ignore failures of calls that started before the breaker opened.
    if (this.#closedUntil > now) return false;
    const ms = Math.min(this.#maxBreakMs, this.#firstBreakMs * 2 ** Math.min(this.#trips, 20));
    this.#trips += 1;
    this.closeFor(now, ms * (0.5 + random / 2));
    return this.#trips === 1;
  }

  #fill(now: number): void {
    const most = Math.max(1, this.rate * BURST_S);
    this.#tokens = Math.min(most, this.#tokens + ((now - this.#filledAt) / 1_000) * this.rate);
    this.#filledAt = now;
  }
}
