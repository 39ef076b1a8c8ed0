/**
 * Every payment that a worker drives: when its next step is due, and the steps under way.
 *
 * enters: payments, by `add`.  leaves: each is called, decided (payment-steps.ts), recorded (records.ts) and queued again, until it
 *         is settled, waits for an operator, or belongs to another worker.
 * holds:  due times are kept in memory; a poll that finds no change writes nothing. A payment is in one queue
 *         or has one step under way, never both: only the end of a step queues it again. An error in one payment affects no other
 *         (F90), and a slow partner fills only its own queue (PL16).
 *
 * One file because due times, the steps under way and the records of both are one set of invariants that no other file may touch.
 */
import type { PaymentStage } from '@duebridge/contract';
import { isDatabaseTrouble, kindOfError, messageOf } from '@duebridge/runtime';
import { lasts, type FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import type { PaymentRow } from '../store/payments.ts';
import { authorizeFunds, poll, settleFunds, submit, type CallContext } from './calls.ts';
import { ActivePayment, orderOf, type PaymentGroup } from './active-payment.ts';
import type { EngineMetrics } from './metrics.ts';
import type { HoldReason } from './outcome.ts';
import type { EngineOptions, EngineStep, EngineTimes } from './options.ts';
import { CallQueue, type Lane } from './call-queue.ts';
import type { Outage } from './outage.ts';
import { PartnerCalls, type Part } from './partner-calls.ts';
import {
  decide,
  isUnsent,
  leaving,
  nextStep,
  WAITING_AGE_MS,
  type PartnerSignal,
  type PaymentEvent,
  type Step,
  type StepWrite,
} from './payment-steps.ts';
import { OVERDUE_AFTER_MS } from '../store/payment-search.ts';
import { learn } from './poll-schedule.ts';
import { PaymentRecords } from './records.ts';
import { SLOTS, type LoadedRow } from './slots.ts';

/** What the dispatcher needs of the worker whose payments it drives. */
export interface Lease {
  readonly workerId: string;
  /** The database's time, as a text for a parameter. */
  databaseNow(): string;
  /** False when the lease can no longer be relied on: nothing may be sent. */
  holds(): boolean;
  /** Whether this worker owns the slot, as far as it knows; the database decides at each write. */
  owns(slot: number): boolean;
}

/** A call to the funding port that takes longer is aborted and retried: every operation of the port is idempotent. */
const FUNDING_DEADLINE_MS = 15_000;
/** Calls at once of one funding method. One partner has half of them at most while there are others, and a hung call has a deadline. */
const FUNDING_PLACES = 1_024;
/** Polls of a payment that are not queued behind those of payments that take long. */
const FIRST_POLLS = 1;
/** Maximum number of groups in memory. */
const MAX_GROUPS = 10_000;
/** Interval of the check whether calls in flight in a slot have been recorded. */
const LEAVE_LOOK_MS = 20;
/** How long the write of an acceptance is deferred for the first poll, which may make it unnecessary. */
const SAVE_AFTER_MS = 50;
/** Shortest time between two looks for deferred acceptances, so that many are written in one statement. */
const SAVE_EVERY_MS = 10;

/** How old a payment was, in milliseconds, at the call that found its end. */
interface CallAge {
  /** When the poll was due; undefined if it was another call, or had failed before. */
  readonly dueMs: number | undefined;
  /** After a read that was held until the end; undefined for any other call. */
  readonly heldMs: number | undefined;
}

/** The payments of one worker. */
export class Dispatcher {
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #metrics: EngineMetrics;
  readonly #lease: Lease;
  readonly #changed: (platform_payment_id: string) => void;
  readonly #records: PaymentRecords;
  readonly #callContext: CallContext;
  readonly #payments = new Map<string, ActivePayment>();
  readonly #partners = new Map<string, PartnerCalls<ActivePayment>>();
  /** This worker's part of every budget. */
  #part: Part = { of: 1, rank: 0 };
  /** Aborts the calls under way. */
  readonly #calls = new AbortController();
  /** Aborts waiting reads, which would otherwise delay a stop until they end. */
  readonly #waits = new AbortController();
  readonly #timers = new Map<object, { readonly at: number; readonly cancel: AbortController }>();
  /** Payments whose next step is a call to the funding port, by method. */
  readonly #funding = new Map<string, CallQueue<ActivePayment>>();
  readonly #outage: Outage;
  /** Acceptances that are not written yet, and those that are being written. */
  readonly #unsaved = new Map<ActivePayment, { readonly write: StepWrite; readonly at: number }>();
  readonly #saving = new Map<ActivePayment, Promise<void>>();
  /** Partners whose hold is being noted, and what is to be noted in the end. */
  readonly #holdNotes = new Map<string, string | null>();
  /** Payments, and steps under way, by slot. */
  readonly #inSlot = new Int32Array(SLOTS);
  readonly #underWayIn = new Int32Array(SLOTS);
  /** Each holds what was forgotten since its reader began. */
  readonly #readers = new Set<Set<string>>();
  readonly #groups = new Map<string, PaymentGroup>();
  /** Wall time. */
  readonly #beganAt: number;
  /** A loop is running that writes the pending acceptances. */
  #savesLater = false;
  #ended = false;
  #underWay = 0;
  #idle: (() => void) | undefined;

  constructor(
    options: EngineOptions,
    times: EngineTimes,
    metrics: EngineMetrics,
    lease: Lease,
    outage: Outage,
    changed: (platform_payment_id: string) => void,
  ) {
    this.#options = options;
    this.#times = times;
    this.#metrics = metrics;
    this.#lease = lease;
    this.#changed = changed;
    this.#beganAt = options.clock.now();
    this.#outage = outage;
    const { client, clock } = options;
    this.#callContext = {
      client,
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      counted(call, partner_id, outcome) {
        if (call === 'submit') metrics.submitted(partner_id, outcome);
        else metrics.polled(partner_id, outcome);
      },
    };
    this.#records = new PaymentRecords({
      outage: this.#outage,
      database: options.database,
      clock,
      writer: () => ({ worker_id: lease.workerId, at: lease.databaseNow() }),
      signal: this.#calls.signal,
      // A stop lets steps in flight be recorded, as long as the lease is held.
      mayWrite: () => lease.holds() && !this.#calls.signal.aborted,
    });
  }

  get size(): number {
    return this.#payments.size;
  }

  /** Aborted when calls under way are given up. */
  get signal(): AbortSignal {
    return this.#calls.signal;
  }

  has(platform_payment_id: string): boolean {
    return this.#payments.has(platform_payment_id);
  }

  /** When the next step of a payment is due, in monotonic milliseconds; undefined for one that is not driven here. */
  dueAt(platform_payment_id: string): number | undefined {
    return this.#payments.get(platform_payment_id)?.at;
  }

  /** Age of the oldest payment, and how many stand on the operator's list for their age (decision 23). */
  ages(): { readonly oldestSeconds: number; readonly overdue: number } {
    const now = this.#options.clock.now();
    let oldest = now;
    let overdue = 0;
    for (const payment of this.#payments.values()) {
      const createdAt = this.#beganAt + payment.createdAt;
      oldest = Math.min(oldest, createdAt);
      if (now - createdAt > OVERDUE_AFTER_MS) overdue += 1;
    }
    return { oldestSeconds: (now - oldest) / 1_000, overdue };
  }

  /** The longest that a due call of any partner has waited although it could have started, in milliseconds. */
  stalledMs(): number {
    const now = this.#options.clock.monotonic();
    let longest = 0;
    for (const { queue } of this.#partners.values()) {
      longest = Math.max(longest, queue.stalledMs(now));
    }
    return longest;
  }

  /** Sets this worker's part of every partner's budget. */
  share(part: Part): void {
    if (part.of === this.#part.of && part.rank === this.#part.rank) return;
    this.#part = part;
    for (const partner of this.#partners.values()) {
      partner.applyPart(part);
      this.#pump(partner);
    }
  }

  /**
   * Whether a new payment may begin as `dispatching`: its method reserves nothing, its partner can be called, and first calls
   * are in no backlog. If it has to wait, it begins as `created`, so that it can be withdrawn meanwhile (decision 18).
   */
  canSendNow(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    { funding_method }: Pick<FundingOrder, 'funding_method'>,
  ): boolean {
    const now = this.#options.clock.monotonic();
    return (
      !partner.paused &&
      this.#options.funding.collection(funding_method) !== 'reserved' &&
      this.partnerOf(partner.partner_id).queue.isOpen(now)
    );
  }

  /** Starts driving a row that this worker owns, `delayMs` from now. Returns whether it is new here. */
  add(row: PaymentRow | LoadedRow, delayMs = 0): boolean {
    const { slot } = row;
    if (this.#ended || slot === null || this.#payments.has(row.platform_payment_id)) return false;
    const now = this.#options.clock.monotonic();
    const age = 'accepted_age_ms' in row ? (row.accepted_age_ms ?? 0) : 0;
    const payment = new ActivePayment({
      at: Math.ceil(now + delayMs),
      platform_payment_id: row.platform_payment_id,
      account_id: row.account_id,
      amount_in_cents: row.amount_in_cents,
      group: this.#groupOf(row),
      createdAt: Date.parse(row.created_at) - this.#beganAt,
      stage: row.stage,
      status: row.status,
      payment_id: row.payment_id,
      acceptedAt: Math.floor(now - age),
      slot,
    });
    this.#payments.set(payment.platform_payment_id, payment);
    this.#count(slot, 1);
    this.#enqueue(payment);
    return true;
  }

  /** Restarts from a row that an operator changed, because its state in memory is out of date. */
  replace(row: LoadedRow, delayMs: number): void {
    this.dropById(row.platform_payment_id);
    this.add(row, delayMs);
  }

  /** Stops driving a payment. The fence refuses the write of a step that is under way. */
  dropById(platform_payment_id: string): void {
    const known = this.#payments.get(platform_payment_id);
    if (known !== undefined) this.#forget(known);
  }

  /** Payments of a slot in memory. */
  countOf(slot: number): number {
    return this.#inSlot[slot] ?? 0;
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

  /**
   * Drops the payments of slots that belong to another worker or are about to. Resolves when none of their steps is in flight, or
   * after `ms`: the fence rejects the write of a late step.
   */
  async leave(slots: ReadonlySet<number>, ms: number): Promise<void> {
    this.#saveAll();
    for (const payment of this.#payments.values()) {
      if (slots.has(payment.slot)) this.#forget(payment);
    }
    const { clock } = this.#options;
    const until = clock.monotonic() + ms;
    const isBusy = (): boolean => [...slots].some((slot) => (this.#underWayIn[slot] ?? 0) > 0);
    while (isBusy() && clock.monotonic() < until) await clock.sleep(LEAVE_LOOK_MS, this.signal);
  }

  /** What this worker knows of a partner. */
  partnerOf(partner_id: string): PartnerCalls<ActivePayment> {
    let partner = this.#partners.get(partner_id);
    if (partner === undefined) {
      partner = new PartnerCalls(partner_id, this.#times.trialMs, this.#part);
      this.#partners.set(partner_id, partner);
    }
    return partner;
  }

  /** Stops at once: sends nothing more, and aborts what is in flight. */
  drop(): void {
    this.#ended = true;
    this.#waits.abort();
    this.#calls.abort();
    for (const timer of this.#timers.values()) timer.cancel.abort();
    this.#timers.clear();
    this.#payments.clear();
    this.#inSlot.fill(0);
    this.#partners.clear();
    this.#funding.clear();
    this.#unsaved.clear();
  }

  /** Stops gracefully: starts nothing, lets steps in flight be recorded, and aborts those that take longer than `ms`. */
  async finish(ms: number): Promise<void> {
    const { clock } = this.#options;
    this.#ended = true;
    this.#waits.abort();
    for (const timer of this.#timers.values()) timer.cancel.abort();
    this.#saveAll();
    if (this.#underWay > 0) {
      const idle = new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
      const late = new AbortController();
      await Promise.race([idle, clock.sleep(ms, late.signal)]);
      late.abort();
      this.#calls.abort();
      // Aborted steps still have to unwind.
      await idle;
    }
    await this.#records.drain();
    this.drop();
  }

  // Queues and timers ---------------------------------------------------------------------------------------------------

  /** Puts a payment into the queue for its next step: the funding queue or its partner's. */
  #enqueue(payment: ActivePayment): void {
    if (this.#ended || !payment.isCurrent) return;
    const step = stepOf(payment);
    if (step === 'authorize' || step === 'settle') {
      const queue = this.#fundingQueueOf(payment.group.funding_method);
      queue.push(payment, payment.group.partner.partner_id, payment.tries > 0 ? 'retry' : 'new');
      this.#pumpFunding(queue);
      return;
    }
    const { partner, biller_id } = payment.group;
    partner.queue.push(payment, biller_id, laneOf(payment));
    this.#pump(partner);
  }

  /** Drops a payment, if this object is its current state. Its queue drops it when its turn comes. */
  #forget(payment: ActivePayment): void {
    if (!payment.isCurrent) return;
    const { platform_payment_id, slot } = payment;
    this.#payments.delete(platform_payment_id);
    payment.forget();
    this.#unsaved.delete(payment);
    this.#count(slot, -1);
    for (const forgotten of this.#readers) forgotten.add(platform_payment_id);
  }

  #count(slot: number, by: number): void {
    this.#inSlot[slot] = (this.#inSlot[slot] ?? 0) + by;
  }

  #groupOf(row: PaymentRow | LoadedRow): PaymentGroup {
    const { partner_id, biller_id, platform_batch_id, funding_method } = row;
    const key = `${partner_id} ${biller_id} ${platform_batch_id} ${funding_method}`;
    let group = this.#groups.get(key);
    if (group === undefined) {
      // Batches change over time, but payments in flight belong to few of them.
      if (this.#groups.size >= MAX_GROUPS) this.#groups.clear();
      const partner = this.partnerOf(partner_id);
      const collection = this.#options.funding.collection(funding_method);
      group = { partner, biller_id, platform_batch_id, funding_method, collection };
      this.#groups.set(key, group);
    }
    return group;
  }

  /**
   * Runs one step of one payment and queues it again for when `work` says. An error that `work` throws affects only that payment (F90).
   */
  #run(
    payment: ActivePayment,
    work: () => Promise<number | 'forget'>,
    afterwards: () => void,
  ): void {
    const { clock } = this.#options;
    // A payment that is forgotten meanwhile has no slot any more.
    const { slot } = payment;
    this.#began(slot);
    void (async () => {
      let next: number | 'forget';
      try {
        next = await work();
      } catch (error) {
        next = await this.#failed(payment, error);
      }
      if (next === 'forget') {
        this.#forget(payment);
      } else {
        payment.at = Math.ceil(clock.monotonic() + next);
        this.#enqueue(payment);
      }
      afterwards();
      this.#finished(slot);
    })();
  }

  #began(slot: number): void {
    this.#underWay += 1;
    this.#underWayIn[slot] = (this.#underWayIn[slot] ?? 0) + 1;
  }

  #finished(slot: number): void {
    this.#underWay -= 1;
    this.#underWayIn[slot] = (this.#underWayIn[slot] ?? 0) - 1;
    if (this.#underWay === 0) this.#idle?.();
  }

  /** Handles a step that threw. Returns the delay until its retry. */
  async #failed(payment: ActivePayment, error: unknown): Promise<number> {
    if (this.#ended) return this.#times.bugPauseMs;
    if (isDatabaseTrouble(error)) {
      await this.#outage.over(this.#calls.signal, error);
      return 0;
    }
    const { platform_payment_id } = payment;
    this.#options.log.error({ platform_payment_id, error }, 'a payment met an error; retrying');
    return this.#times.bugPauseMs;
  }

  #fundingQueueOf(funding_method: string): CallQueue<ActivePayment> {
    let queue = this.#funding.get(funding_method);
    if (queue === undefined) {
      queue = new CallQueue(this.#times.trialMs, { places: FUNDING_PLACES, rate: Infinity });
      this.#funding.set(funding_method, queue);
    }
    return queue;
  }

  #pumpFunding(queue: CallQueue<ActivePayment>): void {
    this.#startDue(queue, (payment, free) => this.#fundingStep(payment).finally(free));
  }

  #pump(partner: PartnerCalls<ActivePayment>): void {
    this.#startDue(partner.queue, (payment, free) => this.#partnerStep(payment, free));
  }

  /**
   * Starts what is due and within the budget of a queue, and sets the timer for when the next call could start. `free` releases the place
   * of the call, at the latest when its step has ended.
   */
  #startDue(
    queue: CallQueue<ActivePayment>,
    stepOf: (payment: ActivePayment, free: () => void) => Promise<number | 'forget'>,
  ): void {
    const { clock } = this.#options;
    while (!this.#ended) {
      const turn = queue.take(clock.monotonic(), clock.random(), isCurrent);
      if (turn.kind === 'wait') {
        this.#wake(queue, turn.until, () => this.#startDue(queue, stepOf));
      }
      if (turn.kind !== 'start') return;
      const { item: payment, call } = turn;
      let isHeld = true;
      const free = (): void => {
        if (!isHeld) return;
        isHeld = false;
        queue.ended(call);
        this.#startDue(queue, stepOf);
      };
      this.#run(payment, () => stepOf(payment, free), free);
    }
  }

  /** Schedules `pump` of that queue; an earlier time replaces a later one. */
  #wake(queue: object, at: number, pump: () => void): void {
    const timer = this.#timers.get(queue);
    if (timer !== undefined && timer.at <= at) return;
    timer?.cancel.abort();
    const cancel = new AbortController();
    this.#timers.set(queue, { at, cancel });
    const { clock } = this.#options;
    void (async () => {
      await clock.sleep(at - clock.monotonic(), cancel.signal);
      if (cancel.signal.aborted) return;
      this.#timers.delete(queue);
      pump();
    })();
  }

  // Steps ---------------------------------------------------------------------------------------------------------------

  async #fundingStep(payment: ActivePayment): Promise<number | 'forget'> {
    const { funding, clock, log } = this.#options;
    const { funding_method, partner } = payment.group;
    const settles = payment.stage === 'ended';
    if (!settles) this.#reached('before_authorize');
    let event: PaymentEvent;
    const deadline = new AbortController();
    const signal = AbortSignal.any([this.#calls.signal, deadline.signal]);
    void clock.sleep(FUNDING_DEADLINE_MS, signal).then(() => deadline.abort());
    try {
      const order = orderOf(payment);
      event = await (settles
        ? settleFunds(funding, order, payment.status === 'succeeded', signal)
        : authorizeFunds(funding, order, signal));
    } catch (error) {
      // A funding port in the platform's own database fails when the database does.
      if (isDatabaseTrouble(error)) throw error;
      this.#fundingFailed(payment, error, deadline.signal.aborted);
      event = { kind: 'funding_failed' };
    } finally {
      deadline.abort();
    }
    if (event.kind !== 'funding_failed') {
      const queue = this.#fundingQueueOf(funding_method);
      const wasFailing = queue.isTroubled;
      queue.worked(partner.partner_id, clock.monotonic());
      if (wasFailing && !queue.isTroubled) {
        log.info({ funding_method }, 'the funding method answers again');
      }
      this.#reached(settles ? 'after_settle_call' : 'after_authorize');
    }
    return event.kind === 'authorized'
      ? this.#authorized(payment, event)
      : this.#apply(payment, undefined, event, false);
  }

  /** Logs a payment's first failure, and once that all of its method fail: a processor may be away for an hour, with 10,000 waiting. */
  #fundingFailed(
    { platform_payment_id, tries, group }: ActivePayment,
    error: unknown,
    isLate: boolean,
  ): void {
    // A stop aborts the calls under way.
    if (this.#ended) return;
    const { log, clock } = this.#options;
    const { funding_method, partner } = group;
    const queue = this.#fundingQueueOf(funding_method);
    const wasFailing = queue.isTroubled;
    queue.failed(partner.partner_id, clock.monotonic(), clock.random(), !isLate);
    if (wasFailing) return;
    const why = kindOfError(error);
    if (queue.isTroubled) {
      log.error({ funding_method, error: why }, 'the funding method fails every call; retrying');
    } else if (tries === 0) {
      log.error({ platform_payment_id, error: why }, 'the funding port failed; retrying');
    }
  }

  async #authorized(
    payment: ActivePayment,
    event: Extract<PaymentEvent, { kind: 'authorized' }>,
  ): Promise<number | 'forget'> {
    const { registry, clock } = this.#options;
    const { partner: calls } = payment.group;
    const partner = await registry.get(calls.partner_id);
    // Treat a paused partner like one that is failing: payments that wait for it can still be withdrawn (decision 18).
    const partnerIsOpen = partner?.paused === false && calls.queue.isOpen(clock.monotonic());
    return this.#apply(payment, partner, event, partnerIsOpen);
  }

  /** One call for one payment. */
  async #partnerStep(payment: ActivePayment, free: () => void): Promise<number | 'forget'> {
    const { registry, clock } = this.#options;
    const { partner: calls } = payment.group;
    const partner = await registry.get(calls.partner_id);
    if (partner === undefined || partner.paused) {
      calls.queue.closeUntil(clock.monotonic() + this.#times.pausedMs);
      return 0;
    }
    if (calls.applyBudget(partner.budget)) this.#pump(calls);
    if (isUnsent(payment)) {
      // The funds that were reserved when it was queued may have expired while it waited: the port is asked again.
      if (payment.hold !== undefined && !lasts(payment.hold, clock.now())) payment.hold = undefined;
      if (stepOf(payment) !== 'submit') return 0;
      if (!(await this.#write(payment, leaving(payment)))) return 'forget';
      payment.hold = undefined;
      this.#reached('after_dispatching');
    }
    // The lease may have expired while we waited for the database.
    if (this.#ended || !this.#lease.holds()) return 'forget';
    const { event, isHeld } = await this.#call(payment, partner);
    free();
    return this.#apply(payment, partner, event, true, isHeld);
  }

  /** Sends the PUT or the poll. `isHeld`: it was a read that asked to wait. */
  async #call(
    payment: ActivePayment,
    partner: Partner,
  ): Promise<{ readonly event: PaymentEvent; readonly isHeld: boolean }> {
    const { partner: known } = payment.group;
    const order = orderOf(payment);
    const calls = this.#callContext;
    const now = this.#options.clock.monotonic();
    if (stepOf(payment) === 'submit') {
      const call = { signal: this.#calls.signal };
      const event = await submit(calls, partner, order, call, () => this.#reached('after_put'));
      return { event, isHeld: false };
    }
    const waits = now - payment.acceptedAt < WAITING_AGE_MS && this.#canWait(known, partner);
    if (waits) {
      known.waiting += 1;
      known.askedToWaitAt = now;
    }
    try {
      const event = await poll(calls, partner, order, {
        signal: waits ? this.#waits.signal : this.#calls.signal,
        waitSeconds: waits ? partner.budget.wait_seconds : 0,
      });
      // An answer with news does not have to confirm that it waited.
      if (waits && (event.facts.waited || event.outcome.kind === 'processing')) {
        known.waits = event.facts.waited;
      }
      this.#reached('after_poll');
      return { event, isHeld: waits };
    } finally {
      if (waits) known.waiting -= 1;
    }
  }

  #canWait(known: PartnerCalls<ActivePayment>, partner: Partner | undefined): boolean {
    return (
      (partner?.budget.wait_seconds ?? 0) > 0 && known.canWait(this.#options.clock.monotonic())
    );
  }

  /** Carries out what an event leads to. Returns the delay of the next step, or `forget`. */
  async #apply(
    payment: ActivePayment,
    partner: Partner | undefined,
    event: PaymentEvent,
    partnerIsOpen: boolean,
    isHeld = false,
  ): Promise<number | 'forget'> {
    const { clock, client } = this.#options;
    const { partner: known, biller_id } = payment.group;
    const decision = decide(payment, event, {
      now: Math.floor(clock.monotonic()),
      random: () => clock.random(),
      times: this.#times,
      collection: payment.group.collection,
      refusals: partner?.refusals ?? [],
      partnerIsOpen,
      settlements: known.settlements,
      canWait: this.#canWait(known, partner),
      // Whole milliseconds, like the times it is compared with.
      workedAt: Math.floor(known.queue.workedAt(biller_id)),
    });
    if (partner !== undefined && decision.signal !== undefined) {
      this.#heed(payment, partner, decision.signal);
    }
    for (const kind of decision.breaches) this.#breach(payment, kind);
    if (decision.resetConnections === true && partner !== undefined) client.reset(partner);
    const wasAccepted = payment.stage === 'accepted';
    const found: CallAge = {
      dueMs: wasAccepted && payment.tries === 0 ? payment.at - payment.acceptedAt : undefined,
      heldMs: wasAccepted && isHeld ? clock.monotonic() - payment.acceptedAt : undefined,
    };
    if (event.kind === 'polled' && event.outcome.kind === 'processing') {
      payment.processingMs = Math.floor(event.facts.startedAt - payment.acceptedAt);
    }
    Object.assign(payment, decision.memory);
    if (decision.write === undefined) return decision.next;
    if (decision.write.kind === 'advance' && decision.write.to === 'accepted') {
      this.#saveSoon(payment, decision.write);
      return decision.next;
    }
    if (!(await this.#write(payment, decision.write))) return 'forget';
    this.#recorded(payment, decision.write, found);
    return isSettled(decision.write) ? 'forget' : decision.next;
  }

  /** Continues after a write that changed the row. */
  #recorded(payment: ActivePayment, write: StepWrite, found: CallAge): void {
    const { log } = this.#options;
    const { platform_payment_id } = payment;
    switch (write.kind) {
      case 'advance':
        if (write.to === 'review') {
          const { review_reason } = write;
          log.error({ platform_payment_id, review_reason }, 'a payment waits for an operator');
        }
        return;
      case 'end':
        this.#reached('after_ended');
        if (write.settles === true) {
          this.#reached('after_settle_call');
          this.#reached('after_settled');
        }
        this.#metrics.ended(
          payment.group.partner.partner_id,
          write.ending.status,
          Date.parse(this.#lease.databaseNow()) - (this.#beganAt + payment.createdAt),
        );
        if (write.by === 'partner') {
          this.#learnSettlementTime(payment, write.ending, found);
        }
        return;
      case 'settle':
        this.#reached('after_settled');
        return;
    }
  }

  /**
   * Learns how long the partner took. Both of its times come from its own clock, so their difference is exact whatever that clock
   * shows. It is believed if it lies between the poll that last found the payment processing and the time at which this one was due:
   * some partners date a posting back, and some by the poll that asks for it, which polls planned by it would make later and later.
   */
  #learnSettlementTime(
    {
      group: {
        partner: { settlements },
      },
      processingMs,
    }: ActivePayment,
    { posted_at, initiated_at }: { posted_at: string | null; initiated_at: string | null },
    { dueMs, heldMs }: CallAge,
  ): void {
    if (posted_at !== null) {
      this.#metrics.detected(Math.max(0, this.#options.clock.now() - Date.parse(posted_at)));
    }
    if (heldMs !== undefined) learn(settlements, heldMs);
    if (heldMs !== undefined || posted_at === null || initiated_at === null) return;
    const toldMs = Date.parse(posted_at) - Date.parse(initiated_at);
    if (toldMs >= processingMs && toldMs < (dueMs ?? Infinity)) learn(settlements, toldMs);
  }

  /** Acts on what an answer says about the partner as a whole. */
  #heed({ group }: ActivePayment, partner: Partner, signal: PartnerSignal): void {
    const { clock, log } = this.#options;
    const { partner: calls, biller_id } = group;
    const { partner_id, queue } = calls;
    const now = clock.monotonic();
    if (signal.kind === 'works') {
      if (queue.worked(biller_id, now)) {
        log.info({ partner_id, biller_id }, 'partner recovered');
        this.#metrics.broken(partner_id, queue.isTroubled);
        this.#pump(calls);
      }
      if (partner.pause_reason !== null || this.#holdNotes.has(partner_id)) {
        void this.#noteHold(partner_id, null);
      }
      return;
    }
    const { reason, hold } = signal;
    const opened = queue.failed(biller_id, now, clock.random(), signal.isAnswer);
    if (opened !== undefined) {
      const what = opened === 'all' ? { partner_id, reason } : { partner_id, biller_id, reason };
      log.error(what, 'the partner is failing; one call at a time is tried until one succeeds');
      this.#metrics.broken(partner_id, true);
    }
    // Not when it opens, so that a partner that falters fills no audit, unless an operator has to act.
    const isNoted = hold === undefined ? queue.isDown(now) && !isHoldText(partner) : queue.isOut;
    const note = hold === undefined ? DOWN_TEXT : HOLD_TEXTS[hold];
    if (isNoted && partner.pause_reason !== note) void this.#noteHold(partner_id, note);
  }

  /**
   * Notes for operators why a partner is held, or null when it no longer is. One write at a time: every answer of the partner asks for
   * it, and while something locks the partner's row the writes would take all connections of the engine. If the last one fails, the
   * next refusal, or the next normal answer, repeats it.
   */
  async #noteHold(partner_id: string, reason: string | null): Promise<void> {
    const { log, registry } = this.#options;
    const isUnderWay = this.#holdNotes.has(partner_id);
    this.#holdNotes.set(partner_id, reason);
    if (isUnderWay) return;
    let noted: string | null | undefined;
    while (noted !== this.#holdNotes.get(partner_id)) {
      noted = this.#holdNotes.get(partner_id) ?? null;
      try {
        await registry.hold(partner_id, noted, this.#lease.workerId);
      } catch (error) {
        log.warn({ partner_id, error: messageOf(error) }, 'could not note why a partner is held');
      }
    }
    this.#holdNotes.delete(partner_id);
  }

  #breach({ platform_payment_id, group }: ActivePayment, kind: string): void {
    const { partner_id } = group.partner;
    this.#metrics.breached(partner_id, kind);
    this.#options.log.warn(
      { platform_payment_id, partner_id, kind },
      'the partner violates the interface',
    );
  }

  /** Writes one step. False when the payment was dropped, or restarted from its row. */
  async #write(payment: ActivePayment, write: StepWrite): Promise<boolean> {
    await this.#saving.get(payment);
    if (write.kind !== 'end') await this.#save(payment);
    // The end includes what the acceptance would record, so a deferred acceptance need not be written.
    const from = this.#unsaved.delete(payment) ? 'dispatching' : payment.stage;
    return this.#writeFrom(payment, from, write);
  }

  async #writeFrom(payment: ActivePayment, from: PaymentStage, write: StepWrite): Promise<boolean> {
    const recorded = await this.#records.write(payment.platform_payment_id, from, write);
    switch (recorded.kind) {
      case 'given_up':
        return false;
      case 'changed':
        this.#took(payment, write);
        return true;
      case 'refused': {
        this.#forget(payment);
        const { row } = recorded;
        if (
          row !== undefined &&
          row.slot !== null &&
          this.#lease.owns(row.slot) &&
          row.settled_at === null
        ) {
          this.#changed(row.platform_payment_id);
          this.add(row);
        }
        return false;
      }
    }
  }

  /** Changes the state in memory as a write has changed the row. */
  #took(payment: ActivePayment, written: StepWrite): void {
    switch (written.kind) {
      case 'advance':
        payment.stage = written.to;
        // Until the partner has it, a watcher sees nothing new.
        if (written.to === 'accepted' || written.to === 'review') {
          this.#changed(payment.platform_payment_id);
        }
        return;
      case 'end':
        payment.stage = 'ended';
        payment.status = written.ending.status;
        this.#changed(payment.platform_payment_id);
        return;
      case 'settle':
        return;
    }
  }

  /**
   * Marks the payment as accepted, in memory at once and in its row soon. Most payments end at their first poll, and then one write
   * is enough.
   */
  #saveSoon(payment: ActivePayment, acceptance: StepWrite): void {
    payment.stage = 'accepted';
    if (acceptance.kind === 'advance' && acceptance.acceptance !== undefined) {
      payment.payment_id = acceptance.acceptance.payment_id;
    }
    this.#reached('after_accepted');
    this.#unsaved.set(payment, { write: acceptance, at: this.#options.clock.monotonic() });
    if (this.#ended) this.#saveAll();
    if (!this.#savesLater) void this.#saveLater();
  }

  /** Writes each pending acceptance once it is SAVE_AFTER_MS old, until none is left. */
  async #saveLater(): Promise<void> {
    const { clock } = this.#options;
    this.#savesLater = true;
    for (;;) {
      // Maps keep the order of insertion, so the first is the oldest.
      const [oldest] = this.#unsaved.values();
      if (oldest === undefined || this.#calls.signal.aborted) break;
      await clock.sleep(
        Math.max(SAVE_EVERY_MS, oldest.at + SAVE_AFTER_MS - clock.monotonic()),
        this.#calls.signal,
      );
      const now = clock.monotonic();
      for (const [payment, { at }] of this.#unsaved) {
        if (at + SAVE_AFTER_MS > now) break;
        void this.#save(payment);
      }
    }
    this.#savesLater = false;
  }

  #saveAll(): void {
    for (const payment of this.#unsaved.keys()) void this.#save(payment);
  }

  /** Writes the acceptance of a payment if it is still pending. An error affects only that payment, and the write is retried. */
  async #save(payment: ActivePayment): Promise<void> {
    const acceptance = this.#unsaved.get(payment);
    if (acceptance === undefined) return this.#saving.get(payment);
    this.#unsaved.delete(payment);
    const { slot } = payment;
    this.#began(slot);
    const saving = (async () => {
      try {
        await this.#writeFrom(payment, 'dispatching', acceptance.write);
      } catch (error) {
        const { platform_payment_id } = payment;
        this.#options.log.error({ platform_payment_id, error }, 'could not write an acceptance');
        // Return to the state in the row: a PUT may have left. Repeating the same PUT tells the outcome.
        payment.stage = 'dispatching';
      } finally {
        this.#saving.delete(payment);
        this.#finished(slot);
      }
    })();
    this.#saving.set(payment, saving);
    return saving;
  }

  #reached(step: EngineStep): void {
    this.#options.options?.reached?.(step);
  }
}

/** Whether nothing is left to do after a write. Declined funds need no settlement. */
function isSettled(written: StepWrite): boolean {
  if (written.kind === 'end') return written.settles === true || written.by === 'funding';
  return written.kind === 'settle';
}

function stepOf(payment: ActivePayment): Step {
  return nextStep(payment, payment.group.collection);
}

/** For the queues, which drop what is not. */
function isCurrent(payment: ActivePayment): boolean {
  return payment.isCurrent;
}

/** The lane of the partner's queue that a payment waits in. */
function laneOf(payment: ActivePayment): Lane {
  if (payment.tries > 0) return 'retry';
  if (stepOf(payment) === 'submit') return 'new';
  return payment.polls < FIRST_POLLS ? 'poll' : 'again';
}

/** What an operator sees next to a partner that stays down, and in the story of each payment that waits for it. */
const DOWN_TEXT =
  'The partner does not answer, or answers with errors; one call at a time is tried until one succeeds.';

/** What an operator sees next to a partner whose calls an operator has to make possible again. */
const HOLD_TEXTS: Readonly<Record<HoldReason, string>> = {
  credentials:
    'The partner refuses the credentials; one call at a time is tried until one succeeds.',
  scope:
    'The credentials do not cover what is asked (scope); one call at a time is tried until one succeeds.',
  certificate:
    'The certificate of the partner is not valid; one call at a time is tried until one succeeds.',
  address:
    'The host resolves to an address that may not be called; one call at a time is tried until one succeeds.',
};

/** Whether an operator reads already that he has to act; that the partner also fails does not replace it. */
function isHoldText({ pause_reason }: Partner): boolean {
  return Object.values(HOLD_TEXTS).includes(pause_reason ?? '');
}
