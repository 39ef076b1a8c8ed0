/**
 * Stage 5, the engine: drives every payment of this process from its row to its end.
 *
 * enters: rows just committed (`take`), and rows whose worker is gone (adoption).  leaves: terminal rows, with the funds captured
 * or released. A payment is authorized, noted as dispatching, PUT, polled, ended (terminal.ts), settled: payment-steps.ts decides each step, dispatcher.ts takes it.
 *
 * holds:
 * - What is due when lives in memory; a poll that finds no change writes nothing (performance F4). After a crash everything that
 *   was in flight is adopted and due soon.
 * - Claim, commit, call, record: no transaction spans a call, and the intent is durable before the first PUT (P1).
 * - Every write carries the fence (record.ts). A worker that could not renew its lease drops all it held, aborts its calls and
 *   comes back as another worker; worker.ts is one such life.
 * - What goes wrong with one payment stays with it: it is tried again later, and no other waits for it (F90, P16).
 */
import assert from 'node:assert/strict';
import { messageOf } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { closeBatches } from '../reconciliation/batch.ts';
import type { EngineOptions, EngineTimes } from './options.ts';
import { engineMetrics, type EngineMetrics } from './metrics.ts';
import { forgetDeadWorkers, registerWorker, release } from './ownership.ts';
import { findPayments, type PaymentRow } from '../store/payments.ts';
import { FIRST_POLL_MS, FIRST_RETRY_MS, MAX_RETRY_MS } from './poll-schedule.ts';
import { Worker } from './worker.ts';

export type { EngineOptions, EngineStep } from './options.ts';

/** The running loop. */
export interface Engine {
  /**
   * The worker id of this process, for `insertPayment`. Read it at every insert: a worker that lost its lease comes back under
   * another id.
   */
  readonly workerId: string;
  /** Registers the worker and begins: adopts what nobody drives, then beats and drives until `stop`. */
  start(): Promise<void>;
  /** Finishes or gives up what is under way, releases ownership and takes the worker off the list; at most 10 s (F82). */
  stop(): Promise<void>;
  /** Drives a payment just committed with `owner = workerId`, at once. Never throws, returns before anything is sent. */
  take(payment: PaymentRow): void;
  /**
   * Calls back with the row each time the payment's stage or status changes, whichever worker drives it; gives the function
   * that ends it. Read the row once after subscribing.
   */
  watch(platform_payment_id: string, changed: (payment: PaymentRow) => void): () => void;
  /** One round at once: heartbeat, adoption, watched payments of other workers, closing of batches. Resolves when it is done. */
  tick(): Promise<void>;
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
  retryMs: FIRST_RETRY_MS,
  maxRetryMs: MAX_RETRY_MS,
  pollMs: FIRST_POLL_MS,
};

/** Makes the engine. Nothing happens before `start`. */
export function createEngine(options: EngineOptions): Engine {
  return new RunningEngine(options);
}

type Watchers = Map<string, Set<(payment: PaymentRow) => void>>;

class RunningEngine implements Engine {
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #watchers: Watchers = new Map();
  /** What a watcher of another worker's payment was told last. */
  readonly #told = new Map<string, string>();
  #workerId = newWorkerId();
  #worker: Worker | undefined;
  #lost = false;
  #renewing: Promise<void> | undefined;
  #stopping = new AbortController();
  #loops: Promise<void> = Promise.resolve();
  readonly #metrics: EngineMetrics;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#times = { ...DEFAULT_TIMES, ...options.options };
    this.#metrics = engineMetrics(options.metrics, {
      inFlight: () => this.#worker?.size ?? 0,
      ages: () => this.#worker?.ages() ?? { oldestSeconds: 0, overdue: 0 },
    });
  }

  get workerId(): string {
    return this.#workerId;
  }

  async start(): Promise<void> {
    assert(this.#worker === undefined, 'the engine runs already');
    this.#stopping = new AbortController();
    await this.#begin();
    this.#loops = Promise.all([
      this.#every(this.#times.beatMs, () => this.#renew()),
      // Apart from the beat, which may itself hang in a database that does not answer.
      this.#every(this.#times.beatMs / 2, () => this.#giveUpIfLost()),
      this.#every(this.#times.watchMs, () => this.#lookAtWatched()),
      this.#every(this.#times.closeMs, () => this.#close()),
    ]).then(() => undefined);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const worker = this.#worker;
    this.#worker = undefined;
    await Promise.all([this.#loops, this.#renewing]);
    if (worker === undefined) return;
    await worker.finish(this.#times.stopMs);
    try {
      await release(this.#options.database, worker.workerId);
    } catch (error) {
      // Its payments are then adopted when the lease has run out.
      this.#options.log.warn({ error: messageOf(error) }, 'ownership could not be released');
    }
  }

  take(payment: PaymentRow): void {
    // Between two workers, or after the stop: the row is adopted like any other whose worker is gone.
    if (this.#worker?.workerId === payment.owner) this.#worker.add(payment);
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
    await this.#renew();
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
        log.warn({ error: messageOf(error) }, 'housekeeping failed; it is tried again');
      }
    }
  }

  async #begin(): Promise<void> {
    const { database, clock } = this.#options;
    const startedAt = clock.monotonic();
    const workerId = newWorkerId();
    await registerWorker(database, workerId);
    // Named only from here on: a row of a worker that lives and does not know of it would be adopted by nobody.
    this.#workerId = workerId;
    this.#worker = new Worker(
      this.#options,
      this.#times,
      this.#metrics,
      workerId,
      startedAt,
      (row) => this.#notify(row),
    );
    await this.#worker.adopt();
  }

  /** One at a time: the loop and `tick` may both ask. */
  #renew(): Promise<void> {
    this.#renewing ??= this.#renewOnce().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  async #renewOnce(): Promise<void> {
    if (this.#worker === undefined) {
      if (!this.#lost || this.#stopping.signal.aborted) return;
      await this.#begin();
      this.#lost = false;
      return;
    }
    try {
      if (await this.#worker.beat()) await this.#worker?.adopt();
    } finally {
      await this.#giveUpIfLost();
    }
  }

  /** A worker without a lease is as good as dead: others take over what it had. It comes back under another id. */
  #giveUpIfLost(): Promise<void> {
    const worker = this.#worker;
    if (worker?.isLost === true) {
      const { workerId: worker_id } = worker;
      this.#options.log.error({ worker_id }, 'the lease was lost; everything held is dropped');
      worker.drop();
      this.#worker = undefined;
      this.#lost = true;
    }
    return Promise.resolve();
  }

  async #close(): Promise<void> {
    const { database, log } = this.#options;
    for (const platform_batch_id of await closeBatches(database, this.#workerId)) {
      log.info({ platform_batch_id }, 'batch closed');
    }
    await forgetDeadWorkers(database, this.#times.leaseMs);
  }

  async #lookAtWatched(): Promise<void> {
    const foreign = [...this.#watchers.keys()].filter((id) => this.#worker?.has(id) !== true);
    if (foreign.length === 0) return;
    for (const row of await findPayments(this.#options.database, foreign)) this.#notify(row);
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

function newWorkerId(): string {
  return `worker-${uuidv7()}`;
}
