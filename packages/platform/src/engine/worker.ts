/**
 * One life of a worker: from the moment it holds a lease to its stop, or to the loss of the lease. See engine.ts.
 *
 * It keeps the slots it owns and loads their payments; dispatcher.ts drives the payments.
 *
 * enters: a lease, and every `round` of the engine.  leaves: payments in the dispatcher's hands.
 * holds:  a payment is driven here while this worker owns its slot; the database checks that at every write (store/payments.ts), so
 *         a stale belief of this worker has no effect. Payments are loaded page by page, concurrently with the lease and the
 *         rounds, which do not wait for it. No payment is left behind: the ids in our slots are read in turn, and a slot with one
 *         that is not in memory is read again (PL9).
 */
import type { FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import { pausedPayments } from '../store/pause.ts';
import { ARRIVALS, type NewPlace, type PaymentRow } from '../store/payments.ts';
import { Dispatcher } from './dispatcher.ts';
import { keptMs } from './lease.ts';
import type { DatabaseTime } from './ownership.ts';
import type { EngineMetrics } from './metrics.ts';
import type { EngineOptions, EngineTimes } from './options.ts';
import type { Outage } from './outage.ts';
import {
  ARRIVALS_KEEPER,
  giveAllSlots,
  giveSlots,
  idsInSlots,
  PAGE,
  pageOfSlot,
  placeArrivals,
  planSlots,
  readSlots,
  takeSlots,
  type LoadedRow,
} from './slots.ts';

/** Loaded payments are spread over as long as their partner's budget needs for them, but over no more than this (PL9). */
const MAX_SPREAD_MS = 60_000;
/** Slots whose ids are read in one statement: with a million in flight 62,000, two megabytes. */
const IDS_AT_ONCE = 64;
/** Rounds in which every slot is looked through once: at the usual round every 2 s, within half a minute. */
const SWEEP_ROUNDS = 16;
/** Slots read concurrently: one is parsed while the next is in transit. */
const LOADERS = 3;
/** How long the release of a slot waits for calls in flight to be recorded. */
const LEAVE_MS = 2_000;

/** One life of a worker. */
export class Worker {
  readonly workerId: string;
  readonly #options: EngineOptions;
  readonly #times: EngineTimes;
  readonly dispatcher: Dispatcher;
  readonly #slots = new Set<number>();
  /** Slots that may have payments that are not in memory. */
  readonly #unread = new Set<number>();
  readonly #outage: Outage;
  #ended = false;
  /** When the request that last proved the lease was sent. */
  #provenAt: number;
  #loading: Promise<void> | undefined;
  #sweptTo = 0;
  #nextNew = 0;
  #newSlots: readonly number[] = [];

  constructor(
    options: EngineOptions,
    times: EngineTimes,
    metrics: EngineMetrics,
    workerId: string,
    provenAt: number,
    time: DatabaseTime,
    outage: Outage,
    changed: (platform_payment_id: string) => void,
  ) {
    this.workerId = workerId;
    this.#outage = outage;
    this.#options = options;
    this.#times = times;
    this.#provenAt = provenAt;
    this.dispatcher = new Dispatcher(
      options,
      times,
      metrics,
      {
        workerId,
        databaseNow: () => time.now(),
        holds: () => !this.#leaseRanOut,
        owns: (slot) => this.#slots.has(slot),
      },
      outage,
      changed,
    );
  }

  /** Slots owned now. */
  get slots(): number {
    return this.#slots.size;
  }

  get #leaseRanOut(): boolean {
    return this.#options.clock.monotonic() - this.#provenAt >= keptMs(this.#times);
  }

  /** The lease was proven by a request that left at this time; see lease.ts. */
  proven(at: number): void {
    this.#provenAt = Math.max(this.#provenAt, at);
  }

  /** Where a payment that this process creates begins: in its own slots by turns, so that this worker drives it. */
  placeForNew(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    order: Pick<FundingOrder, 'funding_method'>,
  ): NewPlace {
    const waits = { slot: ARRIVALS, stage: 'created' } as const;
    this.#nextNew += 1;
    const slot = this.#newSlots[this.#nextNew % this.#newSlots.length];
    // There is none while this worker owns no slot.
    if (slot === undefined || this.#ended || this.#leaseRanOut) return waits;
    return { slot, stage: this.dispatcher.canSendNow(partner, order) ? 'dispatching' : 'created' };
  }

  /** Begins to drive a payment that was just committed, if its slot is still ours; otherwise its owner finds it. */
  add(row: PaymentRow): void {
    const isOver = row.settled_at !== null;
    if (!isOver && row.slot !== null && this.#slots.has(row.slot)) this.dispatcher.add(row);
  }

  // Slots ---------------------------------------------------------------------------------------------------------------

  /**
   * Checks the slots once: takes those it should own, releases those it should not, and starts reading new ones. True when it owns
   * as many as it should; otherwise the next check is due soon. Does not wait for the reading.
   */
  async round(): Promise<boolean> {
    if (this.#ended) return true;
    const { database } = this.#options;
    const view = await readSlots(database, this.workerId, this.#times.leaseMs);
    if (this.#ended) return true;
    this.#follow(view.owners);
    // Budgets are divided by the workers that live. A worker gives slots to another in the round in which it first sees it, so what the
    // other drives was counted before.
    const living = [...new Set([...view.living, this.workerId])].toSorted();
    this.dispatcher.share({ of: living.length, rank: living.indexOf(this.workerId) });
    const plan = planSlots(view, this.workerId);
    // If the answer is lost, the next check shows what was taken.
    const taken = await takeSlots(database, this.workerId, plan.take, view.owners);
    if (this.#ended) return true;
    this.#own(taken);
    await this.#give(plan.give);
    if (this.#slots.has(ARRIVALS_KEEPER)) await this.#placeArrivals();
    await this.#dropPaused();
    this.#sweep();
    this.#load();
    return this.#slots.size === plan.target;
  }

  /** Resolves when everything that was to be read has been. For tests. */
  async loaded(): Promise<void> {
    await this.#loading;
  }

  /** Follows the table: a slot is ours only if it names this worker. */
  #follow(owners: readonly (string | null)[]): void {
    const lost = [...this.#slots].filter((slot) => owners[slot] !== this.workerId);
    if (lost.length > 0) {
      this.#options.log.warn({ slots: lost.length }, 'slots were taken by another worker');
      this.#disown(lost);
      void this.dispatcher.leave(new Set(lost), 0);
    }
    this.#own(owners.flatMap((owner, slot) => (owner === this.workerId ? [slot] : [])));
  }

  #own(slots: readonly number[]): void {
    const fresh = slots.filter((slot) => !this.#slots.has(slot));
    if (fresh.length === 0) return;
    for (const slot of fresh) {
      this.#slots.add(slot);
      this.#unread.add(slot);
    }
    this.#newSlots = [...this.#slots];
    this.#options.log.info({ slots: fresh.length, of: this.#slots.size }, 'slots taken over');
  }

  #disown(slots: readonly number[]): void {
    for (const slot of slots) {
      this.#slots.delete(slot);
      this.#unread.delete(slot);
    }
    this.#newSlots = [...this.#slots];
  }

  /** Releases slots after the steps in flight in them have been recorded. */
  async #give(slots: readonly number[]): Promise<void> {
    if (slots.length === 0) return;
    this.#disown(slots);
    await this.dispatcher.leave(new Set(slots), LEAVE_MS);
    await giveSlots(this.#options.database, this.workerId, slots);
    this.#options.log.info({ slots: slots.length, of: this.#slots.size }, 'slots returned');
  }

  async #placeArrivals(): Promise<void> {
    for (;;) {
      let rows: Awaited<ReturnType<typeof placeArrivals>>;
      try {
        rows = await placeArrivals(this.#options.database, this.workerId, this.#newSlots);
      } catch (error) {
        // They may have been placed nevertheless.
        for (const slot of this.#slots) this.#unread.add(slot);
        throw error;
      }
      if (this.#ended) return;
      await this.#learnBudgets(rows);
      // The state in memory is out of date for a row that an operator has changed.
      for (const row of rows) this.dispatcher.replace(row, this.#spreadMs(row, rows.length));
      if (rows.length < PAGE) return;
    }
  }

  /** Stops driving what an operator paused: it is in no slot of ours any more. */
  async #dropPaused(): Promise<void> {
    if (this.dispatcher.payments.size === 0) return;
    for (const id of await pausedPayments(this.#options.database)) this.dispatcher.dropById(id);
  }

  /** Checks some slots in turn, so that every payment is found eventually, whatever went wrong. */
  #sweep(): void {
    const slots = this.#newSlots;
    const some = Math.ceil(slots.length / SWEEP_ROUNDS);
    const to = this.#sweptTo + some;
    for (const slot of slots.slice(this.#sweptTo, to)) this.#unread.add(slot);
    this.#sweptTo = to >= slots.length ? 0 : to;
  }

  // Loading -------------------------------------------------------------------------------------------------------------

  /** Reads the unread slots in the background; a failed read is retried at the next round. */
  #load(): void {
    this.#loading ??= this.#loadUnread()
      .catch((error: unknown) =>
        this.#outage.met(this.dispatcher.signal, error, 'reading payments failed; retrying'),
      )
      .finally(() => {
        this.#loading = undefined;
      });
  }

  async #loadUnread(): Promise<void> {
    const { database, clock, log } = this.#options;
    const startedAt = clock.monotonic();
    let loaded = 0;
    while (this.#unread.size > 0 && !this.#ended) {
      const some = [...this.#unread].slice(0, IDS_AT_ONCE);
      const ids = await idsInSlots(database, some);
      // Not by their number: one that was lost and one that was withdrawn would make it even.
      const more = new Map(
        [...ids].filter(([, inSlot]) => inSlot.some((id) => !this.dispatcher.payments.has(id))),
      );
      for (const slot of some) if (!more.has(slot)) this.#unread.delete(slot);
      const next = more.entries();
      const loader = async (): Promise<void> => {
        for (const [slot, { length }] of next) {
          const fresh = await this.#loadSlot(slot, length);
          loaded += fresh;
          this.#unread.delete(slot);
        }
      };
      await Promise.all(Array.from({ length: LOADERS }, loader));
    }
    if (loaded > 0) {
      const ms = Math.round(clock.monotonic() - startedAt);
      log.info({ payments: loaded, ms }, 'payments taken over');
    }
  }

  /** Reads one slot page by page. Returns how many payments were new. */
  async #loadSlot(slot: number, count: number): Promise<number> {
    let cursor = '';
    let fresh = 0;
    for (;;) {
      const meanwhile = this.dispatcher.payments.watchForgotten();
      try {
        const rows = await pageOfSlot(this.#options.database, slot, cursor);
        await this.#learnBudgets(rows);
        if (this.#ended || !this.#slots.has(slot)) return fresh;
        for (const row of rows) {
          // A payment that ended since the page was read is not driven again (PL8).
          if (meanwhile.has(row.platform_payment_id)) continue;
          if (this.dispatcher.add(row, this.#spreadMs(row, count))) fresh += 1;
        }
        const last = rows.at(-1);
        if (last === undefined || rows.length < PAGE) return fresh;
        cursor = last.platform_payment_id;
      } finally {
        this.dispatcher.payments.unwatchForgotten(meanwhile);
      }
    }
  }

  async #learnBudgets(rows: readonly LoadedRow[]): Promise<void> {
    for (const partner_id of new Set(rows.map((row) => row.partner_id))) {
      const partner = await this.#options.registry.get(partner_id);
      if (partner !== undefined) this.dispatcher.partnerOf(partner_id).applyBudget(partner.budget);
    }
  }

  /** A few payments are due at once; many are spread over the time that the partner's budget needs for them. */
  #spreadMs(row: LoadedRow, count: number): number {
    const rate = this.dispatcher.partnerOf(row.partner_id).callsPerSecond;
    return (
      this.#options.clock.random() *
      Math.min(MAX_SPREAD_MS, ((count + this.dispatcher.payments.size) / rate) * 1_000)
    );
  }

  // The end -------------------------------------------------------------------------------------------------------------

  /** Stops at once: sends nothing more, and aborts what is in flight. */
  drop(): void {
    this.#ended = true;
    this.#slots.clear();
    this.dispatcher.drop();
  }

  /** Stops gracefully: starts nothing, lets steps in flight be recorded, and aborts those that take longer than `ms`. */
  async finish(ms: number): Promise<void> {
    this.#ended = true;
    await this.dispatcher.finish(ms);
    this.drop();
  }

  /** Releases every slot after the end. The cost does not depend on the payments in flight. */
  async release(): Promise<void> {
    await giveAllSlots(this.#options.database, this.workerId);
  }
}
