/**
 * Posts payments to accounts in the kit's own database: decided, posted and ended in one transaction.
 *
 * enters:  payments from apply.ts, one by one.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   status and posting change together (KT6); a payment whose posting fails, hangs or waits for a lock delays others by a
 *          few times as long as a group takes, and by less than two seconds.
 *
 * The main lane takes hundreds per transaction, one transaction after the other, because each gathers more that way and two would
 * meet at the same accounts. When one fails, for whatever reason, nobody knows whose fault it is: all its payments go to the side
 * lane, where each is tried alone, two at a time, while the main lane goes on.
 *
 * All payments of a group wait for the slowest, so it waits for a lock, and for the account system, only a few times as long as groups
 * usually take. So does each of its payments when it is tried alone. One that takes longer goes to the patient lane, where payments
 * are tried alone too, but long enough for a slow account system, and for their turn among transactions that lock the account again
 * and again. Each time that one waits for a lock in vain, the account rests for longer. Payments of such an account stay out of the
 * groups for a while, and so do those of a biller of which two took so long. After a group that took too long, no other takes
 * payments of its billers before one of theirs has been posted alone. When that does not help, because ever other accounts
 * hang, payments are tried alone from the first, more of them at a time and for a shorter time, unless too many wait for that.
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
 * replica's may hold what this one needs. A payment that is tried alone after one: the least, as others wait for their turn. One in
 * the patient lane: a quarter of the time after which PostgreSQL looks for deadlocks, so that one with a transaction of the biller's
 * ends here and not there.
 */
const lockWaitMs = { least: 20, first: 100, most: 250, factor: 3, patient: 250 };
/**
 * The account system's deadline in milliseconds. For a group, and for one payment tried alone after it: eight times as long as the
 * group waits for a lock, within limits. In the patient lane: for a first try, and for one that failed before.
 */
const deadlineMs = { factor: 8, least: 250, most: 800, first: 2_000, repeat: 10_000 };
/**
 * A group that takes longer is halved, one that takes less may double, so that the group size follows the account system's speed.
 */
const groupMs = { atMost: 700, atLeast: 200 };
/**
 * Concurrent transactions in each lane of single payments: in all, of billers of which payments took too long, and for payments that
 * failed before. One biller has half of the lane while others wait.
 */
const laneWidth = { all: 2, hung: 1, repeats: 1 };
/**
 * How long a locked account rests: at first and at most; doubled each time. After that, or after a payment took too long, how long
 * payments stay out of groups: doubled each time that the account holds up another group soon after it was let in again.
 */
const restMs = { first: 500, longest: 5_000, apart: 5_000, longestApart: 60_000 };
/** So many payments of a biller that take too long alone, each within five seconds of the one before, keep all its payments out of groups. */
const SLOW_PAYMENTS = 2;
/**
 * After so many groups that took too long, each within five seconds of the one before, all payments are tried alone, while fewer than
 * `queue` wait for that. So many (`places`) are tried at once, in the place of a group too; each has this `part` of a usual group's
 * deadline.
 */
const allAlone = { afterGroups: 2, queue: 64, places: 4, part: 0.5 };

/** How long a stop waits for what is in hand, and then a quarter of that for what is under way, in milliseconds. */
const STOP_MS = 4_000;

interface Item {
  readonly payment: UnfinishedPayment;
  readonly account: string;
  readonly biller: string;
  readonly isRepeat: boolean;
  /** It took too long when it was tried alone beside the groups. */
  readonly tookLong: boolean;
  readonly resolve: (tried: Tried) => void;
}

/** A lane in which each payment is tried alone. */
interface Lane {
  items: Item[];
  /** The payments that are tried. */
  readonly underWay: Set<Item>;
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
  const side: Lane = { items: [], underWay: new Set(), repeatsUnderWay: 0 };
  const patient: Lane = { items: [], underWay: new Set(), repeatsUnderWay: 0 };
  let size = MAX_BATCH;
  /** How long a group waits for a lock, and how long before any took too long since the last that did not. */
  let patienceMs = lockWaitMs.first;
  let usualMs = lockWaitMs.first;
  let isGroupUnderWay = false;
  let isScheduled = false;
  let isStopping = false;
  /** Accounts of the payments that are tried alone. */
  const accountsUnderWay = new Set<string>();
  /** Accounts that were found locked, and how long each rests; and those whose payment took too long, which do not rest. */
  const locks = new Map<string, { until: number; pauseMs: number; apartMs: number }>();
  /** With one biller alone there is nobody to keep its payments apart from. */
  let firstBiller: string | undefined;
  let hasBillers = false;
  /** Billers of which payments took too long when they were tried alone, how many, and when the last of them did. */
  const slow = new Map<string, { at: number; payments: number }>();
  /** Accounts and billers of which a payment was in a group that took too long, until one is tried, or posted, alone. */
  const inDoubt = { accounts: new Set<string>(), billers: new Set<string>() };
  /** How many groups took too long, one soon after the other, and when one did last, or a payment that was tried alone instead. */
  const slowGroups = { count: 0, at: -Infinity };
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
            : await within(clock, limitMs, 'posting', accounts.post(postings.map(toPosting), tx));
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

  /** The deadline of a group that waits so long for a lock. */
  const quickMs = (waitMs: number): number =>
    Math.min(deadlineMs.most, Math.max(deadlineMs.least, waitMs * deadlineMs.factor));

  /** The deadline of a payment that is tried alone in the side lane. */
  const aloneMs = (): number =>
    isAllAlone() ? quickMs(usualMs) * allAlone.part : quickMs(patienceMs);

  const areGroupsSlow = (): boolean => clock.monotonic() < slowGroups.at + restMs.apart;
  /** Whether payments are tried alone from the first: groups took too long, and a few seconds ago something still did. */
  const isAllAlone = (): boolean => slowGroups.count >= allAlone.afterGroups && areGroupsSlow();

  const followGroup = (tookMs: number): void => {
    const wanted = Math.max(lockWaitMs.least, tookMs * lockWaitMs.factor, patienceMs * 0.9);
    patienceMs = Math.min(lockWaitMs.most, Math.ceil(wanted));
    usualMs = patienceMs;
  };

  const runGroup = async (items: Item[]): Promise<void> => {
    const began = clock.monotonic();
    try {
      await attempt(items, quickMs(patienceMs), patienceMs);
      const tookMs = clock.monotonic() - began;
      followGroup(tookMs);
      if (tookMs > groupMs.atMost) size = Math.max(1, Math.floor(items.length / 2));
      else if (tookMs < groupMs.atLeast && items.length >= size) {
        size = Math.min(MAX_BATCH, size * 2);
      }
    } catch (error) {
      metrics.postErrors.inc();
      if (clock.monotonic() - began > groupMs.atMost) size = Math.max(1, size >> 1);
      // Groups may take longer than before, another replica's as well, unless one payment turns out to be the cause.
      if (isWait(error)) {
        patienceMs = Math.min(lockWaitMs.most, patienceMs * 2);
        if (isTooLong(error)) {
          slowGroups.count = areGroupsSlow() ? slowGroups.count + 1 : 1;
          slowGroups.at = clock.monotonic();
        }
        for (const { account, biller } of items) {
          inDoubt.accounts.add(account);
          if (hasBillers && isTooLong(error)) inDoubt.billers.add(biller);
        }
      }
      if (await isOutage(error))
        for (const item of items) item.resolve({ result: 'outage', error });
      else side.items.push(...items);
    }
  };

  const runAlone = async (item: Item, lane: Lane): Promise<void> => {
    const { account, biller, isRepeat } = item;
    const isPatient = lane === patient;
    const patientMs = isRepeat ? deadlineMs.repeat : deadlineMs.first;
    const began = clock.monotonic();
    try {
      const asked = await attempt(
        [item],
        isPatient ? patientMs : aloneMs(),
        isPatient ? lockWaitMs.patient : lockWaitMs.least,
      );
      inDoubt.accounts.delete(account);
      // One that was canceled meanwhile says nothing about its account.
      const lock = locks.get(account);
      if (lock && asked > 0) lock.pauseMs = 0;
      if (asked > 0) inDoubt.billers.delete(biller);
      const tookMs = clock.monotonic() - began;
      if (tookMs >= deadlineMs.most) noteSlow(biller, 0);
      else if (item.tookLong && asked > 0) {
        // Not the payment was too slow but the deadline too short, or everything was slow at that moment.
        followGroup(tookMs);
        locks.delete(account);
        slow.delete(biller);
        slowGroups.count = 0;
      }
    } catch (error) {
      inDoubt.accounts.delete(account);
      metrics.postErrors.inc();
      const now = clock.monotonic();
      if (isTooLong(error)) {
        noteSlow(biller, isPatient ? 0 : 1);
        if (!isPatient && isAllAlone()) slowGroups.at = now;
      }
      if (isWait(error) && !isPatient) {
        patienceMs = Math.max(lockWaitMs.least, Math.ceil(patienceMs / 2));
        const last = lockOf(account);
        const isSoon = now < last.until + 2 * last.apartMs;
        const apartMs = isSoon ? Math.min(restMs.longestApart, 2 * last.apartMs) : restMs.apart;
        locks.set(account, { until: now, pauseMs: 0, apartMs });
        patient.items.push({ ...item, tookLong: isTooLong(error) });
      } else if (isLockWait(error)) {
        const { pauseMs: before, apartMs } = lockOf(account);
        const pauseMs = Math.min(restMs.longest, Math.max(restMs.first, before * 2));
        locks.set(account, { until: now + pauseMs, pauseMs, apartMs });
        item.resolve({ result: 'busy' });
      } else if (isTooLong(error)) {
        locks.set(account, { ...lockOf(account), until: now, pauseMs: 0 });
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

  const lockOf = (account: string): { until: number; pauseMs: number; apartMs: number } =>
    locks.get(account) ?? { until: -Infinity, pauseMs: 0, apartMs: restMs.apart };

  const isResting = (account: string): boolean => clock.monotonic() < lockOf(account).until;

  const noteSlow = (biller_id: string, more: 0 | 1): void => {
    slow.set(biller_id, { at: clock.monotonic(), payments: hungOf(biller_id) + more });
  };

  /** How many payments of the biller took too long, each within a few seconds of the one before and of now. */
  const hungOf = (biller_id: string): number => {
    const one = slow.get(biller_id);
    return one !== undefined && clock.monotonic() < one.at + restMs.apart ? one.payments : 0;
  };

  const isHung = ({ tookLong, biller }: Item): boolean =>
    tookLong || (hasBillers && hungOf(biller) > 0);
  const isSlow = (biller_id: string): boolean => hasBillers && hungOf(biller_id) >= SLOW_PAYMENTS;

  /** Whether payments of the account stay out of groups: it was locked, or a payment took too long, a short time ago. */
  const isApart = (account: string): boolean => {
    const { until, apartMs } = lockOf(account);
    return clock.monotonic() < until + apartMs;
  };

  const isInDoubt = ({ account, biller }: Item): boolean =>
    inDoubt.accounts.has(account) || inDoubt.billers.has(biller);

  const isOutsideGroups = ({ account, biller }: Item): boolean =>
    isApart(account) || isSlow(biller);

  const startAlone = (lane: Lane): void => {
    // What may hang comes last.
    const waiting = lane.items.toSorted((a, b) => Number(isHung(a)) - Number(isHung(b)));
    lane.items = [];
    const places = lane === side && isAllAlone() ? allAlone.places : laneWidth.all;
    // A biller whose payments hang leaves places to the others that wait.
    const isShared = waiting.some((one) => one.biller !== waiting[0]?.biller);
    for (const item of waiting) {
      const { account, biller, isRepeat } = item;
      const underWay = [...lane.underWay];
      if (isResting(account)) item.resolve({ result: 'busy' });
      else if (lane === side && isOutsideGroups(item)) patient.items.push(item);
      else if (
        underWay.length >= places ||
        (isShared && underWay.filter((one) => one.biller === biller).length >= places / 2) ||
        (isHung(item) && underWay.filter(isHung).length >= laneWidth.hung) ||
        accountsUnderWay.has(account) ||
        (isRepeat && lane.repeatsUnderWay >= laneWidth.repeats)
      ) {
        lane.items.push(item);
      } else {
        lane.underWay.add(item);
        if (isRepeat) lane.repeatsUnderWay += 1;
        accountsUnderWay.add(account);
        void runAlone(item, lane).finally(() => {
          lane.underWay.delete(item);
          if (isRepeat) lane.repeatsUnderWay -= 1;
          accountsUnderWay.delete(account);
          schedule();
        });
      }
    }
  };

  /** The next payments of the main lane; those that stay out of groups leave it. */
  const nextGroup = (): Item[] => {
    const items: Item[] = [];
    const isAlone = isAllAlone();
    let looked = 0;
    for (const item of queue) {
      if (items.length === size) break;
      looked += 1;
      if (isOutsideGroups(item)) patient.items.push(item);
      else if (isInDoubt(item) || (isAlone && side.items.length < allAlone.queue)) {
        side.items.push(item);
      } else items.push(item);
    }
    queue.splice(0, looked);
    return items;
  };

  const start = (): void => {
    isScheduled = false;
    if (isStopping) {
      const waiting = [queue, side.items, patient.items].flatMap((items) => items.splice(0));
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
    startAlone(patient);
    // Without this, accounts would stay in the map forever.
    if (locks.size > MAX_BATCH) {
      for (const account of locks.keys()) if (!isApart(account)) locks.delete(account);
    }
    const isQuiet = [side, patient].every(
      (lane) => lane.underWay.size === 0 && lane.items.length === 0,
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
        (isRepeat ? side.items : queue).push({
          payment,
          account,
          biller,
          isRepeat,
          tookLong: false,
          resolve,
        });
        schedule();
      });
    },
    async stop() {
      const idle = new Promise<void>((resolve) => {
        whenIdle.push(resolve);
        schedule();
      });
      await within(clock, STOP_MS, 'the stop', idle).catch(() => undefined);
      // What waits behind postings that hang is given back; the next start finds it in the table.
      isStopping = true;
      schedule();
      await within(clock, STOP_MS / 4, 'the stop', idle).catch(() => undefined);
    },
  };
}

/** Whether payments took longer than they may: one of them waits for a lock, or in the account system. */
function isWait(error: unknown): boolean {
  return isLockWait(error) || isTooLong(error);
}

/** Whether they took longer than they may, in the account system or in one of its statements. */
function isTooLong(error: unknown): boolean {
  return error instanceof TooLate || ['57014', '25P03'].includes(sqlState(error) ?? '');
}

/** Whether PostgreSQL gave up waiting for a lock. */
function isLockWait(error: unknown): boolean {
  return sqlState(error) === '55P03';
}
