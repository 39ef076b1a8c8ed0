/**
 * One life of a worker: every payment it drives, from its registration to its stop, or to the loss of its lease. See engine.ts.
 */
import { Refusal, type PaymentStage, type PaymentStatus } from '@duebridge/contract';
import {
  groupCommit,
  isDatabaseTrouble,
  messageOf,
  type Clock,
  type Database,
  type GroupCommit,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import { retryAfterMs } from '../partners/oauth-client.ts';
import type { Funding, FundingOrder } from '../funding.ts';
import type { Acceptance, Intent, Oddity } from '../partners/payment-record.ts';
import { DueHeap, Lane } from './partner-queue.ts';
import type { Measures } from './metrics.ts';
import type { Exchange } from '../partners/http-call.ts';
import { adopt, ADOPT_AT_ONCE, beat, ownedIds, type AdoptedRow, type Demand } from './ownership.ts';
import type { NotSent, PartnerClient, PaymentOrder } from '../partners/client.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import { judgePoll, type PollOutcome } from './poll.ts';
import {
  advance,
  findPayment,
  findPayments,
  type Advance,
  type Ending,
  type PaymentRow,
} from '../store/payments.ts';
import { learn, nextPollMs, OVERDUE_AFTER_MS, retryMs } from './poll-schedule.ts';
import { judgeSubmit, type AnswerOutcome, type HoldReason, type SubmitOutcome } from './outcome.ts';
import { endPayments, settlePayments, type End } from '../store/terminal.ts';

/** Times of the engine in milliseconds. The defaults are for production; tests shorten them. */
export interface EngineTimes {
  /** A worker whose heartbeat is older is dead. Adoption after a kill takes this and a beat. */
  readonly leaseMs: number;
  /** Between heartbeats: five may fail before the lease is lost. */
  readonly beatMs: number;
  /** Between looks at watched payments that another worker drives: what a waiting customer does not notice. */
  readonly watchMs: number;
  /** Between looks for batches to close. */
  readonly closeMs: number;
  /** How long a stop waits for calls under way before it aborts them. */
  readonly stopMs: number;
  /** Between trials of a partner whose credentials, scope or certificate were refused (F62). */
  readonly holdMs: number;
  /** Between looks whether an operator has ended a pause. */
  readonly pausedMs: number;
  /** First pause of the breaker. */
  readonly breakMs: number;
  /** First delay before an unknown outcome is tried again; see schedule.ts. */
  readonly retryMs: number;
  /** Longest such delay, and longest pause of the breaker. */
  readonly maxRetryMs: number;
  /** First delay between polls of a partner that is not known yet; see schedule.ts. */
  readonly pollMs: number;
}

/** What the engine stands on. `reached` is called at each numbered step, for tests that kill the process there (F81). */
export interface EngineOptions {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
  readonly funding: Funding;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly options?: Partial<EngineTimes> & { readonly reached?: (step: EngineStep) => void };
}

/** The steps of a payment between which a crash must do no harm (F81). */
export type EngineStep =
  | 'before_authorize'
  | 'after_authorize'
  | 'after_dispatching'
  | 'after_put'
  | 'after_accepted'
  | 'after_poll'
  | 'after_ended'
  | 'after_settle_call'
  | 'after_settled';

/** Of the lease, the part after which a worker that could not beat drops everything: well before others may adopt. */
const LEASE_KEPT = 0.7;
/** Rows in one statement of a group commit. */
const MAX_BATCH = 500;
/** Writes waiting at most: one per payment under way, and a worker holds up to a million. */
const MAX_QUEUED = 2_000_000;
/** Authorizations and settlements under way at once: calls of ours to the funding port. */
const MAX_FUNDING_CALLS = 256;
/** A worker with anything for a partner registers for this many calls at once, so that a first burst need not wait for a beat. */
const MIN_NEED = 4;
/** Between beats that are asked for because a share is too small: grows it within a fraction of a second. */
const HURRY_MS = 50;
/** Polls that show succeeded without posted_at before the payment goes to review (F35). */
const GRACE_POLLS = 5;
/** Up to this age an open read replaces polls; longer, it would hold a connection for a payment that nobody waits for. */
const WAITING_AGE_MS = 10 * 60_000;
/** An answer without news that came sooner was not held, whatever it says. Waits are asked for in whole seconds. */
const LEAST_HELD_MS = 900;
/** Adopted payments are spread over as long as their partner's budget needs for them, but over no more than this (P9). */
const MAX_SPREAD_MS = 60_000;
/** Pause before a write that the database could not take is tried again. */
const DATABASE_PAUSE_MS = 500;
/** Pause of a payment that met a bug of ours: logged each time, so neither lost nor a flood. */
const BUG_PAUSE_MS = 30_000;

/** A payment in memory: as small as can be, because a worker holds up to a million (performance F5). */
interface Drive {
  at: number;
  readonly platform_payment_id: string;
  readonly lane: Lane<Drive>;
  readonly biller_id: string;
  readonly account_id: string;
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly funding_method: string;
  /** Wall time of creation in milliseconds, for the figure of the oldest. */
  readonly createdAt: number;
  stage: PaymentStage;
  status: PaymentStatus;
  payment_id: string | null;
  /** Monotonic time of acceptance. */
  acceptedAt: number;
  /** Polls since acceptance. */
  polls: number;
  /** Failures in a row. */
  tries: number;
  /** Polls that showed succeeded without posted_at. */
  grace: number;
  /** The partner has it, but did not find it: the next call is the same PUT again (F15). */
  again: boolean;
  /** Funds are reserved: this tenure has asked. */
  funded: boolean;
  /** Last breach logged: each kind once in a row. */
  oddity: Oddity | undefined;
}

/** One life of a worker: from its registration to its stop, or to the loss of its lease. */
export class Tenure {
  readonly workerId: string;
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #measures: Measures;
  readonly #changed: (row: PaymentRow) => void;
  readonly #drives = new Map<string, Drive>();
  readonly #lanes = new Map<string, Lane<Drive>>();
  /** Aborts the calls under way. */
  readonly #calls = new AbortController();
  /** Aborts waiting reads: they would hold a stop for as long as they wait. */
  readonly #waits = new AbortController();
  readonly #timers = new Map<object, { readonly at: number; readonly cancel: AbortController }>();
  /** Payments whose next step is a call to the funding port. */
  #funding = new DueHeap<Drive>();
  #fundingCalls = 0;
  #ended = false;
  #underWay = 0;
  #idle: (() => void) | undefined;
  #beatenAt: number;
  /** An adoption was not carried through: rows may name this worker of which it does not know. */
  #mayOwnMore = false;
  #hurriedAt = Number.NEGATIVE_INFINITY;
  #hurrying = false;
  #beating: Promise<boolean> | undefined;
  readonly #advances: GroupCommit<Advance, PaymentRow | undefined>;
  readonly #ends: GroupCommit<End, PaymentRow | undefined>;
  readonly #settles: GroupCommit<{ readonly platform_payment_id: string }, PaymentRow | undefined>;

  constructor(
    options: EngineOptions,
    times: EngineTimes,
    measures: Measures,
    workerId: string,
    registeredAt: number,
    changed: (row: PaymentRow) => void,
  ) {
    this.workerId = workerId;
    this.#options = options;
    this.#times = times;
    this.#measures = measures;
    this.#beatenAt = registeredAt;
    this.#changed = changed;
    const { database } = options;
    // Two flushes: while one waits for the disk the other fills; the rows of one payment are never in both.
    const limits = { maxBatch: MAX_BATCH, maxQueued: MAX_QUEUED, concurrency: 2 };
    this.#advances = groupCommit({
      ...limits,
      flush: (steps) => advance(database, workerId, steps),
    });
    this.#ends = groupCommit({ ...limits, flush: (ends) => endPayments(database, workerId, ends) });
    this.#settles = groupCommit({
      ...limits,
      async flush(asked) {
        const rows = await settlePayments(
          database,
          workerId,
          asked.map((one) => one.platform_payment_id),
        );
        const byId = new Map(rows.map((row) => [row.platform_payment_id, row]));
        return asked.map((one) => byId.get(one.platform_payment_id));
      },
    });
  }

  get size(): number {
    return this.#drives.size;
  }

  /** True when the lease can no longer be relied on. */
  get isLost(): boolean {
    return (
      this.#ended ||
      this.#options.clock.monotonic() - this.#beatenAt > this.#times.leaseMs * LEASE_KEPT
    );
  }

  has(platform_payment_id: string): boolean {
    return this.#drives.has(platform_payment_id);
  }

  /** Age of the oldest payment, and how many stand on the operator's list for their age (decision 23). */
  ages(): { readonly oldestSeconds: number; readonly overdue: number } {
    const now = this.#options.clock.now();
    let oldest = now;
    let overdue = 0;
    for (const { createdAt } of this.#drives.values()) {
      oldest = Math.min(oldest, createdAt);
      if (now - createdAt > OVERDUE_AFTER_MS) overdue += 1;
    }
    return { oldestSeconds: (now - oldest) / 1_000, overdue };
  }

  /** Begins to drive a row that this worker owns. */
  add(row: PaymentRow | AdoptedRow, delayMs = 0): void {
    if (this.#ended || this.#drives.has(row.platform_payment_id)) return;
    const now = this.#options.clock.monotonic();
    const age = 'accepted_age_ms' in row ? (row.accepted_age_ms ?? 0) : 0;
    const drive: Drive = {
      at: now + delayMs,
      platform_payment_id: row.platform_payment_id,
      lane: this.#laneOf(row.partner_id),
      biller_id: row.biller_id,
      account_id: row.account_id,
      platform_batch_id: row.platform_batch_id,
      amount_in_cents: row.amount_in_cents,
      funding_method: row.funding_method,
      createdAt: Date.parse(row.created_at),
      stage: row.stage,
      status: row.status,
      payment_id: row.payment_id,
      acceptedAt: now - age,
      polls: 0,
      tries: 0,
      grace: 0,
      again: false,
      funded: false,
      oddity: undefined,
    };
    this.#drives.set(drive.platform_payment_id, drive);
    this.#queue(drive);
  }

  /** Takes over what nobody living drives. */
  async adopt(): Promise<void> {
    const { database, log } = this.#options;
    if (this.#mayOwnMore) await this.#takeBack();
    for (;;) {
      // Until they are in memory: an adoption whose answer is lost has happened, and nobody else adopts from the living.
      this.#mayOwnMore = true;
      const rows = await adopt(database, this.workerId, this.#times.leaseMs);
      if (this.#ended) return;
      if (rows.length > 0) log.info({ payments: rows.length }, 'payments adopted');
      await this.#learnBudgets(rows);
      for (const row of rows) {
        // One that we have in memory was taken from us meanwhile: what we know of it is out of date.
        this.#drives.delete(row.platform_payment_id);
        this.add(row, this.#spreadMs(row, rows.length));
      }
      this.#mayOwnMore = false;
      if (rows.length < ADOPT_AT_ONCE) return;
    }
  }

  /** Drives what names this worker in the database and is not in memory. */
  async #takeBack(): Promise<void> {
    const { database } = this.#options;
    const owned = await ownedIds(database, this.workerId);
    const missing = owned.filter((id) => !this.#drives.has(id));
    for (let from = 0; from < missing.length; from += ADOPT_AT_ONCE) {
      // Read anew: what was driven to its end since then is no longer ours to drive (P8).
      const rows = await findPayments(database, missing.slice(from, from + ADOPT_AT_ONCE));
      await this.#learnBudgets(rows);
      for (const row of rows) {
        if (row.owner === this.workerId && row.settled_at === null)
          this.add(row, this.#spreadMs(row, rows.length));
      }
    }
  }

  async #learnBudgets(rows: readonly PaymentRow[]): Promise<void> {
    for (const partner_id of new Set(rows.map((row) => row.partner_id))) {
      const partner = await this.#options.registry.get(partner_id);
      if (partner !== undefined) this.#applyBudget(this.#laneOf(partner_id), partner);
    }
  }

  /** A few go at once; many are spread over the time that the partner's budget needs for them. */
  #spreadMs(row: PaymentRow, count: number): number {
    const rate = this.#laneOf(row.partner_id).callsPerSecond;
    return (
      this.#options.clock.random() *
      Math.min(MAX_SPREAD_MS, ((count + this.#drives.size) / rate) * 1_000)
    );
  }

  /** Renews the lease and the shares. False when the lease is lost. */
  beat(): Promise<boolean> {
    this.#beating ??= this.#beatOnce().finally(() => {
      this.#beating = undefined;
    });
    return this.#beating;
  }

  async #beatOnce(): Promise<boolean> {
    if (this.#ended) return false;
    const { clock, database, registry } = this.#options;
    // Counted from before the statement left: the database's time of it cannot be earlier.
    const startedAt = clock.monotonic();
    const demands = new Map<string, Demand>();
    for (const lane of this.#lanes.values()) {
      const partner = await registry.get(lane.partner_id);
      if (partner === undefined) continue;
      this.#applyBudget(lane, partner);
      const demand = this.#demandOf(lane, startedAt);
      demands.set(lane.partner_id, demand);
      // From here to the answer no call may start beyond what is about to be registered.
      lane.share = Math.min(lane.share, Math.max(demand.calls.need, lane.inFlight));
      lane.rate = Math.min(lane.rate, demand.rate.need);
    }
    const granted = await beat(database, this.workerId, this.#times.leaseMs, demands);
    // A lease that looked lost stays lost: steps that saw it so have given up their payments.
    if (granted === undefined || this.isLost) {
      this.drop();
      return false;
    }
    this.#beatenAt = startedAt;
    for (const [partner_id, share] of granted) {
      const lane = this.#lanes.get(partner_id);
      if (lane === undefined) continue;
      lane.share = share.calls;
      lane.rate = share.rate;
      const demand = demands.get(partner_id);
      lane.isShort =
        demand !== undefined && (share.calls < demand.calls.need || share.rate < demand.rate.need);
      this.#pump(lane);
    }
    return true;
  }

  /** What the lane could use until the next beat: more than it uses, so that a burst need not wait, but not all there is. */
  #demandOf(lane: Lane<Drive>, now: number): Demand {
    const next = lane.due.peek();
    const works =
      lane.inFlight > 0 || (next !== undefined && next.at <= now + 2 * this.#times.beatMs);
    const backlog = next !== undefined && next.at <= now;
    const perSecond = (lane.started / Math.max(HURRY_MS, now - this.#beatenAt)) * 1_000;
    lane.started = 0;
    const { cap, callsPerSecond, inFlight } = lane;
    const calls = Math.max(MIN_NEED, 2 * inFlight, backlog ? inFlight + lane.due.size : 0);
    const rate = Math.max(
      MIN_NEED,
      callsPerSecond / 8,
      2 * perSecond,
      backlog ? callsPerSecond : 0,
    );
    return {
      calls: { cap, need: works ? Math.min(cap, calls) : 0, inUse: inFlight },
      rate: {
        cap: callsPerSecond,
        need: works ? Math.min(callsPerSecond, Math.ceil(rate)) : 0,
        inUse: 0,
      },
    };
  }

  #applyBudget(lane: Lane<Drive>, partner: Partner): void {
    lane.cap = partner.budget.max_concurrent_calls;
    lane.callsPerSecond = partner.budget.max_calls_per_second;
  }

  /** A share is too small for what is due: beats at once, but not in a storm. What others hold is asked for at the usual beat. */
  #hurry(lane: Lane<Drive>): void {
    if (this.#hurrying || this.#ended || lane.isShort) return;
    this.#hurrying = true;
    const { clock, log } = this.#options;
    const pause = Math.max(0, this.#hurriedAt + HURRY_MS - clock.monotonic());
    void (async () => {
      if (pause > 0) await clock.sleep(pause, this.#calls.signal);
      this.#hurriedAt = clock.monotonic();
      this.#hurrying = false;
      if (this.#ended) return;
      // A beat that began before the need arose does not know of it.
      await this.#beating;
      await this.beat();
    })().catch((error: unknown) => {
      this.#hurrying = false;
      log.warn({ error: messageOf(error) }, 'the heartbeat failed; it is tried again');
    });
  }

  /** Ends it at once: nothing more is sent, and what is under way is aborted. */
  drop(): void {
    this.#ended = true;
    this.#waits.abort();
    this.#calls.abort();
    for (const timer of this.#timers.values()) timer.cancel.abort();
    this.#timers.clear();
    this.#drives.clear();
    this.#lanes.clear();
    this.#funding = new DueHeap();
  }

  /** Ends it gently: starts nothing, lets what is under way come to its record, aborts what takes longer than `ms`. */
  async finish(ms: number): Promise<void> {
    const { clock } = this.#options;
    this.#ended = true;
    this.#waits.abort();
    for (const timer of this.#timers.values()) timer.cancel.abort();
    if (this.#underWay > 0) {
      const idle = new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
      const late = new AbortController();
      await Promise.race([idle, clock.sleep(ms, late.signal)]);
      late.abort();
      this.#calls.abort();
      // What was aborted still has to fall through its own code.
      await idle;
    }
    await Promise.all([this.#advances.drain(), this.#ends.drain(), this.#settles.drain()]);
    this.drop();
  }

  #laneOf(partner_id: string): Lane<Drive> {
    let lane = this.#lanes.get(partner_id);
    if (lane === undefined) {
      lane = new Lane(partner_id, this.#times.breakMs, this.#times.maxRetryMs);
      this.#lanes.set(partner_id, lane);
    }
    return lane;
  }

  /** Puts a payment where its next step is taken: the funding queue, or its partner's lane. */
  #queue(drive: Drive): void {
    if (this.#ended || !this.#isCurrent(drive)) return;
    if (needsFunding(drive)) {
      this.#funding.push(drive);
      this.#pumpFunding();
      return;
    }
    drive.lane.due.push(drive);
    this.#pump(drive.lane);
  }

  /** Sets the next step `ms` from now. */
  #again(drive: Drive, ms: number): void {
    drive.at = this.#options.clock.monotonic() + ms;
    this.#queue(drive);
  }

  #forget(drive: Drive): void {
    if (this.#isCurrent(drive)) this.#drives.delete(drive.platform_payment_id);
  }

  /** False for what was known of a payment before it was adopted anew. */
  #isCurrent(drive: Drive): boolean {
    return this.#drives.get(drive.platform_payment_id) === drive;
  }

  /** Runs one piece of work for one payment; whatever it throws is that payment's alone (F90). */
  #run(drive: Drive, work: () => Promise<void>, afterwards: () => void): void {
    this.#underWay += 1;
    void work()
      .catch((error: unknown) => {
        if (this.#ended) return;
        const { platform_payment_id } = drive;
        this.#options.log.error(
          { platform_payment_id, error },
          'a payment met an error; it is tried again',
        );
        this.#again(drive, BUG_PAUSE_MS);
      })
      .finally(() => {
        this.#underWay -= 1;
        afterwards();
        if (this.#underWay === 0) this.#idle?.();
      });
  }

  // The funds -----------------------------------------------------------------------------------------------------------

  #pumpFunding(): void {
    const { clock } = this.#options;
    while (this.#fundingCalls < MAX_FUNDING_CALLS && !this.#ended) {
      const drive = this.#funding.peek();
      if (drive === undefined) return;
      if (!this.#isCurrent(drive)) {
        this.#funding.pop();
        continue;
      }
      if (drive.at > clock.monotonic()) {
        this.#wake(this.#funding, drive.at, () => this.#pumpFunding());
        return;
      }
      this.#funding.pop();
      this.#fundingCalls += 1;
      this.#run(
        drive,
        () => (drive.stage === 'ended' ? this.#settle(drive) : this.#authorize(drive)),
        () => {
          this.#fundingCalls -= 1;
          this.#pumpFunding();
        },
      );
    }
  }

  async #authorize(drive: Drive): Promise<void> {
    const { registry, funding, clock } = this.#options;
    this.#reached('before_authorize');
    const authorization = await this.#askFunding(drive, () => funding.authorize(orderOf(drive)));
    if (authorization === undefined) return;
    this.#reached('after_authorize');
    drive.funded = true;
    drive.tries = 0;
    if (authorization.kind === 'declined') {
      const ending: Ending = {
        status: 'failed',
        payment_id: null,
        initiated_at: null,
        posted_at: null,
        failure_reason: authorization.reason.slice(0, 500),
      };
      await this.#end(drive, 'funding', ending);
      return;
    }
    // A paused partner is as good as a closed lane: what waits for it can still be withdrawn (decision 18).
    const partner = await registry.get(drive.lane.partner_id);
    if (partner?.paused === false && drive.lane.isOpen(clock.monotonic())) {
      if (!(await this.#advance(drive, { to: 'dispatching' }))) return;
      this.#reached('after_dispatching');
    } else if (drive.stage === 'created') {
      // It will wait for its partner: until then an operator can still withdraw it (decision 18).
      if (!(await this.#advance(drive, { to: 'authorized' }))) return;
    }
    this.#again(drive, 0);
  }

  async #settle(drive: Drive): Promise<void> {
    const { funding } = this.#options;
    const order = orderOf(drive);
    const done = await this.#askFunding(drive, async () => {
      await (drive.status === 'succeeded' ? funding.capture(order) : funding.void(order));
      return true;
    });
    if (done === undefined) return;
    this.#reached('after_settle_call');
    const { platform_payment_id } = drive;
    await this.#write(drive, () => this.#settles.add({ platform_payment_id }));
    this.#reached('after_settled');
    this.#forget(drive);
  }

  async #askFunding<T>(drive: Drive, ask: () => Promise<T>): Promise<T | undefined> {
    try {
      return await ask();
    } catch (error) {
      drive.tries += 1;
      const { platform_payment_id } = drive;
      this.#options.log.error(
        { platform_payment_id, error: messageOf(error) },
        'the funding port failed; it is asked again',
      );
      this.#again(drive, this.#retryMs(drive));
      return undefined;
    }
  }

  // The partner ---------------------------------------------------------------------------------------------------------

  /** Starts what is due and fits; otherwise sets the timer for when the next could start. */
  #pump(lane: Lane<Drive>): void {
    const { clock } = this.#options;
    while (!this.#ended) {
      const next = lane.due.peek();
      if (next === undefined) return;
      if (!this.#isCurrent(next)) {
        lane.due.pop();
        continue;
      }
      const now = clock.monotonic();
      if (next.at > now) {
        this.#wake(lane, next.at, () => this.#pump(lane));
        return;
      }
      if (lane.inFlight >= lane.room) {
        // A call that ends pumps again; a share that is too small is asked for.
        if (lane.rate === 0 || (lane.share < lane.cap && lane.inFlight >= lane.share))
          this.#hurry(lane);
        return;
      }
      const ready = lane.readyAt(now);
      if (ready > now) {
        if (lane.rate < lane.callsPerSecond) this.#hurry(lane);
        this.#wake(lane, ready, () => this.#pump(lane));
        return;
      }
      lane.due.pop();
      lane.start(now);
      let held = true;
      const free = (): void => {
        if (!held) return;
        held = false;
        lane.inFlight -= 1;
        this.#pump(lane);
      };
      this.#run(next, () => this.#step(next, free), free);
    }
  }

  /** Calls `pump` of that queue at a time; an earlier time replaces a later one. */
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

  /** One call for one payment. `free` gives the place in the lane back: as soon as the answer is in, before it is recorded. */
  async #step(drive: Drive, free: () => void): Promise<void> {
    const { registry, clock } = this.#options;
    const { lane } = drive;
    const partner = await registry.get(lane.partner_id);
    if (partner === undefined || partner.paused) {
      lane.closeFor(clock.monotonic(), this.#times.pausedMs);
      lane.due.push(drive);
      return;
    }
    this.#applyBudget(lane, partner);
    if (drive.stage === 'authorized' || drive.stage === 'created') {
      if (!(await this.#advance(drive, { to: 'dispatching' }))) return;
      this.#reached('after_dispatching');
    }
    // The lease may have run out while we waited for the database.
    if (this.isLost) return;
    if (drive.stage === 'accepted' && !drive.again) await this.#poll(drive, partner, free);
    else await this.#submit(drive, partner, free);
  }

  async #submit(drive: Drive, partner: Partner, free: () => void): Promise<void> {
    const { client } = this.#options;
    const order = orderOf(drive);
    const answer = await client.submit(partner, order, { signal: this.#calls.signal });
    this.#reached('after_put');
    const outcome: SubmitOutcome = judgeSubmit(order, answer);
    this.#measures.submitted(partner.partner_id, label(outcome));
    if (outcome.kind !== 'rejected') {
      free();
      await this.#learnt(drive, partner, outcome, answer);
      return;
    }
    // The partner says that the request is wrong. It may still have the payment from an earlier PUT: one look decides (F11).
    this.#answered(drive.lane, partner);
    const look = await client.poll(partner, order, { signal: this.#calls.signal });
    free();
    const found = judgePoll(order, look);
    this.#measures.polled(partner.partner_id, label(found));
    const code = outcome.code === undefined ? '' : `_${outcome.code}`;
    if (found.kind === 'not_found') await this.#review(drive, `rejected_${outcome.status}${code}`);
    else await this.#learnt(drive, partner, found, look);
  }

  async #poll(drive: Drive, partner: Partner, free: () => void): Promise<void> {
    const { client, clock } = this.#options;
    const { lane } = drive;
    const order = orderOf(drive);
    const young = clock.monotonic() - drive.acceptedAt < WAITING_AGE_MS;
    const waits = young && lane.waiting < lane.waitingRoom && partner.budget.wait_seconds > 0;
    if (waits) lane.waiting += 1;
    const askedAt = clock.monotonic();
    let answer: Exchange | NotSent;
    try {
      answer = await client.poll(partner, order, {
        signal: waits ? this.#waits.signal : this.#calls.signal,
        waitSeconds: waits ? partner.budget.wait_seconds : 0,
      });
    } finally {
      if (waits) lane.waiting -= 1;
    }
    free();
    this.#reached('after_poll');
    const outcome: PollOutcome = judgePoll(order, answer);
    // Whoever says that it waited and answers "processing" at once has not: asked again at once, it would be asked without end.
    const tookMs = clock.monotonic() - askedAt;
    if (answer.kind === 'reply' && outcome.kind === 'processing' && tookMs < LEAST_HELD_MS) {
      answer = { ...answer, waited: false };
    }
    if (waits && answer.kind === 'reply' && answer.status === 200) lane.waits = answer.waited;
    drive.polls += 1;
    this.#measures.polled(partner.partner_id, label(outcome));
    if (outcome.kind !== 'not_found') {
      await this.#learnt(drive, partner, outcome, answer);
      return;
    }
    // It said 200 and does not find it now: a breach, and no proof of anything. The same PUT again (F15, decision 22).
    this.#answered(lane, partner);
    this.#breach(drive, 'accepted_payment_not_found');
    drive.again = true;
    drive.tries += 1;
    this.#again(drive, this.#laterThan(this.#retryMs(drive), answer));
  }

  /** Acts on what an answer taught, PUT or GET alike. */
  async #learnt(
    drive: Drive,
    partner: Partner,
    outcome: AnswerOutcome,
    answer: Exchange | NotSent,
  ): Promise<void> {
    switch (outcome.kind) {
      case 'processing':
        this.#answered(drive.lane, partner);
        this.#noteOddity(drive, outcome.oddity);
        drive.tries = 0;
        drive.again = false;
        if (!(await this.#accepted(drive, outcome.acceptance))) return;
        this.#again(drive, this.#laterThan(this.#nextPollMs(drive, partner, answer), answer));
        return;
      case 'ended':
        this.#answered(drive.lane, partner);
        this.#noteOddity(drive, outcome.oddity);
        await this.#end(drive, 'partner', outcome.ending);
        return;
      case 'incomplete':
        this.#answered(drive.lane, partner);
        this.#breach(drive, 'succeeded_without_posted_at');
        drive.grace += 1;
        if (!(await this.#accepted(drive, outcome.acceptance))) return;
        if (drive.grace > GRACE_POLLS) await this.#review(drive, 'succeeded_without_posted_at');
        else this.#again(drive, this.#laterThan(this.#times.pollMs, answer));
        return;
      case 'mismatch':
        this.#answered(drive.lane, partner);
        // Another payment's answer may mean crossed answers on a connection: none of them is used again (F50).
        if (outcome.field === 'platform_payment_id') this.#options.client.reset(partner);
        await this.#review(drive, `mismatch_${outcome.field}`);
        return;
      case 'held':
        await this.#hold(drive, partner, outcome.reason);
        return;
      case 'unknown':
        this.#unknown(drive, outcome.reason, answer);
        return;
    }
  }

  /** Records the acceptance, once. False when the payment is no longer ours. */
  async #accepted(drive: Drive, acceptance: Acceptance): Promise<boolean> {
    if (drive.stage === 'accepted') return true;
    if (!(await this.#advance(drive, { to: 'accepted', ...acceptance }))) return false;
    this.#reached('after_accepted');
    drive.acceptedAt = this.#options.clock.monotonic();
    drive.polls = 0;
    return true;
  }

  #unknown(drive: Drive, reason: string, answer: Exchange | NotSent): void {
    const { clock, log } = this.#options;
    const { lane } = drive;
    if (reason === 'stopped') {
      // A waiting read, ended for a stop, or connections being replaced: it is asked again.
      this.#again(drive, this.#times.retryMs);
      return;
    }
    drive.tries += 1;
    const now = clock.monotonic();
    const told = this.#retryAfter(answer);
    const asksForRest =
      answer.kind === 'reply' &&
      (answer.status === 429 || answer.status === 503) &&
      told !== undefined;
    // Spoken for the partner as a whole, not for this payment.
    if (asksForRest) lane.closeFor(now, told);
    if (reason === 'redirect') this.#breach(drive, 'redirect');
    if (reason !== 'too_many_requests' && lane.failed(now, clock.random())) {
      log.error(
        { partner_id: lane.partner_id, reason },
        'the partner does not work; it is tried from time to time',
      );
      this.#measures.broken(lane.partner_id, true);
    }
    this.#again(drive, this.#laterThan(this.#retryMs(drive), answer));
  }

  async #hold(drive: Drive, partner: Partner, reason: HoldReason): Promise<void> {
    const { clock, log, registry } = this.#options;
    const { lane } = drive;
    lane.closeFor(clock.monotonic(), this.#times.holdMs);
    const news = lane.held !== reason;
    lane.held = reason;
    this.#again(drive, 0);
    if (!news) return;
    log.error(
      { partner_id: partner.partner_id, reason },
      'calls to the partner are held back; an operator has to look',
    );
    this.#measures.broken(partner.partner_id, true);
    await registry.hold(partner.partner_id, HOLD_TEXTS[reason], this.workerId);
  }

  /** The partner works. */
  #answered(lane: Lane<Drive>, partner: Partner): void {
    const { registry, log } = this.#options;
    if (lane.succeeded()) {
      this.#measures.broken(lane.partner_id, false);
      log.info({ partner_id: lane.partner_id }, 'the partner works again');
    }
    if (partner.pause_reason === null) return;
    registry.hold(partner.partner_id, null, this.workerId).catch((error: unknown) => {
      log.warn({ error: messageOf(error) }, 'the end of a hold could not be noted');
    });
  }

  #retryMs(drive: Drive): number {
    return retryMs(
      drive.tries,
      this.#options.clock.random(),
      this.#times.retryMs,
      this.#times.maxRetryMs,
    );
  }

  #retryAfter(answer: Exchange | NotSent): number | undefined {
    const header = answer.kind === 'no_reply' ? undefined : answer.retryAfter;
    const told = retryAfterMs(header, this.#options.clock.now());
    // Jitter only upwards: earlier would not be what was asked for.
    return told === undefined ? undefined : told * (1 + this.#options.clock.random() * 0.1);
  }

  /** Our own delay, or the partner's Retry-After when that is longer, on any answer (decision 23, F09). */
  #laterThan(ms: number, answer: Exchange | NotSent): number {
    return Math.max(ms, this.#retryAfter(answer) ?? 0);
  }

  #nextPollMs(drive: Drive, partner: Partner, answer: Exchange | NotSent): number {
    const { clock } = this.#options;
    const { lane } = drive;
    const age = clock.monotonic() - drive.acceptedAt;
    // An open read replaces polls while the partner holds it; the first poll finds out whether it does.
    const held = answer.kind === 'reply' && answer.waited;
    const untried = drive.polls === 0 && lane.waits !== false;
    const canWait = partner.budget.wait_seconds > 0 && lane.waiting < lane.waitingRoom;
    if (age < WAITING_AGE_MS && canWait && (held || untried)) return 0;
    const firstMs = this.#times.pollMs;
    return nextPollMs(lane.habit, age, drive.polls, clock.random(), { firstMs });
  }

  #noteOddity(drive: Drive, oddity: Oddity | undefined): void {
    if (oddity !== undefined && drive.oddity !== oddity) this.#breach(drive, oddity);
    drive.oddity = oddity;
  }

  #breach(drive: Drive, kind: string): void {
    const { platform_payment_id, lane } = drive;
    this.#measures.breached(lane.partner_id, kind);
    this.#options.log.warn(
      { platform_payment_id, partner_id: lane.partner_id, kind },
      'the partner breaks the interface',
    );
  }

  // The record ----------------------------------------------------------------------------------------------------------

  /** Takes a payment one stage on. False when it is no longer ours to drive. */
  async #advance(
    drive: Drive,
    step: { to: Advance['to'] } & Partial<Acceptance> & { review_reason?: string },
  ): Promise<boolean> {
    const { platform_payment_id, stage: from } = drive;
    const row = await this.#write(drive, () =>
      this.#advances.add({ platform_payment_id, from, ...step }),
    );
    if (row === undefined) return false;
    drive.stage = row.stage;
    drive.payment_id = row.payment_id;
    this.#changed(row);
    return true;
  }

  async #review(drive: Drive, review_reason: string): Promise<void> {
    this.#breach(drive, review_reason);
    if (!(await this.#advance(drive, { to: 'review', review_reason }))) return;
    this.#forget(drive);
    const { platform_payment_id } = drive;
    this.#options.log.error(
      { platform_payment_id, review_reason },
      'a payment waits for an operator',
    );
  }

  async #end(drive: Drive, by: End['by'], ending: Ending): Promise<void> {
    const { platform_payment_id, stage: from, lane } = drive;
    const { clock } = this.#options;
    const row = await this.#write(drive, () =>
      this.#ends.add({ platform_payment_id, from, by, ending }),
    );
    if (row === undefined) return;
    this.#reached('after_ended');
    this.#measures.ended(lane.partner_id, row.status);
    if (by === 'partner') this.#learnHabit(drive, ending, clock.monotonic());
    drive.stage = row.stage;
    drive.status = row.status;
    drive.tries = 0;
    this.#changed(row);
    if (row.settled_at !== null) {
      this.#forget(drive);
      return;
    }
    this.#again(drive, 0);
  }

  #learnHabit(drive: Drive, ending: Ending, now: number): void {
    const { clock } = this.#options;
    if (ending.posted_at !== null && ending.initiated_at !== null) {
      // Both by the partner's clock: exact, whatever that clock shows.
      learn(drive.lane.habit, Date.parse(ending.posted_at) - Date.parse(ending.initiated_at));
      this.#measures.detected(
        drive.lane.partner_id,
        Math.max(0, clock.now() - Date.parse(ending.posted_at)),
      );
    } else if (drive.stage === 'accepted') {
      learn(drive.lane.habit, now - drive.acceptedAt);
    }
  }

  /**
   * Writes one step. When the database cannot answer, it is asked again until it does: the guarded statement makes that harmless.
   * Gives undefined when the row did not change and the payment was dropped, or queued anew as what its row says it is.
   */
  async #write(
    drive: Drive,
    write: () => Promise<PaymentRow | undefined>,
  ): Promise<PaymentRow | undefined> {
    const { clock, log, database } = this.#options;
    for (;;) {
      if (this.isLost && !this.#finishing) return undefined;
      try {
        const row = await write();
        if (row !== undefined) return row;
        // Another worker's by now, withdrawn by an operator, or written already by a try whose answer was lost (F70).
        const stands = await findPayment(database, drive.platform_payment_id);
        this.#forget(drive);
        if (stands === undefined || stands.owner !== this.workerId || stands.settled_at !== null)
          return undefined;
        this.#changed(stands);
        this.add(stands);
        return undefined;
      } catch (error) {
        if (!isDatabaseTrouble(error) && !(error instanceof Refusal)) throw error;
        log.warn({ error: messageOf(error) }, 'a write has to wait for the database');
        if (this.#calls.signal.aborted) return undefined;
        await clock.sleep(DATABASE_PAUSE_MS * (0.5 + clock.random()), this.#calls.signal);
      }
    }
  }

  /** A stop lets what is under way come to its record, as long as the lease holds. */
  get #finishing(): boolean {
    return (
      this.#ended &&
      !this.#calls.signal.aborted &&
      this.#options.clock.monotonic() - this.#beatenAt < this.#times.leaseMs * LEASE_KEPT
    );
  }

  #reached(step: EngineStep): void {
    this.#options.options?.reached?.(step);
  }
}

/** Whether the next step is the funding port's: before the first PUT, and after the end. */
function needsFunding(drive: Drive): boolean {
  return drive.stage === 'ended' || (drive.stage === 'created' && !drive.funded);
}

/** The payment as its calls carry it. */
function orderOf(drive: Drive): PaymentOrder & Intent & FundingOrder {
  return drive;
}

/** An outcome as the label of a figure. */
function label(outcome: SubmitOutcome | PollOutcome): string {
  switch (outcome.kind) {
    case 'unknown':
    case 'held':
      return `${outcome.kind}_${outcome.reason}`;
    case 'processing':
    case 'ended':
    case 'incomplete':
    case 'mismatch':
    case 'rejected':
    case 'not_found':
      return outcome.kind;
  }
}

/** What an operator reads beside the partner. */
const HOLD_TEXTS: Readonly<Record<HoldReason, string>> = {
  credentials: 'The partner refuses the credentials; tried again once a minute.',
  scope: 'The credentials do not cover what is asked (scope); tried again once a minute.',
  certificate: 'The certificate of the partner is not valid; tried again once a minute.',
  address: 'The host resolves to an address that may not be called; tried again once a minute.',
};
