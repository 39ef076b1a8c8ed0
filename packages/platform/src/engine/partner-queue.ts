/**
 * One partner's queue: what is due when, and how many calls may be in flight (decision 25, PL16). A slow or dead partner fills only
 * its own queue. This module has no timers and makes no calls: the dispatcher asks it, passing the time of its monotonic clock.
 *
 * Three lanes share the partner's budget, so that no payment waits for another. `submit`: a payment's first PUT. `poll`: payments that
 * the partner has. `retry`: payments whose last call failed. Where more is due than the budget lets through, the lanes take turns by
 * weight; `retry` never has more than a quarter of the calls under way, and on trial comes last.
 *
 * The breaker and the holds concern the partner, so a failure counts only if it says something about the partner. It is the
 * payment's own failure if, since that payment's previous call, the partner answered other payments normally (payment-steps.ts
 * decides).
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
    this.#items.push(item);
    this.#rise(this.#items.length - 1, item);
  }

  /** Empties the heap; in no order. */
  takeAll(): T[] {
    return this.#items.splice(0);
  }

  pop(): T | undefined {
    return this.#remove(0);
  }

  /** Takes the item that became due last, among those due at `now`. Reads the whole heap, so it is for trials, not for every call. */
  popLatest(now: number): T | undefined {
    let latest: number | undefined;
    let latestAt = Number.NEGATIVE_INFINITY;
    for (const [index, item] of this.#items.entries()) {
      if (item.at > now || item.at < latestAt) continue;
      latest = index;
      latestAt = item.at;
    }
    return latest === undefined ? undefined : this.#remove(latest);
  }

  #remove(at: number): T | undefined {
    const items = this.#items;
    const removed = items[at];
    const last = items.pop();
    if (last === undefined || at === items.length) return removed;
    const above = items[(at - 1) >> 1];
    if (at > 0 && above !== undefined && above.at > last.at) this.#rise(at, last);
    else this.#sink(at, last);
    return removed;
  }

  #rise(from: number, item: T): void {
    const items = this.#items;
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent];
      if (above === undefined || above.at <= item.at) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  #sink(from: number, item: T): void {
    const items = this.#items;
    let at = from;
    for (;;) {
      const left = items[2 * at + 1];
      const right = items[2 * at + 2];
      const lesser = right !== undefined && left !== undefined && right.at < left.at ? right : left;
      if (lesser === undefined || lesser.at >= item.at) break;
      items[at] = lesser;
      at = 2 * at + (lesser === right ? 2 : 1);
    }
    items[at] = item;
  }
}

/** Where a payment waits. */
export type QueueLane = 'submit' | 'poll' | 'retry';

const LANES: readonly QueueLane[] = ['submit', 'poll', 'retry'];
/** Weight of each lane while all have something due: new payments first, because a customer is waiting. */
const TURNS: Readonly<Record<QueueLane, number>> = { submit: 4, poll: 2, retry: 1 };
/** Fraction of the calls in flight that a lane may have, so that hung calls of one leave room for the others. */
const PARTS: Readonly<Record<QueueLane, number>> = { submit: 0.75, poll: 0.75, retry: 0.25 };

/** Failures in a row, from any payments, after which the partner is taken to be down. */
const BREAKER_THRESHOLD = 5;
/** A trial that takes longer than this does not block the next one: the partner may have recovered, and the call may be lost. */
const TRIAL_MS = 2_000;
/** The token bucket holds this fraction of a second: enough for an even stream, too little for a burst that would strain the partner. */
const BURST_S = 0.1;
/** 429 answers within this time count once: calls in flight when the first arrived do not slow us down further. */
const ONE_SLOWDOWN_MS = 500;
/** A partner that does not apply Prefer: wait is asked again after this, since it may have been upgraded. */
const ASK_TO_WAIT_AGAIN_MS = 10 * 60_000;
/** Calls per second are never slowed below this: less would look like an outage. */
const LEAST_RATE = 0.5;

/** What could start now. */
export type Turn<T> =
  | { readonly kind: 'start'; readonly item: T; readonly lane: QueueLane }
  /** Nothing may start before this time. `short`: because the calls per second are used up. */
  | { readonly kind: 'wait'; readonly until: number; readonly short: boolean }
  /** The maximum of calls is in flight; wait for one to end, or for what is due at `until`. `short`: the share is used up. */
  | { readonly kind: 'full'; readonly until: number | undefined; readonly short: boolean }
  | { readonly kind: 'empty' };

/** One partner's queue, budget and breaker. */
export class PartnerQueue<T extends Due> {
  readonly partner_id: string;
  readonly settlements: SettlementTimes = newSettlementTimes();
  /** Calls under way, waiting reads among them. */
  inFlight = 0;
  /** Waiting reads under way: at most half of the share, so that plain calls always find room. */
  waiting = 0;
  /** Calls at once that this worker has registered for. */
  share = 0;
  /** Calls per second that this worker has registered for. */
  rate = 0;
  /** At the last heartbeat other workers held what this one wanted. */
  isShort = false;
  /** What the partner allows all workers together. */
  cap = 1;
  callsPerSecond = 1;
  /** Calls started since this was last set to 0: what was used of the calls per second. */
  started = 0;
  /** Why the calls are held back for an operator, if they are. */
  held: string | undefined;
  /** Whether the partner applies Prefer: wait; undefined until it has answered one. */
  waits: boolean | undefined;
  /** Monotonic time at which it was last asked to wait. */
  askedToWaitAt = Number.NEGATIVE_INFINITY;
  /** Monotonic time of the partner's last normal answer. */
  workedAt = Number.NEGATIVE_INFINITY;
  readonly #lanes: Readonly<Record<QueueLane, DueHeap<T>>> = {
    submit: new DueHeap(),
    poll: new DueHeap(),
    retry: new DueHeap(),
  };
  readonly #underWay: Record<QueueLane, number> = { submit: 0, poll: 0, retry: 0 };
  /** Turns taken, divided by the lane's weight: the lane with the least is next. */
  readonly #turns: Record<QueueLane, number> = { submit: 0, poll: 0, retry: 0 };
  readonly #firstBreakMs: number;
  readonly #maxBreakMs: number;
  #tokens = 0;
  #filledAt = 0;
  #failures = 0;
  #trips = 0;
  /** Nothing starts before this: Retry-After, or a pause. */
  #restsUntil = 0;
  /** Nothing starts before this: a confirmed hold, until the next trial. */
  #heldUntil = 0;
  /** The breaker allows no retry before this. */
  #brokenUntil = 0;
  #startedAt = Number.NEGATIVE_INFINITY;
  /** A refusal put the queue on trial: the next one confirms the hold. */
  #isSuspected = false;
  /** Whether the last trial took the payment that came last. */
  #isLatestNext = false;
  /** Calls per second after the last 429, and when that was. */
  #slowed: { readonly rate: number; readonly at: number } | undefined;
  /** Calls started within the second that begins at `from`, and in the one before. */
  #measured = { from: 0, count: 0, before: 0 };

  /** `maxBreakMs` is how late the recovery of a partner that was down is noticed at worst (PL9, LV8). */
  constructor(partner_id: string, firstBreakMs: number, maxBreakMs: number) {
    this.partner_id = partner_id;
    this.#firstBreakMs = firstBreakMs;
    this.#maxBreakMs = maxBreakMs;
  }

  /** Payments queued. */
  get size(): number {
    return LANES.reduce((sum, lane) => sum + this.#lanes[lane].size, 0);
  }

  /** When the earliest is due; undefined when nothing is queued. */
  get nextAt(): number | undefined {
    const ats = LANES.flatMap((lane) => this.#lanes[lane].peek()?.at ?? []);
    return ats.length === 0 ? undefined : Math.min(...ats);
  }

  /** Sets the limits that the partner allows all workers together. */
  applyBudget(budget: { max_concurrent_calls: number; max_calls_per_second: number }): void {
    this.cap = budget.max_concurrent_calls;
    this.callsPerSecond = budget.max_calls_per_second;
  }

  push(item: T, lane: QueueLane): void {
    const heap = this.#lanes[lane];
    // A lane that was empty has no claim to the turns it missed.
    if (heap.size === 0) this.#turns[lane] = Math.max(this.#turns[lane], this.#leastTurns());
    heap.push(item);
  }

  /** True while failures in a row, or a refusal, let only one trial through at a time. */
  get onTrial(): boolean {
    return this.#failures >= BREAKER_THRESHOLD || this.held !== undefined;
  }

  /**
   * Whether a read may ask to wait now. Until the partner is known to apply it, only one read at a time asks, because a waiting
   * read notices a stalled partner only after its wait.
   */
  canWait(now: number): boolean {
    if (this.onTrial || this.waiting >= Math.floor(this.share / 2)) return false;
    if (this.waits === true) return true;
    if (this.waiting > 0) return false;
    return this.waits === undefined || now - this.askedToWaitAt >= ASK_TO_WAIT_AGAIN_MS;
  }

  /**
   * Takes what may start at `now`; it counts as in flight until `ended`. `isCurrent` is false for an entry that must be dropped instead.
   */
  take(now: number, isCurrent: (item: T) => boolean): Turn<T> {
    for (const lane of LANES) {
      const heap = this.#lanes[lane];
      for (let head = heap.peek(); head !== undefined && !isCurrent(head); head = heap.peek())
        heap.pop();
    }
    const next = this.nextAt;
    if (next === undefined) return { kind: 'empty' };
    if (next > now) return { kind: 'wait', until: next, short: false };
    if (this.inFlight >= this.#room(now)) {
      const short = this.rate === 0 || (this.share < this.cap && this.inFlight >= this.share);
      if (!this.onTrial || short) return { kind: 'full', until: undefined, short };
      return { kind: 'wait', until: this.#startedAt + TRIAL_MS, short: false };
    }
    const lane = this.#choose(now);
    const later = this.#dueAfter(now);
    if (lane === undefined) return { kind: 'full', until: later, short: this.share < this.cap };
    const ready = this.readyAt(now, lane);
    if (ready > now) {
      // An entry that is due later may be allowed to start earlier.
      const until = Math.min(ready, later ?? ready);
      return { kind: 'wait', until, short: this.rate < this.callsPerSecond };
    }
    const item = this.#next(now, lane, isCurrent);
    if (item === undefined) return { kind: 'empty' };
    this.#start(now, lane);
    return { kind: 'start', item, lane };
  }

  /** Releases the place of a call that has ended. */
  ended(lane: QueueLane): void {
    this.inFlight -= 1;
    this.#underWay[lane] -= 1;
  }

  /** When the next call of a lane may start, not before `now`; ignores the number of calls in flight. */
  readyAt(now: number, lane: QueueLane = 'retry'): number {
    this.#fill(now);
    const rate = this.#rateAt(now);
    const token = this.#tokens >= 1 ? now : now + ((1 - this.#tokens) / rate) * 1_000;
    // A payment that has not failed may be the trial a second after the last one: it must not wait behind failed ones.
    const broken =
      lane === 'retry'
        ? this.#brokenUntil
        : Math.min(this.#brokenUntil, this.#startedAt + this.#firstBreakMs);
    return Math.max(now, token, this.#restsUntil, this.#heldUntil, broken);
  }

  /** True when a payment that is due now would not have to wait for the partner to come back. */
  isOpen(now: number): boolean {
    return this.#restsUntil <= now && this.#brokenUntil <= now && !this.onTrial;
  }

  /**
   * For how long a call has been due although one could have started: since it was due, since the partner was last held back, and
   * since a call last started, whichever is latest. A queue that moves slowly, because the budget is small or the partner is down,
   * still starts a call now and then; one whose engine has died does not (LV2).
   */
  stalledMs(now: number): number {
    const next = this.nextAt;
    // Waiting for other workers to release their share is not a stall.
    if (next === undefined || this.isShort) return 0;
    const could = Math.max(
      next,
      this.#restsUntil,
      this.#heldUntil,
      this.#brokenUntil,
      this.#startedAt,
    );
    return Math.max(0, now - could);
  }

  /** Blocks new calls for `ms`: Retry-After, or a pause. */
  closeFor(now: number, ms: number): void {
    this.#restsUntil = Math.max(this.#restsUntil, now + ms);
  }

  /**
   * Records a normal answer of the partner. True when it had been down or held: payments that failed because of it are then due at once.
   */
  succeeded(now: number): boolean {
    const was = this.onTrial;
    this.#heldUntil = 0;
    this.workedAt = now;
    this.#failures = 0;
    this.#trips = 0;
    this.#brokenUntil = 0;
    this.#isSuspected = false;
    this.held = undefined;
    return was;
  }

  /** Moves payments that wait for a retry, and did not fail by themselves, to where they would be without the failures. */
  forgive(laneOf: (item: T) => QueueLane): void {
    const waiting = this.#lanes.retry.takeAll();
    for (const item of waiting) this.push(item, laneOf(item));
  }

  /** Records a failure of the partner. True when this opened the breaker. */
  failed(now: number, random: number): boolean {
    this.#failures += 1;
    if (this.#failures < BREAKER_THRESHOLD) return false;
    // Ignore failures of calls that started before the breaker opened.
    if (this.#brokenUntil > now) return false;
    const ms = Math.min(this.#maxBreakMs, this.#firstBreakMs * 2 ** Math.min(this.#trips, 20));
    this.#trips += 1;
    this.#brokenUntil = now + ms * (0.5 + random / 2);
    return this.#trips === 1;
  }

  /**
   * Records a refusal that concerns all calls. After the first refusal only one trial at a time may start; the refusal of
   * another payment, or of the same one again, confirms it, and then nothing starts for `ms`. `forAll`: nothing needs confirming.
   * True when the reason is new.
   */
  refused(
    now: number,
    refusal: {
      readonly reason: string;
      readonly ms: number;
      readonly forAll: boolean;
    },
  ): boolean {
    const isNews = this.held !== refusal.reason;
    const isConfirmed = refusal.forAll || this.#isSuspected;
    this.held = refusal.reason;
    this.#isSuspected = true;
    if (isConfirmed) this.#heldUntil = Math.max(this.#heldUntil, now + refusal.ms);
    return isNews;
  }

  /** 429 without a Retry-After: halve the rate that was actually sent, then raise it slowly. */
  slowDown(now: number): void {
    if (this.#slowed !== undefined && now - this.#slowed.at < ONE_SLOWDOWN_MS) return;
    const { from, count, before } = this.#measured;
    const sent = now - from >= 1_000 ? count : Math.max(count, before);
    const rate = Math.max(LEAST_RATE, Math.min(this.#rateAt(now), Math.max(1, sent)) / 2);
    this.#slowed = { rate, at: now };
  }

  /** Calls per second now: what this worker registered for, less while the partner has asked for less. */
  #rateAt(now: number): number {
    if (this.#slowed === undefined) return this.rate;
    const seconds = (now - this.#slowed.at) / 1_000;
    // Additive at first. After a while without another 429 the limit was temporary, and the rate recovers faster.
    const grown = this.#slowed.rate * (1 + seconds / 10) + seconds + seconds ** 2 / 10;
    return Math.min(this.rate, grown);
  }

  /** Maximum of calls in flight. */
  #room(now: number): number {
    if (this.rate === 0) return 0;
    if (!this.onTrial) return this.share;
    return Math.min(this.share, now >= this.#startedAt + TRIAL_MS ? this.inFlight + 1 : 1);
  }

  /**
   * The next of a lane: the one that is due first. Of the trials every other is the payment that came last: behind 40 payments that
   * the partner cannot take, the first healthy one is then tried at once, and its success ends the trial for all (LV3).
   */
  #next(now: number, lane: QueueLane, isCurrent: (item: T) => boolean): T | undefined {
    const heap = this.#lanes[lane];
    if (!this.onTrial || lane === 'retry') return heap.pop();
    this.#isLatestNext = !this.#isLatestNext;
    if (!this.#isLatestNext) return heap.pop();
    let item = heap.popLatest(now);
    while (item !== undefined && !isCurrent(item)) item = heap.popLatest(now);
    return item;
  }

  /** The lane that is due and whose turn it is; undefined when every due lane has reached its limit. */
  #choose(now: number): QueueLane | undefined {
    const due = LANES.filter((lane) => (this.#lanes[lane].peek()?.at ?? Infinity) <= now);
    // On trial, a payment that has not failed goes first: its result says more about the partner.
    if (this.onTrial) return due[0];
    let chosen: QueueLane | undefined;
    for (const lane of due) {
      const most = Math.max(1, Math.ceil(this.share * PARTS[lane]));
      if (this.#underWay[lane] >= most) continue;
      if (chosen === undefined || this.#turns[lane] < this.#turns[chosen]) chosen = lane;
    }
    return chosen;
  }

  /** The earliest due time among the lanes that have nothing due now. */
  #dueAfter(now: number): number | undefined {
    const ats = LANES.flatMap((lane) => this.#lanes[lane].peek()?.at ?? []).filter(
      (at) => at > now,
    );
    return ats.length === 0 ? undefined : Math.min(...ats);
  }

  #leastTurns(): number {
    const busy = LANES.filter((lane) => this.#lanes[lane].size > 0);
    return busy.length === 0 ? 0 : Math.min(...busy.map((lane) => this.#turns[lane]));
  }

  #start(now: number, lane: QueueLane): void {
    this.#tokens -= 1;
    this.inFlight += 1;
    this.started += 1;
    this.#underWay[lane] += 1;
    this.#turns[lane] += 1 / TURNS[lane];
    this.#startedAt = now;
    const measured = this.#measured;
    if (now - measured.from >= 1_000) {
      const before = now - measured.from < 2_000 ? measured.count : 0;
      this.#measured = { from: now, count: 1, before };
    } else {
      measured.count += 1;
    }
  }

  #fill(now: number): void {
    const rate = this.#rateAt(now);
    const most = Math.max(1, rate * BURST_S);
    this.#tokens = Math.min(most, this.#tokens + ((now - this.#filledAt) / 1_000) * rate);
    this.#filledAt = now;
  }
}
