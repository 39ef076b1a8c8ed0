/**
 * Every payment that a worker drives: when its next step is due, and the steps under way.
 *
 * enters: payments, by `add`.  leaves: each is called, decided (payment-steps.ts), recorded (records.ts) and queued again, until it
 *         is settled, waits for an operator, or belongs to another worker.
 * holds:  due times are kept in memory; a poll that finds no change writes nothing. A payment is in one queue
 *         or has one step under way, never both: only the end of a step queues it again. An error in one payment affects no other
 *         (F90), and a slow partner fills only its own queue (PL16).
 *
 * next:   driven-payments.ts holds them, acceptances.ts defers the write of an acceptance, funding-calls.ts asks the funding port,
 *         partner-signals.ts heeds what an answer says about the partner.
 *
 * One file because it is one cycle: every step takes a payment out of the queues and puts it back, and only here can that be read whole.
 */
import type { PaymentStage } from '@duebridge/contract';
import { isDatabaseTrouble, steadyClock, type Clock } from '@duebridge/runtime';
import { lasts, type FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import type { PaymentRow } from '../store/payments.ts';
import { callPartner, canWait, type CallContext } from './calls.ts';
import { Acceptances } from './acceptances.ts';
import {
  activePayment,
  isCurrent,
  laneOf,
  stepOf,
  type ActivePayment,
  type PaymentGroup,
} from './active-payment.ts';
import type { EngineMetrics } from './metrics.ts';
import type { EngineOptions, EngineTimes } from './options.ts';
import type { CallQueue } from './call-queue.ts';
import { DrivenPayments } from './driven-payments.ts';
import { FundingCalls } from './funding-calls.ts';
import type { Outage } from './outage.ts';
import { PartnerCalls, type Part } from './partner-calls.ts';
import { PartnerSignals } from './partner-signals.ts';
import { decide, isUnsent, leaving, type PaymentEvent, type StepWrite } from './payment-steps.ts';
import { learnEnd, type CallAge } from './poll-schedule.ts';
import { PaymentRecords } from './records.ts';
import type { LoadedRow } from './slots.ts';

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

/** Maximum number of groups in memory. */
const MAX_GROUPS = 10_000;
/** Interval of the check whether calls in flight in a slot have been recorded. */
const LEAVE_LOOK_MS = 20;

/** The payments of one worker. */
export class Dispatcher {
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #metrics: EngineMetrics;
  readonly #lease: Lease;
  readonly #changed: (platform_payment_id: string) => void;
  readonly #records: PaymentRecords;
  readonly #calling: CallContext;
  readonly payments = new DrivenPayments();
  readonly #partners = new Map<string, PartnerCalls<ActivePayment>>();
  /** This worker's part of every budget. */
  #part: Part = { of: 1, rank: 0 };
  /** Aborts the calls under way. */
  readonly #calls = new AbortController();
  /** Aborts waiting reads, which would otherwise delay a stop until they end. */
  readonly #waits = new AbortController();
  readonly #timers = new Map<object, { readonly at: number; readonly cancel: AbortController }>();
  /** Payments whose next step is a call to the funding port, by method. */
  readonly #funding: FundingCalls;
  readonly #outage: Outage;
  readonly #acceptances: Acceptances;
  readonly #signals: PartnerSignals;
  readonly #groups = new Map<string, PaymentGroup>();
  /** Wall time. */
  readonly #beganAt: number;
  /** For the ends of holds: a step of the wall clock must not make an expired one look as if it lasted. */
  readonly #steady: Clock;
  #ended = false;

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
    this.#steady = steadyClock(options.clock);
    this.#outage = outage;
    const { client, clock } = options;
    this.#calling = {
      client,
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      signals: { calls: this.#calls.signal, waits: this.#waits.signal },
      metrics,
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
    this.#funding = new FundingCalls({
      ...options,
      trialMs: times.trialMs,
      roomFor: ({ group }) => group.partner.roomAt(clock.monotonic(), group.biller_id),
      signal: this.#calls.signal,
      isEnded: () => this.#ended,
    });
    this.#signals = new PartnerSignals({
      ...options,
      metrics,
      workerId: lease.workerId,
      recovered: (calls) => this.#pump(calls),
    });
    this.#acceptances = new Acceptances({
      clock,
      log: options.log,
      signal: this.#calls.signal,
      write: (payment, write) => this.#writeFrom(payment, 'dispatching', write),
      began: (slot) => this.payments.began(slot),
      finished: (slot) => this.payments.finished(slot),
    });
  }

  /** Aborted when calls under way are given up. */
  get signal(): AbortSignal {
    return this.#calls.signal;
  }

  /** When the next step of a payment is due, in monotonic milliseconds; undefined for one that is not driven here. */
  dueAt(platform_payment_id: string): number | undefined {
    return this.payments.get(platform_payment_id)?.at;
  }

  /** Age of the oldest payment, and how many stand on the operator's list for their age (decision 23). */
  ages(): { readonly oldestSeconds: number; readonly overdue: number } {
    return this.payments.ages(this.#options.clock.now(), this.#beganAt);
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
    if (this.#ended || slot === null || this.payments.has(row.platform_payment_id)) return false;
    const now = this.#options.clock.monotonic();
    const age = 'accepted_age_ms' in row ? (row.accepted_age_ms ?? 0) : 0;
    const payment = activePayment({
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
    this.payments.add(payment);
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
    const known = this.payments.get(platform_payment_id);
    if (known !== undefined) this.#forget(known);
  }

  /**
   * Drops the payments of slots that belong to another worker or are about to. Resolves when none of their steps is in flight, or
   * after `ms`: the fence rejects the write of a late step.
   */
  async leave(slots: ReadonlySet<number>, ms: number): Promise<void> {
    this.#acceptances.saveAll();
    for (const payment of this.payments.inSlots(slots)) this.#forget(payment);
    const { clock } = this.#options;
    const until = clock.monotonic() + ms;
    while (this.payments.isBusyIn(slots) && clock.monotonic() < until) {
      await clock.sleep(LEAVE_LOOK_MS, this.signal);
    }
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
    this.payments.clear();
    this.#partners.clear();
    this.#funding.clear();
    this.#acceptances.clear();
  }

  /** Stops gracefully: starts nothing, lets steps in flight be recorded, and aborts those that take longer than `ms`. */
  async finish(ms: number): Promise<void> {
    const { clock } = this.#options;
    this.#ended = true;
    this.#waits.abort();
    for (const timer of this.#timers.values()) timer.cancel.abort();
    this.#acceptances.saveAll();
    const late = new AbortController();
    const idle = this.payments.idle();
    await Promise.race([idle, clock.sleep(ms, late.signal)]);
    late.abort();
    this.#calls.abort();
    // Aborted steps still have to unwind.
    await idle;
    await this.#records.drain();
    this.drop();
  }

  // Queues and timers ---------------------------------------------------------------------------------------------------

  /** Puts a payment into the queue for its next step: the funding queue or its partner's. */
  #enqueue(payment: ActivePayment): void {
    if (this.#ended || !isCurrent(payment)) return;
    const step = stepOf(payment);
    if (step === 'authorize' || step === 'settle') {
      const queue = this.#funding.queueOf(payment.group.funding_method);
      const lane = step === 'settle' ? 'poll' : 'new';
      queue.push(payment, payment.group.funding_party, payment.tries > 0 ? 'retry' : lane);
      this.#pumpFunding(queue);
      return;
    }
    const { partner, biller_id } = payment.group;
    partner.queue.push(payment, biller_id, laneOf(payment));
    this.#pump(partner);
  }

  #forget(payment: ActivePayment): void {
    if (this.payments.forget(payment)) this.#acceptances.drop(payment);
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
      const funding_party = JSON.stringify([partner_id, biller_id]);
      group = {
        partner,
        biller_id,
        platform_batch_id,
        funding_method,
        funding_party,
        collection,
      };
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
    this.payments.began(slot);
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
      this.payments.finished(slot);
    })();
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
    const { registry, clock } = this.#options;
    const event = await this.#funding.ask(payment);
    if (event.kind !== 'authorized') return this.#apply(payment, undefined, event, false);
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
      // It waits no longer, so another may be authorized.
      for (const queue of this.#funding.queues) this.#pumpFunding(queue);
      // The funds that were reserved when it was queued may have expired while it waited: the port is asked again.
      if (payment.hold && !lasts(payment.hold, this.#steady.now())) payment.hold = undefined;
      if (stepOf(payment) !== 'submit') return 0;
      if (!(await this.#write(payment, leaving(payment)))) return 'forget';
      payment.hold = undefined;
    }
    // The lease may have expired while we waited for the database.
    if (this.#ended || !this.#lease.holds()) return 'forget';
    const { event, isHeld } = await callPartner(this.#calling, payment, partner, stepOf(payment));
    free();
    return this.#apply(payment, partner, event, true, isHeld);
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
      canWait: canWait(this.#calling, known, partner),
      // Whole milliseconds, like the times it is compared with.
      workedAt: Math.floor(known.queue.workedAt(biller_id)),
    });
    if (partner !== undefined && decision.signal !== undefined) {
      this.#signals.heed(payment.group, partner, decision.signal);
    }
    for (const kind of decision.breaches) this.#signals.breach(payment, kind);
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

  /** Counts and logs what a write has made of the row. */
  #recorded(payment: ActivePayment, write: StepWrite, found: CallAge): void {
    const { log, clock } = this.#options;
    const { platform_payment_id, group } = payment;
    if (write.kind === 'advance' && write.to === 'review') {
      const { review_reason } = write;
      log.error({ platform_payment_id, review_reason }, 'a payment waits for an operator');
    }
    if (write.kind !== 'end') return;
    const { status, posted_at } = write.ending;
    const ms = Date.parse(this.#lease.databaseNow()) - (this.#beganAt + payment.createdAt);
    this.#metrics.ended(group.partner.partner_id, status, ms);
    if (write.by !== 'partner') return;
    if (posted_at !== null) {
      this.#metrics.detected(Math.max(0, clock.now() - Date.parse(posted_at)));
    }
    learnEnd(group.partner.settlements, payment.processingMs, write.ending, found);
  }

  /** Writes one step. False when the payment was dropped, or restarted from its row. */
  async #write(payment: ActivePayment, write: StepWrite): Promise<boolean> {
    await this.#acceptances.settled(payment);
    if (write.kind !== 'end') await this.#acceptances.save(payment);
    // The end includes what the acceptance would record, so a deferred acceptance need not be written.
    const from = this.#acceptances.drop(payment) ? 'dispatching' : payment.stage;
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
    if (written.kind === 'settle') return;
    payment.stage = written.kind === 'end' ? 'ended' : written.to;
    if (written.kind === 'end') payment.status = written.ending.status;
    // Until the partner has it, a watcher sees nothing new.
    if (!isUnsent(payment) && payment.stage !== 'dispatching') {
      this.#changed(payment.platform_payment_id);
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
    this.#acceptances.add(payment, acceptance);
    if (this.#ended) this.#acceptances.saveAll();
  }
}

/** Whether nothing is left to do after a write. Declined funds need no settlement. */
function isSettled(written: StepWrite): boolean {
  if (written.kind === 'end') return written.settles === true || written.by === 'funding';
  return written.kind === 'settle';
}
