import assert from 'node:assert/strict';
import test from 'node:test';
import { systemClock } from './clock.ts';
import { manualClock, seededRandom } from '../test/testing.ts';

test('a sleep longer than a timer can count does not end at once', async () => {
  const abort = new AbortController();
  let ended = false;
  const sleep = systemClock.sleep(2 ** 33, abort.signal).then(() => (ended = true));
  await systemClock.sleep(20);
  assert.equal(ended, false);
  abort.abort();
  await sleep;
});

test('an aborted sleep ends early and without an error, whether aborted before or during', async () => {
  const start = systemClock.monotonic();
  await systemClock.sleep(60_000, AbortSignal.abort());
  await systemClock.sleep(60_000, AbortSignal.timeout(5));
  for (const ms of [0, -1, Number.NaN]) await systemClock.sleep(ms);
  assert.ok(systemClock.monotonic() - start < 30_000);
});

test('a sleep lasts as long as it says', async () => {
  const start = systemClock.monotonic();
  await systemClock.sleep(30);
  assert.ok(systemClock.monotonic() - start >= 30);
});

test('random numbers are in [0, 1), and the seeded generator repeats itself', () => {
  const draws = Array.from({ length: 1_000 }, () => systemClock.random());
  assert.ok(draws.every((draw) => draw >= 0 && draw < 1));
  const [one, same, other] = [seededRandom(7), seededRandom(7), seededRandom(8)];
  const first = Array.from({ length: 1_000 }, one);
  assert.deepEqual(first, Array.from({ length: 1_000 }, same));
  assert.notDeepEqual(first, Array.from({ length: 1_000 }, other));
  const mean = first.reduce((sum, draw) => sum + draw, 0) / first.length;
  assert.ok(mean > 0.45 && mean < 0.55);
});

test('a test moves time: sleepers wake in order, and what they start next is part of the same run', async () => {
  const clock = manualClock();
  const seen: [string, number][] = [];
  const say = (what: string): void => void seen.push([what, clock.monotonic()]);
  const worker = async (): Promise<void> => {
    for (let tick = 0; tick < 3; tick += 1) {
      await clock.sleep(10);
      say('tick');
    }
  };
  void worker();
  void clock.sleep(25).then(() => say('later'));
  await clock.advance(24);
  assert.deepEqual(seen, [
    ['tick', 10],
    ['tick', 20],
  ]);
  await clock.advance(100);
  assert.deepEqual(seen.slice(2), [
    ['later', 25],
    ['tick', 30],
  ]);
  assert.equal(clock.monotonic(), 124);
  assert.equal(clock.sleeping, 0);
});

test('the wall clock may step back while intervals go on', async () => {
  const clock = manualClock(1_000_000);
  await clock.advance(10);
  clock.stepWallClock(-3_600_000);
  assert.equal(clock.now(), 1_000_010 - 3_600_000);
  assert.equal(clock.monotonic(), 10);
});

test('an aborted sleep of a test clock leaves nothing behind', async () => {
  const clock = manualClock();
  const abort = new AbortController();
  const sleep = clock.sleep(10, abort.signal);
  assert.equal(clock.sleeping, 1);
  abort.abort();
  await sleep;
  assert.equal(clock.sleeping, 0);
});
