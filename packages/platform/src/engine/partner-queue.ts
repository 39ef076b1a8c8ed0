/**
 * One partner's queue: what is due when, and how many calls may be in flight (decision 25, PL16). A slow or dead partner fills only
 * its own queue. This module has no timers and makes no calls: the dispatcher asks it, passing the time of its monotonic clock.
 *
 * Four lanes share the partner's budget, so that no payment waits for another. `submit`: a payment's first PUT. `poll`: its first
 * poll. `again`: further polls. `retry`: payments whose last call failed. Where more is due than the budget lets through, the lanes take turns by
 * weight; `retry` never has more than a quarter of the calls under way, and on trial comes last.
 *
 * The breaker and the holds concern the partner, so a failure counts only if it says something about the partner. It is the
 * payment's own failure if, since that payment's previous call, the partner answered other payments normally (payment-steps.ts
 * decides). A payment that was never tried has no such history, so what an open breaker lets through depends on the kind of failure
 * (decision 180): one trial at a time if the partner cannot be reached, half of the budget for payments that have not failed if it
 * answers with errors, and trials at growing intervals if it refuses. The first normal answer ends each of them.
 *
 * One file because lanes, breaker and holds decide together what is called next.
 */
import { CallRate } from './call-rate.ts';
import { DueHeap, type Due, type Lane } from './due-heap.ts';
import { newSettlementTimes, type SettlementTimes } from './poll-schedule.ts';

/** Where a payment waits. */
export type QueueLane = 'submit' | 'poll' | 'again' | 'retry';

const LANES: readonly QueueLane[] = ['submit', 'poll', 'again', 'retry'];
/**
 * Weight of each lane while all have something due: new payments first, because a customer is waiting. Each needs one PUT and one first
 * poll, so these two lanes take equal turns. With fewer for the polls they fell behind the PUTs in every burst, and each payment then
 * cost a second write, for its acceptance (dispatcher.ts).
 */
const TURNS: Readonly<Record<QueueLane, number>> = { submit: 4, poll: 4, again: 1, retry: 1 };
/** Fraction of the calls in flight that a lane may have, so that hung calls of one leave room for the others. */
const PARTS: Readonly<Record<QueueLane, number>> = {
  submit: 0.75,
  poll: 0.75,
  again: 0.5,
  retry: 0.25,
};

/** Failures in a row, from any payments, after which the partner is taken to be down. */
const BREAKER_THRESHOLD = 5;
/** A trial that takes longer than this does not block the next one: the partner may have recovered, and the call may be lost. */
const TRIAL_MS = 2_000;
/**
 * Fraction of the budget that payments which have not failed may use while the partner answers every call with an error. It can be
 * reached, so each of them costs it one short call, and the first that it can take ends the trial.
 */
const FAILING_PART = 0.5;
/** A refusal is taken to concern the partner only if it has answered no payment normally for this long. */
const REFUSES_ALL_MS = 1_000;
/** Interval of trials after a refusal, until it is clear whether it concerns the partner: forty at most. */
const SUSPECT_MS = 25;
/** While payments have failed within this time, those that came last go first, */
const TROUBLED_MS = 5_000;
/**
 * The same for polls that have waited this long for the budget: first come, first served would make every poll as late as the
 * thousands before it, those of payments that end soon as much as those of payments that never do.
 */
const LATE_MS = 1_000;
/** except every fourth call, so that what came before them is tried as well. */
const OLDEST_EVERY = 4;
/** A partner that does not apply Prefer: wait is asked again after this, since it may have been upgraded. */
const ASK_TO_WAIT_AGAIN_MS = 10 * 60_000;

/**
 * A call hangs when it takes longer than this, and several times as long as a call of its kind that was sent after it and answered.
 * It then gives up its place if others wait for it: it is tried again among the retries, with its full time.
 */
const HUNG_MS = 1_000;
const HUNG_TIMES = 4;

/** What a call asks. Many partners take far longer to make a payment than to read one, so calls are compared within their kind. */
export type CallKind = 'submit' | 'poll' | 'waiting_read';

/** A call under way. */
export interface RunningCall {
  readonly lane: QueueLane;
  /** What was sent, and its monotonic time; undefined while the call is being prepared. */
  sent: { readonly kind: CallKind; readonly at: number } | undefined;
  /** Ends the call as if its time were up; set while the request is under way. */
  giveUp: (() => void) | undefined;
}

/** What could start now. */
export type Turn<T> =
  | { readonly kind: 'start'; readonly item: T; readonly call: RunningCall }
  /** This call hangs, and others wait for its place: `giveUp` it, and go on when it has ended. */
  | { readonly kind: 'give_up'; readonly call: RunningCall }
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
  readonly #lanes: Readonly<Record<QueueLane, Lane<T>>>;
  readonly #underWay: Record<QueueLane, number> = {
    submit: 0,
    poll: 0,
    again: 0,
    retry: 0,
  };
  /** By lane, when its next turn comes: each turn moves it on by 1 divided by the lane's weight. The earliest is next. */
  readonly #turns: Record<QueueLane, number> = { submit: 0, poll: 0, again: 0, retry: 0 };
  /** When the last turn came. */
  #turn = 0;
  readonly #rate = new CallRate(() => this.rate);
  readonly #firstBreakMs: number;
  readonly #maxBreakMs: number;
  #failures = 0;
  /** The last of the failures in a row was an answer, so the partner can be reached. */
  #isReached = false;
  /** Monotonic time of the last failure or refusal, whatever it concerned. */
  #troubledAt = Number.NEGATIVE_INFINITY;
  #trips = 0;
  /** Nothing starts before this: Retry-After, or a pause. */
  #restsUntil = 0;
  /** No retry starts before this: a confirmed hold, until the next trial. */
  #heldUntil = 0;
  /** The same for payments that have not failed: they are tried sooner, because the hold may not concern them. */
  #freshHeldUntil = 0;
  /** Confirmed refusals in a row. */
  #refusals = 0;
  /** The breaker allows no retry before this. */
  #brokenUntil = 0;
  #startedAt = Number.NEGATIVE_INFINITY;
  /** Calls under way, in the order in which they started. */
  readonly #running = new Set<RunningCall>();
  /** The one of them that has been given up and has not ended yet, and when the last was given up. */
  #givenUp: RunningCall | undefined;
  #gaveUpAt = Number.NEGATIVE_INFINITY;
  /** By kind, the call that was sent last among those that were answered normally. */
  readonly #lastAnswered: Record<CallKind, { readonly sentAt: number; readonly tookMs: number }> = {
    submit: { sentAt: Number.NEGATIVE_INFINITY, tookMs: 0 },
    poll: { sentAt: Number.NEGATIVE_INFINITY, tookMs: 0 },
    waiting_read: { sentAt: Number.NEGATIVE_INFINITY, tookMs: 0 },
  };
  /** A refusal put the queue on trial: the next one confirms the hold. */
  #isSuspected = false;
  /** Calls chosen while payments fail. */
  #chosen = 0;

  /** `maxBreakMs` is how late the recovery of a partner that was down is noticed at worst (PL9, LV8). */
  constructor(
    partner_id: string,
    firstBreakMs: number,
    maxBreakMs: number,
    newLane: () => Lane<T> = () => new DueHeap(),
  ) {
    this.partner_id = partner_id;
    this.#lanes = { submit: newLane(), poll: newLane(), again: newLane(), retry: newLane() };
    this.#firstBreakMs = firstBreakMs;
    this.#maxBreakMs = maxBreakMs;
  }

  /** Payments queued. */
  get size(): number {
    return LANES.reduce((sum, lane) => sum + this.#lanes[lane].size, 0);
  }

  /** When the earliest is due; undefined when nothing is queued. */
  get nextAt(): number | undefined {
    let next = Number.POSITIVE_INFINITY;
    for (const lane of LANES) next = Math.min(next, this.#firstAt(lane));
    return next === Number.POSITIVE_INFINITY ? undefined : next;
  }

  /** When the earliest of a lane is due; infinity if it is empty. */
  #firstAt(lane: QueueLane): number {
    return this.#lanes[lane].peek()?.at ?? Number.POSITIVE_INFINITY;
  }

  /** Sets the limits that the partner allows all workers together. */
  applyBudget(budget: { max_concurrent_calls: number; max_calls_per_second: number }): void {
    this.cap = budget.max_concurrent_calls;
    this.callsPerSecond = budget.max_calls_per_second;
  }

  push(item: T, lane: QueueLane): void {
    this.#lanes[lane].push(item);
  }

  /** True while failures in a row, or a refusal, let only one trial through at a time. */
  get onTrial(): boolean {
    return this.#failures >= BREAKER_THRESHOLD || this.held !== undefined;
  }

  /** True once a trial call has failed too after the breaker's first pause: the partner stays down, and did not only falter. */
  get isDown(): boolean {
    return this.#trips > 1;
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
      const isFull = this.inFlight >= this.share;
      const short = this.rate === 0 || (this.share < this.cap && isFull);
      // Time makes room on trial alone: without one, the room is the share, or nothing.
      if (isFull || short) return this.#full(now, undefined, short);
      return { kind: 'wait', until: this.#startedAt + TRIAL_MS, short: false };
    }
    const lane = this.#choose(now);
    const later = this.#dueAfter(now);
    if (lane === undefined) {
      if (!this.onTrial) return this.#full(now, later, this.share < this.cap);
      const next = this.#startedAt + TRIAL_MS;
      return { kind: 'wait', until: Math.min(next, later ?? next), short: false };
    }
    const ready = this.readyAt(now, lane);
    if (ready > now) {
      // An entry that is due later may be allowed to start earlier.
      const until = Math.min(ready, later ?? ready);
      return { kind: 'wait', until, short: this.rate < this.callsPerSecond };
    }
    const item = this.#next(now, lane, isCurrent);
    if (item === undefined) return { kind: 'empty' };
    return { kind: 'start', item, call: this.#start(now, lane) };
  }

  /** Releases the place of a call that has ended. */
  ended(call: RunningCall): void {
    const { lane } = call;
    this.#running.delete(call);
    if (this.#givenUp === call) this.#givenUp = undefined;
    this.inFlight -= 1;
    this.#underWay[lane] -= 1;
  }

  /** Nothing may start because of the calls under way: one that hangs gives up its place to a payment that has not failed. */
  #full(now: number, until: number | undefined, short: boolean): Turn<T> {
    const full: Turn<T> = { kind: 'full', until, short };
    if (this.#givenUp !== undefined) return full;
    const isFull = this.inFlight >= this.share;
    if (!LANES.some((lane) => lane !== 'retry' && this.#firstAt(lane) <= now)) return full;
    const call = this.#oldest(now, isFull);
    if (call?.sent === undefined) {
      // One that is being prepared may hang when it has been sent, and nothing else may tell.
      const isPreparing = [...this.#running].some((one) => one.lane !== 'retry' && !one.sent);
      return isPreparing ? { ...full, until: Math.min(now + HUNG_MS, until ?? Infinity) } : full;
    }
    const { sent } = call;
    const answered = this.#lastAnswered[sent.kind];
    let at = sent.at + Math.max(HUNG_MS, HUNG_TIMES * answered.tookMs);
    // If no later call was answered, all may hang: then one place at a time is used to find out.
    if (sent.at >= answered.sentAt) at = Math.max(at, this.#gaveUpAt + HUNG_MS);
    if (at > now) return { kind: 'full', until: Math.min(at, until ?? at), short };
    this.#givenUp = call;
    this.#gaveUpAt = now;
    this.#troubledAt = now;
    return { kind: 'give_up', call };
  }

  /** The oldest call under way that can be given up for a payment that waits: of its own lane, or of any when all places are taken. */
  #oldest(now: number, isFull: boolean): RunningCall | undefined {
    for (const call of this.#running) {
      const { lane, sent, giveUp } = call;
      if (giveUp === undefined || sent?.kind === 'waiting_read' || lane === 'retry') continue;
      if (isFull || this.#firstAt(lane) <= now) return call;
    }
    return undefined;
  }

  /** When the next call of a lane may start, not before `now`; ignores the number of calls in flight. */
  readyAt(now: number, lane: QueueLane = 'retry'): number {
    const own =
      lane === 'retry'
        ? Math.max(this.#brokenUntil, this.#heldUntil)
        : Math.max(this.#freshHeldUntil, this.#freshTrialAt(now));
    return Math.max(this.#rate.nextAt(now), this.#restsUntil, own);
  }

  /** When a payment that has not failed may be the next trial: it must not wait behind those that have. */
  #freshTrialAt(now: number): number {
    if (this.held !== undefined) return this.#startedAt + SUSPECT_MS;
    if (!this.onTrial) return 0;
    // An answer proves that the partner can be reached and costs it little; a timeout may mean that it can take no more.
    const gap = this.#isReached ? 1_000 / (this.#rate.at(now) * FAILING_PART) : this.#firstBreakMs;
    return this.#startedAt + Math.min(this.#firstBreakMs, gap);
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
   * Records a normal answer of the partner, to what was `sent`. True when it had been down or held: payments that failed because of it
   * are then due at once.
   */
  succeeded(now: number, sent?: RunningCall['sent']): boolean {
    const was = this.onTrial;
    if (sent !== undefined && sent.at >= this.#lastAnswered[sent.kind].sentAt) {
      this.#lastAnswered[sent.kind] = { sentAt: sent.at, tookMs: now - sent.at };
    }
    this.#rate.answeredNormally(now);
    this.#heldUntil = 0;
    this.#freshHeldUntil = 0;
    this.#refusals = 0;
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

  /** Records that a payment failed, or was refused, by itself. */
  failedAlone(now: number): void {
    this.#troubledAt = now;
  }

  /** Records a failure of the partner; `isAnswer` when it did answer, with an error. True when this opened the breaker. */
  failed(now: number, random: number, isAnswer: boolean): boolean {
    this.#failures += 1;
    this.#isReached = isAnswer;
    this.#troubledAt = now;
    if (this.#failures < BREAKER_THRESHOLD) return false;
    // Ignore failures of calls that started before the breaker opened.
    if (this.#brokenUntil > now) return false;
    const ms = Math.min(this.#maxBreakMs, this.#firstBreakMs * 2 ** Math.min(this.#trips, 20));
    this.#trips += 1;
    this.#brokenUntil = now + ms * (0.5 + random / 2);
    return this.#trips === 1;
  }

  /**
   * Records a refusal that may concern all calls. After the first only one trial at a time may start. A further one confirms it,
   * unless the partner has answered another payment normally within the last second. Then no retry starts for `ms`, and no payment
   * that has not failed for a time that grows from the first pause of the breaker to `ms`. `forAll`: the call could not even be
   * sent, which needs no confirming and concerns every payment. True when the reason is new.
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
    const isConfirmed =
      refusal.forAll || (this.#isSuspected && now - this.workedAt >= REFUSES_ALL_MS);
    this.held = refusal.reason;
    this.#isSuspected = true;
    this.#troubledAt = now;
    if (!isConfirmed) return isNews;
    this.#heldUntil = Math.max(this.#heldUntil, now + refusal.ms);
    // Refusals of calls that started before the pause tell nothing new.
    if (this.#freshHeldUntil > now && !refusal.forAll) return isNews;
    const freshMs = refusal.forAll
      ? refusal.ms
      : this.#firstBreakMs * 2 ** Math.min(this.#refusals, 20);
    this.#refusals += 1;
    this.#freshHeldUntil = Math.max(this.#freshHeldUntil, now + Math.min(refusal.ms, freshMs));
    return isNews;
  }

  /** Records a 429 without a Retry-After. */
  slowDown(now: number): void {
    this.#troubledAt = now;
    this.#rate.slowDown(now);
  }

  /** Maximum of calls in flight. */
  #room(now: number): number {
    if (this.rate === 0) return 0;
    if (!this.onTrial) return this.share;
    const trials = now >= this.#startedAt + TRIAL_MS ? this.inFlight + 1 : 1;
    const isFailing = this.#isReached && this.held === undefined;
    return Math.min(
      this.share,
      Math.max(trials, isFailing ? Math.floor(this.share * FAILING_PART) : 0),
    );
  }

  /**
   * The next of a lane: the one that is due first. While payments fail, most calls are for those that came last: behind hundreds that
   * the partner cannot take, the first healthy one is then tried at once, and its success ends the trial for all (LV3).
   */
  #next(now: number, lane: QueueLane, isCurrent: (item: T) => boolean): T | undefined {
    const heap = this.#lanes[lane];
    if (lane === 'retry' || !this.#prefersLatest(now, lane)) return heap.pop();
    this.#chosen += 1;
    if (this.#chosen % OLDEST_EVERY === 0) return heap.pop();
    let item = heap.popLatest(now);
    while (item !== undefined && !isCurrent(item)) item = heap.popLatest(now);
    return item;
  }

  /** While payments fail, and for polls while more are due than the budget lets through. */
  #prefersLatest(now: number, lane: QueueLane): boolean {
    if (this.onTrial || now - this.#troubledAt < TROUBLED_MS) return true;
    return lane !== 'submit' && (this.#lanes[lane].peek()?.at ?? now) < now - LATE_MS;
  }

  /** The lane that is due and whose turn it is; undefined when every due lane has reached its limit. */
  #choose(now: number): QueueLane | undefined {
    let chosen: QueueLane | undefined;
    for (const lane of LANES) {
      if (this.#firstAt(lane) > now) continue;
      const most = this.#mostOf(lane, now);
      // On trial, a payment that has not failed goes first: its result says more about the partner.
      if (this.onTrial && lane === 'retry' && chosen !== undefined) continue;
      if (this.#underWay[lane] >= most) continue;
      if (chosen === undefined || this.#turnOf(lane) < this.#turnOf(chosen)) chosen = lane;
    }
    return chosen;
  }

  /**
   * When the next turn of a lane comes. A lane that had nothing due has not saved its turns up: after thousands of PUTs, the polls
   * that become due would otherwise start one after the other before the next PUT.
   */
  #turnOf(lane: QueueLane): number {
    return Math.max(this.#turns[lane], this.#turn);
  }

  /** Maximum of calls of a lane in flight. On trial, one retry at a time; the room for trials limits the rest. */
  #mostOf(lane: QueueLane, now: number): number {
    if (!this.onTrial) return Math.max(1, Math.ceil(this.share * PARTS[lane]));
    if (lane !== 'retry' || now >= this.#startedAt + TRIAL_MS) return Number.POSITIVE_INFINITY;
    return 1;
  }

  /** The earliest due time among the lanes that have nothing due now. */
  #dueAfter(now: number): number | undefined {
    let next = Number.POSITIVE_INFINITY;
    for (const lane of LANES) {
      const at = this.#firstAt(lane);
      if (at > now) next = Math.min(next, at);
    }
    return next === Number.POSITIVE_INFINITY ? undefined : next;
  }

  #start(now: number, lane: QueueLane): RunningCall {
    const call: RunningCall = { lane, sent: undefined, giveUp: undefined };
    this.#running.add(call);
    this.#rate.took(now);
    this.inFlight += 1;
    this.started += 1;
    this.#underWay[lane] += 1;
    this.#turn = this.#turnOf(lane);
    this.#turns[lane] = this.#turn + 1 / TURNS[lane];
    this.#startedAt = now;
    return call;
  }
}
