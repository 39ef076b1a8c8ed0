import assert from 'node:assert/strict';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import { DueHeap } from './due-heap.ts';

test('whatever goes into the heap comes out in order of time', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 50 })), (times) => {
      const heap = new DueHeap<{ at: number }>();
      for (const at of times) heap.push({ at });
      const out: number[] = [];
      for (let item = heap.pop(); item !== undefined; item = heap.pop()) out.push(item.at);
      assert.deepEqual(
        out,
        times.toSorted((a, b) => a - b),
      );
    }),
  );
});

test('an item is removed from the middle of a heap, and the rest keeps its order', () => {
  const heap = new DueHeap<{ at: number }>();
  const chance = seededRandom(7);
  for (let count = 0; count < 500; count += 1) heap.push({ at: Math.floor(chance() * 1_000) });
  const taken: number[] = [];
  for (let count = 0; count < 50; count += 1) taken.push(heap.popLatest(600)?.at ?? -1);
  assert.deepEqual(
    taken,
    taken.toSorted((a, b) => b - a),
  );
  assert.ok(taken.every((at) => at <= 600 && at > 300));
  const left: number[] = [];
  for (let next = heap.pop(); next !== undefined; next = heap.pop()) left.push(next.at);
  assert.equal(left.length, 450);
  assert.deepEqual(
    left,
    left.toSorted((a, b) => a - b),
  );
  assert.equal(heap.popLatest(600), undefined);
});
