/**
 * Stage 5, the engine: drives every payment of this process from its row to its end.
 *
 * enters: rows just committed (`take`), and the payments of slots that this process takes over.  leaves: terminal rows, with the
 *         funds captured or released.
 *
 * holds:
 * - A worker is one life of this process: it begins when a lease is held (lease.ts) and ends with it, or with the stop. What slots it
 *   owns and what it reads from them stands in worker.ts, what it does with a payment in dispatcher.ts.
 * - What is due when lives in memory; a poll that finds no change writes nothing (performance F4). After a crash everything that
 *   was in flight is taken over and due soon.
 * - Claim, commit, call, record: no transaction spans a call, and the intent is durable before the first PUT (PL1).
 * - Every write carries the fence (store/payments.ts). A worker that could not prove its lease drops all it held, aborts its calls
 *   and comes back as another.
 * - The loops here wait for nothing that can be slow but their own work: the heartbeat, the look at the slots, the shares, the
 *   watched payments and the closing of batches each have one.
 */
import assert from 'node:assert/strict';
import { messageOf, type Database } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { closeBatches } from '../reconciliation/batch.ts';
import type { EngineOptions, EngineTimes } from './options.ts';
import { engineMetrics, type EngineMetrics } from './metrics.ts';
import { keepLease, type Lease } from './lease.ts';
import {
  DatabaseTime,
  forgetDeadWorkers,
  registerWorker,
  removeWorker,
  renewHeartbeat,
} from './ownership.ts';
import { forgetShares } from './shares.ts';
import { ARRIVALS, findNews, type PaymentRow } from '../store/payments.ts';
import { FIRST_POLL_MS, FIRST_RETRY_MS, MAX_RETRY_MS } from './poll-schedule.ts';
import { Worker } from './worker.ts';

export type { EngineOptions, EngineStep } from './options.ts';

/** The running loop. */
export interface Engine {
  /** The worker of this process: a worker that lost its lease comes back under another id. */
  readonly workerId: string;
  /**
   * The slot for a payment that is about to be inserted: one of this worker's own, so that `take` drives it at once, or ARRIVALS
   * while it owns none. Ask at every insert.
   */
  slotForNew(): number;
  /**
   * Begins: asks for a lease, takes over what nobody drives, and drives until `stop`. Resolves when the first request for a lease
   * was answered, and the slots were looked at once or did not come in time; does not wait for what is taken over; a database that does not answer is asked again.
   */
  start(): Promise<void>;
  /** Finishes or gives up what is under way, releases ownership and takes the worker off the list; at most 10 s (F82). */
  stop(): Promise<void>;
  /** Drives a payment just committed in the slot of `slotForNew`, at once. Never throws, returns before anything is sent. */
  take(payment: PaymentRow): void;
  /**
   * Calls back with the row each time the payment's stage or status changes, whichever worker drives it; gives the function
   * that ends it. Read the row once after subscribing.
   */
  watch(platform_payment_id: string, changed: (payment: PaymentRow) => void): () => void;
  /** Whether the engine works, for readiness (LV2). */
  readonly health: EngineHealth;
  /** One round at once: heartbeat, slots, shares, watched payments of other workers, closing of batches. Resolves when it is done. */
  tick(): Promise<void>;
}

/** What readiness asks of an engine. Every part is true while it works. */
export interface EngineHealth {
  /** The lease was proven within its length. */
  readonly lease: boolean;
  /** No call that could start has been due for longer than MAX_STALL_MS. */
  readonly calls: boolean;
}

/** A due call of a partner that is neither paused nor down starts within a second; a minute means that the engine has stopped. */
const MAX_STALL_MS = 60_000;

/** What an engine may have beside its options. */
interface Surroundings {
  /** Connections of the heartbeat alone, so that nothing that is slow can end the lease; default `database`. */
  readonly leaseDatabase?: Database;
}

const DEFAULT_TIMES: EngineTimes = {
  leaseMs: 10_000,
  beatMs: 2_000,
  watchMs: 1_000,
  closeMs: 30_000,
  stopMs: 8_000,
  holdMs: 60_000,
  pausedMs: 5_000,
  breakMs: 1_000,
  maxBreakMs: 2_000,
  retryMs: FIRST_RETRY_MS,
  maxRetryMs: MAX_RETRY_MS,
  pollMs: FIRST_POLL_MS,
};

/** How long a start waits for the first look at the slots: a server opens its listeners within three seconds. */
const FIRST_ROUND_MS = 1_500;

/** Makes the engine. Nothing happens before `start`. */
export function createEngine(options: EngineOptions & Surroundings): Engine {
  return new RunningEngine(options);
}

type Watchers = Map<string, Set<(payment: PaymentRow) => void>>;

class RunningEngine implements Engine {
  readonly #options: EngineOptions & Surroundings;
  readonly #times: EngineTimes;
  readonly #watchers: Watchers = new Map();
  /** What a watcher of another worker's payment was told last. */
  readonly #told = new Map<string, string>();
  #workerId = '';
  #lease: Lease | undefined;
  #worker: Worker | undefined;
  /** The look at the slots that is under way. */
  #round: Promise<boolean> | undefined;
  #stopping = new AbortController();
  #loops: Promise<void> = Promise.resolve();
  readonly #metrics: EngineMetrics;
  readonly #time: DatabaseTime;

  constructor(options: EngineOptions & Surroundings) {
    this.#options = options;
    this.#times = { ...DEFAULT_TIMES, ...options.options };
    this.#time = new DatabaseTime(options.clock);
    this.#metrics = engineMetrics(options.metrics, {
      inFlight: () => this.#worker?.size ?? 0,
      ages: () => this.#worker?.ages() ?? { oldestSeconds: 0, overdue: 0 },
    });
    options.metrics?.gauge(
      'duebridge_lease_age_seconds',
      'Time since the worker of this process last proved its lease; it relies on one for 7 s',
      [],
      () => (this.#lease?.ageMs ?? 0) / 1_000,
    );
    options.metrics?.gauge(
      'duebridge_oldest_due_call_seconds',
      'How long a due call has waited although it could have started; /readyz fails beyond 60 s',
      [],
      () => (this.#worker?.stalledMs() ?? 0) / 1_000,
    );
    options.metrics?.gauge(
      'duebridge_slots_owned',
      'Slots of payments that the worker of this process owns, of 1,024 that all share',
      [],
      () => this.#worker?.slots ?? 0,
    );
  }

  get workerId(): string {
    return this.#workerId;
  }

  slotForNew(): number {
    return this.#worker?.slotForNew() ?? ARRIVALS;
  }

  get health(): EngineHealth {
    return {
      lease: (this.#lease?.ageMs ?? 0) <= this.#times.leaseMs,
      calls: (this.#worker?.stalledMs() ?? 0) <= MAX_STALL_MS,
    };
  }

  async start(): Promise<void> {
    assert(this.#lease === undefined, 'the engine runs already');
    this.#stopping = new AbortController();
    const { clock, log } = this.#options;
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
      this.#every(this.#times.beatMs, async () => this.#worker?.exchange()),
      this.#every(this.#times.watchMs, () => this.#lookAtWatched()),
      this.#every(this.#times.closeMs, () => this.#close()),
    ]).then(() => undefined);
    await this.#lease.asked;
    // So that a payment confirmed from now on finds a slot of its own. One that does not is driven all the same.
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
    await Promise.all([
      worker?.finish(this.#times.stopMs),
      this.#loops,
      this.#round?.catch(() => undefined),
    ]);
    this.#worker = undefined;
    try {
      await worker?.release();
      if (worker !== undefined) await removeWorker(this.#options.database, worker.workerId);
    } catch (error) {
      // They are taken over when the lease has run out.
      this.#options.log.warn({ error: messageOf(error) }, 'could not release the slots');
    }
    await lease.end();
    this.#lease = undefined;
  }

  take(payment: PaymentRow): void {
    // Without a lease, or after the stop: the row is taken over with its slot.
    this.#worker?.add(payment);
  }

  watch(platform_payment_id: string, changed: (payment: PaymentRow) => void): () => void {
    const watchers = this.#watchers.get(platform_payment_id) ?? new Set();
    watchers.add(changed);
    this.#watchers.set(platform_payment_id, watchers);
    return () => {
      watchers.delete(changed);
      if (watchers.size > 0) return;
      this.#watchers.delete(platform_payment_id);
      this.#told.delete(platform_payment_id);
    };
  }

  async tick(): Promise<void> {
    await this.#lease?.renewNow();
    await this.#round?.catch(() => undefined);
    await this.#takeOver();
    await this.#worker?.loaded();
    await this.#worker?.exchange();
    await this.#lookAtWatched();
    await this.#close();
  }

  /** Runs a piece of housekeeping until the stop; what fails is tried again at its next turn. */
  async #every(ms: number, work: () => Promise<void>): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#stopping;
    for (;;) {
      await clock.sleep(ms * (0.9 + clock.random() * 0.2), signal);
      if (signal.aborted) return;
      try {
        await work();
      } catch (error) {
        log.warn({ error: messageOf(error) }, 'housekeeping failed; retrying');
      }
    }
  }

  /** The lease is held: payments are driven under this id from here on. */
  #begin(workerId: string, provenAt: number): void {
    this.#workerId = workerId;
    this.#worker = new Worker(
      this.#options,
      this.#times,
      this.#metrics,
      workerId,
      provenAt,
      this.#time,
      (row) => this.#notify(row),
    );
    this.#takeOver().catch((error: unknown) => {
      this.#options.log.warn({ error: messageOf(error) }, 'taking over failed; retrying');
    });
  }

  /** A worker without a lease is as good as dead: others take over what it had. */
  #drop(): void {
    this.#worker?.drop();
    this.#worker = undefined;
  }

  /** Looks at the slots until the stop: sooner again while this worker owns fewer than it should. */
  async #rounds(): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#stopping;
    let isSettled = false;
    while (!signal.aborted) {
      const ms = isSettled ? this.#times.beatMs : this.#times.beatMs / 4;
      await clock.sleep(ms * (0.9 + clock.random() * 0.2), signal);
      if (signal.aborted) return;
      try {
        isSettled = await this.#takeOver();
      } catch (error) {
        log.warn({ error: messageOf(error) }, 'could not look at the slots; retrying');
      }
    }
  }

  /** One look at the slots at a time. The lease does not wait for it. */
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
    await forgetShares(database);
  }

  async #lookAtWatched(): Promise<void> {
    const foreign = [...this.#watchers.keys()].filter((id) => this.#worker?.has(id) !== true);
    if (foreign.length === 0) return;
    const told = foreign.map((id) => this.#told.get(id) ?? '');
    for (const row of await findNews(this.#options.database, foreign, told)) this.#notify(row);
  }

  #notify(row: PaymentRow): void {
    const watchers = this.#watchers.get(row.platform_payment_id);
    if (watchers === undefined) return;
    const news = `${row.stage} ${row.status}`;
    if (this.#told.get(row.platform_payment_id) === news) return;
    this.#told.set(row.platform_payment_id, news);
    for (const changed of watchers) {
      try {
        changed(row);
      } catch (error) {
        this.#options.log.error({ error: messageOf(error) }, 'a watcher failed');
      }
    }
  }
}
