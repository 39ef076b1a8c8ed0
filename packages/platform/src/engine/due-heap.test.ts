import assert from 'node:assert/strict';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import { DueHeap, LATEST_AMONG } from './due-heap.ts';

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

test('whatever is taken from a heap, first or latest, nothing else is lost and nothing comes twice', () => {
  const time = fc.integer({ min: 0, max: 20 });
  const act = fc.oneof(
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('push' as const), at: time }) },
    fc.record({ kind: fc.constantFrom('pop' as const, 'pop_latest' as const), at: time }),
  );
  fc.assert(
    fc.property(fc.array(act, { maxLength: 60, size: 'max' }), (acts) => {
      const heap = new DueHeap<{ at: number }>();
      const inside = new Set<{ at: number }>();
      for (const { kind, at } of acts) {
        if (kind === 'push') {
          const item = { at };
          inside.add(item);
          heap.push(item);
          continue;
        }
        const due = [...inside].filter((item) => kind === 'pop' || item.at <= at);
        const first = Math.min(...due.map((item) => item.at));
        const last = Math.max(...due.map((item) => item.at));
        if (kind === 'pop') assert.equal(heap.peek()?.at ?? Infinity, first);
        const taken = kind === 'pop' ? heap.pop() : heap.popLatest(at);
        assert.equal(taken?.at, due.length === 0 ? undefined : kind === 'pop' ? first : last);
        if (taken !== undefined) assert.ok(inside.delete(taken), 'it is not in there');
        assert.equal(heap.size, inside.size);
      }
      assert.deepEqual(new Set(heap.takeAll()), inside);
      assert.equal(heap.size, 0);
    }),
    { numRuns: 300 },
  );
});

test('the latest due is found in a bounded time, however many wait', () => {
  let reads = 0;
  const heap = new DueHeap<{ at: number }>();
  for (let count = 0; count < 20_000; count += 1) {
    heap.push({
      get at() {
        reads += 1;
        return count;
      },
    });
  }
  reads = 0;
  assert.equal(heap.popLatest(30_000)?.at, 19_999);
  assert.ok(reads < 2 * LATEST_AMONG && reads < 10_000, `${reads} items were read`);
});
