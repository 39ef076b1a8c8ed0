import assert from 'node:assert/strict';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import { DEFAULT_TIMES } from './options.ts';
import { learn, nextPollMs, retryMs, SettlementTimes } from './poll-schedule.ts';

const HOUR = 3_600_000;
const byDefault = (age: number, polls: number, random: number, firstMs?: number): number =>
  nextPollMs(new SettlementTimes(), age, polls, random, firstMs);
const unit = fc.double({ min: 0, max: 0.999_999, noNaN: true });

test('until a partner’s times are known, poll delays grow from a second, capped by the payment’s age [RU4]', () => {
  assert.equal(byDefault(0, 0, 0.5), 1_000);
  assert.equal(byDefault(1_000, 1, 0.5), 1_600);
  assert.equal(byDefault(HOUR - 1, 1_000, 0.5), 60_000);
  assert.equal(byDefault(HOUR, 1_000, 0.5), 15 * 60_000);
  assert.equal(byDefault(24 * HOUR, 1_000, 0.5), HOUR);
});

test('no age, count or random number makes an invalid delay', () => {
  const settlements = new SettlementTimes();
  fc.assert(
    fc.property(
      fc.nat({ max: 2 ** 40 }),
      fc.nat(),
      unit,
      fc.option(fc.nat({ max: 10 ** 10 })),
      (age, polls, random, sample) => {
        if (sample !== null) learn(settlements, sample);
        for (const ms of [
          byDefault(age, polls, random),
          retryMs(polls, random, 250, 60_000),
          nextPollMs(settlements, age, polls, random),
        ]) {
          assert.ok(Number.isFinite(ms) && ms > 0 && ms <= 1.1 * HOUR, `${ms}`);
        }
      },
    ),
    { seed: 1, numRuns: 1_000 },
  );
  for (const odd of [Number.NaN, -1, Number.POSITIVE_INFINITY]) learn(settlements, odd);
  assert.ok(settlements.times.every((time) => Number.isFinite(time) && time >= 0));
});

test('an unknown outcome is tried again after a quarter of a second, twice as long each time, to a minute', () => {
  const { retryMs: firstMs, maxRetryMs } = DEFAULT_TIMES;
  const after = (tries: number, random: number) => retryMs(tries, random, firstMs, maxRetryMs);
  const longest = [1, 2, 3, 8, 9, 10].map((tries) => after(tries, 1));
  assert.deepEqual(longest, [250, 500, 1_000, 32_000, 60_000, 60_000]);
  assert.equal(after(0, 1), 250, 'before the first failure as after it');
  assert.equal(after(1, 0), 125, 'spread over the latter half');
  assert.equal(retryMs(3, 0, 10, 30), 15);
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

/** The delay of the fixed interval that costs `polls` per payment. */
function fixedAt(times: readonly number[], polls: number): number {
  let [low, high] = [1, 10 ** 9];
  for (let round = 0; round < 40; round += 1) {
    const middle = Math.sqrt(low * high);
    if (simulate(times, () => middle).polls > polls) low = middle;
    else high = middle;
  }
  return simulate(times, () => high).delay;
}

function known(count: number, draw: () => number): SettlementTimes {
  const settlements = new SettlementTimes();
  for (let made = 0; made < count; made += 1) learn(settlements, draw());
  return settlements;
}

/** What partners take. */
const shapes: Record<string, (random: () => number) => number> = {
  'instant or overnight': (random) =>
    random() < 0.8 ? 20 + 80 * random() : 8 * HOUR + HOUR * random(),
  'log-normal': (random) =>
    2_000 *
    Math.exp(0.5 * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())),
  'a heavy tail': (random) => Math.min(24 * HOUR, 500 * (1 - random()) ** (-1 / 1.1)),
  'five seconds, give or take half of one': (random) => 4_500 + 1_000 * random(),
};

for (const [name, draw] of Object.entries(shapes)) {
  test(`planned polls find the end sooner than a fixed interval of the same cost: ${name}`, (t) => {
    // Ten worlds together, because one very long payment can outweigh thousands.
    const sums = { planned: 0, fixed: 0, polls: 0 };
    for (let seed = 1; seed <= 10; seed += 1) {
      const random = seededRandom(seed);
      const settlements = known(2_000, () => draw(random));
      const times = Array.from({ length: 2_000 }, () => draw(random));
      const planned = simulate(times, (age, polls) =>
        nextPollMs(settlements, age, polls, random()),
      );
      sums.planned += planned.delay;
      sums.polls += planned.polls / 10;
      sums.fixed += fixedAt(times, planned.polls);
    }
    const ratio = sums.planned / sums.fixed;
    t.diagnostic(`${ratio.toFixed(2)} with ${sums.polls.toFixed(1)} polls`);
    assert.ok(ratio <= 0.8, `${ratio} with ${sums.polls} polls`);
    assert.ok(sums.polls < 6.5, `${sums.polls} polls`);
  });

  test(`a payment that never ends is polled neither too often nor too rarely: ${name}`, () => {
    const random = seededRandom(3);
    const settlements = known(2_000, () => draw(random));
    const longest = settlements.times.reduce((most, time) => Math.max(most, time), 0);
    let beyond = 0;
    for (let age = 0, polls = 0; age < 24 * HOUR; polls += 1) {
      const ms = nextPollMs(settlements, age, polls, random());
      assert.ok(ms <= (age < HOUR ? HOUR / 4 : HOUR) * 1.11 + 1, `${ms} ms at ${age}`);
      age += ms;
      if (age > 2 * longest) beyond += 1;
    }
    // The default schedule asks 70 times in the first hour.
    assert.ok(beyond <= 150, `${beyond} polls`);
  });
}

test('a payment that a fast partner does not end is polled at most ten times in a second [LI1]', () => {
  for (const draw of [(random: number) => 2 + 10 * random, (random: number) => 5 / (1 - random)]) {
    const random = seededRandom(5);
    const settlements = known(1_024, () => draw(random()));
    const ages: number[] = [];
    for (let age = 0; age < HOUR; ages.push(age)) {
      age += nextPollMs(settlements, age, ages.length, random());
    }
    const eleven = ages.slice(10).map((age, first) => age - (ages[first] ?? 0));
    assert.ok(Math.min(...eleven) > 1_000, `eleven polls in ${Math.min(...eleven)} ms`);
  }
});

test('a partner is known after fifty payments, and its latest thousand decide', () => {
  const after = (settlements: SettlementTimes, time: number): number =>
    simulate([time], (age, count) => nextPollMs(settlements, age, count, 0.5)).delay;
  const settlements = known(49, () => 2_000);
  assert.equal(nextPollMs(settlements, 0, 0, 0.5), 1_000, 'by default');
  learn(settlements, 2_000);
  assert.deepEqual(
    simulate([2_000], (age, count) => nextPollMs(settlements, age, count, 0.5)).polls,
    1,
  );
  assert.ok(after(settlements, 2_000) < 5, 'just after it');
  for (let count = 0; count < 2_000; count += 1) learn(settlements, 30_000);
  assert.ok(after(settlements, 30_000) < 50);
});

test('a payment that takes longer than any known one is polled at ages that grow by a sixth', () => {
  const settlements = known(200, () => 2_000);
  for (let age = 2_001, polls = 1; age < 15 * 60_000; polls += 1) {
    const next = age + nextPollMs(settlements, age, polls, 0.999);
    assert.ok(next <= age * 1.16 + 10, `${next} after ${age}`);
    age = next;
  }
});
