/**
 * Posts payments to the biller's own system: claims and commits them, posts them by a call outside any transaction, and ends them.
 *
 * enters:  payments from apply.ts, one by one.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   an id is in at most one call at a time, at this replica and all living ones (claims.ts); an answer counts however late it
 *          comes; a payment whose outcome is not known is never canceled, and is looked up before it is posted again; one that was
 *          canceled or settled while it waited for its place is not posted.
 *
 * A crash between claim and call, or between call and end, leaves a claimed payment. When the lease has run out another replica takes
 * it over, asks `lookup` where there is one, and posts the same id again where nobody knows it; PF2 makes that one posting.
 *
 * A call beyond its deadline gives its place to others and goes on; its payments stay with it until it returns, or throws after its
 * signal aborted. Only the life of this process bounds a call that does neither; `settle` ends its payments.
 *
 * One file because claims, calls and ends share what is in hand: an id is in exactly one of them.
 */
import assert from 'node:assert/strict';
import { groupCommit, type Clock, type Database, type Log } from '@duebridge/runtime';
import {
  checkedOutcome,
  checkedOutcomes,
  type AccountsInOwnSystem,
  type CheckedOutcome,
} from './account-system.ts';
import { refusals, type Rules } from './business-rules.ts';
import { CallPlaces, FairQueue } from './call-places.ts';
import {
  cancelPayment,
  dropCancelRequest,
  findCancelRequests,
  isCancelRequested,
  requestCancel,
  type CancelOutcome,
  type ClaimedOutcome,
} from './cancel.ts';
import { claimPayments, findHeld, type Lease } from './claims.ts';
import type { KitMetrics } from './metrics.ts';
import {
  describeAccountSystemError,
  endOf,
  TooLate,
  toPosting,
  within,
  type Poster,
  type Tried,
} from './poster.ts';
import {
  endPayments,
  findPayments,
  lockPayments,
  postponePayments,
  writeAudit,
  type PaymentEnd,
  type PaymentRow,
  type UnfinishedPayment,
} from './store.ts';

const defaults = { batch: 1, concurrency: 8, deadlineMs: 10_000 };
/** Deadline of a look-up in milliseconds. */
const LOOKUP_MS = 5_000;
/** Maximum payments in one claim: several wait for their commit together. */
const MAX_CLAIMS = 512;
/** How long a stop waits for calls, in milliseconds; then their signals abort, and it waits once more, for a quarter of that. */
const STOP_MS = 4_000;
/** How long a cancel waits for the replica that has claimed the payment, and how often it looks, in milliseconds. */
const askCancelMs = { atMost: 5_000, pause: 100 };
/** Maximum payments that one look for those that ended elsewhere asks about; the next look goes on with others. */
const FORGET_ROWS = 1_000;

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
  /** The outcome may be known in the other system: an earlier call did not return it. */
  isUnknown: boolean;
  readonly resolve: (tried: Tried) => void;
}

/** Creates the poster. */
export function openOwnSystemPoster(options: {
  database: Database;
  accounts: AccountsInOwnSystem;
  rules: Rules;
  lease: Lease;
  announce: (ended: readonly PaymentRow[]) => void;
  metrics: KitMetrics;
  log: Log;
  clock: Clock;
}): OwnSystemPoster {
  const { database, accounts, rules, lease, announce, metrics, log, clock } = options;
  const { batch, concurrency, deadlineMs } = { ...defaults, ...accounts.calls };
  const giveUpMs = accounts.calls?.giveUpMs ?? deadlineMs * 6;
  assert(batch >= 1 && concurrency >= 1 && deadlineMs > 0, 'calls needs numbers of at least one');
  /** The queues of first attempts and of payments that failed before. */
  const firsts = new FairQueue<Item>();
  const again = new FairQueue<Item>();
  let size = batch;
  /** Calls within their deadline, with the work before and after them, and those beyond it. */
  const places = new CallPlaces(concurrency, clock);
  let busy = 0;
  let repeats = 0;
  let isScheduled = false;
  let isStopping = false;
  /** Ids in a call that has not returned. */
  const open = new Map<string, { aborting: AbortController; returned: Promise<void> }>();
  let late = 0;
  /** Ids whose last answer was `later`, and whether they may be canceled. `forgetEnded` removes what nobody asks about again. */
  const resting = new Map<string, boolean>();
  /** Ids of which no call returned the outcome; the same. */
  const unknown = new Set<string>();
  const canceling = new Set<string>();
  let whenIdle: (() => void)[] = [];
  metrics.watch('calls_open', () => open.size);
  metrics.watch('calls_late', () => late);
  metrics.watch('calls_undecided', () => unknown.size + resting.size);

  /** Claims payments together. Each is ours to post, has been ended by a rule, or belongs to another replica. */
  const claims = groupCommit<PaymentRow, 'known' | 'unknown' | 'done' | 'busy'>({
    maxBatch: MAX_CLAIMS,
    maxQueued: 100_000,
    clock,
    async flush(payments) {
      const ids = payments.map((payment) => payment.platform_payment_id);
      const { states, failed } = await database.transaction(async (tx) => {
        const locked = await lockPayments(tx, ids);
        const claimed = await claimPayments(
          tx,
          locked.map((payment) => payment.platform_payment_id),
          lease.replica_id,
        );
        // A payment that was handed over before may already be posted there: no rule may fail it now.
        const fresh = locked.filter(
          (payment) => claimed.get(payment.platform_payment_id) === false,
        );
        const refused = await refusals(tx, rules, fresh);
        const still = new Set(locked.map((payment) => payment.platform_payment_id));
        return {
          failed: refused.size === 0 ? [] : await endPayments(tx, [...refused.values()]),
          states: ids.map((id) => {
            if (!still.has(id) || refused.has(id)) return 'done';
            const before = claimed.get(id);
            return before === undefined ? 'busy' : before ? 'unknown' : 'known';
          }),
        };
      });
      announce(failed);
      return states;
    },
  });

  /** Whether payments that this replica claimed earlier are still its own: one may have been canceled, or settled, in the queue. */
  const held = groupCommit<string, boolean>({
    maxBatch: MAX_CLAIMS,
    maxQueued: 100_000,
    clock,
    async flush(ids) {
      const own = await findHeld(database, ids, lease.replica_id);
      return ids.map((id) => own.has(id));
    },
  });

  /** Ends payments together; returns for each whether it was still processing. */
  const ends = groupCommit<PaymentEnd, boolean>({
    maxBatch: MAX_CLAIMS,
    maxQueued: 100_000,
    clock,
    async flush(list) {
      const ended = await endPayments(database, list);
      announce(ended);
      const ids = new Set(ended.map((row) => row.platform_payment_id));
      return list.map((end) => ids.has(end.platform_payment_id));
    },
  });

  /** Stores the account system's outcome of a payment. Throws when it could not be stored; the caller then asks again. */
  const record = async (payment: PaymentRow, outcome: CheckedOutcome): Promise<Tried> => {
    const id = payment.platform_payment_id;
    unknown.delete(id);
    const end = endOf(id, outcome);
    if (end) {
      if (!(await ends.add(end))) await noteContradiction(end);
      return { result: 'done' };
    }
    assert(outcome.outcome === 'later');
    resting.set(id, outcome.cancelable);
    if (outcome.until !== null) {
      await postponePayments(database, [{ platform_payment_id: id, until: outcome.until }]);
    }
    return { result: 'later', until: outcome.until };
  };

  /** The account system reports another end than the one recorded (settle came first): log it and count it. */
  const noteContradiction = async (end: PaymentEnd): Promise<void> => {
    const id = end.platform_payment_id;
    const stored = (await findPayments(database, [id])).get(id);
    if (!stored || stored.status === end.status) return;
    metrics.contradicted.inc();
    log.error(
      { platform_payment_id: id, here: stored.status, there: end.status },
      'the account system reports a different result than the one recorded',
    );
    await writeAudit(database, [
      {
        platform_payment_id: id,
        actor: 'account system',
        event: 'contradicted',
        detail: { status: end.status },
      },
    ]);
  };

  /** Runs a call and returns its answer; throws TooLate at the deadline, after which `onLate` receives the answer. */
  const call = async <T>(
    payments: readonly PaymentRow[],
    run: (signal: AbortSignal) => Promise<T>,
    onLate: (answer: T) => Promise<void>,
  ): Promise<T> => {
    const ids = payments.map((payment) => payment.platform_payment_id);
    const aborting = new AbortController();
    const returned = Promise.withResolvers<void>();
    for (const id of ids) open.set(id, { aborting, returned: returned.promise });
    const began = clock.monotonic();
    const giveUp = setTimeout(() => aborting.abort(), giveUpMs);
    giveUp.unref();
    let isOpen = true;
    let endLate: (() => void) | undefined;
    // Also handle an account system that throws instead of rejecting.
    const running = Promise.resolve()
      .then(() => run(aborting.signal))
      .finally(() => {
        clearTimeout(giveUp);
        isOpen = false;
        if (endLate !== undefined) late -= 1;
        endLate?.();
        for (const id of ids) open.delete(id);
        metrics.observeCore('post', (clock.monotonic() - began) / 1000);
        returned.resolve();
        schedule();
      });
    try {
      return await within(deadlineMs, 'the call of the account system', running);
    } catch (error) {
      // The flag is set by the call itself, which may have returned meanwhile.
      if (error instanceof TooLate && (isOpen as boolean)) {
        endLate = places.begin(payments, true);
        late += 1;
        running.then(onLate).catch((problem: unknown) => {
          for (const id of ids) unknown.add(id);
          log.warn(
            { payments: ids.length, error: describeAccountSystemError(problem) },
            'a late call failed',
          );
        });
      }
      throw error;
    }
  };

  /** Asks what became of a payment; undefined when the other system has never heard of it, or cannot be asked. */
  const lookUp = async (payment: PaymentRow): Promise<CheckedOutcome | undefined> => {
    const id = payment.platform_payment_id;
    if (!accounts.lookup) return undefined;
    const began = clock.monotonic();
    const answer = await within(
      LOOKUP_MS,
      'the lookup in the account system',
      Promise.resolve().then(() => accounts.lookup?.(id, AbortSignal.timeout(LOOKUP_MS))),
    );
    metrics.observeCore('lookup', (clock.monotonic() - began) / 1000);
    return answer === undefined ? undefined : checkedOutcome(answer);
  };

  /** The work of one place: claims, looks up unknown outcomes, and posts the rest in one call. Every item gets its result. */
  const work = async (items: Item[]): Promise<void> => {
    const postings: Item[] = [];
    await lease.hold();
    const since = clock.monotonic();
    await Promise.all(
      items
        .map(async (item) => {
          const { payment } = item;
          const id = payment.platform_payment_id;
          if (canceling.has(id)) {
            item.resolve({ result: 'busy' });
            return;
          }
          // No cancel succeeds from here on, so that none can come between the check below and the call.
          const cancelable = resting.get(id);
          resting.delete(id);
          if (payment.claimed_by === lease.replica_id) {
            // Claimed at an earlier attempt: write nothing, but it may have ended since it was found.
            const isHeld = await held.add(id).catch((error: unknown) => {
              // No call follows, so the account system's last word still decides whether it can be canceled.
              if (cancelable !== undefined) resting.set(id, cancelable);
              throw error;
            });
            if (!isHeld) {
              item.resolve({ result: 'done' });
              return;
            }
          } else {
            const state = await claims.add(payment);
            if (state === 'done' || state === 'busy') {
              item.resolve({ result: state });
              return;
            }
            item.isUnknown = state === 'unknown';
          }
          const known = item.isUnknown ? await lookUp(payment) : undefined;
          if (known) item.resolve(await record(payment, known));
          else postings.push(item);
        })
        .map((one, index) =>
          one.catch((error: unknown) => items[index]?.resolve({ result: 'failed', error })),
        ),
    );
    const mine = postings.filter((item) => {
      const id = item.payment.platform_payment_id;
      const isFree = !open.has(id) && lease.lives(since) && !isStopping;
      if (!isFree) item.resolve({ result: 'busy' });
      return isFree;
    });
    if (mine.length > 0) await post(mine);
  };

  const post = async (items: Item[]): Promise<void> => {
    const payments = items.map(({ payment }) => payment);
    const ids = payments.map((payment) => payment.platform_payment_id);
    const recordAll = async (answer: unknown): Promise<(readonly [Item, Tried])[]> => {
      const outcomes = checkedOutcomes(answer, items.length);
      return Promise.all(
        items.map(async (item, index) => {
          const outcome = outcomes[index];
          assert(outcome);
          return [item, await record(item.payment, outcome)] as const;
        }),
      );
    };
    try {
      const answer = await call(
        payments,
        (signal) => accounts.post(payments.map(toPosting), signal),
        async (lateAnswer) => void (await recordAll(lateAnswer)),
      );
      for (const [item, tried] of await recordAll(answer)) item.resolve(tried);
      if (items.length >= size) size = Math.min(batch, size * 2);
    } catch (error) {
      metrics.postErrors.inc();
      if (items.length > 1) size = Math.max(1, Math.floor(items.length / 2));
      for (const id of ids) unknown.add(id);
      const isLate = error instanceof TooLate;
      for (const item of items) {
        // Many that failed together are retried individually; those that hang in a call stay with it.
        if (items.length > 1 && !isLate) {
          again.push({ ...item, isUnknown: true });
        } else item.resolve(isLate ? { result: 'busy' } : { result: 'failed', error });
      }
    }
  };

  const start = (): void => {
    isScheduled = false;
    for (let free = isStopping ? 0 : places.free(); free > 0; free -= 1) {
      const [items, isRepeat] = next();
      if (items.length === 0) break;
      const end = places.begin(items.map(({ payment }) => payment));
      busy += 1;
      if (isRepeat) repeats += 1;
      void work(items)
        .catch((error: unknown) => {
          for (const item of items) item.resolve({ result: 'outage', error });
        })
        .finally(() => {
          end();
          busy -= 1;
          if (isRepeat) repeats -= 1;
          schedule();
        });
    }
    if (isStopping) {
      for (const item of [...firsts.takeAll(), ...again.takeAll()])
        item.resolve({ result: 'busy' });
    }
    if (busy === 0 && firsts.size === 0 && again.size === 0) {
      const idle = whenIdle;
      whenIdle = [];
      for (const done of idle) done();
    }
  };

  /** The next payments to call for: those that failed before individually, in half of the places; the others in batches. */
  const next = (): [Item[], boolean] => {
    const [repeat] =
      repeats < Math.max(1, Math.floor(concurrency / 2)) ? again.take(1, places) : [];
    return repeat === undefined ? [firsts.take(size, places), false] : [[repeat], true];
  };

  const schedule = (): void => {
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(start);
  };

  const cancelMine = async (
    id: string,
    actor: string,
    reason: string,
  ): Promise<CancelOutcome | ClaimedOutcome> => {
    const isFree = !open.has(id) && resting.get(id) === true && !canceling.has(id);
    if (!isFree) return cancelPayment(database, id, actor, reason);
    canceling.add(id);
    try {
      return await cancelPayment(database, id, actor, reason, lease.replica_id);
    } finally {
      canceling.delete(id);
      resting.delete(id);
    }
  };

  const forgetEnded = async (): Promise<void> => {
    const ids = [...new Set([...unknown, ...resting.keys()])].slice(0, FORGET_ROWS);
    if (ids.length === 0) return;
    const own = await findHeld(database, ids, lease.replica_id);
    for (const id of ids) {
      const isUnknown = unknown.delete(id);
      const isCancelable = resting.get(id);
      resting.delete(id);
      if (!own.has(id)) continue;
      // At the end: the next look begins with others.
      if (isUnknown) unknown.add(id);
      if (isCancelable !== undefined) resting.set(id, isCancelable);
    }
  };

  return {
    post(payment, isRepeat) {
      const id = payment.platform_payment_id;
      if (open.has(id) || isStopping) return Promise.resolve({ result: 'busy' });
      places.note(payment);
      return new Promise<Tried>((resolve) => {
        (isRepeat ? again : firsts).push({
          payment,
          isUnknown: unknown.has(id),
          resolve,
        });
        schedule();
      });
    },
    isCalling: () => open.size > 0,
    async cancelClaimed({ by, payment }, actor, reason) {
      const id = payment.platform_payment_id;
      if (by === lease.replica_id) {
        const outcome = await cancelMine(id, actor, reason);
        return outcome.outcome === 'claimed' ? { outcome: 'too_late', payment } : outcome;
      }
      await requestCancel(database, id, by, actor, reason);
      const until = clock.monotonic() + askCancelMs.atMost;
      while (clock.monotonic() < until && (await isCancelRequested(database, id))) {
        await clock.sleep(askCancelMs.pause);
      }
      await dropCancelRequest(database, id);
      const now = (await findPayments(database, [id])).get(id) ?? payment;
      return { outcome: now.status === 'canceled' ? 'canceled' : 'too_late', payment: now };
    },
    forgetEnded,
    async answerCancels() {
      const canceled: PaymentRow[] = [];
      for (const request of await findCancelRequests(database, lease.replica_id)) {
        const { platform_payment_id: id, actor, reason } = request;
        const outcome = await cancelMine(id, actor, reason);
        if (outcome.outcome === 'canceled') canceled.push(outcome.payment);
        else await dropCancelRequest(database, id);
      }
      return canceled;
    },
    async stop() {
      const idle = new Promise<void>((resolve) => {
        whenIdle.push(resolve);
        schedule();
      });
      const returned = async (ms: number): Promise<void> => {
        const calls = Promise.all([idle, ...[...open.values()].map((one) => one.returned)]);
        await within(ms, 'the stop', calls).catch(() => undefined);
      };
      await returned(STOP_MS);
      isStopping = true;
      schedule();
      for (const { aborting } of open.values()) aborting.abort();
      await returned(STOP_MS / 4);
      await within(STOP_MS / 4, 'the stop', forgetEnded()).catch(() => undefined);
      // Other replicas must not touch what a call may still be doing before the lease has expired.
      await lease.stop(open.size === 0 && unknown.size === 0);
    },
  };
}
