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
