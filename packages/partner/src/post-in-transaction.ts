/**
 * Posts payments to accounts in the kit's own database: decided, posted and ended in one transaction.
 *
 * enters:  payments from apply.ts, one by one.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   status and posting change together (KT6); a payment whose posting fails, hangs or waits for a lock delays others by at
 *          most two seconds, once.
 *
 * Two lanes. The main lane takes hundreds per transaction, one transaction after the other, because each gathers more that way and
 * two would meet at the same accounts. When one fails, for whatever reason, nobody knows whose fault it is: all its payments go to
 * the side lane, where each is tried alone, two at a time, while the main lane goes on. An account that another session keeps
 * locked is then blocked for a while: its payments are not tried at all, and first one by itself when the time has passed.
 */
import assert from 'node:assert/strict';
import { DatabaseUnavailable, sqlState, type Clock, type Database } from '@duebridge/runtime';
import { checkedOutcomes, type AccountsInTransaction } from './account-system.ts';
import { refusals, type Rules } from './business-rules.ts';
import type { KitMetrics } from './metrics.ts';
import { endOf, toPosting, within, type Poster, type Tried } from './poster.ts';
import {
  endPayments,
  lockPayments,
  postponePayments,
  type PaymentEnd,
  type PaymentRow,
  type UnfinishedPayment,
} from './store.ts';

/** Maximum payments in one transaction: more would gain little throughput and delay the first payment. */
const MAX_BATCH = 512;
/** How long a transaction waits for one lock, in milliseconds: the other payments in it wait as long. */
const LOCK_TIMEOUT_MS = 250;
/** The account system's deadline in milliseconds: for many payments, for one at its first try, and for one at a later try. */
const deadlineMs = { group: 1_500, first: 2_000, repeat: 10_000 };
/**
 * A group that takes longer is halved, one that takes less may double, so that the group size follows the account system's speed.
 */
const groupMs = { atMost: 700, atLeast: 200 };
/** Concurrent transactions in the side lane, and how many of them are for payments that failed before. */
const sideLane = { width: 2, repeats: 1 };
/** How long a locked account is skipped: at first and at most; doubled each time. */
const blockedMs = { first: 500, longest: 5_000 };

interface Item {
  readonly payment: UnfinishedPayment;
  readonly isRepeat: boolean;
  readonly resolve: (tried: Tried) => void;
}

/** Creates the poster. */
export function openTransactionPoster(options: {
  database: Database;
  accounts: AccountsInTransaction;
  rules: Rules;
  announce: (ended: readonly PaymentRow[]) => void;
  metrics: KitMetrics;
  clock: Clock;
}): Poster {
  const { database, accounts, rules, announce, metrics, clock } = options;
  let queue: Item[] = [];
  let side: Item[] = [];
  let size = MAX_BATCH;
  let isGroupUnderWay = false;
  let isScheduled = false;
  let sideUnderWay = 0;
  let repeatsUnderWay = 0;
  const accountsUnderWay = new Set<string>();
  const blocked = new Map<string, { until: number; pauseMs: number }>();
  let whenIdle: (() => void)[] = [];

  /** One transaction over these payments. Throws when it changed nothing. */
  const attempt = async (items: readonly Item[], limitMs: number): Promise<void> => {
    const ids = items.map(({ payment }) => payment.platform_payment_id);
    const work = database.transaction(
      async (tx) => {
        const locked = await lockPayments(tx, ids);
        const refused = await refusals(tx, rules, locked);
        const postings = locked.filter((payment) => !refused.has(payment.platform_payment_id));
        const began = clock.monotonic();
        const answer =
          postings.length === 0
            ? []
            : await within(limitMs, 'posting', accounts.post(postings.map(toPosting), tx));
        if (postings.length > 0) metrics.observeCore('post', (clock.monotonic() - began) / 1000);
        const outcomes = checkedOutcomes(answer, postings.length);
        const ends: PaymentEnd[] = [...refused.values()];
        const laters = new Map<string, string | null>();
        postings.forEach(({ platform_payment_id: id }, index) => {
          const outcome = outcomes[index];
          assert(outcome);
          const end = endOf(id, outcome);
          if (end) ends.push(end);
          if (outcome.outcome === 'later') laters.set(id, outcome.until);
        });
        const until = [...laters].flatMap(([platform_payment_id, time]) =>
          time === null ? [] : [{ platform_payment_id, until: time }],
        );
        if (until.length > 0) await postponePayments(tx, until);
        const ended = ends.length === 0 ? [] : await endPayments(tx, ends);
        // The rows are locked, so nobody else can have ended one in between.
        assert.equal(ended.length, ends.length, 'a payment was posted but not ended');
        return { ended, laters };
      },
      { statementTimeoutMs: limitMs, lockTimeoutMs: LOCK_TIMEOUT_MS },
    );
    const { ended, laters } = await work;
    announce(ended);
    for (const { payment, resolve } of items) {
      const until = laters.get(payment.platform_payment_id);
      resolve(until === undefined ? { result: 'done' } : { result: 'later', until });
    }
  };

  const runGroup = async (items: Item[]): Promise<void> => {
    const began = clock.monotonic();
    try {
      await attempt(items, deadlineMs.group);
      const tookMs = clock.monotonic() - began;
      if (tookMs > groupMs.atMost) size = Math.max(1, Math.floor(items.length / 2));
      else if (tookMs < groupMs.atLeast && items.length >= size) {
        size = Math.min(MAX_BATCH, size * 2);
      }
    } catch (error) {
      metrics.postErrors.inc();
      if (clock.monotonic() - began > groupMs.atMost) size = Math.max(1, size >> 1);
      if (await isOutage(error))
        for (const item of items) item.resolve({ result: 'outage', error });
      else side.push(...items);
    }
  };

  const runAlone = async (item: Item): Promise<void> => {
    const account = keyOf(item.payment);
    try {
      await attempt([item], item.isRepeat ? deadlineMs.repeat : deadlineMs.first);
      blocked.delete(account);
    } catch (error) {
      metrics.postErrors.inc();
      if (sqlState(error) === '55P03') {
        const before = blocked.get(account)?.pauseMs;
        const pauseMs =
          before === undefined ? blockedMs.first : Math.min(blockedMs.longest, before * 2);
        blocked.set(account, { until: clock.monotonic() + pauseMs, pauseMs });
        item.resolve({ result: 'busy' });
      } else if (await isOutage(error)) item.resolve({ result: 'outage', error });
      else item.resolve({ result: 'failed', error });
    }
  };

  /**
   * Whether the error says nothing about the payments because the database itself is unavailable. An error that kills only its
   * own sessions does not count.
   */
  const isOutage = async (error: unknown): Promise<boolean> => {
    if (!(error instanceof DatabaseUnavailable)) return false;
    const state = sqlState(error) ?? '';
    if (['55P03', '57014', '25P03', '25P04', '40001', '40P01'].includes(state)) return false;
    return database.query('SELECT 1').then(
      () => false,
      () => true,
    );
  };

  const isBlocked = (account: string): boolean => {
    const block = blocked.get(account);
    return block !== undefined && clock.monotonic() < block.until;
  };

  const startSide = (): void => {
    const waiting: Item[] = [];
    for (const item of side) {
      const account = keyOf(item.payment);
      if (isBlocked(account)) item.resolve({ result: 'busy' });
      else if (
        sideUnderWay >= sideLane.width ||
        accountsUnderWay.has(account) ||
        (item.isRepeat && repeatsUnderWay >= sideLane.repeats)
      ) {
        waiting.push(item);
      } else {
        sideUnderWay += 1;
        if (item.isRepeat) repeatsUnderWay += 1;
        accountsUnderWay.add(account);
        void runAlone(item).finally(() => {
          sideUnderWay -= 1;
          if (item.isRepeat) repeatsUnderWay -= 1;
          accountsUnderWay.delete(account);
          schedule();
        });
      }
    }
    side = waiting;
    // Without this, accounts whose payments ended elsewhere would stay in the map forever.
    if (blocked.size > MAX_BATCH) {
      const longAgo = clock.monotonic() - blockedMs.longest;
      for (const [account, { until }] of blocked) if (until < longAgo) blocked.delete(account);
    }
  };

  const start = (): void => {
    isScheduled = false;
    if (!isGroupUnderWay && queue.length > 0) {
      const items = queue.slice(0, size);
      queue = queue.slice(size);
      isGroupUnderWay = true;
      void runGroup(items).finally(() => {
        isGroupUnderWay = false;
        schedule();
      });
    }
    if (side.length > 0) startSide();
    if (!isGroupUnderWay && sideUnderWay === 0 && queue.length === 0 && side.length === 0) {
      const idle = whenIdle;
      whenIdle = [];
      for (const done of idle) done();
    }
  };

  /** In the next turn of the event loop: payments accepted in this turn join the same transaction. */
  const schedule = (): void => {
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(start);
  };

  return {
    post(payment, isRepeat) {
      const account = keyOf(payment);
      const block = blocked.get(account);
      if (isBlocked(account) || (block && accountsUnderWay.has(account))) {
        return Promise.resolve({ result: 'busy' });
      }
      return new Promise<Tried>((resolve) => {
        (isRepeat || block ? side : queue).push({ payment, isRepeat, resolve });
        schedule();
      });
    },
    stop() {
      return new Promise<void>((resolve) => {
        whenIdle.push(resolve);
        schedule();
      });
    },
  };
}

/** Both ids in one text; neither can contain a colon. */
function keyOf(payment: PaymentRow): string {
  return `${payment.biller_id}:${payment.account_id}`;
}
