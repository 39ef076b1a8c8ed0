/**
 * Stage 5, the engine: drives every payment of this process from its row to its end.
 *
 * enters: rows just committed (`take`), and the payments of slots that this process takes over.  leaves: terminal rows, with the
 *         funds captured or released.
 *
 * holds:
 * - A worker lives as long as one lease: it begins when a lease is held (lease.ts) and ends with it, or with the stop. worker.ts
 *   holds its slots and what it reads from them, dispatcher.ts drives its payments.
 * - Due times are kept in memory; a poll that finds no change writes nothing. After a crash every payment in
 *   flight is taken over and is due soon.
 * - Claim, commit, call, record: no transaction spans a call, and the intent is durable before the first PUT (PL1).
 * - Every write carries the fence (store/steps.ts). A worker that cannot prove its lease drops everything, aborts its calls and
 *   restarts under another id.
 * - The heartbeat and the look at the slots (worker.ts) have a loop each, so that neither waits for the other.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { messageOf, steadyClock, type Clock } from '@duebridge/runtime';
import { DEFAULT_TIMES, type EngineOptions, type EngineTimes } from './options.ts';
import { engineMetrics, type EngineMetrics } from './metrics.ts';
import { keepLease, type Lease } from './lease.ts';
import { WorkerList } from './ownership.ts';
import { Outage } from './outage.ts';
import type { FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import { ARRIVALS, type NewPlace, type PaymentRow } from '../store/payments.ts';
import { within } from './timing.ts';
import { Worker } from './worker.ts';

/**
 * A due call to a partner that is neither paused nor down starts within a second, or when another has ended. A minute without one means that
 * the engine has stalled.
 */
const MAX_STALL_MS = 60_000;

/** How long a stop waits for aborted calls to unwind, and for the slots to be given back: with the calls' own eight seconds, ten. */
const UNWIND_MS = 1_000;
const RELEASE_MS = 1_000;

/** How long a start waits for the first read of the slots: a server opens its listeners within three seconds. */
const FIRST_ROUND_MS = 1_500;

/** The engine of one process. Nothing happens before `start`. */
export class Engine {
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #workers: WorkerList;
  readonly #metrics: EngineMetrics;
  readonly #steady: Clock;
  /** From a start to the end of its stop; `stopping` is aborted when that begins. */
  #run: { readonly lease: Lease; readonly stopping: AbortController } | undefined;
  #worker: Worker | undefined;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#times = { ...DEFAULT_TIMES, ...options.options };
    const { database, leaseDatabase = database, clock } = options;
    this.#steady = steadyClock(clock);
    this.#workers = new WorkerList(leaseDatabase, clock, this.#times.leaseMs);
    this.#metrics = engineMetrics(options.metrics, {
      lease_age_seconds: () => (this.#run?.lease.ageMs ?? 0) / 1_000,
      oldest_due_call_seconds: () => (this.#worker?.dispatcher.stalledMs() ?? 0) / 1_000,
      slots_owned: () => this.#worker?.slots ?? 0,
      payments_in_flight: () => this.#worker?.dispatcher.size ?? 0,
    });
  }

  /** The worker of this process, if there is one: a worker that lost its lease comes back under another id. */
  get workerId(): string | undefined {
    return this.#worker?.workerId;
  }

  /**
   * Where a payment that is about to be inserted begins: in a slot of this worker's own, so that `take` drives it at once, or in
   * ARRIVALS while it owns none; and as `dispatching` if its PUT can leave at once (decision 66). Ask at every insert.
   */
  placeForNew(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    order: Pick<FundingOrder, 'funding_method'>,
  ): NewPlace {
    return this.#worker?.placeForNew(partner, order) ?? { slot: ARRIVALS, stage: 'created' };
  }

  /**
   * Whether the engine works, for readiness (LV2): the lease was proven within its length, and no call that could start has been due for
   * longer than MAX_STALL_MS.
   */
  get health(): { readonly lease: boolean; readonly calls: boolean } {
    return {
      lease: (this.#run?.lease.ageMs ?? 0) <= this.#times.leaseMs,
      calls: (this.#worker?.dispatcher.stalledMs() ?? 0) <= MAX_STALL_MS,
    };
  }

  /**
   * Starts: acquires a lease, takes over payments that nobody drives, and runs until `stop`. Resolves when the first lease request
   * was answered and the slots were read once or the read timed out. It does not wait for the takeover, and retries while the
   * database does not answer.
   */
  async start(): Promise<void> {
    assert(this.#run === undefined, 'the engine is already running');
    const stopping = new AbortController();
    const { clock, log } = this.#options;
    const outage = new Outage({ ...this.#options, signal: stopping.signal });
    const lease = keepLease({
      clock,
      log,
      times: this.#times,
      // It is in the audit of every payment, so it is short; no two of 64 random bits are alike.
      newId: () => `worker-${randomBytes(8).toString('base64url')}`,
      workers: this.#workers,
      begin: (worker_id, provenAt) => this.#begin(worker_id, provenAt, outage),
      proven: (provenAt) => this.#worker?.proven(provenAt),
      drop: () => this.#drop(),
    });
    this.#run = { lease, stopping };
    await lease.asked;
    // From here on a confirmed payment usually gets a slot of this worker. One that does not is driven as well, from ARRIVALS.
    await within(clock, FIRST_ROUND_MS, [this.#worker?.looked]);
  }

  /** Finishes or aborts what is in flight, releases ownership and removes the worker from the list; 10 s at most, whatever hangs (F82). */
  async stop(): Promise<void> {
    const run = this.#run;
    if (run === undefined) return;
    run.stopping.abort();
    run.lease.leave();
    const worker = this.#worker;
    const { stopMs } = this.#times;
    const { clock } = this.#options;
    await within(clock, stopMs + UNWIND_MS, [worker?.finish(stopMs)]);
    // Whatever hangs, it writes nothing more: the slots that its writes name are not this worker's from here on.
    this.#drop();
    await within(clock, RELEASE_MS, [this.#release(worker), run.lease.end()]);
    this.#run = undefined;
  }

  async #release(worker: Worker | undefined): Promise<void> {
    if (worker === undefined) return;
    try {
      await worker.release();
      await this.#workers.remove(worker.workerId);
    } catch (error) {
      // Others take them over when the lease has expired.
      this.#options.log.warn({ error: messageOf(error) }, 'could not release the slots');
    }
  }

  /** Starts driving a payment just committed at the place from `placeForNew`. Never throws; returns before anything is sent. */
  take(payment: PaymentRow): void {
    // No lease, or stopped: the row is taken over with its slot.
    this.#worker?.add(payment);
  }

  /**
   * Reads the payments of a slot at the next look at the slots, two seconds from now at most: one may have been committed there without an
   * answer. One that is committed later still is found in turn.
   */
  lookAgain(slot: number | null): void {
    this.#worker?.lookAgain(slot);
  }

  /**
   * When the next step of a payment is due, as ISO 8601; undefined for one that this process does not drive. The step may start later:
   * when its partner is paused, down, or has no budget left.
   */
  nextStepAt(platform_payment_id: string): string | undefined {
    const { clock } = this.#options;
    const due = this.#worker?.dispatcher.dueAt(platform_payment_id);
    return due === undefined
      ? undefined
      : new Date(clock.now() + due - clock.monotonic()).toISOString();
  }

  /** The lease is held: payments are driven under this id from here on. */
  #begin(workerId: string, provenAt: number, outage: Outage): void {
    this.#worker = new Worker(
      {
        ...this.#options,
        workerId,
        times: this.#times,
        metrics: this.#metrics,
        outage,
        databaseNow: () => this.#workers.now(),
        steady: this.#steady,
      },
      provenAt,
    );
  }

  /** A worker without a lease counts as dead: others take over what it had. */
  #drop(): void {
    this.#worker?.drop();
    this.#worker = undefined;
  }
}
