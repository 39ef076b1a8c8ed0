/**
 * Takes processing payments to their end: has the account system post them and records the result (ST2, ST3, RU3).
 *
 * enters:  payments just accepted, from accept.ts in memory; payments left by a crash, an error or "later", from the table.
 * leaves:  terminal rows, told to the waiting reads (status.ts) after their commit.
 * holds:   a payment is posted at most once (KT2) and its status says so from the same commit (KT6); nothing stays processing
 *          because a process died (KT13); a payment that cannot be posted delays no other by more than two seconds (LV3).
 * next:    posting.ts says what is tried together and what alone; post-in-transaction.ts does it for a ledger in the kit's database,
 *          post-in-own-system.ts for one elsewhere. This file has payments in hand, retries, and the sweep of the table.
 *
 * Where posting and ending are one transaction, row locks decide which replica applies a payment: each replica applies what it
 * accepted at once, and `sweep` applies what has been processing for too long. If two replicas meet at one payment, the second
 * leaves it, and its sweep finds it again if it has not ended. Where a call to another system lies in between, claims decide (claims.ts).
 */
import assert from 'node:assert/strict';
import type { TerminalStatus } from '@duebridge/contract';
import { abortWith, messageOf, repeatedly } from '@duebridge/runtime';
import {
  describeAccountSystemError,
  type AccountSystem,
  type BillerRules,
} from './account-system.ts';
import { readRules } from './business-rules.ts';
import { endByHand, type ByHand, type EndedByHand } from './end-by-hand.ts';
import { openLease, type Lease } from './claims.ts';
import type { KitContext } from './metrics.ts';
import { InOwnSystem } from './post-in-own-system.ts';
import { inTransaction } from './post-in-transaction.ts';
import { Posting, type Tried, type Way } from './posting.ts';
import { findStanding, findUnfinished, type PaymentEnd, type PaymentRow } from './store.ts';
import { tracedPosting } from './traces.ts';

/** Maximum payments in hand; the sweep finds further ones in the table (memory stays bounded). */
const MAX_IN_HAND = 100_000;
/** Each biller may have so many in hand even beyond them, so that one whose system hangs keeps no other out. */
const ROOM_OF_BILLER = 1_000;
/** A payment that has been processing for this long was left behind. Payments in hand here are skipped whatever their age. */
const SWEEP_AGE_MS = 2_000;
/** Pause between two pages: with the age above, payments left by a crash end within seconds (KT13). */
const SWEEP_PAUSE_MS = 1_000;
/** Rows per page; the next page continues from there, so that a hundred thousand nightly payments hide no new one for longer than 20 s. */
const SWEEP_ROWS = 5_000;
/** After an error or a "later": first and longest pause. */
const retryMs = { first: 1_000, longest: 60_000 };
/** Pause after an outage, or while a lock or a call holds a payment. It does not grow, so that work resumes at once when it is over. */
const HOLD_OFF_MS = 500;
/** How late a sweep may be before the replica is not ready: longer than any single statement of a round may take. */
const SWEEP_LATE_MS = 15_000;
/** How often the metrics of unfinished payments are counted: a count of a million takes half a second. */
const STANDING_PAUSE_MS = 30_000;

/** Whether the applying end works, for readiness (LV2). Every field is true while it does. */
export interface KitHealth {
  /** The sweep for payments left behind runs on time. */
  readonly sweep: boolean;
  /** The lease of this replica is renewed; true where posting needs none. */
  readonly lease: boolean;
}

/** How payments are applied. */
export interface ApplierOptions extends KitContext {
  readonly accounts: AccountSystem;
  /** Undefined: every biller that has accounts. Otherwise a payment for another biller fails. */
  readonly billers: readonly BillerRules[] | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds (ST4). */
  readonly holdMs: number;
  /** Called with the new rows after their commit. */
  readonly announce: (ended: readonly PaymentRow[]) => void;
}

/** The applying end of the kit; nothing runs before `start` or `take`. */
export class Applier {
  readonly #on: ApplierOptions;
  readonly #lease: Lease;
  readonly #posting: Posting;
  readonly #inHand = new Set<string>();
  /** How many of them each biller has. */
  readonly #ofBiller = new Map<string, number>();
  readonly #retries = new Map<string, { notBefore: number; pauseMs: number; failed: boolean }>();
  readonly #stopped = new AbortController();
  #sweeping: Promise<unknown> = Promise.resolve();
  #place = '';
  #isOut = false;
  /** The deadline of the current sweep, or of the next one. */
  #sweepDueAt = Infinity;

  constructor(options: ApplierOptions) {
    const { accounts } = options;
    this.#on = options;
    this.#lease = openLease(options);
    options.metrics.watch('apply_queue', () => this.#inHand.size);
    const announce = (ended: readonly PaymentRow[]): void => this.#announce(ended);
    const shared = { ...options, rules: readRules(options.billers), announce };
    let way: Way;
    if (accounts.posts === 'in_own_system') {
      way = new InOwnSystem({ ...shared, accounts, lease: this.#lease });
    } else {
      // From a program without a compiler.
      assert.equal(accounts.posts, 'in_transaction', 'posts is in_transaction or in_own_system');
      way = inTransaction({ ...shared, accounts });
    }
    this.#posting = new Posting(way, options);
  }

  /** Takes payments that were just committed. Never waits and never throws: the table holds them. */
  take(payments: readonly PaymentRow[]): void {
    // With a cancel window, the sweep applies them when it has passed.
    if (this.#on.holdMs > 0 || this.#stopped.signal.aborted) return;
    for (const payment of payments) void this.#apply(payment, false);
  }

  /** Sweeps the table once for payments left behind. Resolves when those it found have been tried; returns how many. */
  async sweep(ageMs = SWEEP_AGE_MS): Promise<number> {
    const tries = await this.#tryPage(ageMs);
    await Promise.all(tries);
    return tries.length;
  }

  /** Ends a payment that an operator cancels (ST4), or whose end the biller's own system reports. */
  async end(end: PaymentEnd, by: ByHand): Promise<EndedByHand> {
    const done = await endByHand(this.#on, end, by);
    if (done.outcome === 'ended') this.#announce([done.payment]);
    return done;
  }

  /** Whether it works. */
  get health(): KitHealth {
    const sweep = this.#on.clock.monotonic() <= this.#sweepDueAt;
    return { sweep, lease: this.#lease.isRenewed() };
  }

  /** Starts sweeping: everything once at the start, then at intervals. */
  start(): void {
    this.#sweepDueAt = this.#on.clock.monotonic() + SWEEP_LATE_MS;
    // Only a replica that keeps its lease notices that others are dead.
    if (this.#on.accounts.posts === 'in_own_system')
      void this.#lease.hold().then(undefined, (error: unknown) => this.#noteOutage(error));
    this.#sweeping = Promise.all([this.#sweepForEver(), this.#countForEver()]);
  }

  /** Stops sweeping. Resolves when the payments in hand have been tried, or after a few seconds if something hangs. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#sweeping;
    await this.#posting.stop();
    await this.#lease.stop();
  }

  #announce(ended: readonly PaymentRow[]): void {
    if (ended.length === 0) return;
    this.#on.announce(ended);
    for (const { status, initiated_at, posted_at } of ended) {
      this.#on.metrics.ended(status as TerminalStatus, 1);
      if (posted_at === null) continue;
      const seconds = (Date.parse(posted_at) - Date.parse(initiated_at)) / 1000;
      this.#on.metrics.observePosting(seconds);
    }
  }

  #remember(id: string, tried: Tried): void {
    const before = this.#retries.get(id);
    const grows = tried.result === 'failed' || (tried.result === 'later' && tried.until === null);
    const doubled = Math.max(retryMs.first, 2 * (before?.pauseMs ?? 0));
    const pauseMs = grows ? Math.min(retryMs.longest, doubled) : HOLD_OFF_MS;
    const failed =
      tried.result === 'failed' ||
      (before?.failed === true && (tried.result === 'busy' || tried.result === 'locked'));
    this.#retries.delete(id);
    this.#retries.set(id, { notBefore: this.#on.clock.monotonic() + pauseMs, pauseMs, failed });
    if (this.#retries.size > MAX_IN_HAND)
      this.#retries.delete(this.#retries.keys().next().value ?? id);
  }

  /** Log an outage when it begins and when it ends, not for each payment. */
  #noteOutage(error: unknown): void {
    if (!this.#isOut)
      this.#on.log.warn({ error: messageOf(error) }, 'payments cannot be applied; retrying');
    this.#isOut = true;
  }

  #noteWorking(): void {
    if (this.#isOut) this.#on.log.info({}, 'posting of payments resumed');
    this.#isOut = false;
  }

  async #apply(payment: PaymentRow, isClaimed: boolean): Promise<void> {
    const { platform_payment_id: id, biller_id } = payment;
    const own = this.#ofBiller.get(biller_id) ?? 0;
    const isFull = this.#inHand.size >= MAX_IN_HAND && own >= ROOM_OF_BILLER;
    if (isFull || this.#inHand.has(id)) return;
    this.#inHand.add(id);
    this.#ofBiller.set(biller_id, own + 1);
    const isFirst = this.#retries.get(id)?.failed !== true;
    const tried = await tracedPosting(id, () => this.#posting.post(payment, !isFirst || isClaimed));
    this.#inHand.delete(id);
    const left = (this.#ofBiller.get(biller_id) ?? 1) - 1;
    if (left > 0) this.#ofBiller.set(biller_id, left);
    else this.#ofBiller.delete(biller_id);
    if (tried.result === 'done') this.#retries.delete(id);
    else this.#remember(id, tried);
    if (tried.result === 'outage') this.#noteOutage(tried.error);
    else this.#noteWorking();
    if (tried.result === 'failed') {
      // The payment correctly stays processing, and the sweep retries it.
      const line = { platform_payment_id: id, error: describeAccountSystemError(tried.error) };
      if (isFirst) this.#on.log.error(line, 'not applied; will be retried');
      else this.#on.log.warn(line, 'still not applied');
    }
  }

  /** Begins to try one page of the table: what is due and not in hand. */
  async #tryPage(ageMs: number): Promise<Promise<void>[]> {
    const found = await findUnfinished(this.#on.database, {
      ageMs: Math.max(ageMs, this.#on.holdMs),
      replica_id: this.#lease.replica_id,
      after: this.#place,
      limit: SWEEP_ROWS,
    });
    const last = found.at(-1);
    this.#place = found.length < SWEEP_ROWS || last === undefined ? '' : last.platform_payment_id;
    const now = this.#on.clock.monotonic();
    const due = found.filter(({ platform_payment_id: id }) => {
      return !this.#inHand.has(id) && (this.#retries.get(id)?.notBefore ?? 0) <= now;
    });
    return due.map(({ is_claimed, ...one }) => this.#apply(one, is_claimed));
  }

  async #sweepForEver(): Promise<void> {
    // The first sweep takes every payment that was processing when this replica last stopped.
    let ageMs = 0;
    while (!this.#stopped.signal.aborted) {
      try {
        const tried = Promise.all(await this.#tryPage(ageMs));
        // Wait no longer: a payment that hangs must not stop the sweep.
        const over = new AbortController();
        const unlink = abortWith(over, this.#stopped.signal);
        const pause = this.#on.clock.sleep(SWEEP_PAUSE_MS, over.signal);
        await Promise.race([tried, pause]).finally(unlink);
        over.abort();
        this.#noteWorking();
        this.#sweepDueAt = this.#on.clock.monotonic() + SWEEP_LATE_MS;
        if (this.#place === '') ageMs = SWEEP_AGE_MS;
      } catch (error) {
        this.#noteOutage(error);
      }
      // An outage does not move the time: the sweep is late from the first round that failed.
      if (!this.#isOut)
        this.#sweepDueAt = this.#on.clock.monotonic() + SWEEP_PAUSE_MS + SWEEP_LATE_MS;
      await this.#on.clock.sleep(SWEEP_PAUSE_MS, this.#stopped.signal);
    }
  }

  #countForEver(): Promise<void> {
    const on = { ...this.#on, signal: this.#stopped.signal };
    return repeatedly(on, STANDING_PAUSE_MS, 'unfinished payments were not counted', async () => {
      on.metrics.standing(await findStanding(on.database));
    });
  }
}
