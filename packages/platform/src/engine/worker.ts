/**
 * One life of a worker: from the moment it holds a lease to its stop, or to the loss of the lease. See engine.ts.
 *
 * It keeps the slots it owns and loads their payments; dispatcher.ts drives the payments.
 *
 * enters: a lease.  leaves: payments in the dispatcher's hands.
 * holds:  a payment is driven here while this worker owns its slot; the database checks that at every write (store/steps.ts), so
 *         a stale belief of this worker has no effect. Payments are loaded page by page, concurrently with the lease and the
 *         rounds, which do not wait for it. No payment is left behind: the ids in our slots are read in turn, and those that are
 *         not in memory are loaded (PL9).
 */
import type { FundingOrder } from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import { pausedPayments } from '../store/operators-acts.ts';
import { findPayments, type NewPlace, type PaymentRow } from '../store/payments.ts';
import { Dispatcher } from './dispatcher.ts';
import { keptMs } from './lease.ts';
import type { WorkerGround } from './options.ts';
import {
  ARRIVALS_KEEPER,
  giveSlots,
  idsInSlots,
  PAGE,
  placeArrivals,
  planSlots,
  readSlots,
  takeSlots,
} from './slots.ts';

/** Loaded payments are spread over as long as their partner's budget needs for them, but over no more than this (PL9). */
const MAX_SPREAD_MS = 60_000;
/** Slots whose ids are read in one statement: with a million in flight 62,000, two megabytes. */
const IDS_AT_ONCE = 64;
/** Rounds in which every slot is looked through once: at the usual round every 2 s, within half a minute. */
const SWEEP_ROUNDS = 16;
/** Pages read concurrently: one is parsed while the next is in transit. */
const LOADERS = 3;
/** How long the release of a slot waits for calls in flight to be recorded. */
const LEAVE_MS = 2_000;

/** One life of a worker. */
export class Worker {
  readonly workerId: string;
  readonly dispatcher: Dispatcher;
  readonly #on: WorkerGround;
  readonly #slots = new Set<number>();
  /** Slots that may have payments that are not in memory. */
  readonly #unread = new Set<number>();
  /** Aborted at the end. */
  readonly #end = new AbortController();
  readonly #looked = Promise.withResolvers<void>();
  readonly #rounds: Promise<void>;
  /** When the request that last proved the lease was sent. */
  #provenAt: number;
  #isLoading = false;
  #sweptTo = 0;
  #nextNew = 0;
  #newSlots: readonly number[] = [];

  constructor(ground: Omit<WorkerGround, 'holdsLease' | 'owns'>, provenAt: number) {
    const { clock, times } = ground;
    this.workerId = ground.workerId;
    this.#provenAt = provenAt;
    this.#on = {
      ...ground,
      holdsLease: () => clock.monotonic() - this.#provenAt < keptMs(times),
      owns: (slot) => this.#slots.has(slot),
    };
    this.dispatcher = new Dispatcher(this.#on);
    this.#rounds = this.#keepRounds();
  }

  /** Resolves after the first look at the slots, though it failed. */
  get looked(): Promise<void> {
    return this.#looked.promise;
  }

  get #ended(): boolean {
    return this.#end.signal.aborted;
  }

  /** Slots owned now. */
  get slots(): number {
    return this.#slots.size;
  }

  /** The lease was proven by a request that left at this time; see lease.ts. */
  proven(at: number): void {
    this.#provenAt = Math.max(this.#provenAt, at);
  }

  /** Where a payment that this process creates begins: in its own slots by turns, so that this worker drives it. Undefined while it has none. */
  placeForNew(
    partner: Pick<Partner, 'partner_id' | 'paused'>,
    order: Pick<FundingOrder, 'funding_method'>,
  ): NewPlace | undefined {
    this.#nextNew += 1;
    const slot = this.#newSlots[this.#nextNew % this.#newSlots.length];
    if (slot === undefined || this.#ended || !this.#on.holdsLease()) return undefined;
    return { slot, stage: this.dispatcher.canSendNow(partner, order) ? 'dispatching' : 'created' };
  }

  /**
   * Begins to drive a payment, `delayMs` from now, if its slot is ours; otherwise its owner finds it. Returns whether it is new here.
   */
  add(row: PaymentRow, delayMs = 0): boolean {
    if (row.settled_at !== null || row.slot === null || !this.#slots.has(row.slot)) return false;
    return this.dispatcher.add(row, delayMs);
  }

  /** Reads this slot at the next round, if it is ours. */
  lookAgain(slot: number | null): void {
    if (slot !== null && this.#slots.has(slot)) this.#unread.add(slot);
  }

  // Slots ---------------------------------------------------------------------------------------------------------------

  /** Looks at the slots until the end, and more often while this worker owns fewer than it should; a failed look is made again. */
  async #keepRounds(): Promise<void> {
    const { clock, outage, times } = this.#on;
    for (let isSettled = false; !this.#ended;) {
      try {
        isSettled = await this.#round().finally(this.#looked.resolve);
      } catch (error) {
        await outage.met(error, 'the look at the slots failed; retrying');
      }
      const pauseMs = isSettled ? times.beatMs : times.beatMs / 4;
      await clock.sleep(pauseMs * (0.9 + clock.random() * 0.2), this.#end.signal);
    }
  }

  /**
   * Checks the slots once: takes those it should own, releases those it should not, and starts reading new ones. True when it owns
   * as many as it should; otherwise the next check is due soon. Does not wait for the reading.
   */
  async #round(): Promise<boolean> {
    const { database, times } = this.#on;
    const view = await readSlots(database, this.workerId, times.leaseMs);
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

  /** Follows the table: a slot is ours only if it names this worker. */
  #follow(owners: readonly (string | null)[]): void {
    const lost = [...this.#slots].filter((slot) => owners[slot] !== this.workerId);
    if (lost.length > 0) {
      this.#on.log.warn({ slots: lost.length }, 'slots were taken by another worker');
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
    this.#on.log.info({ slots: fresh.length, of: this.#slots.size }, 'slots taken over');
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
    await giveSlots(this.#on.database, this.workerId, slots);
    this.#on.log.info({ slots: slots.length, of: this.#slots.size }, 'slots returned');
  }

  async #placeArrivals(): Promise<void> {
    for (;;) {
      let rows: PaymentRow[];
      try {
        rows = await placeArrivals(this.#on.database, this.workerId, this.#newSlots);
      } catch (error) {
        // They may have been placed nevertheless.
        for (const slot of this.#slots) this.#unread.add(slot);
        throw error;
      }
      // The state in memory is out of date for a row that an operator has changed.
      for (const row of rows) this.dispatcher.dropById(row.platform_payment_id);
      await this.#drive(rows, rows.length);
      if (rows.length < PAGE || this.#ended) return;
    }
  }

  /** Stops driving what an operator paused: it is in no slot of ours any more. */
  async #dropPaused(): Promise<void> {
    if (this.dispatcher.size === 0) return;
    for (const id of await pausedPayments(this.#on.database)) this.dispatcher.dropById(id);
  }

  /** Checks some slots in turn, so that every payment is found eventually, whatever went wrong. */
  #sweep(): void {
    const slots = this.#newSlots;
    const to = this.#sweptTo + Math.ceil(slots.length / SWEEP_ROUNDS);
    for (const slot of slots.slice(this.#sweptTo, to)) this.#unread.add(slot);
    this.#sweptTo = to >= slots.length ? 0 : to;
  }

  // Loading -------------------------------------------------------------------------------------------------------------

  /** Reads the unread slots in the background; a failed read is retried at the next round. */
  #load(): void {
    if (this.#isLoading) return;
    this.#isLoading = true;
    void this.#loadUnread()
      .catch((error: unknown) => this.#on.outage.met(error, 'reading payments failed; retrying'))
      .finally(() => {
        this.#isLoading = false;
      });
  }

  async #loadUnread(): Promise<void> {
    const { database, clock, log } = this.#on;
    const startedAt = clock.monotonic();
    let loaded = 0;
    while (this.#unread.size > 0 && !this.#ended) {
      const slots = [...this.#unread].slice(0, IDS_AT_ONCE);
      for (const slot of slots) this.#unread.delete(slot);
      try {
        const ids = await idsInSlots(database, slots);
        const missing = ids.filter((id) => !this.dispatcher.has(id));
        const pages = pagesOf(missing);
        const loader = async (): Promise<void> => {
          for (const page of pages) {
            if (this.#ended) return;
            const fresh = await this.#loadPage(page, missing.length);
            // After the await: the loaders add to one count.
            loaded += fresh;
          }
        };
        await Promise.all(Array.from({ length: LOADERS }, loader));
      } catch (error) {
        for (const slot of slots) if (this.#slots.has(slot)) this.#unread.add(slot);
        throw error;
      }
    }
    if (loaded > 0) {
      const ms = Math.round(clock.monotonic() - startedAt);
      log.info({ payments: loaded, ms }, 'payments taken over');
    }
  }

  /** Loads a page of the payments of our slots. Returns how many were new. */
  async #loadPage(ids: readonly string[], count: number): Promise<number> {
    const forgotten = new Set<string>();
    const { readers } = this.dispatcher;
    readers.add(forgotten);
    try {
      const rows = await findPayments(this.#on.database, ids);
      // A payment that ended since the page was read is not driven again (PL8).
      return await this.#drive(rows, count, (row) => !forgotten.has(row.platform_payment_id));
    } finally {
      readers.delete(forgotten);
    }
  }

  /**
   * Drives those of these rows that are in our slots, spread over the time that their partners need for `count`. Returns how many are
   * new.
   */
  async #drive(
    rows: readonly PaymentRow[],
    count: number,
    mayDrive: (row: PaymentRow) => boolean = () => true,
  ): Promise<number> {
    for (const partner_id of new Set(rows.map((row) => row.partner_id))) {
      const partner = await this.#on.registry.get(partner_id);
      if (partner !== undefined) this.dispatcher.partnerOf(partner_id).applyBudget(partner.budget);
    }
    let fresh = 0;
    for (const row of rows) {
      if (mayDrive(row) && this.add(row, this.#spreadMs(row, count))) fresh += 1;
    }
    return fresh;
  }

  /** A few payments are due at once; many are spread over the time that the partner's budget needs for them. */
  #spreadMs({ partner_id }: PaymentRow, count: number): number {
    const rate = this.dispatcher.partnerOf(partner_id).callsPerSecond;
    const neededMs = ((count + this.dispatcher.size) / rate) * 1_000;
    return this.#on.clock.random() * Math.min(MAX_SPREAD_MS, neededMs);
  }

  // The end -------------------------------------------------------------------------------------------------------------

  /** Stops at once: sends nothing more, and aborts what is in flight. */
  drop(): void {
    this.#end.abort();
    this.#slots.clear();
    this.dispatcher.drop();
  }

  /** Stops gracefully: starts nothing, lets steps in flight be recorded, and aborts those that take longer than `ms`. */
  async finish(ms: number): Promise<void> {
    this.#end.abort();
    await Promise.all([this.#rounds, this.dispatcher.finish(ms)]);
    this.drop();
  }

  /** Releases every slot after the end. */
  release(): Promise<void> {
    return giveSlots(this.#on.database, this.workerId);
  }
}

function* pagesOf(ids: readonly string[]): Generator<readonly string[]> {
  for (let from = 0; from < ids.length; from += PAGE) yield ids.slice(from, from + PAGE);
}
