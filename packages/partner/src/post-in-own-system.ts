/**
 * Posts payments to the biller's own system, by calls outside any transaction.
 *
 * enters:  payments from apply.ts, one by one.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   an id is in at most one call at a time, at this replica and all living ones; while its outcome is unknown it is posted
 *          only after a look-up that does not know it, and never canceled (claimed-payments.ts). An answer counts however late it
 *          comes; calls that hang leave places to others (call-places.ts).
 *
 * A crash between claim and call, or between call and end, leaves a claimed payment. When the lease has run out another replica takes
 * it over, asks `lookup` where there is one, and posts the same id again where nobody knows it; PF2 makes that one posting.
 *
 * A call beyond its deadline gives its place to others and goes on; its payments stay with it until it returns, or throws after its
 * signal aborted. Only the life of this process bounds a call that does neither; `settle` ends its payments.
 */
import assert from 'node:assert/strict';
import { DatabaseUnavailable, type Clock, type Database, type Log } from '@duebridge/runtime';
import { checkedOutcome, checkedOutcomes, type AccountsInOwnSystem } from './account-system.ts';
import type { Rules } from './business-rules.ts';
import { CallPlaces, FairQueue, type OpenCall } from './call-places.ts';
import type { CancelOutcome, ClaimedOutcome } from './cancel.ts';
import { ClaimedPayments } from './claimed-payments.ts';
import type { Lease } from './claims.ts';
import type { KitMetrics } from './metrics.ts';
import {
  describeAccountSystemError,
  toPosting,
  within,
  type Poster,
  type Tried,
} from './poster.ts';
import type { PaymentRow, UnfinishedPayment } from './store.ts';

const defaults = { batch: 1, concurrency: 8, deadlineMs: 10_000 };
/** Deadline of a look-up in milliseconds. */
const LOOKUP_MS = 5_000;
/** How long a stop waits for calls, in milliseconds; then their signals abort, and it waits once more, for a quarter of that. */
const STOP_MS = 4_000;

/** The poster, and its additional operations on claimed payments. */
export interface OwnSystemPoster extends Poster {
  /** Cancels a payment that a replica has claimed, unless a call holds it or its last answer was a `later` that forbids it. */
  cancelClaimed(claimed: ClaimedOutcome, actor: string, reason: string): Promise<CancelOutcome>;
  /** Whether a call to the account system is open; payments in hand may then be waiting for its answer. */
  isCalling(): boolean;
  /** Answers the cancels that other replicas asked for; returns the rows of those canceled. */
  answerCancels(): Promise<PaymentRow[]>;
  /** Forgets payments that ended elsewhere (`settle`, at any replica), or that another replica has claimed since. */
  forgetEnded(): Promise<void>;
}

interface Item {
  readonly payment: UnfinishedPayment;
  readonly resolve: (tried: Tried) => void;
}

/** A call, and what ends it: its signal, and the timers beside it. */
interface Call extends OpenCall {
  isLate: boolean;
  readonly payments: readonly PaymentRow[];
  readonly isRepeat: boolean;
  readonly aborting: AbortController;
  readonly returned: AbortController;
}

/** What the poster needs. */
export interface OwnSystemOptions {
  readonly database: Database;
  readonly accounts: AccountsInOwnSystem;
  readonly rules: Rules;
  readonly lease: Lease;
  readonly announce: (ended: readonly PaymentRow[]) => void;
  readonly metrics: KitMetrics;
  readonly log: Log;
  readonly clock: Clock;
}

/** Creates the poster. */
export function openOwnSystemPoster(options: OwnSystemOptions): OwnSystemPoster {
  return new OwnSystem(options);
}

class OwnSystem implements OwnSystemPoster {
  readonly #on: OwnSystemOptions;
  readonly #batch: number;
  readonly #concurrency: number;
  readonly #deadlineMs: number;
  readonly #giveUpMs: number;
  readonly #claimed: ClaimedPayments;
  /** First attempts, in batches; and payments that failed before, or whose outcome is unknown, one in each call. */
  readonly #firsts = new FairQueue<Item>();
  readonly #again = new FairQueue<Item>();
  readonly #calls = new Set<Call>();
  readonly #places: CallPlaces;
  #isScheduled = false;
  #isStopping = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: OwnSystemOptions) {
    const { accounts, metrics } = options;
    this.#on = options;
    const { batch, concurrency, deadlineMs } = { ...defaults, ...accounts.calls };
    assert(batch >= 1 && concurrency >= 1 && deadlineMs > 0, 'calls needs numbers of at least one');
    this.#batch = batch;
    this.#concurrency = concurrency;
    this.#deadlineMs = deadlineMs;
    this.#giveUpMs = accounts.calls?.giveUpMs ?? deadlineMs * 6;
    this.#places = new CallPlaces(concurrency, this.#calls);
    this.#claimed = new ClaimedPayments(options);
    metrics.watch('calls_open', () => this.#claimed.count('asked'));
    metrics.watch('calls_late', () => [...this.#calls].filter(({ isLate }) => isLate).length);
    metrics.watch('calls_undecided', () => this.#claimed.count('unknown', 'resting'));
  }

  post(payment: UnfinishedPayment, isRepeat: boolean): Promise<Tried> {
    const id = payment.platform_payment_id;
    if (this.#claimed.isInUse(id) || this.#isStopping) return Promise.resolve({ result: 'busy' });
    this.#places.note(payment);
    return new Promise<Tried>((resolve) => {
      const isAlone = isRepeat || this.#claimed.isUnknown(id);
      (isAlone ? this.#again : this.#firsts).push({ payment, resolve });
      this.#schedule();
    });
  }

  isCalling(): boolean {
    return this.#claimed.count('asked') > 0;
  }

  cancelClaimed(claimed: ClaimedOutcome, actor: string, reason: string): Promise<CancelOutcome> {
    return this.#claimed.cancel(claimed, actor, reason);
  }

  answerCancels(): Promise<PaymentRow[]> {
    return this.#claimed.answerCancels();
  }

  forgetEnded(): Promise<void> {
    return this.#claimed.forgetEnded();
  }

  async stop(): Promise<void> {
    const { clock, lease } = this.#on;
    const idle = new Promise<void>((resolve) => {
      this.#whenIdle.push(resolve);
      this.#schedule();
    });
    const atMost = (ms: number, work: Promise<void>): Promise<void> =>
      within(clock, ms, 'the stop', work).catch(() => undefined);
    await atMost(STOP_MS, idle);
    this.#isStopping = true;
    this.#schedule();
    for (const { aborting } of this.#calls) aborting.abort();
    await atMost(STOP_MS / 4, idle);
    for (const { returned } of this.#calls) returned.abort();
    await atMost(STOP_MS / 4, this.#claimed.forgetEnded());
    // Other replicas must not touch what a call may still be doing before the lease has expired.
    await lease.stop(this.#claimed.count('asked', 'unknown') === 0);
  }

  /** In the next turn of the event loop: payments accepted in this turn join the same call. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#start();
    });
  }

  #start(): void {
    while (!this.#isStopping && this.#places.free() > 0) {
      const [items, isRepeat] = this.#next();
      if (items.length === 0) break;
      const payments = items.map(({ payment }) => payment);
      const call: Call = {
        payments,
        isRepeat,
        isLate: false,
        aborting: new AbortController(),
        returned: new AbortController(),
      };
      this.#calls.add(call);
      void this.#work(call, items)
        .catch((error: unknown) => {
          for (const { resolve } of items) resolve(triedBy(error));
        })
        .finally(() => {
          this.#calls.delete(call);
          this.#schedule();
        });
    }
    if (this.#isStopping) {
      const waiting = [...this.#firsts.takeAll(), ...this.#again.takeAll()];
      for (const { resolve } of waiting) resolve({ result: 'busy' });
    }
    if (this.#calls.size === 0 && this.#firsts.size === 0 && this.#again.size === 0) {
      for (const done of this.#whenIdle.splice(0)) done();
    }
  }

  /** The next payments to call for: those that go alone in half of the places, the others in batches. */
  #next(): [Item[], boolean] {
    const repeats = [...this.#calls].filter((call) => call.isRepeat && !call.isLate).length;
    const [repeat] =
      repeats < Math.max(1, Math.floor(this.#concurrency / 2))
        ? this.#again.take(1, this.#places)
        : [];
    if (repeat) return [[repeat], true];
    return [this.#firsts.take(this.#batch, this.#places), false];
  }

  /** Claims the payments, looks up unknown outcomes, and posts the rest in one call. Every item gets its result. */
  async #work(call: Call, items: readonly Item[]): Promise<void> {
    const ready = await Promise.all(
      items.map(async (item) => {
        try {
          const permit = await this.#permit(item.payment);
          if (typeof permit === 'function') return { item, permit };
          item.resolve(permit);
        } catch (error) {
          item.resolve(triedBy(error));
        }
        return undefined;
      }),
    );
    const mine: Item[] = [];
    for (const one of ready) {
      if (one === undefined) continue;
      if (!this.#isStopping && one.permit()) mine.push(one.item);
      else one.item.resolve({ result: 'busy' });
    }
    if (mine.length > 0) await this.#post(call, mine);
  }

  /** Returns what permits the call at the last moment, or what became of the payment without one. */
  async #permit(payment: UnfinishedPayment): Promise<Tried | (() => boolean)> {
    const id = payment.platform_payment_id;
    const claim = await this.#claimed.claim(payment);
    if (!('under' in claim)) return claim;
    const { under } = claim;
    if (!this.#on.accounts.lookup || !this.#claimed.isUnknown(id)) {
      return () => this.#claimed.mayCall(id, under, this.#on.accounts.lookup === undefined);
    }
    const known = await this.#lookUp(id);
    if (known !== undefined) return this.#claimed.record(id, checkedOutcome(known));
    return () => this.#claimed.mayCall(id, under, true);
  }

  async #lookUp(id: string): Promise<unknown> {
    const { accounts, metrics, clock } = this.#on;
    const began = clock.monotonic();
    const aborting = new AbortController();
    try {
      const asking = Promise.resolve().then(() => accounts.lookup?.(id, aborting.signal));
      const answer = await within(clock, LOOKUP_MS, 'the lookup in the account system', asking);
      metrics.observeCore('lookup', (clock.monotonic() - began) / 1000);
      return answer;
    } finally {
      aborting.abort();
    }
  }

  /** One call of the account system. Returns when it has returned and its answer is stored, or is not known. */
  async #post(call: Call, items: readonly Item[]): Promise<void> {
    const { accounts, clock, metrics, log } = this.#on;
    const payments = items.map(({ payment }) => payment);
    const began = clock.monotonic();
    void this.#after(this.#deadlineMs, call, () => {
      call.isLate = true;
      for (const { resolve } of items) resolve({ result: 'busy' });
      this.#schedule();
    });
    void this.#after(this.#giveUpMs, call, () => call.aborting.abort());
    let error: unknown;
    try {
      const answer = await accounts.post(payments.map(toPosting), call.aborting.signal);
      metrics.observeCore('post', (clock.monotonic() - began) / 1000);
      const outcomes = checkedOutcomes(answer, items.length);
      const stored = await Promise.allSettled(
        items.map(async ({ payment, resolve }, index) => {
          const outcome = outcomes[index];
          assert(outcome);
          resolve(await this.#claimed.record(payment.platform_payment_id, outcome));
        }),
      );
      const failed = items.filter((_, index) => stored[index]?.status === 'rejected');
      if (failed.length === 0) return;
      error = stored.find((one) => one.status === 'rejected')?.reason;
      this.#lose(call, failed, error);
    } catch (thrown) {
      error = thrown;
      this.#lose(call, items, error);
    } finally {
      call.returned.abort();
    }
    metrics.postErrors.inc();
    if (call.isLate) {
      const line = { payments: items.length, error: describeAccountSystemError(error) };
      log.warn(line, 'a late call failed');
    }
  }

  /** The outcome of these is unknown. Several are tried alone at once: one of them may be the cause. */
  #lose(call: Call, items: readonly Item[], error: unknown): void {
    for (const item of items) {
      this.#claimed.lose(item.payment.platform_payment_id);
      if (call.isLate || call.payments.length === 1) item.resolve({ result: 'failed', error });
      else this.#again.push(item);
    }
  }

  /** Does something after `ms`, unless the call has returned. */
  async #after(ms: number, { returned }: Call, work: () => void): Promise<void> {
    await this.#on.clock.sleep(ms, returned.signal);
    if (!returned.signal.aborted) work();
  }
}

/** The result of a try that ended before the call: when the kit's own database is away, that says nothing about the payment. */
function triedBy(error: unknown): Tried {
  return { result: error instanceof DatabaseUnavailable ? 'outage' : 'failed', error };
}
