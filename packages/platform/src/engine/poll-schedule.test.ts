import assert from 'node:assert/strict';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import { DueHeap, PartnerQueue } from './partner-queue.ts';
import {
  capMs,
  defaultPollMs,
  isKnown,
  learn,
  newSettlementTimes,
  nextPollMs,
  planPolls,
  retryMs,
} from './poll-schedule.ts';

const HOUR = 3_600_000;
const unit = fc.double({ min: 0, max: 0.999_999, noNaN: true });

test('until a partner is known polls grow from a second, and are capped by the age of the payment [RU4]', () => {
  assert.equal(defaultPollMs(0, 0, 0.5), 1_000);
  assert.equal(defaultPollMs(1_000, 1, 0.5), 1_600);
  assert.equal(defaultPollMs(HOUR - 1, 1_000, 0.5), 60_000);
  assert.equal(defaultPollMs(HOUR, 1_000, 0.5), 15 * 60_000);
  assert.equal(defaultPollMs(24 * HOUR, 1_000, 0.5), HOUR);
});

test('no age, count or chance makes a delay that is not a sane number', () => {
  const settlements = newSettlementTimes();
  fc.assert(
    fc.property(
      fc.nat({ max: 2 ** 40 }),
      fc.nat(),
      unit,
      fc.option(fc.nat({ max: 10 ** 10 })),
      (age, polls, random, sample) => {
        if (sample !== null) learn(settlements, sample);
        for (const ms of [
          defaultPollMs(age, polls, random),
          retryMs(polls, random),
          nextPollMs(settlements, age, polls, random),
        ]) {
          assert.ok(Number.isFinite(ms) && ms > 0 && ms <= 1.1 * HOUR, `${ms}`);
        }
        assert.ok(capMs(age) <= HOUR);
      },
    ),
    { numRuns: 1_000 },
  );
  for (const odd of [Number.NaN, -1, Number.POSITIVE_INFINITY]) learn(settlements, odd);
  assert.ok(Number.isFinite(settlements.total));
});

test('retries grow, are spread, and stay within a minute', () => {
  assert.equal(retryMs(1, 0.999_999) <= 250, true);
  assert.ok(retryMs(3, 0) >= 500);
  assert.ok(retryMs(1_000, 0.999_999) <= 60_000);
  assert.ok(retryMs(1_000, 0) >= 30_000);
});

/** Mean delay of detection and polls per payment over drawn times to the end. */
function simulate(
  times: readonly number[],
  nextMs: (age: number, polls: number) => number,
): { delay: number; polls: number } {
  let [delay, polls] = [0, 0];
  for (const time of times) {
    let age = 0;
    for (let count = 0; ; count += 1) {
      age += nextMs(age, count);
      polls += 1;
      if (age >= time) break;
    }
    delay += age - time;
  }
  return { delay: delay / times.length, polls: polls / times.length };
}

/** The fixed interval that costs `polls` per payment. */
function fixedAt(times: readonly number[], polls: number): { delay: number; polls: number } {
  let [low, high] = [1, 10 ** 9];
  for (let round = 0; round < 60; round += 1) {
    const middle = Math.sqrt(low * high);
    if (simulate(times, () => middle).polls > polls) low = middle;
    else high = middle;
  }
  return simulate(times, () => high);
}

const shapes: Record<string, (random: () => number) => number> = {
  'instant or overnight': (random) =>
    random() < 0.8 ? 20 + 80 * random() : 8 * HOUR + HOUR * random(),
  'log-normal': (random) =>
    2_000 *
    Math.exp(0.5 * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())),
};

for (const [name, draw] of Object.entries(shapes)) {
  test(`learnt polls find the end sooner than a fixed interval of the same cost: ${name}`, () => {
    const seed = 20_260_301;
    const random = seededRandom(seed);
    const settlements = newSettlementTimes();
    for (let count = 0; count < 1_000; count += 1) learn(settlements, draw(random));
    assert.ok(isKnown(settlements));
    const times = Array.from({ length: 2_000 }, () => draw(random));
    const learnt = simulate(times, (age, polls) => nextPollMs(settlements, age, polls, random()));
    const fixed = fixedAt(times, learnt.polls);
    const ratio = learnt.delay / fixed.delay;
    assert.ok(ratio < 0.9, `seed ${seed}: ${ratio} with ${learnt.polls} polls`);
  });
}

test('a partner that always takes the same time is asked once, just after it', () => {
  const settlements = newSettlementTimes();
  for (let count = 0; count < 200; count += 1) learn(settlements, 2_000);
  const { delay, polls } = simulate([2_000], (age, count) =>
    nextPollMs(settlements, age, count, 0.5),
  );
  assert.equal(polls, 1);
  assert.ok(delay < 150, `${delay}`);
});

test('a plan keeps to its budget and its times ascend', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat({ max: 100_000 }), { minLength: 1, maxLength: 60 }),
      fc.integer({ min: 1, max: 20 }),
      (samples, budget) => {
        const settlements = newSettlementTimes();
        for (const sample of samples) learn(settlements, sample);
        const plan = planPolls(settlements.weights, budget);
        assert.ok(plan.length > 0);
        assert.ok(plan.every((time, index) => index === 0 || time > (plan[index - 1] ?? 0)));
        const polls = samples.map(
          (sample) =>
            plan.filter((_, index) => index === 0 || (plan[index - 1] ?? 0) < sample).length,
        );
        const mean = polls.reduce((sum, count) => sum + count, 0) / polls.length;
        // A sample stands in a bin up to 5 % wide, whose edge is where the plan polls.
        assert.ok(mean <= budget + 1, `${mean} polls for a budget of ${budget}`);
      },
    ),
    { numRuns: 200 },
  );
});

test('whatever goes into the heap comes out by its time', () => {
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

test('the breaker opens after failures in a row, tries one call at a time, and closes at the first answer', () => {
  const queue = new PartnerQueue<{ at: number }>('acme', 1_000, 60_000);
  queue.share = 10;
  queue.rate = 100;
  for (let failure = 0; failure < 4; failure += 1) assert.equal(queue.failed(0, 0.5), false);
  assert.equal(queue.room, 10);
  assert.equal(queue.failed(0, 0.5), true);
  assert.equal(queue.room, 1);
  assert.ok(queue.readyAt(0) >= 500);
  let now = 0;
  for (let trial = 0; trial < 30; trial += 1) {
    const ready = queue.readyAt(now);
    assert.ok(ready - now <= 60_000);
    now = ready;
    queue.failed(now, 0.999);
  }
  assert.equal(queue.succeeded(), true);
  assert.equal(queue.room, 10);
  assert.equal(queue.succeeded(), false);
});
