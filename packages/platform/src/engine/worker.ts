/**
 * One life of a worker: from its registration to its stop, or to the loss of its lease. See engine.ts.
 *
 * Here stand the lease, the shares of the partners' budgets and the adoption of payments; dispatcher.ts drives what is adopted.
 */
import { messageOf } from '@duebridge/runtime';
import { findPayments, type PaymentRow } from '../store/payments.ts';
import { Dispatcher, type ActivePayment } from './dispatcher.ts';
import type { EngineMetrics } from './metrics.ts';
import type { EngineOptions, EngineTimes } from './options.ts';
import { adopt, ADOPT_AT_ONCE, beat, ownedIds, type Demand } from './ownership.ts';
import type { PartnerQueue } from './partner-queue.ts';

/** Of the lease, the part after which a worker that could not beat drops everything: well before others may adopt. */
const LEASE_KEPT = 0.7;
/** A worker with anything for a partner registers for this many calls at once, so that a first burst need not wait for a beat. */
const MIN_NEED = 4;
/** Between beats that are asked for because a share is too small: grows it within a fraction of a second. */
const HURRY_MS = 50;
/** Adopted payments are spread over as long as their partner's budget needs for them, but over no more than this (P9). */
const MAX_SPREAD_MS = 60_000;
/** One life of a worker. */
export class Worker {
  readonly workerId: string;
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly #dispatcher: Dispatcher;
  #ended = false;
  #beatenAt: number;
  /** When the request left that proved the lease last. */
  #provenAt: number;
  /** An adoption was not carried through: rows may name this worker of which it does not know. */
  #mayOwnMore = false;
  #hurriedAt = Number.NEGATIVE_INFINITY;
  #hurrying = false;
  #beating: Promise<boolean> | undefined;

  constructor(
    options: EngineOptions,
    times: EngineTimes,
    metrics: EngineMetrics,
    workerId: string,
    registeredAt: number,
    changed: (row: PaymentRow) => void,
  ) {
    this.workerId = workerId;
    this.#options = options;
    this.#times = times;
    this.#beatenAt = registeredAt;
    this.#provenAt = registeredAt;
    this.#dispatcher = new Dispatcher(
      options,
      times,
      metrics,
      {
        workerId,
        holds: () => !this.#leaseRanOut,
        askForMore: (queue) => this.#hurry(queue),
      },
      changed,
    );
  }

  get size(): number {
    return this.#dispatcher.size;
  }

  /** True when the lease can no longer be relied on. */
  get isLost(): boolean {
    return this.#ended || this.#leaseRanOut;
  }

  get #leaseRanOut(): boolean {
    return this.#options.clock.monotonic() - this.#provenAt > this.#times.leaseMs * LEASE_KEPT;
  }

  /** The lease was proven by a request that left at this time; see lease.ts. */
  proven(at: number): void {
    this.#provenAt = Math.max(this.#provenAt, at);
  }

  has(platform_payment_id: string): boolean {
    return this.#dispatcher.has(platform_payment_id);
  }

  /** Age of the oldest payment, and how many stand on the operator's list for their age (decision 23). */
  ages(): { readonly oldestSeconds: number; readonly overdue: number } {
    return this.#dispatcher.ages();
  }

  /** See `Dispatcher.stalledMs`. */
  stalledMs(): number {
    return this.#dispatcher.stalledMs();
  }

  /** Begins to drive a row that this worker owns. */
  add(row: PaymentRow): void {
    this.#dispatcher.add(row);
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
        this.#dispatcher.replace(row, this.#spreadMs(row, rows.length));
      }
      this.#mayOwnMore = false;
      if (rows.length < ADOPT_AT_ONCE) return;
    }
  }

  /** Drives what names this worker in the database and is not in memory. */
  async #takeBack(): Promise<void> {
    const { database } = this.#options;
    const owned = await ownedIds(database, this.workerId);
    const missing = owned.filter((id) => !this.#dispatcher.has(id));
    for (let from = 0; from < missing.length; from += ADOPT_AT_ONCE) {
      // Read anew: what was driven to its end since then is no longer ours to drive (P8).
      const rows = await findPayments(database, missing.slice(from, from + ADOPT_AT_ONCE));
      await this.#learnBudgets(rows);
      for (const row of rows) {
        if (row.owner === this.workerId && row.settled_at === null)
          this.#dispatcher.add(row, this.#spreadMs(row, rows.length));
      }
    }
  }

  async #learnBudgets(rows: readonly PaymentRow[]): Promise<void> {
    for (const partner_id of new Set(rows.map((row) => row.partner_id))) {
      const partner = await this.#options.registry.get(partner_id);
      if (partner !== undefined) this.#dispatcher.queueOf(partner_id).applyBudget(partner.budget);
    }
  }

  /** A few go at once; many are spread over the time that the partner's budget needs for them. */
  #spreadMs(row: PaymentRow, count: number): number {
    const rate = this.#dispatcher.queueOf(row.partner_id).callsPerSecond;
    return (
      this.#options.clock.random() *
      Math.min(MAX_SPREAD_MS, ((count + this.#dispatcher.size) / rate) * 1_000)
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
    for (const queue of this.#dispatcher.queues) {
      const partner = await registry.get(queue.partner_id);
      if (partner === undefined) continue;
      queue.applyBudget(partner.budget);
      const demand = this.#demandOf(queue, startedAt);
      demands.set(queue.partner_id, demand);
      // From here to the answer no call may start beyond what is about to be registered.
      queue.share = Math.min(queue.share, Math.max(demand.calls.need, queue.inFlight));
      queue.rate = Math.min(queue.rate, demand.rate.need);
    }
    const granted = await beat(database, this.workerId, this.#times.leaseMs, demands);
    // A lease that looked lost stays lost: steps that saw it so have given up their payments.
    if (granted === undefined || this.isLost) {
      this.drop();
      return false;
    }
    this.#beatenAt = startedAt;
    this.proven(startedAt);
    for (const [partner_id, share] of granted) {
      const queue = this.#dispatcher.queueOf(partner_id);
      queue.share = share.calls;
      queue.rate = share.rate;
      const demand = demands.get(partner_id);
      queue.isShort =
        demand !== undefined && (share.calls < demand.calls.need || share.rate < demand.rate.need);
      this.#dispatcher.pump(queue);
    }
    return true;
  }

  /** What the queue could use until the next beat: more than it uses, so that a burst need not wait, but not all there is. */
  #demandOf(queue: PartnerQueue<ActivePayment>, now: number): Demand {
    const next = queue.due.peek();
    const works =
      queue.inFlight > 0 || (next !== undefined && next.at <= now + 2 * this.#times.beatMs);
    const backlog = next !== undefined && next.at <= now;
    const perSecond = (queue.started / Math.max(HURRY_MS, now - this.#beatenAt)) * 1_000;
    queue.started = 0;
    const { cap, callsPerSecond, inFlight } = queue;
    const calls = Math.max(MIN_NEED, 2 * inFlight, backlog ? inFlight + queue.due.size : 0);
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

  /** A share is too small for what is due: beats at once, but not in a storm. What others hold is asked for at the usual beat. */
  #hurry(queue: PartnerQueue<ActivePayment>): void {
    if (this.#hurrying || this.#ended || queue.isShort) return;
    this.#hurrying = true;
    const { clock, log } = this.#options;
    const pause = Math.max(0, this.#hurriedAt + HURRY_MS - clock.monotonic());
    void (async () => {
      if (pause > 0) await clock.sleep(pause, this.#dispatcher.signal);
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
    this.#dispatcher.drop();
  }

  /** Ends it gently: starts nothing, lets what is under way come to its record, aborts what takes longer than `ms`. */
  async finish(ms: number): Promise<void> {
    this.#ended = true;
    await this.#dispatcher.finish(ms);
    this.drop();
  }
}
