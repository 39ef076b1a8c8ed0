/**
 * Takes processing payments to their end: has the account system post them and records the result (ST2, ST3, RU3).
 *
 * enters:  payments just accepted, from accept.ts in memory; payments left by a crash, an error or "later", from the table.
 * leaves:  terminal rows, told to the waiting reads (status.ts) after their commit.
 * holds:   a payment is posted at most once (KT2) and its status says so from the same commit (KT6); nothing stays processing
 *          because a process died (KT13); a payment that cannot be posted delays no other by more than two seconds (LV3).
 * next:    post-in-transaction.ts for a ledger in the kit's database, post-in-own-system.ts for one elsewhere. This file has what
 *          they share: payments in hand, retries, and the sweep of the table.
 *
 * Where posting and ending are one transaction, row locks decide which replica applies a payment: each replica applies what it
 * accepted at once, and `sweep` applies what has been processing for too long. If two replicas meet at one payment, the second
 * waits a moment and finds it ended. Where a call to another system lies in between, claims decide (claims.ts).
 */
import { messageOf, type Clock, type Database, type Log } from '@duebridge/runtime';
import type { AccountSystem, BillerRules } from './account-system.ts';
import { readRules } from './business-rules.ts';
import { cancelPayment, type CancelOutcome } from './cancel.ts';
import { openLease } from './claims.ts';
import type { KitMetrics } from './metrics.ts';
import { openOwnSystemPoster, type OwnSystemPoster } from './post-in-own-system.ts';
import { openTransactionPoster } from './post-in-transaction.ts';
import { describeAccountSystemError, within, type Poster, type Tried } from './poster.ts';
import { findStanding, findUnfinished, type PaymentRow, type UnfinishedPayment } from './store.ts';
import type { KitTraces } from './traces.ts';

/** Maximum payments in hand; the sweep finds further ones in the table (memory stays bounded). */
const MAX_IN_HAND = 100_000;
/** A payment that has been processing for this long was left behind. Payments in hand here are skipped whatever their age. */
const SWEEP_AGE_MS = 2_000;
/** Pause between two sweeps: with the age above, payments left by a crash end within seconds (KT13). */
const SWEEP_PAUSE_MS = 1_000;
/** The pause is this many times as long as the sweep took: a hundred thousand nightly payments cost a tenth of a connection. */
const SWEEP_PAUSE_FACTOR = 10;
/** But no longer than this: a sweep that an outage held up for ten seconds says nothing about the next one. */
const SWEEP_PAUSE_MOST_MS = 10_000;
/** Rows per page; the next page continues from there, so that thousands of nightly payments hide no new one. */
const SWEEP_ROWS = 1_000;
/** After an error or a "later": first and longest pause. */
const retryMs = { first: 1_000, longest: 60_000 };
/** Pause after an outage, or while a lock or a call holds a payment. It does not grow, so that work resumes at once when it is over. */
const HOLD_OFF_MS = 500;
/** How late a sweep may be before the replica is not ready: longer than any single statement of a round may take. */
const SWEEP_LATE_MS = 15_000;
/** How long payments in hand may wait while not one is tried and no call is open, before the replica is not ready. */
const POSTING_STALL_MS = 60_000;
/** How often the metrics of unfinished payments are counted; the rest as a multiple of the time the count took, and its maximum. */
const standingPause = { ms: 10_000, factor: 100, mostMs: 120_000 };

/** Whether the applying end works, for readiness (LV2). Every field is true while it does. */
export interface KitHealth {
  /** The sweep for payments left behind runs on time. */
  readonly sweep: boolean;
  /** The lease of this replica is renewed; true where posting needs none. */
  readonly lease: boolean;
  /** Payments in hand are being tried. A biller's own system that does not answer is no fault of this replica. */
  readonly posting: boolean;
}

/** The applying end of the kit. */
export interface Applier {
  /** Whether it works. */
  readonly health: KitHealth;
  /** Takes payments that were just committed. Never waits and never throws: the table holds them. */
  take(payments: readonly PaymentRow[]): void;
  /** Sweeps the table once for payments left behind. Resolves when those it found have been tried; returns how many. */
  sweep(ageMs?: number): Promise<number>;
  /** Cancels a payment (ST4): immediately, or through the replica that has handed it to the biller's own system. */
  cancel(platform_payment_id: string, actor: string, reason: string): Promise<CancelOutcome>;
  /** Starts sweeping: everything once at the start, then at intervals. */
  start(): void;
  /** Stops sweeping. Resolves when the payments in hand have been tried, or after a few seconds if something hangs. */
  stop(): Promise<void>;
}

/** How payments are applied. */
export interface ApplierOptions {
  readonly database: Database;
  readonly accounts: AccountSystem;
  /** Undefined: every biller that has accounts. Otherwise a payment for another biller fails. */
  readonly billers: readonly BillerRules[] | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds (ST4). */
  readonly holdMs: number;
  /** Called with the new rows after their commit. */
  readonly announce: (ended: readonly PaymentRow[]) => void;
  readonly traces?: KitTraces | undefined;
  readonly metrics: KitMetrics;
  readonly log: Log;
  readonly clock: Clock;
}

/** Creates the applying end; nothing runs before `start` or `take`. */
export function openApplier(options: ApplierOptions): Applier {
  const { database, accounts, holdMs, metrics, log, clock } = options;
  const rules = readRules(options.billers);
  const lease = openLease({ database, log, clock });
  const inHand = new Set<string>();
  const retries = new Map<string, { notBefore: number; pauseMs: number; failed: boolean }>();
  const stopped = new AbortController();
  let sweeping: Promise<void> = Promise.resolve();
  let place = '';
  let lookMs = 0;
  let isOut = false;
  let idle: (() => void)[] = [];
  /** The deadline of the current sweep, or of the next one. */
  let sweepDueAt = Infinity;
  /** When a payment was last tried, or first taken into an empty hand. */
  let triedAt = 0;
  metrics.watch('apply_queue', () => inHand.size);

  const announce = (ended: readonly PaymentRow[]): void => {
    if (ended.length === 0) return;
    options.announce(ended);
    count(metrics, ended);
  };
  const own: OwnSystemPoster | undefined =
    accounts.posts === 'in_own_system'
      ? openOwnSystemPoster({ database, accounts, rules, lease, announce, metrics, log, clock })
      : undefined;
  const poster: Poster =
    own ??
    (accounts.posts === 'in_transaction'
      ? openTransactionPoster({ database, accounts, rules, announce, metrics, clock })
      : unreachable());

  const remember = (id: string, tried: Tried): void => {
    const before = retries.get(id);
    const grows = tried.result === 'failed' || (tried.result === 'later' && tried.until === null);
    const pauseMs = !grows
      ? HOLD_OFF_MS
      : before === undefined
        ? retryMs.first
        : Math.min(retryMs.longest, Math.max(retryMs.first, before.pauseMs * 2));
    const failed =
      tried.result === 'failed' || (before?.failed === true && tried.result === 'busy');
    retries.delete(id);
    retries.set(id, { notBefore: clock.monotonic() + pauseMs, pauseMs, failed });
    if (retries.size > MAX_IN_HAND) retries.delete(retries.keys().next().value ?? id);
  };

  /** Log an outage when it begins and when it ends, not for each payment. */
  const noteOutage = (error: unknown): void => {
    if (!isOut) log.warn({ error: messageOf(error) }, 'payments cannot be applied; retrying');
    isOut = true;
  };
  const noteWorking = (): void => {
    if (isOut) log.info({}, 'posting of payments resumed');
    isOut = false;
  };

  const apply = async (payment: UnfinishedPayment): Promise<void> => {
    const id = payment.platform_payment_id;
    if (inHand.has(id)) return;
    if (inHand.size === 0) triedAt = clock.monotonic();
    inHand.add(id);
    const isFirst = retries.get(id)?.failed !== true;
    const span = options.traces?.posting(id);
    const tried = await poster.post(payment, !isFirst);
    span?.end(tried.result);
    inHand.delete(id);
    triedAt = clock.monotonic();
    if (tried.result === 'done') retries.delete(id);
    else remember(id, tried);
    if (tried.result === 'outage') noteOutage(tried.error);
    else noteWorking();
    if (tried.result === 'failed') {
      // The payment correctly stays processing, and the sweep retries it.
      const line = { platform_payment_id: id, error: describeAccountSystemError(tried.error) };
      if (isFirst) log.error(line, 'not applied; will be retried');
      else log.warn(line, 'still not applied');
    }
    if (inHand.size === 0) {
      const done = idle;
      idle = [];
      for (const resolve of done) resolve();
    }
  };

  /** One page of the table: what is due and not in hand. */
  const find = async (ageMs: number): Promise<UnfinishedPayment[]> => {
    const began = clock.monotonic();
    const found = await findUnfinished(database, {
      ageMs: Math.max(ageMs, holdMs),
      replica_id: lease.replica_id,
      after: place,
      limit: SWEEP_ROWS,
    });
    lookMs += clock.monotonic() - began;
    const last = found.at(-1);
    place = found.length < SWEEP_ROWS || last === undefined ? '' : last.platform_payment_id;
    const now = clock.monotonic();
    return found.filter(({ platform_payment_id: id, is_ahead }) => {
      // Of unknown age: it can be canceled for as long as any other, counted from now.
      if (is_ahead && holdMs > 0 && !retries.has(id)) {
        retries.set(id, { notBefore: now + holdMs, pauseMs: 0, failed: false });
      }
      return !inHand.has(id) && (retries.get(id)?.notBefore ?? 0) <= now;
    });
  };

  const sweepForEver = async (): Promise<void> => {
    // The first sweep takes every payment that was processing when this replica last stopped.
    let ageMs = 0;
    while (!stopped.signal.aborted) {
      try {
        const tried = Promise.all((await find(ageMs)).map(apply));
        // Wait no longer: a payment that hangs must not stop the sweep.
        const over = new AbortController();
        const end = AbortSignal.any([over.signal, stopped.signal]);
        await Promise.race([tried, clock.sleep(SWEEP_PAUSE_MS, end)]);
        over.abort();
        if (own) announce(await own.answerCancels());
        await own?.forgetEnded();
        noteWorking();
        sweepDueAt = clock.monotonic() + SWEEP_LATE_MS;
        // More pages follow immediately.
        if (place !== '' && inHand.size < MAX_IN_HAND) continue;
        ageMs = SWEEP_AGE_MS;
      } catch (error) {
        noteOutage(error);
      }
      const pauseMs = between(SWEEP_PAUSE_MS, lookMs * SWEEP_PAUSE_FACTOR, SWEEP_PAUSE_MOST_MS);
      lookMs = 0;
      // An outage does not move the time: the sweep is late from the first round that failed.
      if (!isOut) sweepDueAt = clock.monotonic() + pauseMs + SWEEP_LATE_MS;
      await clock.sleep(pauseMs, stopped.signal);
    }
  };

  const countForEver = async (): Promise<void> => {
    while (!stopped.signal.aborted) {
      const began = clock.monotonic();
      try {
        const { processing, unsettled } = await findStanding(database);
        metrics.standing('processing', processing);
        metrics.standing('unsettled', unsettled);
      } catch {
        // Keep the last counts; the sweep logs the outage.
      }
      const tookMs = clock.monotonic() - began;
      const { ms, factor, mostMs } = standingPause;
      await clock.sleep(between(ms, tookMs * factor, mostMs), stopped.signal);
    }
  };

  return {
    take(payments) {
      // With a cancel window, the sweep applies them when it has passed.
      if (holdMs > 0 || stopped.signal.aborted) return;
      for (const payment of payments) {
        if (inHand.size < MAX_IN_HAND) void apply({ ...payment, claimed_by: null });
      }
    },
    async sweep(ageMs = SWEEP_AGE_MS) {
      const due = await find(ageMs);
      await Promise.all(due.map(apply));
      return due.length;
    },
    async cancel(id, actor, reason) {
      const outcome = await cancelPayment(database, id, actor, reason);
      const final =
        outcome.outcome !== 'claimed'
          ? outcome
          : own
            ? await own.cancelClaimed(outcome, actor, reason)
            : // Left by an account system configured earlier; its outcome is unknown.
              ({ outcome: 'too_late', payment: outcome.payment } as const);
      if (final.outcome === 'canceled') announce([final.payment]);
      return final;
    },
    get health() {
      const now = clock.monotonic();
      return {
        sweep: now <= sweepDueAt,
        lease: lease.isRenewed(),
        posting: inHand.size === 0 || now - triedAt < POSTING_STALL_MS || own?.isCalling() === true,
      };
    },
    start() {
      sweepDueAt = clock.monotonic() + SWEEP_LATE_MS;
      // Only a replica that keeps its lease notices that others are dead.
      if (own) void lease.hold().then(undefined, noteOutage);
      sweeping = Promise.all([sweepForEver(), countForEver()]).then(() => undefined);
    },
    async stop() {
      stopped.abort();
      await sweeping;
      await poster.stop();
      if (inHand.size === 0) return;
      const done = new Promise<void>((resolve) => idle.push(resolve));
      await within(clock, STOP_MS, 'the stop', done).catch(() => undefined);
    },
  };
}

/** Maximum wait of a stop for payments in hand after the poster has stopped, in milliseconds. */
const STOP_MS = 2_000;

function between(least: number, wanted: number, most: number): number {
  return Math.min(most, Math.max(least, wanted));
}

function unreachable(): never {
  throw new Error('an AccountSystem posts in_transaction or in_own_system');
}

function count(metrics: KitMetrics, ended: readonly PaymentRow[]): void {
  const byStatus = Map.groupBy(ended, (row) => row.status);
  for (const status of ['succeeded', 'failed', 'canceled'] as const) {
    const rows = byStatus.get(status);
    if (rows) metrics.ended(status, rows.length);
  }
  for (const row of byStatus.get('succeeded') ?? []) {
    const seconds =
      (Date.parse(row.posted_at ?? row.initiated_at) - Date.parse(row.initiated_at)) / 1000;
    metrics.observePosting(seconds);
  }
}
