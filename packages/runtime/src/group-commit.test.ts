import { Refusal } from '@duebridge/contract';
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable } from './errors.ts';
import { groupCommit } from './group-commit.ts';
import { manualClock } from '../test/testing.ts';

/** A flush that waits to be released, and records what it was given. */
function heldFlush() {
  const flushes: number[][] = [];
  let waiting: (() => void)[] = [];
  return {
    flushes,
    flush: async (items: number[]) => {
      flushes.push(items);
      await new Promise<void>((resolve) => waiting.push(resolve));
      return items.map((item) => item * 10);
    },
    release: () => {
      const now = waiting;
      waiting = [];
      for (const go of now) go();
    },
  };
}

const turn = (): Promise<void> =>
  new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

test('items that arrive during a flush go into the next one, in order, and each caller gets its own result', async () => {
  const held = heldFlush();
  const group = groupCommit({ flush: held.flush, maxBatch: 3, maxQueued: 100 });
  const first = group.add(1);
  await turn();
  const rest = [2, 3, 4, 5].map((item) => group.add(item));
  await turn();
  assert.deepEqual(held.flushes, [[1]]);
  held.release();
  assert.equal(await first, 10);
  await turn();
  assert.deepEqual(held.flushes, [[1], [2, 3, 4]]);
  held.release();
  await turn();
  held.release();
  assert.deepEqual(await Promise.all(rest), [20, 30, 40, 50]);
  assert.deepEqual(held.flushes, [[1], [2, 3, 4], [5]]);
});

test('a second flush starts beside one that takes too long, or when it is full, and not before', async () => {
  const held = heldFlush();
  const clock = manualClock();
  const options = { flush: held.flush, maxBatch: 3, maxQueued: 100, concurrency: 2, clock };
  const group = groupCommit({ ...options, patienceMs: 100 });
  const all = [group.add(1)];
  await turn();
  all.push(group.add(2), group.add(3));
  await turn();
  await clock.advance(99);
  await turn();
  assert.deepEqual(held.flushes, [[1]]);
  await clock.advance(1);
  await turn();
  assert.deepEqual(held.flushes, [[1], [2, 3]]);
  held.release();
  await turn();
  all.push(group.add(4));
  await turn();
  all.push(group.add(5), group.add(6), group.add(7));
  await turn();
  assert.deepEqual(held.flushes.slice(2), [[4], [5, 6, 7]]);
  held.release();
  await turn();
  assert.deepEqual(await Promise.all(all), [10, 20, 30, 40, 50, 60, 70]);
});

test('a full queue refuses the next caller and keeps those it has', async () => {
  const held = heldFlush();
  const group = groupCommit({ flush: held.flush, maxBatch: 1, maxQueued: 2 });
  const running = group.add(1);
  await turn();
  const queued = [group.add(2), group.add(3)];
  await assert.rejects(
    group.add(4),
    (error) =>
      error instanceof Refusal &&
      error.status === 503 &&
      error.headers['Retry-After'] !== undefined,
  );
  let drained = false;
  const drain = group.drain().then(() => (drained = true));
  for (let flush = 0; flush < 3; flush += 1) {
    assert.equal(drained, false);
    held.release();
    await turn();
  }
  await drain;
  assert.deepEqual(await Promise.all([running, ...queued]), [10, 20, 30]);
});

test('a lost connection is reported to all and repeated for none: the write may have happened [EE5 F70]', async () => {
  let flushes = 0;
  const group = groupCommit({
    flush: () => {
      flushes += 1;
      return Promise.reject(new DatabaseUnavailable('lost', 'unknown'));
    },
    maxBatch: 10,
    maxQueued: 10,
  });
  const results = await Promise.allSettled([group.add(1), group.add(2), group.add(3)]);
  assert.ok(results.every((result) => result.status === 'rejected'));
  assert.equal(flushes, 1);
});

test('a connection lost while rows are tried one by one ends the attempts', async () => {
  const flushes: number[][] = [];
  const group = groupCommit({
    flush: (items: number[]) => {
      flushes.push(items);
      if (items.length > 1) return Promise.reject(new Error('one of them is bad'));
      if (items[0] === 2) return Promise.reject(new DatabaseUnavailable('lost', 'unknown'));
      return Promise.resolve(items);
    },
    maxBatch: 10,
    maxQueued: 10,
  });
  const results = await Promise.allSettled([1, 2, 3].map((item) => group.add(item)));
  assert.equal(results.map(({ status }) => status).join(), 'fulfilled,rejected,rejected');
  assert.deepEqual(flushes, [[1, 2, 3], [1], [2]]);
});
