/**
 * Every payment that a worker drives: when its next step is due, and the steps under way.
 *
 * enters: payments, by `add`.  leaves: each is called, decided (payment-steps.ts), recorded (records.ts) and queued again, until it
 *         is settled, waits for an operator, or belongs to another worker.
 * holds:  due times are kept in memory; a poll that finds no change writes nothing. A payment is in one queue
 *         or has one step under way, never both: only the end of a step queues it again. An error in one payment affects no other
 *         (F90), and a slow partner fills only its own queue (PL16).
 *
 * The acceptance of a payment is written a little later: most payments end at their first poll, and then one write is enough. A crash
 * before it only repeats the PUT (RU5).
 *
 * One file because it is one cycle: every step takes a payment out of the queues and puts it back, and only here can that be read whole.
 */
import type { PaymentStage } from '@duebridge/contract';
import { isDatabaseTrouble } from '@duebridge/runtime';
import { lasts, type FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import type { PaymentRow } from '../store/payments.ts';
import { isSettling, type StepWrite } from '../store/steps.ts';
import { activePayment, GONE, isCurrent, laneOf, stepOf } from './active-payment.ts';
import type { ActivePayment, PaymentGroup } from './active-payment.ts';
import { CallQueue } from './call-queue.ts';
import { fund, poll, submit } from './calls.ts';
import { callsEndMs, type CallGround, type WorkerGround } from './options.ts';
import { PartnerCalls, type Part } from './partner-calls.ts';
import { decide, isUnsent, type PaymentEvent } from './payment-steps.ts';
import { learn } from './poll-schedule.ts';
import { PaymentRecords } from './records.ts';
import { alarmOf, within, type Alarm } from './timing.ts';

/** Maximum number of groups in memory: batches change over time, but payments in flight belong to few of them. */
const MAX_GROUPS = 10_000;
/** How long the write of an acceptance is deferred for the first poll, which may make it unnecessary. */
const SAVE_AFTER_MS = 50;
/**
 * Calls at once of one funding method. Billers take turns in it, not partners: a slow biller must not delay another of the same
 * aggregator. Each has half of the places at most while there are others, captures do not queue behind authorizations, and a hung call
 * has a deadline.
 */
const FUNDING_PLACES = 1_024;
/** Acceptances are written at multiples of this, so that many are in one statement. */
const SAVE_EVERY_MS = 10;

/** What a payment needs next: another step after so many milliseconds, or none. */
type Next = number | 'forget';
/** Takes one step; `free` releases the place of its call, at the latest when the step has ended. */
type TakeStep = (payment: ActivePayment, free: () => void) => Promise<Next>;
type Queue = CallQueue<ActivePayment>;

/** The payments of one worker. */
export class Dispatcher {
  /** Whoever reads pages of payments: what is forgotten meanwhile must not be driven again (PL8). */
  readonly readers = new Set<Set<string>>();
  readonly #on: CallGround;
  readonly #records: PaymentRecords;
  readonly #payments = new Map<string, ActivePayment>();
  readonly #partners = new Map<string, PartnerCalls<ActivePayment>>();
  readonly #funding = new Map<string, Queue>();
  readonly #groups = new Map<string, PaymentGroup>();
  /** This worker's part of every budget. */
  #part: Part = { of: 1, rank: 0 };
  readonly #calls = new AbortController();
  readonly #waits = new AbortController();
  readonly #alarms = new Map<Queue, Alarm>();
  /** Steps and writes under way. */
  readonly #steps = new Set<{ readonly slot: number; readonly done: Promise<void> }>();
  #ended = false;

  constructor(ground: WorkerGround) {
    const signals = { calls: this.#calls.signal, waits: this.#waits.signal };
    this.#on = { ...ground, signals };
    this.#records = new PaymentRecords(this.#on);
  }

  /** How many payments are driven. */
  get size(): number {
    return this.#payments.size;
  }

  has(platform_payment_id: string): boolean {
    return this.#payments.has(platform_payment_id);
  }

  /** When the next step of a payment is due, in monotonic milliseconds; undefined for one that is not driven here. */
  dueAt(platform_payment_id: string): number | undefined {
    return this.#payments.get(platform_payment_id)?.at;
  }

  /** The longest that a due call of any partner has waited although it could have started, in milliseconds. */
  stalledMs(): number {
    const now = this.#on.clock.monotonic();
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
    const { clock, funding } = this.#on;
    return (
      !partner.paused &&
      funding.collection(funding_method) !== 'reserved' &&
      this.partnerOf(partner.partner_id).queue.isOpen(clock.monotonic())
    );
  }

  /** Starts driving a row that this worker owns, `delayMs` from now. Returns whether it is new here. */
  add(row: PaymentRow, delayMs = 0): boolean {
    const { platform_payment_id, slot } = row;
    if (this.#ended || slot === null || this.#payments.has(platform_payment_id)) return false;
    const now = this.#on.clock.monotonic();
    const at = Math.ceil(now + delayMs);
    const times = { now, at, databaseNow: this.#on.databaseNow() };
    const payment = activePayment(row, slot, this.#groupOf(row), times);
    this.#payments.set(platform_payment_id, payment);
    this.#enqueue(payment);
    return true;
  }

  /** Stops driving a payment. The fence refuses the write of a step that is under way. */
  dropById(platform_payment_id: string): void {
    const known = this.#payments.get(platform_payment_id);
    if (known !== undefined) this.#forget(known);
  }

  /**
   * Drops the payments of slots that belong to another worker or are about to. Resolves when none of their steps is in flight, or
   * after `ms`: the fence rejects the write of a late step.
   */
  async leave(slots: ReadonlySet<number>, ms: number): Promise<void> {
    for (const payment of this.#payments.values()) {
      if (slots.has(payment.slot)) this.#forget(payment);
    }
    await within(this.#on.clock, ms, this.#underWay(slots));
  }

  /** What this worker knows of a partner. */
  partnerOf(partner_id: string): PartnerCalls<ActivePayment> {
    let partner = this.#partners.get(partner_id);
    if (partner === undefined) {
      partner = new PartnerCalls(this.#on, partner_id, this.#part);
      this.#partners.set(partner_id, partner);
    }
    return partner;
  }

  /** Stops at once: sends nothing more, and aborts what is in flight. */
  drop(): void {
    this.#endWaiting();
    this.#calls.abort();
    this.#payments.clear();
  }

  /** Stops gracefully: starts nothing, lets steps in flight be recorded, and aborts those that take longer than `ms`. */
  async finish(ms: number): Promise<void> {
    this.#endWaiting();
    const underWay = this.#underWay();
    await within(this.#on.clock, ms, underWay);
    this.#calls.abort();
    // Aborted steps still have to unwind.
    await Promise.all(underWay);
    await this.#records.drain();
    this.drop();
  }

  #endWaiting(): void {
    this.#ended = true;
    this.#waits.abort();
    for (const alarm of this.#alarms.values()) alarm.off();
  }

  /** Steps under way, of these slots if any are given. */
  #underWay(slots?: ReadonlySet<number>): Promise<void>[] {
    return [...this.#steps].flatMap(({ slot, done }) => (slots?.has(slot) === false ? [] : [done]));
  }

  // Queues --------------------------------------------------------------------------------------------------------------

  /** Puts a payment into the queue for its next step: the funding queue or its partner's. */
  #enqueue(payment: ActivePayment): void {
    if (this.#ended || !isCurrent(payment)) return;
    const { partner, biller_id, funding, funding_party } = payment.group;
    const step = stepOf(payment);
    const lane = laneOf(payment, step);
    if (step === 'authorize' || step === 'settle') {
      funding.push(payment, funding_party, lane);
      this.#startDue(funding, async (one) => {
        const payee = await this.#on.registry.get(one.group.partner.partner_id);
        return this.#apply(one, payee, await fund(this.#on, one));
      });
    } else {
      partner.queue.push(payment, biller_id, lane);
      this.#pump(partner);
    }
  }

  /** Forgets a payment, if this object is its current state. Its queue drops it when its turn comes. */
  #forget(payment: ActivePayment): void {
    if (!isCurrent(payment)) return;
    const { platform_payment_id } = payment;
    this.#payments.delete(platform_payment_id);
    payment.slot = GONE;
    for (const forgotten of this.readers) forgotten.add(platform_payment_id);
  }

  #groupOf({ partner_id, biller_id, platform_batch_id, funding_method }: PaymentRow) {
    const key = `${partner_id} ${biller_id} ${platform_batch_id} ${funding_method}`;
    let group = this.#groups.get(key);
    if (group === undefined) {
      if (this.#groups.size >= MAX_GROUPS) this.#groups.clear();
      const partner = this.partnerOf(partner_id);
      const collection = this.#on.funding.collection(funding_method);
      const funding_party = JSON.stringify([partner_id, biller_id]);
      const funding = this.#fundingOf(funding_method);
      const of = { partner, biller_id, platform_batch_id, funding_method, funding, funding_party };
      group = { ...of, collection };
      this.#groups.set(key, group);
    }
    return group;
  }

  #fundingOf(funding_method: string): Queue {
    let queue = this.#funding.get(funding_method);
    if (queue === undefined) {
      const room = { places: FUNDING_PLACES, rate: Infinity };
      queue = new CallQueue(this.#on.times.trialMs, room);
      this.#funding.set(funding_method, queue);
    }
    return queue;
  }

  #pump(partner: PartnerCalls<ActivePayment>): void {
    this.#startDue(partner.queue, (payment, free) => this.#partnerStep(payment, free));
  }

  /** Starts what is due and within the budget of a queue, and sets the alarm for when the next call could start. */
  #startDue(queue: Queue, take: TakeStep): void {
    const { clock } = this.#on;
    while (!this.#ended) {
      const turn = queue.take(clock.monotonic(), clock.random(), isCurrent);
      if (turn.kind === 'wait') this.#alarm(queue, take).by(turn.until);
      if (turn.kind !== 'start') return;
      const { item: payment, call } = turn;
      let isHeld = true;
      const free = (): void => {
        if (!isHeld) return;
        isHeld = false;
        queue.ended(call);
        this.#startDue(queue, take);
      };
      this.#track(payment.slot, this.#run(payment, take, free));
    }
  }

  #alarm(queue: Queue, take: TakeStep): Alarm {
    let alarm = this.#alarms.get(queue);
    if (alarm === undefined) {
      alarm = alarmOf(this.#on.clock, () => this.#startDue(queue, take));
      this.#alarms.set(queue, alarm);
    }
    return alarm;
  }

  /** A payment that is forgotten meanwhile has no slot any more. */
  #track(slot: number, done: Promise<void>): void {
    const step = { slot, done };
    this.#steps.add(step);
    void done.then(() => this.#steps.delete(step));
  }

  /** Takes one step of one payment and queues it again. An error affects only that payment (F90). */
  async #run(payment: ActivePayment, take: TakeStep, free: () => void): Promise<void> {
    let next: Next;
    try {
      next = await take(payment, free);
    } catch (error) {
      next = await this.#failed(payment, error);
    }
    if (next === 'forget') {
      this.#forget(payment);
    } else {
      payment.at = Math.ceil(this.#on.clock.monotonic() + next);
      this.#enqueue(payment);
    }
    free();
  }

  /** Handles a step that threw. Returns the delay until its retry. */
  async #failed(payment: ActivePayment, error: unknown): Promise<number> {
    const { times, outage, log } = this.#on;
    if (this.#ended) return times.bugPauseMs;
    if (isDatabaseTrouble(error)) {
      await outage.over(error);
      return 0;
    }
    const { platform_payment_id } = payment;
    log.error({ platform_payment_id, error }, 'a payment met an error; retrying');
    return times.bugPauseMs;
  }

  // Steps ---------------------------------------------------------------------------------------------------------------

  /** One call for one payment. Its place is free as soon as the answer arrives, before it is recorded. */
  async #partnerStep(payment: ActivePayment, free: () => void): Promise<Next> {
    const { registry, clock, steady, times, holdsLease } = this.#on;
    const { partner: calls } = payment.group;
    const partner = await registry.get(calls.partner_id);
    if (partner === undefined || partner.paused) {
      calls.queue.closeUntil(clock.monotonic() + times.pausedMs);
      return 0;
    }
    if (calls.applyBudget(partner.budget)) this.#pump(calls);
    if (isUnsent(payment) && payment.declined === undefined) {
      // The funds that were reserved when it was queued may have expired while it waited: the port is asked again.
      if (payment.hold && !lasts(payment.hold, steady.now())) payment.hold = undefined;
      if (stepOf(payment) !== 'submit') return 0;
      const { hold } = payment;
      const leaves = { kind: 'advance', to: 'dispatching', hold } as const;
      if (!(await this.#write(payment, leaves))) return 'forget';
      payment.hold = undefined;
    }
    // The lease may have expired while we waited for the database.
    if (this.#ended || !holdsLease()) return 'forget';
    const call = stepOf(payment) === 'submit' ? submit : poll;
    return this.#apply(payment, partner, await call(this.#on, payment, partner), free);
  }

  /** Carries out what an event leads to. */
  async #apply(
    payment: ActivePayment,
    partner: Partner | undefined,
    event: PaymentEvent,
    free?: () => void,
  ): Promise<Next> {
    const { clock, client, times } = this.#on;
    const { partner: known, biller_id, collection } = payment.group;
    const now = clock.monotonic();
    const decision = decide(payment, event, {
      now: Math.floor(now),
      random: () => clock.random(),
      times,
      callsEndMs: callsEndMs(partner, times.callsEndMs),
      collection,
      refusals: partner?.refusals ?? [],
      settlements: known.settlements,
      canWait: known.canWait(partner, now),
      // Whole milliseconds, like the times it is compared with.
      workedAt: Math.floor(known.queue.workedAt(biller_id)),
    });
    const { signal, breach, write, tookMs } = decision;
    if (partner && signal && known.heed(partner, biller_id, signal)) this.#pump(known);
    // Not before: the queue forgets a biller of whom nothing waits and nothing is under way, and when it last answered normally.
    free?.();
    if (breach !== undefined) this.#breached(payment, breach);
    if (partner && decision.resetConnections === true) client.reset(partner);
    Object.assign(payment, decision.memory);
    if (write === undefined) return decision.next;
    if (write.kind === 'advance' && write.to === 'accepted') {
      payment.stage = 'accepted';
      payment.unsaved = write;
      payment.saving = this.#saveLater(payment, write);
      this.#track(payment.slot, payment.saving);
      // A stop, and whoever takes over the slot, wait for the steps that they have found under way, and for no write that begins later.
      if (this.#ended || !isCurrent(payment)) await payment.saving;
      return decision.next;
    }
    if (!(await this.#write(payment, write))) return 'forget';
    this.#recorded(payment, write);
    if (tookMs !== undefined) learn(known.settlements, tookMs);
    return isSettling(write) ? 'forget' : decision.next;
  }

  #breached({ platform_payment_id, group }: ActivePayment, kind: string): void {
    const { partner_id } = group.partner;
    this.#on.metrics.breached(partner_id, kind);
    const what = { platform_payment_id, partner_id, kind };
    this.#on.log.warn(what, 'the partner violates the interface');
  }

  /** Counts and logs what a write has made of the row. */
  #recorded({ platform_payment_id, group, createdAt }: ActivePayment, write: StepWrite): void {
    const { log, metrics, clock, databaseNow } = this.#on;
    if (write.kind === 'advance' && write.to === 'review') {
      const { review_reason } = write;
      log.error({ platform_payment_id, review_reason }, 'a payment waits for an operator');
    }
    if (write.kind !== 'end') return;
    const { status, posted_at } = write.ending;
    metrics.ended(group.partner.partner_id, status, Date.parse(databaseNow()) - createdAt);
    if (write.by === 'partner' && posted_at !== null) {
      metrics.detected(Math.max(0, clock.now() - Date.parse(posted_at)));
    }
  }

  // Writes --------------------------------------------------------------------------------------------------------------

  /** Writes one step. False when the payment was dropped, or restarted from its row. */
  async #write(payment: ActivePayment, write: StepWrite): Promise<boolean> {
    // The end includes what the acceptance would record, so a deferred acceptance need not be written.
    const isEnd = write.kind === 'end' && payment.unsaved !== undefined;
    if (isEnd) payment.unsaved = undefined;
    else await payment.saving;
    const from = isEnd ? 'dispatching' : payment.stage;
    return this.#writeFrom(payment, from, write);
  }

  /** Writes it where the row stands at `from`, and changes the state in memory as the row was changed. */
  async #writeFrom(payment: ActivePayment, from: PaymentStage, write: StepWrite): Promise<boolean> {
    const { platform_payment_id } = payment;
    const recorded = await this.#records.write({ platform_payment_id, from, ...write });
    switch (recorded.kind) {
      case 'given_up':
        return false;
      case 'changed':
        if (write.kind === 'end') payment.status = write.ending.status;
        if (write.kind !== 'settle') payment.stage = write.kind === 'end' ? 'ended' : write.to;
        return true;
      case 'refused': {
        this.#forget(payment);
        const { row } = recorded;
        if (row?.slot === null || row?.settled_at !== null || !this.#on.owns(row.slot)) {
          return false;
        }
        this.add(row);
        return false;
      }
    }
  }

  /** Writes an acceptance a little later, unless the payment has ended before. */
  async #saveLater(payment: ActivePayment, write: StepWrite): Promise<void> {
    const { clock, log, signals } = this.#on;
    const now = clock.monotonic();
    const at = Math.ceil((now + SAVE_AFTER_MS) / SAVE_EVERY_MS) * SAVE_EVERY_MS;
    await clock.sleep(at - now, signals.calls);
    if (payment.unsaved === write) {
      payment.unsaved = undefined;
      await this.#writeFrom(payment, 'dispatching', write).catch((error: unknown) => {
        const { platform_payment_id } = payment;
        log.error({ platform_payment_id, error }, 'could not write an acceptance');
        // Return to the state in the row: a PUT may have left. Repeating the same PUT tells the outcome.
        payment.stage = 'dispatching';
      });
    }
    payment.saving = undefined;
  }
}
