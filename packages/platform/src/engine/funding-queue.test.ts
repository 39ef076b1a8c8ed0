/** The funding port hangs or is slow; what comes of the payments of other partners, and of the calls themselves. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { FundingQueue, type FundingCall } from './funding-queue.ts';

const all = (): boolean => true;

test('partners take turns at a funding method: ten thousand payments of one keep no other waiting [LV3]', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (let count = 0; count < 10_000; count += 1)
    queue.push({ at: 0, name: 'dead' }, 'dead', false);
  for (const name of ['b', 'c']) queue.push({ at: 1, name }, name, false);
  const names = [1, 2, 3, 4].map(() => {
    const turn = queue.take(2, all);
    return turn.kind === 'start' ? turn.item.name : turn.kind;
  });
  assert.deepEqual(names.toSorted(), ['b', 'c', 'dead', 'dead']);
});

test('256 hanging calls delay a method for a second, and the number of hanging calls is bounded', () => {
  const queue = new FundingQueue<{ at: number }>();
  for (let count = 0; count < 5_000; count += 1) queue.push({ at: 0 }, 'acme', false);
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
  assert.deepEqual(queue.take(0, all), { kind: 'idle' });
  queue.push({ at: 500, name: 'later' }, 'acme', false);
  queue.push({ at: 300, name: 'soon' }, 'utility', false);
  assert.deepEqual(queue.take(299, all), { kind: 'wait', until: 300 });
  const turn = queue.take(300, all);
  assert.ok(turn.kind === 'start' && turn.item.name === 'soon' && turn.call.startedAt === 300);
  assert.deepEqual(queue.take(300, all), { kind: 'wait', until: 500 });
  assert.equal(queue.take(500, all).kind, 'start');
  assert.deepEqual(queue.take(500, all), { kind: 'idle' });
});

test('partners take turns one payment each, also when one of them has just come', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (const name of ['a1', 'a2', 'a3']) queue.push({ at: 0, name }, 'a', false);
  for (const name of ['b1', 'b2']) queue.push({ at: 0, name }, 'b', false);
  const names = [1, 2, 3, 4, 5].map(() => {
    const turn = queue.take(0, all);
    return turn.kind === 'start' ? turn.item.name[0] : turn.kind;
  });
  assert.deepEqual(names, ['a', 'b', 'a', 'b', 'a']);
});

test('payments that were removed while they waited are passed over, and start no call', () => {
  const queue = new FundingQueue<{ at: number; gone: boolean }>();
  for (const gone of [true, true, false, true]) queue.push({ at: 0, gone }, 'acme', false);
  for (const gone of [true, true]) queue.push({ at: 0, gone }, 'utility', false);
  const isCurrent = (item: { gone: boolean }): boolean => !item.gone;
  const turn = queue.take(0, isCurrent);
  assert.ok(turn.kind === 'start' && !turn.item.gone);
  assert.deepEqual(queue.take(0, isCurrent), { kind: 'idle' });
});

/** A queue at its limit, and what has come of it: `start` says what happened at a time, and keeps the calls. */
function fullQueue(waiting: number, canGiveUp = true) {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (let count = 0; count < waiting; count += 1) {
    queue.push({ at: 0, name: `p${count}` }, 'acme', false);
  }
  const calls: FundingCall[] = [];
  const givenUp: FundingCall[] = [];
  const start = (now: number): string => {
    const turn = queue.take(now, all);
    if (turn.kind === 'start') {
      calls.push(turn.call);
      if (canGiveUp) turn.call.giveUp = () => givenUp.push(turn.call);
    }
    if (turn.kind === 'give_up') turn.call.giveUp?.();
    return turn.kind === 'start' ? turn.item.name : turn.kind;
  };
  return { queue, calls, givenUp, start };
}

test('a method at its limit says when its oldest call counts as hung, and goes on sooner when one ends', () => {
  const { queue, calls, givenUp, start } = fullQueue(2_000);
  assert.equal(start(0), 'p0');
  while (start(5).startsWith('p'));
  assert.equal(calls.length, 256);
  assert.deepEqual(queue.take(6, all), { kind: 'wait', until: 1_000 });
  const end = (index: number): void => queue.ended(calls[index] as FundingCall);
  end(0);
  assert.ok(start(7).startsWith('p'), 'one has ended');
  assert.deepEqual(queue.take(8, all), { kind: 'wait', until: 1_005 });
  assert.equal(queue.take(1_004, all).kind, 'wait');
  for (let now = 1_010; now < 4_000; now += 1_000) while (start(now).startsWith('p'));
  assert.equal(calls.length, 1 + 1_024);
  assert.deepEqual(givenUp, []);
  end(1);
  end(calls.length - 1);
  assert.ok(start(8_000).startsWith('p'), 'a hung call has ended, and one that had just begun');
  assert.ok(start(8_000).startsWith('p'));
  // The oldest is given up, and its place is free at once.
  assert.equal(start(8_000), 'give_up');
  assert.deepEqual(givenUp, [calls[2]]);
  assert.ok(start(8_000).startsWith('p'));
  end(2);
  assert.equal(start(8_000), 'give_up', 'its end frees no second place');
});

test('a call that waits for the database is not given up, and what waits goes on when one ends', () => {
  const { queue, calls, start } = fullQueue(2_000, false);
  for (let now = 0; now < 8_000; now += 1_000) while (start(now).startsWith('p'));
  assert.equal(calls.length, 1_024);
  assert.deepEqual(queue.take(8_000, all), { kind: 'idle' });
  queue.push({ at: 9_000, name: 'later' }, 'utility', false);
  assert.deepEqual(queue.take(8_000, all), { kind: 'wait', until: 9_000 });
  const [, , third] = calls;
  assert(third);
  third.giveUp = () => undefined;
  assert.deepEqual(queue.take(8_000, all), { kind: 'give_up', call: third });
});

test('retries have half of the places, wait for one, and keep it', () => {
  const { queue, calls, givenUp, start } = fullQueue(0);
  for (let count = 0; count < 2_000; count += 1) {
    queue.push({ at: 0, name: `r${count}` }, 'acme', true);
  }
  while (start(0).startsWith('r'));
  assert.equal(calls.length, 128);
  assert.deepEqual(queue.take(1, all), { kind: 'wait', until: 1_000 });
  for (let count = 0; count < 2_000; count += 1) {
    queue.push({ at: 0, name: `p${count}` }, 'acme', false);
  }
  for (let count = 0; count < 128; count += 1) assert.match(start(2), /^p/);
  assert.deepEqual(queue.take(3, all), { kind: 'wait', until: 1_000 });
  // They take turns, until retries have their half; the rest is for others, and only those are given up.
  const kinds = [1, 2, 3].map(() => start(1_000).slice(0, 1));
  assert.deepEqual(new Set(kinds), new Set(['p', 'r']));
  for (let now = 1_002; now < 8_000; now += 1_000) while (/^[pr]/.test(start(now)));
  const kept = calls.filter(({ isRetry }) => isRetry);
  assert.equal(kept.length, 512);
  assert.ok(givenUp.length > 0 && givenUp.every(({ isRetry }) => !isRetry));
  // At the limit a retry gives way to what has not failed, and waits for the end of another.
  const [ended] = kept;
  assert(ended);
  queue.ended(ended);
  while (start(9_000) !== 'wait');
  assert.equal(calls.filter(({ isRetry }) => isRetry).length, 513);
});

test('a retry is no reason to give up a call, and waits until one ends', () => {
  const { queue, calls, start } = fullQueue(1_024);
  for (let now = 0; now < 4_000; now += 1_000) while (start(now).startsWith('p'));
  assert.equal(calls.length, 1_024);
  queue.push({ at: 0, name: 'r' }, 'acme', true);
  assert.deepEqual(queue.take(9_000, all), { kind: 'idle' });
  queue.ended(calls[0] as FundingCall);
  assert.equal(start(9_000), 'r');
});

test('a method is down after five failures in a row, until a call is answered', () => {
  const queue = new FundingQueue<{ at: number }>();
  for (let count = 0; count < 4; count += 1) queue.failed();
  assert.equal(queue.isDown, false);
  queue.failed();
  assert.equal(queue.isDown, true);
  assert.equal(queue.answered(), true);
  assert.equal(queue.isDown, false);
  for (let count = 0; count < 4; count += 1) queue.failed();
  assert.equal(queue.answered(), false);
  queue.failed();
  assert.equal(queue.isDown, false);
});
