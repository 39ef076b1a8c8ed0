/** The funding port hangs or is slow; what comes of the payments of other partners, and of the calls themselves. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { FundingQueue, type FundingCall } from './funding-queue.ts';

const all = (): boolean => true;

test('partners take turns at a funding method: ten thousand payments of one keep no other waiting [LV3]', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (let count = 0; count < 10_000; count += 1) queue.push({ at: 0, name: 'dead' }, 'dead');
  for (const name of ['b', 'c']) queue.push({ at: 1, name }, name);
  const names = [1, 2, 3, 4].map(() => {
    const turn = queue.take(2, all);
    return turn.kind === 'start' ? turn.item.name : turn.kind;
  });
  assert.deepEqual(names.toSorted(), ['b', 'c', 'dead', 'dead']);
});

test('256 hanging calls delay a method for a second, and the number of hanging calls is bounded', () => {
  const queue = new FundingQueue<{ at: number }>();
  for (let count = 0; count < 5_000; count += 1) queue.push({ at: 0 }, 'acme');
  let underWay = 0;
  let now = 0;
  for (; now < 60_000; now += 1_000) {
    for (let turn = queue.take(now, all); turn.kind === 'start'; turn = queue.take(now, all)) {
      underWay += 1;
    }
    if (now === 0) assert.equal(underWay, 256);
    if (now === 1_000) assert.equal(underWay, 512);
  }
  assert.equal(underWay, 1_024);
});

test('a queue tells when its next payment is due, and starts it then', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  assert.deepEqual(queue.take(0, all), { kind: 'empty' });
  queue.push({ at: 500, name: 'later' }, 'acme');
  queue.push({ at: 300, name: 'soon' }, 'utility');
  assert.deepEqual(queue.take(299, all), { kind: 'wait', until: 300 });
  const turn = queue.take(300, all);
  assert.ok(turn.kind === 'start' && turn.item.name === 'soon' && turn.call.startedAt === 300);
  assert.deepEqual(queue.take(300, all), { kind: 'wait', until: 500 });
  assert.equal(queue.take(500, all).kind, 'start');
  assert.deepEqual(queue.take(500, all), { kind: 'empty' });
});

test('partners take turns one payment each, also when one of them has just come', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (const name of ['a1', 'a2', 'a3']) queue.push({ at: 0, name }, 'a');
  for (const name of ['b1', 'b2']) queue.push({ at: 0, name }, 'b');
  const names = [1, 2, 3, 4, 5].map(() => {
    const turn = queue.take(0, all);
    return turn.kind === 'start' ? turn.item.name[0] : turn.kind;
  });
  assert.deepEqual(names, ['a', 'b', 'a', 'b', 'a']);
});

test('payments that were removed while they waited are passed over, and start no call', () => {
  const queue = new FundingQueue<{ at: number; gone: boolean }>();
  for (const gone of [true, true, false, true]) queue.push({ at: 0, gone }, 'acme');
  for (const gone of [true, true]) queue.push({ at: 0, gone }, 'utility');
  const isCurrent = (item: { gone: boolean }): boolean => !item.gone;
  const turn = queue.take(0, isCurrent);
  assert.ok(turn.kind === 'start' && !turn.item.gone);
  assert.deepEqual(queue.take(0, isCurrent), { kind: 'empty' });
});

test('a method at its limit says when its oldest call counts as hung, and goes on sooner when one ends', () => {
  const queue = new FundingQueue<{ at: number }>();
  for (let count = 0; count < 2_000; count += 1) queue.push({ at: 0 }, 'acme');
  const calls: FundingCall[] = [];
  const start = (now: number): string => {
    const turn = queue.take(now, all);
    if (turn.kind === 'start') calls.push(turn.call);
    return turn.kind;
  };
  assert.equal(start(0), 'start');
  while (start(5) === 'start');
  assert.equal(calls.length, 256);
  assert.deepEqual(queue.take(6, all), { kind: 'wait', until: 1_000 });
  const end = (index: number): void => queue.ended(calls[index] as FundingCall);
  end(0);
  assert.equal(start(7), 'start', 'one has ended');
  assert.deepEqual(queue.take(8, all), { kind: 'wait', until: 1_005 });
  assert.equal(queue.take(1_004, all).kind, 'wait');
  for (let now = 1_005; now < 8_000; now += 1_000) while (start(now) === 'start');
  assert.equal(calls.length, 1 + 1_024);
  assert.deepEqual(queue.take(8_000, all), { kind: 'full' });
  end(1);
  assert.equal(start(8_000), 'start', 'a hung call has ended');
  assert.equal(start(8_000), 'full');
  end(calls.length - 1);
  assert.equal(start(8_000), 'start', 'a call that had just begun has ended');
  assert.equal(start(8_000), 'full');
});
