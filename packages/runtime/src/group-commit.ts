/**
 * Combines many concurrent calls into one statement: items that arrive during a flush go into the next one together. Under load one
 * commit, and so one disk sync, serves hundreds of callers; a single caller is served at once.
 *
 * enters: one item per call.  leaves: that item's own result, after the flush that held it has ended.
 * holds:  an item is in at most one flush at a time; order within a flush is the order of arrival; each caller gets only its own
 *         result: one bad item does not fail the others. A lost connection is reported to every caller it may affect, and never
 *         retried here.
 */
import assert from 'node:assert/strict';
import { Refusal } from '@duebridge/contract';
import { systemClock, type Clock } from './clock.ts';
import { DatabaseUnavailable } from './errors.ts';

/** How to collect items and how to write them. */
export interface GroupCommitOptions<In, Out> {
  /**
   * Writes the items in one transaction and gives one result for each, in their order. A DatabaseUnavailable fails all of them;
   * any other error of a flush of many is attributed to one of its items, and each item is then flushed alone.
   */
  flush: (items: In[]) => Promise<Out[]>;
  /** Items in one flush at most: a statement's memory and the delay of its first caller grow with it. */
  maxBatch: number;
  /** Items waiting at most; the next caller is refused with 503 (F73). */
  maxQueued: number;
  /** Concurrent flushes; default 1. More help only where the disk serves several commits at once. */
  concurrency?: number;
  /**
   * How long the running flush is waited for before another that is not full starts beside it, in milliseconds; default 0. A statement
   * has a cost of its own, so few large ones cost less, and one that is held up does not delay what comes after it for longer.
   */
  patienceMs?: number;
  clock?: Clock;
}

/** A running group commit. */
export type GroupCommit<In, Out> = ReturnType<typeof groupCommit<In, Out>>;

interface Waiting<In, Out> {
  item: In;
  resolve: (result: Out) => void;
  reject: (error: unknown) => void;
}

/** Creates a group commit over `flush`. */
export function groupCommit<In, Out>(options: GroupCommitOptions<In, Out>) {
  const { flush, maxBatch, maxQueued, concurrency = 1, patienceMs = 0 } = options;
  const clock = options.clock ?? systemClock;
  assert(maxBatch >= 1 && maxQueued >= 1 && concurrency >= 1);
  let queue: Waiting<In, Out>[] = [];
  let underWay = 0;
  let startedAt = 0;
  let isWaiting = false;
  let scheduled = false;
  const drained: (() => void)[] = [];

  /** Flushes the items, one by one where one of many fails them all; returns an error that says nothing about a single item. */
  const flushBatch = async (batch: readonly Waiting<In, Out>[]): Promise<unknown> => {
    try {
      const results = await flush(batch.map((waiting) => waiting.item));
      assert.equal(results.length, batch.length, 'a flush returns one result for each item');
      // `flush` returns one result per item.
      batch.forEach((waiting, index) => waiting.resolve(results[index] as Out));
    } catch (error) {
      const isToldToAll =
        error instanceof DatabaseUnavailable || error instanceof assert.AssertionError;
      if (batch.length === 1 || isToldToAll) {
        for (const waiting of batch) waiting.reject(error);
        return isToldToAll ? error : undefined;
      }
      let lost: unknown;
      for (const waiting of batch) {
        if (lost === undefined) lost = await flushBatch([waiting]);
        else waiting.reject(lost);
      }
    }
    return undefined;
  };

  const start = (): void => {
    scheduled = false;
    while (queue.length > 0 && underWay < concurrency) {
      if (underWay > 0 && queue.length < maxBatch && waitsForRunning()) break;
      startedAt = clock.monotonic();
      const batch = queue.slice(0, maxBatch);
      queue = queue.slice(maxBatch);
      underWay += 1;
      void flushBatch(batch).finally(() => {
        underWay -= 1;
        schedule();
      });
    }
    if (queue.length === 0 && underWay === 0) for (const done of drained.splice(0)) done();
  };

  /** Whether the latest flush may still end in time; if it does not, the next starts beside it. */
  const waitsForRunning = (): boolean => {
    const left = startedAt + patienceMs - clock.monotonic();
    if (left <= 0) return false;
    if (!isWaiting) {
      isWaiting = true;
      void goOnIn(left);
    }
    return true;
  };

  const goOnIn = async (ms: number): Promise<void> => {
    await clock.sleep(ms);
    isWaiting = false;
    schedule();
  };

  const schedule = (): void => {
    if (scheduled || underWay >= concurrency) return;
    scheduled = true;
    // One turn of the event loop: every request that has been read already joins the first flush. Waiting longer for more items was
    // measured to lower the rate: those that arrive during a flush are enough.
    setImmediate(start);
  };

  return {
    /** Returns the item's result after its flush. Throws Refusal 503 when the queue is full, and what the flush threw. */
    add(item: In): Promise<Out> {
      if (queue.length >= maxQueued)
        return Promise.reject(
          new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': '1' } }),
        );
      return new Promise((resolve, reject) => {
        queue.push({ item, resolve, reject });
        schedule();
      });
    },
    /** Resolves when everything added so far has been flushed or has failed. For a graceful stop: stop adding, then drain. */
    drain: (): Promise<void> =>
      new Promise((resolve) => {
        drained.push(resolve);
        schedule();
      }),
  };
}
