/**
 * Many concurrent calls, one statement: what arrives while a flush is under way goes together in the next one. Under load one
 * commit, and so one wait for the disk, serves hundreds of callers; a lone caller is served at once.
 *
 * enters: one item per call.  leaves: that item's own result, after the flush that held it has ended.
 * holds:  an item is in at most one flush at a time; order within a flush is the order of arrival; a caller hears of its own fate
 *         alone: one bad item does not fail its neighbours, and a lost connection is told to all it may concern, never repeated here.
 */
import assert from 'node:assert/strict';
import { Refusal } from '@duebridge/contract';
import { systemClock, type Clock } from './clock.ts';
import { DatabaseUnavailable } from './errors.ts';

/** How to gather and how to write. */
export interface GroupCommitOptions<In, Out> {
  /**
   * Writes the items in one transaction and gives one result for each, in their order. A DatabaseUnavailable fails all of them;
   * any other error of a flush of many is taken as the fault of some item, and each is flushed alone.
   */
  flush(items: In[]): Promise<Out[]>;
  /** Items in one flush at most: a statement's memory and the delay of its first caller grow with it. */
  maxBatch: number;
  /** Items waiting at most; the next caller is refused with 503 (reliability F73). */
  maxQueued: number;
  /** How long a flush that would not be full waits for company, in milliseconds; default 0: what gathers during a flush is enough. */
  lingerMs?: number;
  /** Flushes under way at once; default 1. More help only where the disk serves several commits at once. */
  concurrency?: number;
  clock?: Clock;
}

/** The gathering end. */
export interface GroupCommit<In, Out> {
  /** Gives the item's result after its flush. Throws Refusal 503 when the queue is full, and what the flush threw. */
  add(item: In): Promise<Out>;
  /** Resolves when everything added so far has been flushed or has failed. For a graceful stop: stop adding, then drain. */
  drain(): Promise<void>;
}

interface Waiting<In, Out> {
  item: In;
  resolve(result: Out): void;
  reject(error: unknown): void;
}

/** Makes a group commit over `flush`. */
export function groupCommit<In, Out>(options: GroupCommitOptions<In, Out>): GroupCommit<In, Out> {
  const { flush, maxBatch, maxQueued, lingerMs = 0, concurrency = 1 } = options;
  const clock = options.clock ?? systemClock;
  assert(maxBatch >= 1 && maxQueued >= 1 && concurrency >= 1 && lingerMs >= 0);
  let queue: Waiting<In, Out>[] = [];
  let underWay = 0;
  let scheduled = false;
  let drained: (() => void)[] = [];

  const flushAlone = async ({ item, resolve, reject }: Waiting<In, Out>): Promise<void> => {
    try {
      const results = await flush([item]);
      assert.equal(results.length, 1, 'a flush gave another number of results than it got items');
      resolve(results[0] as Out);
    } catch (error) {
      reject(error);
    }
  };

  const flushTogether = async (batch: Waiting<In, Out>[]): Promise<void> => {
    try {
      const results = await flush(batch.map((waiting) => waiting.item));
      assert.equal(results.length, batch.length, 'a flush gave another number of results');
      batch.forEach((waiting, index) => waiting.resolve(results[index] as Out));
    } catch (error) {
      if (batch.length === 1 || error instanceof DatabaseUnavailable) {
        for (const waiting of batch) waiting.reject(error);
        return;
      }
      for (const waiting of batch) await flushAlone(waiting);
    }
  };

  const start = (): void => {
    scheduled = false;
    while (queue.length > 0 && underWay < concurrency) {
      const batch = queue.slice(0, maxBatch);
      queue = queue.slice(maxBatch);
      underWay += 1;
      void flushTogether(batch).finally(() => {
        underWay -= 1;
        schedule();
      });
    }
    if (queue.length === 0 && underWay === 0) {
      const finished = drained;
      drained = [];
      for (const done of finished) done();
    }
  };

  const schedule = (): void => {
    if (scheduled || underWay >= concurrency) return;
    scheduled = true;
    if (lingerMs > 0 && queue.length > 0 && queue.length < maxBatch) {
      void clock.sleep(lingerMs).then(start);
    } else {
      // One turn of the event loop: every request that has been read already joins the first flush.
      setImmediate(start);
    }
  };

  return {
    add(item) {
      if (queue.length >= maxQueued)
        return Promise.reject(
          new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': '1' } }),
        );
      return new Promise<Out>((resolve, reject) => {
        queue.push({ item, resolve, reject });
        schedule();
      });
    },
    drain() {
      if (queue.length === 0 && underWay === 0) return Promise.resolve();
      return new Promise<void>((resolve) => {
        drained.push(resolve);
      });
    },
  };
}
