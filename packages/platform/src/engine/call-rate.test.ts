import assert from 'node:assert/strict';
import test from 'node:test';
import { CallRate } from './call-rate.ts';

/** Starts as many calls as are allowed within a second, and returns when. */
function startAll(rate: CallRate, from: number): number[] {
  const startedAt: number[] = [];
  for (let now = rate.nextAt(from); now < from + 1_000; now = rate.nextAt(now)) {
    // A fraction of a call may be missing after the wait because of rounding.
    if (rate.nextAt(now) > now) now += 0.01;
    else {
      rate.took(now);
      startedAt.push(now);
    }
  }
  return startedAt;
}

test('calls are spread over the second, and an idle second adds no burst', () => {
  const rate = new CallRate(() => 100);
  startAll(rate, 0);
  const startedAt = startAll(rate, 10_000);
  assert.ok(startedAt.length >= 95 && startedAt.length <= 111, `${startedAt.length}`);
  assert.ok(startedAt.filter((at) => at < 10_100).length <= 21);
});

test('429 without Retry-After halves the send rate, which then recovers', () => {
  const rate = new CallRate(() => 100);
  const before = startAll(rate, 0).length;
  assert.ok(before >= 90, `${before}`);
  rate.slowDown(1_000);
  rate.slowDown(1_001);
  const after = startAll(rate, 1_001).length;
  assert.ok(after <= before * 0.65 && after >= before * 0.35, `${before} then ${after}`);
  for (let second = 2; second < 40; second += 1) startAll(rate, second * 1_001);
  assert.ok(startAll(rate, 40_040).length >= 90);
});

/** A rate of 100 a second, of which `sent` calls have just started. */
function busy(sent: number, now: number): CallRate {
  const rate = new CallRate(() => 100);
  for (let count = 0; count < sent; count += 1) rate.took(now);
  return rate;
}

test('calls are a hundredth of a second apart at a hundred a second, and a slow rate saves up one call', () => {
  const fast = new CallRate(() => 100);
  assert.equal(fast.nextAt(0), 10);
  assert.equal(fast.nextAt(10), 10);
  fast.took(10);
  assert.equal(fast.nextAt(10), 20);
  assert.equal(fast.nextAt(15), 20, 'half of it is there');
  const slow = new CallRate(() => 2);
  assert.equal(slow.nextAt(60_000), 60_000);
  slow.took(60_000);
  assert.equal(slow.nextAt(60_000), 60_500, 'a minute of silence is worth one call');
});

test('a rate that was halved grows by a tenth and by one a second, and faster the longer no 429 comes', () => {
  const rate = busy(40, 500);
  rate.slowDown(500);
  assert.equal(rate.at(500), 20);
  assert.equal(rate.at(1_500), 20 * 1.1 + 1 + 0.1);
  assert.equal(rate.at(4_500), 20 * 1.4 + 4 + 1.6);
  assert.equal(rate.at(60_500), 100, 'never more than the worker may send');
});

test('429 answers within half a second halve the rate once', () => {
  const rate = busy(40, 500);
  for (const now of [500, 999]) rate.slowDown(now);
  assert.equal(rate.at(500), 20);
  rate.slowDown(1_000);
  assert.ok(rate.at(1_000) < 11);
});

test('a 429 among few calls, or one for ten normal answers, concerns its own payment alone', () => {
  const slowed = (sent: number, normal: number): boolean => {
    const rate = busy(sent, 500);
    for (let count = 0; count < normal; count += 1) rate.answeredNormally(500);
    rate.slowDown(500);
    return rate.at(500) < 100;
  };
  assert.equal(slowed(10, 9), true);
  assert.equal(slowed(9, 0), false);
  assert.equal(slowed(10, 10), false);
});

test('what was sent is the last full second, or the one that runs when more has started in it', () => {
  // Twenty calls in one second, and `later` calls in another.
  const after = (gapMs: number, later: number, silenceMs: number): number => {
    const rate = busy(20, 10_000);
    const now = 10_000 + gapMs;
    for (let count = 0; count < later; count += 1) rate.took(now);
    rate.slowDown(now + silenceMs);
    return rate.at(now + silenceMs);
  };
  assert.equal(after(1_000, 2, 100), 10, 'a second that has just begun does not count alone');
  assert.equal(after(1_999, 2, 100), 10);
  assert.equal(after(1_000, 12, 999), 10);
  assert.equal(after(1_000, 12, 1_000), 6, 'the second before is over');
  assert.equal(after(2_000, 9, 100), 100, 'a second without a call lay between');
  assert.equal(after(5_000, 1, 100), 100);
  assert.equal(after(3_000, 10, 100), 5);
});

test('normal answers of a second ago count half, and older ones nothing', () => {
  const slowed = (before: number, gapMs: number, now: number, many = 0): boolean => {
    const rate = new CallRate(() => 100);
    for (let count = 0; count < many; count += 1) rate.slowDown(10_000);
    for (let count = 0; count < before; count += 1) rate.answeredNormally(10_000);
    const at = 10_000 + gapMs;
    for (let count = 0; count < 20; count += 1) rate.took(at);
    for (let count = 0; count < now; count += 1) rate.answeredNormally(at);
    rate.slowDown(at);
    return rate.at(at) < 100;
  };
  assert.equal(slowed(18, 999, 0), false);
  assert.equal(slowed(18, 1_000, 0), true);
  assert.equal(slowed(20, 1_000, 0), false);
  assert.equal(slowed(20, 2_000, 0), true);
  assert.equal(slowed(20, 2_000, 9), true);
  assert.equal(slowed(20, 2_000, 10), false);
  // 429 answers count half as well: two of four, and the one that comes now.
  assert.equal(slowed(0, 1_000, 25, 4), true);
  assert.equal(slowed(0, 1_000, 30, 4), false);
});
