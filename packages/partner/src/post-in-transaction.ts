/**
 * Posts payments to accounts in the kit's own database: decided, posted and ended in one transaction.
 *
 * enters:  payments from apply.ts, one by one.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   status and posting change together (KT6); a payment whose posting fails or hangs delays others by at most two seconds,
 *          once, and one whose account is locked by not much more than a group takes, once.
 *
 * The main lane takes hundreds per transaction, one transaction after the other, because each gathers more that way and two would
 * meet at the same accounts. When one fails, for whatever reason, nobody knows whose fault it is: all its payments go to the side
 * lane, where each is tried alone, two at a time, while the main lane goes on.
 *
 * All payments of a group wait for its locks, so it waits for one only as long as another replica's group may hold it. Payments to
 * an account that is locked for longer go to the locked lane, where they are tried alone too, but wait long enough to get their turn
 * among transactions that lock the account again and again. Each time that one waits in vain, the account rests for longer. Its
 * payments join the groups again when none has met a lock for a while. So do those of an account whose payment hung alone, and of a
 * biller of which several did.
 */
import assert from 'node:assert/strict';
import { DatabaseUnavailable, sqlState, type Clock, type Database } from '@duebridge/runtime';
import { checkedOutcomes, type AccountsInTransaction } from './account-system.ts';
import { refusals, type Rules } from './business-rules.ts';
import type { KitMetrics } from './metrics.ts';
import { endOf, TooLate, toPosting, within, type Poster, type Tried } from './poster.ts';
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
/**
 * How long a transaction waits for one lock, in milliseconds. A group: three times as long as the latest groups took, as another
 * replica's may hold what this one needs. A payment that is tried alone after one: the least, as others wait for their turn. One whose
 * account was locked: a quarter of the time after which PostgreSQL looks for deadlocks, so that one with a transaction of the
 * biller's ends here and not there.
 */
const lockWaitMs = { least: 20, first: 100, most: 250, factor: 3, locked: 250 };
/** The account system's deadline in milliseconds: for many payments, for one at its first try, and for one at a later try. */
const deadlineMs = { group: 1_500, first: 2_000, repeat: 10_000 };
/**
 * A group that takes longer is halved, one that takes less may double, so that the group size follows the account system's speed.
 */
const groupMs = { atMost: 700, atLeast: 200 };
/** Concurrent transactions in each lane of single payments: in all, of one biller while others wait, and for payments that failed before. */
const laneWidth = { all: 2, ofBiller: 1, repeats: 1 };
/** How long a locked account rests: at first and at most; doubled each time. After that, how long its payments stay out of groups. */
const restMs = { first: 500, longest: 5_000, apart: 5_000 };
/** So many payments of a biller that hang alone, each within five seconds of the one before, keep all its payments out of groups. */
const SLOW_PAYMENTS = 2;

/** How long a stop waits for what is in hand, and then a quarter of that for what is under way, in milliseconds. */
const STOP_MS = 4_000;

interface Item {
  readonly payment: UnfinishedPayment;
  readonly account: string;
  readonly biller: string;
  readonly isRepeat: boolean;
  readonly resolve: (tried: Tried) => void;
}

/** A lane in which each payment is tried alone. */
interface Lane {
  items: Item[];
  /** The billers of the payments that are tried. */
  readonly underWay: string[];
  repeatsUnderWay: number;
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
  const queue: Item[] = [];
  const side: Lane = { items: [], underWay: [], repeatsUnderWay: 0 };
  const locked: Lane = { items: [], underWay: [], repeatsUnderWay: 0 };
  let size = MAX_BATCH;
  let patienceMs = lockWaitMs.first;
  let isGroupUnderWay = false;
  let isScheduled = false;
  let isStopping = false;
  const accountsUnderWay = new Set<string>();
  /** Accounts that were found locked, and how long each rests. */
  const locks = new Map<string, { until: number; pauseMs: number }>();
  /** With one biller alone there is nobody to keep its payments apart from. */
  let firstBiller: string | undefined;
  let hasBillers = false;
  /** Billers of which payments took too long when they were tried alone, and when the last of them did. */
  const slow = new Map<string, { at: number; payments: number }>();
  let whenIdle: (() => void)[] = [];
  metrics.watch('locked_accounts', () => locks.size);

  /** One transaction over these payments. Throws when it changed nothing. Returns how many the account system was asked for. */
  const attempt = async (
    items: readonly Item[],
    limitMs: number,
    lockTimeoutMs: number,
  ): Promise<number> => {
    const ids = items.map(({ payment }) => payment.platform_payment_id);
    const work = database.transaction(
      async (tx) => {
        const rows = await lockPayments(tx, ids);
        const refused = await refusals(tx, rules, rows);
        const postings = rows.filter((payment) => !refused.has(payment.platform_payment_id));
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
        return { ended, laters, asked: postings.length };
      },
      { statementTimeoutMs: limitMs, lockTimeoutMs },
    );
    const { ended, laters, asked } = await work;
    announce(ended);
    for (const { payment, resolve } of items) {
      const until = laters.get(payment.platform_payment_id);
      resolve(until === undefined ? { result: 'done' } : { result: 'later', until });
    }
    return asked;
  };

  const runGroup = async (items: Item[]): Promise<void> => {
    const began = clock.monotonic();
    try {
      await attempt(items, deadlineMs.group, patienceMs);
      const tookMs = clock.monotonic() - began;
      const wanted = Math.max(lockWaitMs.least, tookMs * lockWaitMs.factor, patienceMs * 0.9);
      patienceMs = Math.min(lockWaitMs.most, Math.ceil(wanted));
      if (tookMs > groupMs.atMost) size = Math.max(1, Math.floor(items.length / 2));
      else if (tookMs < groupMs.atLeast && items.length >= size) {
        size = Math.min(MAX_BATCH, size * 2);
      }
    } catch (error) {
      metrics.postErrors.inc();
      if (clock.monotonic() - began > groupMs.atMost) size = Math.max(1, size >> 1);
      // Another replica's group may hold the lock for longer than expected, unless an account turns out to be locked.
      if (isLockWait(error)) patienceMs = Math.min(lockWaitMs.most, patienceMs * 2);
      if (await isOutage(error))
        for (const item of items) item.resolve({ result: 'outage', error });
      else side.items.push(...items);
    }
  };

  const runAlone = async (item: Item, lane: Lane): Promise<void> => {
    const { account } = item;
    try {
      const asked = await attempt(
        [item],
        item.isRepeat ? deadlineMs.repeat : deadlineMs.first,
        lane === locked ? lockWaitMs.locked : lockWaitMs.least,
      );
      // One that was canceled meanwhile says nothing about its account.
      const lock = locks.get(account);
      if (lock && asked > 0) lock.pauseMs = 0;
    } catch (error) {
      metrics.postErrors.inc();
      if (isLockWait(error) && lane === side) {
        patienceMs = Math.max(lockWaitMs.least, Math.ceil(patienceMs / 2));
        locks.set(account, { until: clock.monotonic(), pauseMs: 0 });
        locked.items.push(item);
      } else if (isLockWait(error)) {
        const before = locks.get(account)?.pauseMs ?? 0;
        const pauseMs = Math.min(restMs.longest, Math.max(restMs.first, before * 2));
        locks.set(account, { until: clock.monotonic() + pauseMs, pauseMs });
        item.resolve({ result: 'busy' });
      } else if (isTooLong(error)) {
        noteSlow(item.biller);
        locks.set(account, { until: clock.monotonic(), pauseMs: 0 });
        item.resolve({ result: 'failed', error });
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

  const isResting = (account: string): boolean =>
    clock.monotonic() < (locks.get(account)?.until ?? -Infinity);

  const noteSlow = (biller_id: string): void => {
    const before = slow.get(biller_id);
    const isNew = before === undefined || clock.monotonic() >= before.at + restMs.apart;
    slow.set(biller_id, { at: clock.monotonic(), payments: isNew ? 1 : before.payments + 1 });
  };

  const isSlow = (biller_id: string): boolean => {
    const one = slow.get(biller_id);
    const isOf = one !== undefined && one.payments >= SLOW_PAYMENTS;
    return hasBillers && isOf && clock.monotonic() < one.at + restMs.apart;
  };

  /** Whether payments of the account stay out of groups: it was locked or hung a short time ago. */
  const isApart = (account: string): boolean =>
    clock.monotonic() < (locks.get(account)?.until ?? -Infinity) + restMs.apart;

  const isOutsideGroups = ({ account, biller }: Item): boolean =>
    isApart(account) || isSlow(biller);

  const startAlone = (lane: Lane): void => {
    const waiting = lane.items;
    lane.items = [];
    // A biller whose payments hang leaves a place to the others that wait.
    const ofBiller = waiting.some((one) => one.biller !== waiting[0]?.biller)
      ? laneWidth.ofBiller
      : laneWidth.all;
    for (const item of waiting) {
      const { account, biller, isRepeat } = item;
      if (isResting(account)) item.resolve({ result: 'busy' });
      else if (lane === side && isOutsideGroups(item)) locked.items.push(item);
      else if (
        lane.underWay.length >= laneWidth.all ||
        lane.underWay.filter((one) => one === biller).length >= ofBiller ||
        accountsUnderWay.has(account) ||
        (isRepeat && lane.repeatsUnderWay >= laneWidth.repeats)
      ) {
        lane.items.push(item);
      } else {
        lane.underWay.push(biller);
        if (isRepeat) lane.repeatsUnderWay += 1;
        accountsUnderWay.add(account);
        void runAlone(item, lane).finally(() => {
          lane.underWay.splice(lane.underWay.indexOf(biller), 1);
          if (isRepeat) lane.repeatsUnderWay -= 1;
          accountsUnderWay.delete(account);
          schedule();
        });
      }
    }
  };

  /** The next payments of the main lane; those of locked accounts leave it. */
  const nextGroup = (): Item[] => {
    const items: Item[] = [];
    let looked = 0;
    for (const item of queue) {
      if (items.length === size) break;
      looked += 1;
      (isOutsideGroups(item) ? locked.items : items).push(item);
    }
    queue.splice(0, looked);
    return items;
  };

  const start = (): void => {
    isScheduled = false;
    if (isStopping) {
      const waiting = [queue, side.items, locked.items].flatMap((items) => items.splice(0));
      for (const { resolve } of waiting) resolve({ result: 'busy' });
    }
    if (!isGroupUnderWay && queue.length > 0) {
      const items = nextGroup();
      if (items.length > 0) {
        isGroupUnderWay = true;
        void runGroup(items).finally(() => {
          isGroupUnderWay = false;
          schedule();
        });
      }
    }
    startAlone(side);
    startAlone(locked);
    // Without this, accounts would stay in the map forever.
    if (locks.size > MAX_BATCH) {
      for (const account of locks.keys()) if (!isApart(account)) locks.delete(account);
    }
    const isQuiet = [side, locked].every(
      (lane) => lane.underWay.length === 0 && lane.items.length === 0,
    );
    if (!isGroupUnderWay && queue.length === 0 && isQuiet) {
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
      const biller = payment.biller_id;
      const account = `${biller}:${payment.account_id}`;
      firstBiller ??= biller;
      hasBillers ||= biller !== firstBiller;
      if (isResting(account)) return Promise.resolve({ result: 'busy' });
      return new Promise<Tried>((resolve) => {
        (isRepeat ? side.items : queue).push({ payment, account, biller, isRepeat, resolve });
        schedule();
      });
    },
    async stop() {
      const idle = new Promise<void>((resolve) => {
        whenIdle.push(resolve);
        schedule();
      });
      await within(STOP_MS, 'the stop', idle).catch(() => undefined);
      // What waits behind postings that hang is given back; the next start finds it in the table.
      isStopping = true;
      schedule();
      await within(STOP_MS / 4, 'the stop', idle).catch(() => undefined);
    },
  };
}

/** Whether a payment alone took longer than it may, in the account system or in one of its statements. */
function isTooLong(error: unknown): boolean {
  return error instanceof TooLate || ['57014', '25P03'].includes(sqlState(error) ?? '');
}

/** Whether PostgreSQL gave up waiting for a lock. */
function isLockWait(error: unknown): boolean {
  return sqlState(error) === '55P03';
}
