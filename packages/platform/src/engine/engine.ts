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
 * - Every write carries the fence (store/payments.ts). A worker that cannot prove its lease drops everything, aborts its calls and
 *   restarts under another id.
 * - Each loop waits only for its own work, so that a slow one delays no other: the heartbeat, the slots, the watched payments and the
 *   closing of batches each have a loop.
 */
import assert from 'node:assert/strict';
import { setImmediate as immediate } from 'node:timers/promises';
import { createMetrics, messageOf, type Database } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { closeBatches } from '../reconciliation/batch.ts';
import { DEFAULT_TIMES, type EngineOptions, type EngineTimes } from './options.ts';
import { engineMetrics, type EngineMetrics } from './metrics.ts';
import { keepLease, type Lease } from './lease.ts';
import {
  DatabaseTime,
  forgetDeadWorkers,
  registerWorker,
  removeWorker,
  renewHeartbeat,
} from './ownership.ts';
import { Outage } from './outage.ts';
import type { FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import {
  ARRIVALS,
  findNews,
  findWatched,
  type NewPlace,
  type PaymentRow,
  type WatchedPayment,
} from '../store/payments.ts';
import { Worker } from './worker.ts';

export type { EngineOptions } from './options.ts';

/** The running loop. */
export interface Engine {
  /** The worker of this process: a worker that lost its lease comes back under another id. */
  readonly workerId: string;
  /**
   * Where a payment that is about to be inserted begins: in a slot of this worker's own, so that `take` drives it at once, or in
   * ARRIVALS while it owns none; and as `dispatching` if its PUT can leave at once (decision 66). Ask at every insert.
   */
  placeForNew(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    order: Pick<FundingOrder, 'funding_method'>,
  ): NewPlace;
  /**
   * Starts: acquires a lease, takes over payments that nobody drives, and runs until `stop`. Resolves when the first lease request
   * was answered and the slots were read once or the read timed out. It does not wait for the takeover, and retries while the
   * database does not answer.
   */
  start(): Promise<void>;
  /** Finishes or aborts what is in flight, releases ownership and removes the worker from the list; 10 s at most, whatever hangs (F82). */
  stop(): Promise<void>;
  /** Starts driving a payment just committed at the place from `placeForNew`. Never throws; returns before anything is sent. */
  take(payment: PaymentRow): void;
  /**
   * Calls back with the row when the partner has accepted the payment, when it waits for an operator, and when it has ended,
   * whichever worker drives it. Returns the function that unsubscribes. Read the row once after subscribing.
   */
  watch(platform_payment_id: string, changed: (payment: WatchedPayment) => void): () => void;
  /**
   * When the next step of a payment is due, as ISO 8601; undefined for one that this process does not drive. The step may start later:
   * when its partner is paused, down, or has no budget left.
   */
  nextStepAt(platform_payment_id: string): string | undefined;
  /** Whether the engine works, for readiness (LV2). */
  readonly health: EngineHealth;
  /** Runs one round now: slots, watched payments of other workers, closing of batches. Resolves when it is done. */
  tick(): Promise<void>;
}

/** The readiness of an engine. Every field is true while it works. */
export interface EngineHealth {
  /** The lease was proven within its length. */
  readonly lease: boolean;
  /** No call that could start has been due for longer than MAX_STALL_MS. */
  readonly calls: boolean;
}

/**
 * A due call to a partner that is neither paused nor down starts within a second. A minute without one means that the engine has stalled.
 */
const MAX_STALL_MS = 60_000;

/** Optional dependencies of an engine. */
interface Surroundings {
  /** A connection pool for the heartbeat alone, so that slow statements cannot cost the lease; default `database`. */
  readonly leaseDatabase?: Database;
}

/** How long a stop waits for aborted calls to unwind, and for the slots to be given back: with the calls' own eight seconds, ten. */
const UNWIND_MS = 1_000;
const RELEASE_MS = 1_000;

/** How long a start waits for the first read of the slots: a server opens its listeners within three seconds. */
const FIRST_ROUND_MS = 1_500;

/** Makes the engine. Nothing happens before `start`. */
export function createEngine(options: EngineOptions & Surroundings): Engine {
  return new RunningEngine(options);
}

type Watchers = Map<string, Set<(payment: WatchedPayment) => void>>;

class RunningEngine implements Engine {
  readonly #options: EngineOptions & Surroundings;
  readonly #times: EngineTimes;
  readonly #watchers: Watchers = new Map();
  /** What a watcher of another worker's payment was told last. */
  readonly #notified = new Map<string, string>();
  /** Watched payments of this worker that have changed, and those whose rows could not be read then. */
  readonly #news = new Set<string>();
  readonly #missed = new Set<string>();
  /** One read after the other, so that an older row never reaches a watcher after a newer one. */
  #telling: Promise<void> = Promise.resolve();
  #workerId = '';
  #lease: Lease | undefined;
  #worker: Worker | undefined;
  /** The check of the slots that is running. */
  #round: Promise<boolean> | undefined;
  #stopping = new AbortController();
  /** Aborted when the stop is done: until then, what is in flight may still have to wait for the database. */
  #stopped = new AbortController();
  #outage: Outage | undefined;
  #loops: Promise<void> = Promise.resolve();
  readonly #metrics: EngineMetrics;
  readonly #time: DatabaseTime;

  constructor(options: EngineOptions & Surroundings) {
    this.#options = options;
    this.#times = { ...DEFAULT_TIMES, ...options.options };
    this.#time = new DatabaseTime(options.clock);
    const metrics = options.metrics ?? createMetrics({ processFigures: false });
    this.#metrics = engineMetrics(metrics, {
      inFlight: () => this.#worker?.dispatcher.payments.size ?? 0,
      ages: () => this.#worker?.dispatcher.ages() ?? { oldestSeconds: 0, overdue: 0 },
    });
    metrics.gauge(
      'duebridge_lease_age_seconds',
      'Time since the worker of this process last proved its lease; it relies on one for 7 s',
      [],
      () => (this.#lease?.ageMs ?? 0) / 1_000,
    );
    metrics.gauge(
      'duebridge_oldest_due_call_seconds',
      'How long a due call has waited although it could have started; /readyz fails beyond 60 s',
      [],
      () => (this.#worker?.dispatcher.stalledMs() ?? 0) / 1_000,
    );
    metrics.gauge(
      'duebridge_slots_owned',
      'Slots of payments that the worker of this process owns, of 1,024 that all share',
      [],
      () => this.#worker?.slots ?? 0,
    );
  }

  get workerId(): string {
    return this.#workerId;
  }

  placeForNew(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    order: Pick<FundingOrder, 'funding_method'>,
  ): NewPlace {
    return this.#worker?.placeForNew(partner, order) ?? { slot: ARRIVALS, stage: 'created' };
  }

  get health(): EngineHealth {
    return {
      lease: (this.#lease?.ageMs ?? 0) <= this.#times.leaseMs,
      calls: (this.#worker?.dispatcher.stalledMs() ?? 0) <= MAX_STALL_MS,
    };
  }

  async start(): Promise<void> {
    assert(this.#lease === undefined, 'the engine is already running');
    this.#stopping = new AbortController();
    this.#stopped = new AbortController();
    const { clock, log } = this.#options;
    this.#outage = new Outage({ ...this.#options, signal: this.#stopped.signal });
    const database = this.#options.leaseDatabase ?? this.#options.database;
    this.#lease = keepLease({
      clock,
      log,
      times: this.#times,
      newId: () => `worker-${uuidv7()}`,
      register: (worker_id) => registerWorker(database, worker_id, this.#time),
      renew: (worker_id) => renewHeartbeat(database, worker_id, this.#times.leaseMs, this.#time),
      remove: (worker_id) => removeWorker(database, worker_id),
      begin: (worker_id, provenAt) => this.#begin(worker_id, provenAt),
      proven: (_, provenAt) => this.#worker?.proven(provenAt),
      drop: () => this.#drop(),
    });
    this.#loops = Promise.all([
      this.#rounds(),
      this.#every(this.#times.watchMs, () => this.#lookAtWatched()),
      this.#every(this.#times.closeMs, () => this.#close()),
    ]).then(() => undefined);
    await this.#lease.asked;
    // From here on a confirmed payment usually gets a slot of this worker. One that does not is driven as well, from ARRIVALS.
    const late = new AbortController();
    await Promise.race([this.#round, clock.sleep(FIRST_ROUND_MS, late.signal)]).catch(
      () => undefined,
    );
    late.abort();
  }

  async stop(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined) return;
    this.#stopping.abort();
    lease.leave();
    const worker = this.#worker;
    const { stopMs } = this.#times;
    const over = [this.#loops, worker?.finish(stopMs) ?? Promise.resolve(), this.#roundOver()];
    await this.#within(stopMs + UNWIND_MS, over);
    // Whatever hangs, it writes nothing more: the slots that its writes name are not this worker's from here on.
    worker?.drop();
    this.#worker = undefined;
    await this.#within(RELEASE_MS, [this.#release(worker), lease.end()]);
    this.#stopped.abort();
    this.#lease = undefined;
  }

  async #release(worker: Worker | undefined): Promise<void> {
    if (worker === undefined) return;
    try {
      await worker.release();
      await removeWorker(this.#options.database, worker.workerId);
    } catch (error) {
      // Others take them over when the lease has expired.
      this.#options.log.warn({ error: messageOf(error) }, 'could not release the slots');
    }
  }

  /** Resolves when the look at the slots that is under way has ended, whichever way. */
  async #roundOver(): Promise<void> {
    await this.#round?.catch(() => undefined);
  }

  /** Waits for work that belongs to a stop, and no longer than `ms`. */
  async #within(ms: number, work: readonly Promise<void>[]): Promise<void> {
    const { clock } = this.#options;
    const late = new AbortController();
    await Promise.race([Promise.all(work), clock.sleep(ms, late.signal)]);
    late.abort();
  }

  take(payment: PaymentRow): void {
    // No lease, or stopped: the row is taken over with its slot.
    this.#worker?.add(payment);
  }

  watch(platform_payment_id: string, changed: (payment: WatchedPayment) => void): () => void {
    const watchers = this.#watchers.get(platform_payment_id) ?? new Set();
    watchers.add(changed);
    this.#watchers.set(platform_payment_id, watchers);
    return () => {
      watchers.delete(changed);
      if (watchers.size > 0) return;
      this.#watchers.delete(platform_payment_id);
      this.#notified.delete(platform_payment_id);
    };
  }

  nextStepAt(platform_payment_id: string): string | undefined {
    const { clock } = this.#options;
    const due = this.#worker?.dispatcher.dueAt(platform_payment_id);
    return due === undefined
      ? undefined
      : new Date(clock.now() + due - clock.monotonic()).toISOString();
  }

  async tick(): Promise<void> {
    await this.#roundOver();
    await this.#takeOver();
    await this.#worker?.loaded();
    await this.#lookAtWatched();
    await this.#close();
  }

  /** Runs a housekeeping task until the stop; a failed run is retried at the next turn. */
  async #every(ms: number, work: () => Promise<void>): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stopping;
    for (;;) {
      await clock.sleep(ms * (0.9 + clock.random() * 0.2), signal);
      if (signal.aborted) return;
      try {
        await work();
      } catch (error) {
        await this.#outage?.met(signal, error, 'housekeeping failed; retrying');
      }
    }
  }

  /** The lease is held: payments are driven under this id from here on. */
  #begin(workerId: string, provenAt: number): void {
    assert(this.#outage !== undefined);
    const outage = this.#outage;
    this.#workerId = workerId;
    this.#worker = new Worker(
      this.#options,
      this.#times,
      this.#metrics,
      workerId,
      provenAt,
      this.#time,
      outage,
      (platform_payment_id) => this.#noticed(platform_payment_id),
    );
    this.#takeOver().catch((error: unknown) =>
      outage.met(this.#stopping.signal, error, 'taking payments over failed; retrying'),
    );
  }

  /** A worker without a lease counts as dead: others take over what it had. */
  #drop(): void {
    this.#worker?.drop();
    this.#worker = undefined;
  }

  /** Checks the slots until the stop, more often while this worker owns fewer than it should. */
  async #rounds(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stopping;
    let isSettled = false;
    while (!signal.aborted) {
      const ms = isSettled ? this.#times.beatMs : this.#times.beatMs / 4;
      await clock.sleep(ms * (0.9 + clock.random() * 0.2), signal);
      if (signal.aborted) return;
      try {
        isSettled = await this.#takeOver();
      } catch (error) {
        await this.#outage?.met(signal, error, 'could not read the slots; retrying');
      }
    }
  }

  /** Runs one check of the slots at a time. The lease does not wait for it. */
  #takeOver(): Promise<boolean> {
    this.#round ??= this.#takeOverOnce().finally(() => {
      this.#round = undefined;
    });
    return this.#round;
  }

  async #takeOverOnce(): Promise<boolean> {
    if (this.#worker === undefined || this.#stopping.signal.aborted) return false;
    return this.#worker.round();
  }

  async #close(): Promise<void> {
    const { database, log } = this.#options;
    const worker_id = this.#lease?.worker_id;
    if (worker_id === undefined) return;
    const { signal } = this.#stopping;
    for (const platform_batch_id of await closeBatches(database, worker_id, {
      of: worker_id,
      signal,
    })) {
      log.info({ platform_batch_id }, 'batch closed');
    }
    await forgetDeadWorkers(database, this.#times.leaseMs);
  }

  /** A payment of this worker has changed: its watchers get the row, read for many payments at once. */
  #noticed(platform_payment_id: string): void {
    if (!this.#watchers.has(platform_payment_id)) return;
    if (this.#news.size === 0) this.#telling = this.#telling.then(() => this.#tellNews());
    this.#news.add(platform_payment_id);
  }

  async #tellNews(): Promise<void> {
    // What changes in the same turn of the event loop is read together.
    await immediate();
    const ids = [...this.#news];
    this.#news.clear();
    try {
      for (const row of await findWatched(this.#options.database, ids)) this.#notify(row);
    } catch {
      // The next look at the watched payments of other workers reads these too.
      for (const id of ids) this.#missed.add(id);
    }
  }

  async #lookAtWatched(): Promise<void> {
    const foreign = [...this.#watchers.keys()].filter(
      (id) => this.#worker?.dispatcher.payments.has(id) !== true || this.#missed.has(id),
    );
    if (foreign.length === 0) return;
    const notified = foreign.map((id) => this.#notified.get(id) ?? '');
    const missed = [...this.#missed];
    for (const row of await findNews(this.#options.database, foreign, notified)) this.#notify(row);
    for (const id of missed) this.#missed.delete(id);
  }

  #notify(row: WatchedPayment): void {
    const watchers = this.#watchers.get(row.platform_payment_id);
    if (watchers === undefined) return;
    const news = `${row.stage} ${row.status}`;
    if (this.#notified.get(row.platform_payment_id) === news) return;
    this.#notified.set(row.platform_payment_id, news);
    for (const changed of watchers) {
      try {
        changed(row);
      } catch (error) {
        this.#options.log.error({ error: messageOf(error) }, 'a watcher failed');
      }
    }
  }
}
