import assert from 'node:assert/strict';
import test from 'node:test';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import {
  capMs,
  cheapestPlan,
  edgesOf,
  defaultPollMs,
  isKnown,
  lastFoundMs,
  learn,
  learnBetween,
  massIn,
  newSettlementTimes,
  nextPollMs,
  planPolls,
  retryMs,
} from './poll-schedule.ts';

const HOUR = 3_600_000;
const unit = fc.double({ min: 0, max: 0.999_999, noNaN: true });

test('until a partner’s times are known, poll delays grow from a second, capped by the payment’s age [RU4]', () => {
  assert.equal(defaultPollMs(0, 0, 0.5), 1_000);
  assert.equal(defaultPollMs(1_000, 1, 0.5), 1_600);
  assert.equal(defaultPollMs(HOUR - 1, 1_000, 0.5), 60_000);
  assert.equal(defaultPollMs(HOUR, 1_000, 0.5), 15 * 60_000);
  assert.equal(defaultPollMs(24 * HOUR, 1_000, 0.5), HOUR);
});

test('no age, count or random number makes an invalid delay', () => {
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
  assert.ok(settlements.times.every((time) => Number.isFinite(time) && time >= 0));
});

test('the longest delay follows the age: a minute in the first hour, 15 minutes in the first day, then an hour', () => {
  const ages = [0, HOUR - 1, HOUR, 24 * HOUR - 1, 24 * HOUR, 1_000 * HOUR];
  assert.deepEqual(
    ages.map((age) => capMs(age) / 60_000),
    [1, 1, 15, 15, 60, 60],
  );
  assert.equal(defaultPollMs(0, 0, 0, 200), 180, 'a tenth sooner');
  assert.ok(Math.abs(defaultPollMs(0, 0, 1, 200) - 220) < 1e-6, 'or later');
});

test('an unknown outcome is tried again after a quarter of a second, twice as long each time, to a minute', () => {
  const longest = [1, 2, 3, 8, 9, 10].map((tries) => retryMs(tries, 1));
  assert.deepEqual(longest, [250, 500, 1_000, 32_000, 60_000, 60_000]);
  assert.equal(retryMs(0, 1), 250, 'before the first failure as after it');
  assert.equal(retryMs(1, 0), 125, 'spread over the latter half');
  assert.equal(retryMs(3, 0, 10, 30), 15);
});

test('retry delays grow, are spread, and stay within a minute', () => {
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
  for (let round = 0; round < 40; round += 1) {
    const middle = Math.sqrt(low * high);
    if (simulate(times, () => middle).polls > polls) low = middle;
    else high = middle;
  }
  return simulate(times, () => high);
}

interface Shape {
  readonly draw: (random: () => number) => number;
  /** Mean delay, as a part of that of the fixed interval that costs as many polls, at most. */
  readonly part: number;
}

/** What partners take, with the parts measured by bench/detection.ts and some room for chance. */
const shapes: Record<string, Shape> = {
  'instant or overnight': {
    draw: (random) => (random() < 0.8 ? 20 + 80 * random() : 8 * HOUR + HOUR * random()),
    part: 0.1,
  },
  'log-normal': {
    draw: (random) =>
      2_000 *
      Math.exp(0.5 * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())),
    part: 0.8,
  },
  'a heavy tail': {
    draw: (random) => Math.min(24 * HOUR, 500 * (1 - random()) ** (-1 / 1.1)),
    part: 0.85,
  },
  // The interval that hits the end exactly costs one poll and is late by half of the spread.
  'five seconds, give or take 10 ms': { draw: (random) => 5_000 + 20 * random(), part: 0.6 },
};

for (const [name, { draw, part }] of Object.entries(shapes)) {
  test(`learnt polls find the end sooner than a fixed interval of the same cost: ${name}`, () => {
    // Ten worlds together, because one very long payment can outweigh thousands.
    const sums = { learnt: 0, fixed: 0, polls: 0 };
    for (let seed = 1; seed <= 10; seed += 1) {
      const random = seededRandom(seed);
      const settlements = newSettlementTimes();
      for (let count = 0; count < 2_000; count += 1) learn(settlements, draw(random));
      assert.ok(isKnown(settlements));
      const times = Array.from({ length: 2_000 }, () => draw(random));
      const learnt = simulate(times, (age, polls) => nextPollMs(settlements, age, polls, random()));
      sums.learnt += learnt.delay;
      sums.polls += learnt.polls / 10;
      sums.fixed += fixedAt(times, learnt.polls).delay;
    }
    const ratio = sums.learnt / sums.fixed;
    assert.ok(ratio < part, `${ratio} with ${sums.polls} polls`);
    assert.ok(sums.polls < 6, `${sums.polls} polls`);
  });

  test(`a payment that never ends is polled neither too often nor too rarely: ${name}`, () => {
    const random = seededRandom(3);
    const settlements = newSettlementTimes();
    for (let count = 0; count < 2_000; count += 1) learn(settlements, draw(random));
    const longest = settlements.times.reduce((most, time) => Math.max(most, time), 0);
    let beyond = 0;
    for (let age = 0, polls = 0; age < 24 * HOUR; polls += 1) {
      const ms = nextPollMs(settlements, age, polls, random());
      assert.ok(ms <= (age < HOUR ? HOUR / 4 : HOUR) * 1.11 + 1, `${ms} ms at ${age}`);
      age += ms;
      if (age > 2 * longest) {
        beyond += 1;
        // The default schedule asks 70 times in the first hour; a heavy tail is worth more than that.
        assert.ok(beyond <= 250, `${beyond} polls by ${age}`);
      }
    }
  });
}

test('the schedule adapts when a partner’s times change', () => {
  const settlements = newSettlementTimes();
  const delayOf = (time: number): number =>
    simulate([time], (age, count) => nextPollMs(settlements, age, count, 0.5)).delay;
  for (let count = 0; count < 2_000; count += 1) learn(settlements, 2_000);
  assert.ok(delayOf(2_000) < 5);
  for (let count = 0; count < 2_000; count += 1) learn(settlements, 30_000);
  assert.ok(delayOf(30_000) < 50);
});

test('a partner that always takes the same time is polled once, just after it', () => {
  const settlements = newSettlementTimes();
  for (let count = 0; count < 200; count += 1) learn(settlements, 2_000);
  const { delay, polls } = simulate([2_000], (age, count) =>
    nextPollMs(settlements, age, count, 0.5),
  );
  assert.equal(polls, 1);
  assert.ok(delay < 5, `${delay}`);
});

for (const [ends, endsMs, most] of [
  ['at once', () => 15, 30],
  ['after exactly five seconds', () => 5_000, 400],
  ['within four to six seconds', (random: () => number) => 4_000 + random() * 2_000, 400],
] as const) {
  test(`payments that fail ${ends}, at an unknown time, are not noticed later and later`, (t) => {
    const settlements = newSettlementTimes();
    const random = seededRandom(7);
    const drive = (endMs: number): { polls: number; delayMs: number } => {
      let age = 0;
      for (let polls = 1; ; polls += 1) {
        const due = age + nextPollMs(settlements, age, polls - 1, random());
        if (due >= endMs) {
          learnBetween(settlements, lastFoundMs(settlements, due, polls), due, random());
          return { polls, delayMs: due - endMs };
        }
        age = due;
      }
    };
    for (let count = 0; count < 20_000; count += 1) drive(endsMs(random));
    const driven = Array.from({ length: 500 }, () => drive(endsMs(random)));
    const mean = (of: (one: { polls: number; delayMs: number }) => number): number =>
      driven.reduce((sum, one) => sum + of(one), 0) / driven.length;
    const late = mean(({ delayMs }) => delayMs);
    const polls = mean((one) => one.polls);
    t.diagnostic(`${late.toFixed(0)} ms late after ${polls.toFixed(1)} polls`);
    assert.ok(late < most, `${late} ms late`);
    assert.ok(polls < 7, `${polls} polls`);
  });
}

test('a partner that dates its postings back is still asked when payments end', () => {
  const settlements = newSettlementTimes();
  const random = seededRandom(5);
  /** Drives one payment that really ends after `endsMs` and is said to have ended at once; gives its polls and its delay. */
  const drive = (endsMs: number): { polls: number; delayMs: number } => {
    let age = 0;
    for (let polls = 0; ; polls += 1) {
      const due = age + nextPollMs(settlements, age, polls, random());
      if (due >= endsMs) {
        const processingMs = lastFoundMs(settlements, due, polls + 1);
        assert.ok(
          processingMs <= age + 1e-6,
          `${processingMs} ms, but it was last asked at ${age}`,
        );
        learn(settlements, Math.max(0, processingMs));
        return { polls: polls + 1, delayMs: due - endsMs };
      }
      age = due;
    }
  };
  const endsMs = (): number => 4_000 + random() * 2_000;
  for (let count = 0; count < 2_000; count += 1) drive(endsMs());
  const driven = Array.from({ length: 500 }, () => drive(endsMs()));
  const mean = (of: (one: { polls: number; delayMs: number }) => number): number =>
    driven.reduce((sum, one) => sum + of(one), 0) / driven.length;
  const late = mean(({ delayMs }) => delayMs);
  assert.ok(late < 600, `${late} ms late`);
  assert.ok(mean(({ polls }) => polls) < 10);
});

test('a payment that takes longer than nearly all known ones is polled, though none of them took as long', () => {
  const random = seededRandom(11);
  const settlements = newSettlementTimes();
  // Most end within two minutes; of a thousand, two took nine.
  for (let count = 0; count < 998; count += 1) learn(settlements, 500 + 100_000 * random() ** 4);
  learn(settlements, 520_000);
  learn(settlements, 580_000);
  let [age, polls] = [0, 0];
  const gaps: { readonly at: number; readonly part: number }[] = [];
  while (age < 580_000) {
    const delay = nextPollMs(settlements, age, polls, random());
    if (age > 90_000) gaps.push({ at: Math.round(age), part: delay / age });
    age += delay;
    polls += 1;
  }
  const widest = gaps.toSorted((a, b) => b.part - a.part)[0];
  assert.ok(widest !== undefined && widest.part < 1, JSON.stringify(widest));
});

test('a plan keeps to its budget and its times ascend', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat({ max: 100_000 }), { minLength: 1, maxLength: 60 }),
      fc.integer({ min: 1, max: 20 }),
      (samples, budget) => {
        const plan = planPolls(Float32Array.from(samples), budget);
        assert.ok(plan.length > 0);
        assert.ok(plan.every((time, index) => index === 0 || time > (plan[index - 1] ?? 0)));
        const polls = samples.map(
          (sample) =>
            plan.filter((_, index) => index === 0 || (plan[index - 1] ?? 0) < sample).length,
        );
        const mean = polls.reduce((sum, count) => sum + count, 0) / polls.length;
        // A time stands for a range around it, and the plan polls at the edges of such ranges.
        assert.ok(mean <= budget + 1, `${mean} polls for a budget of ${budget}`);
      },
    ),
    { numRuns: 200 },
  );
});

test('a partner is known after fifty payments, and judged by its last thousand', () => {
  const settlements = newSettlementTimes();
  for (const odd of [-1, Number.NaN, Number.POSITIVE_INFINITY]) learn(settlements, odd);
  for (let count = 0; count < 49; count += 1) learn(settlements, 0);
  assert.equal(isKnown(settlements), false);
  assert.equal(nextPollMs(settlements, 0, 0, 0.5), 1_000);
  assert.equal(nextPollMs(settlements, 0, 0, 0.5, { firstMs: 70 }), 70);
  learn(settlements, 0);
  assert.equal(isKnown(settlements), true, 'a payment that ends at once counts');
  for (let count = 0; count < 1_023; count += 1) learn(settlements, 7_000);
  assert.equal(settlements.times[49], 0);
  learn(settlements, 7_000);
  assert.ok(settlements.times.every((time) => time === 7_000));
  assert.equal(settlements.count, 1_024);
});

test('polls are planned anew once a quarter of the times are new, and not at every poll', () => {
  const settlements = newSettlementTimes();
  const planAfter = (more: number): readonly number[] | undefined => {
    for (let count = 0; count < more; count += 1) learn(settlements, 2_000);
    nextPollMs(settlements, 0, 0, 0.5);
    return settlements.plan;
  };
  const first = planAfter(100);
  assert.equal(planAfter(33), first);
  const second = planAfter(1);
  assert.notEqual(second, first, '34 of 134');
  assert.equal(planAfter(44), second);
  assert.notEqual(planAfter(1), second, '45 of 179');
});

test('a planned poll comes at its time or a little later, never before', () => {
  const settlements = newSettlementTimes();
  const random = seededRandom(9);
  for (let count = 0; count < 500; count += 1) learn(settlements, 2_000 + 6_000 * random());
  nextPollMs(settlements, 0, 0, 0);
  const plan = settlements.plan ?? [];
  assert.ok(plan.length > 5);
  for (const [index, at] of plan.entries()) {
    const before = plan[index - 1] ?? 0;
    if (at - before > HOUR / 5) break;
    // Half a millisecond, because a poll is due in whole ones.
    assert.ok(Math.abs(before + nextPollMs(settlements, before, 1, 0) - (at + 0.5)) < 1e-6);
    const late = before + nextPollMs(settlements, before, 1, 1) - (at + 0.5);
    const gap = (plan[index + 1] ?? Infinity) - at;
    assert.ok(Math.abs(late - Math.min(gap * 0.04, at * 0.002)) < 1e-6, `${late} ms after ${at}`);
    // Just before and just after a planned poll.
    assert.ok(nextPollMs(settlements, at - 1, 1, 0) < 2);
  }
  const last = plan.at(-1) ?? 0;
  assert.ok(last > 24 * HOUR, 'the plan reaches beyond a day');
  assert.equal(nextPollMs(settlements, last, 1, 0.5), HOUR, 'then a poll every hour');
  assert.ok(Math.abs(nextPollMs(settlements, last, 1, 0) - 0.9 * HOUR) < 1);
});

test('a larger budget of polls finds the end sooner', () => {
  const delay = (pollsPerPayment: number): number => {
    const settlements = newSettlementTimes();
    const random = seededRandom(11);
    const times = Array.from({ length: 500 }, () => 1_000 + 60_000 * random());
    for (const time of times) learn(settlements, time);
    const found = simulate(times, (age, polls) =>
      nextPollMs(settlements, age, polls, 0.5, { pollsPerPayment }),
    );
    assert.ok(found.polls > pollsPerPayment / 2 && found.polls < pollsPerPayment + 1);
    return found.delay;
  };
  assert.ok(delay(20) < delay(5) / 3);
  assert.deepEqual(planPolls(new Float32Array(0), 5), []);
});

test('when a payment was last found processing follows the schedule, and is never said later than it was', () => {
  const unknown = newSettlementTimes();
  assert.equal(lastFoundMs(unknown, 5_000, 1), 0, 'the first poll has none before it');
  // By default the second poll comes 1.6 s after the first, a tenth more at most.
  assert.ok(Math.abs(lastFoundMs(unknown, 2_600, 2) - (2_600 - 1_600 * 1.1)) < 1e-6);
  assert.ok(Math.abs(lastFoundMs(unknown, 2_600, 2, 500) - (2_600 - 800 * 1.1)) < 1e-6);
  assert.equal(lastFoundMs(unknown, 100, 3), 0);
  const known = newSettlementTimes();
  const random = seededRandom(13);
  for (let count = 0; count < 500; count += 1) learn(known, 2_000 + 6_000 * random());
  assert.ok(lastFoundMs(known, 2_600, 2) > 0, 'without a plan as by default');
  nextPollMs(known, 0, 0, 0);
  const plan = known.plan ?? [];
  assert.equal(lastFoundMs(known, (plan[0] ?? 0) + 0.5, 2), 0);
  assert.equal(lastFoundMs(known, (plan[1] ?? 0) + 0.5, 2), plan[0]);
  assert.equal(lastFoundMs(known, (plan[4] ?? 0) + 0.5, 5), plan[3]);
  assert.equal(lastFoundMs(known, (plan[4] ?? 0) + 0.5, 1), 0);
});

/** What polls at some edges cost, by the definition: the price of each poll that is made, and the delay of each payment. */
function costOf(
  edges: readonly number[],
  mass: Float64Array,
  price: number,
  polls: readonly number[],
): { cost: number; asked: number } {
  let [cost, asked] = [0, 0];
  for (const [index, edge] of edges.entries()) {
    const payments = mass[index] ?? 0;
    const found = polls.findIndex((poll) => poll >= edge);
    cost += payments * (price * (found + 1) + (polls[found] ?? 0) - edge);
    asked += payments * (found + 1);
  }
  return { cost, asked };
}

test('no other choice of polls costs less than the plan, tried over all of them', () => {
  const cells = fc.array(
    fc.record({ gap: fc.integer({ min: 1, max: 50 }), mass: fc.integer({ min: 0, max: 20 }) }),
    { minLength: 1, maxLength: 8 },
  );
  fc.assert(
    fc.property(
      cells,
      fc.integer({ min: 1, max: 400 }),
      fc.option(fc.integer({ min: 1, max: 120 })),
      (drawn, price, most) => {
        let at = 0;
        const edges = drawn.map(({ gap }) => (at += gap));
        // Something ends after the last edge but one, or the last poll would be of no use.
        const mass = Float64Array.from(drawn, (cell, index) =>
          index === drawn.length - 1 ? cell.mass + 1 : cell.mass,
        );
        const longestGap = most ?? Number.POSITIVE_INFINITY;
        // A poll at the very next edge is always allowed: there is none before it.
        const isAllowed = (polls: readonly number[]): boolean =>
          polls.every((poll, index) => {
            const asked = polls[index - 1] ?? 0;
            const nextEdge = edges.find((edge) => edge > asked);
            return poll === nextEdge || poll - asked <= longestGap;
          });
        let least = Number.POSITIVE_INFINITY;
        for (let chosen = 0; chosen < 2 ** (edges.length - 1); chosen += 1) {
          const polls = edges.filter(
            (_, index) => index === edges.length - 1 || (chosen & (1 << index)) !== 0,
          );
          if (isAllowed(polls)) least = Math.min(least, costOf(edges, mass, price, polls).cost);
        }
        const plan = cheapestPlan(edges, mass, price, () => longestGap);
        assert.ok(isAllowed(plan.times), `${plan.times.join()} of ${edges.join()}`);
        const own = costOf(edges, mass, price, plan.times);
        assert.ok(Math.abs(own.cost - least) < 1e-6, `${own.cost} instead of ${least}`);
        const payments = mass.reduce((sum, one) => sum + one, 0);
        assert.ok(Math.abs(plan.expectedPolls - own.asked / payments) < 1e-9);
      },
    ),
    { numRuns: 500 },
  );
});

test('an end that was found at once, or before its poll was due, happened no later than it was found', () => {
  const settlements = newSettlementTimes();
  learnBetween(settlements, 5_000, 5_000, 0.9);
  learnBetween(settlements, 7_000, 6_000, 0.9);
  learnBetween(settlements, 1_000, 3_000, 0.5);
  assert.deepEqual([...settlements.times.subarray(0, settlements.count)], [5_000, 7_000, 2_000]);
});

test('polls may fall on a hundred and twenty-eight quantiles of the known times, and on ages between that are five percent apart', () => {
  const even = Float32Array.from({ length: 1_000 }, (_, index) => 10_000 + 10 * index);
  const quantiles = Array.from(
    { length: 129 },
    (_, quantile) => even[Math.round((quantile / 128) * 999)],
  );
  assert.deepEqual(edgesOf(even).slice(0, 129), quantiles);
  assert.deepEqual(edgesOf(Float32Array.of(1_000, 1_050)).slice(0, 3), [1_000, 1_050, 1_312.5]);
  const apart = edgesOf(Float32Array.of(0, 0, 0.5, 1_000, 2_000, 2_000));
  assert.equal(apart[0], 1, 'no poll comes before the first millisecond');
  for (const [index, edge] of apart.entries()) {
    const before = apart[index - 1] ?? 0;
    assert.ok(edge > before);
    if (edge <= 2_000 && index > 0) assert.ok(edge <= before * 1.051, `${before} then ${edge}`);
  }
  assert.ok(apart.includes(1_000) && apart.includes(2_000));
});

test('beyond the known times polls may be a quarter apart, or closer where some take many times as long as most', () => {
  const growthOf = (times: Float32Array): number => {
    const edges = edgesOf(times);
    const last = edges.at(-1) ?? 0;
    assert.ok(last < 48 * HOUR && last * 1.25 >= 48 * HOUR, 'for two days');
    return last / (edges.at(-2) ?? 0);
  };
  const near = (actual: number, expected: number): void =>
    assert.ok(Math.abs(actual - expected) < 1e-4, `${actual}, not ${expected}`);
  near(growthOf(new Float32Array(50).fill(1_000)), 1.25);
  near(growthOf(new Float32Array(50)), 1.25);
  // The longest takes 1.1 ** 9 times as long as nine tenths of all.
  const spread = Float32Array.from({ length: 100 }, (_, index) => 1_000 * 1.1 ** index);
  near(growthOf(spread), 1 + 0.25 / (1 + 9 * Math.log(1.1)));
});

test('each known time counts once, over the range that holds its nearest neighbours, and one unknown beyond them all', () => {
  const times = fc.array(fc.oneof(fc.nat(60), fc.nat(5_000)), { minLength: 1, maxLength: 60 });
  const cut = fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 6_000 }));
  const cuts = fc.array(cut, { maxLength: 30 });
  fc.assert(
    fc.property(times, cuts, (known, between) => {
      const sorted = Float32Array.from(known).toSorted();
      const longest = Math.max(...known);
      const edges = [...new Set([...between, 10_000, 20_000])].toSorted((a, b) => a - b);
      const neighbours = Math.min(known.length - 1, Math.ceil(Math.sqrt(known.length) / 2));
      const expected = edges.map((edge, cell) => {
        const before = edges[cell - 1] ?? 0;
        let mass = 0;
        for (const time of known) {
          const away = known.map((other) => Math.abs(other - time)).toSorted((a, b) => a - b);
          const half = Math.min(away[neighbours] ?? 0, (time * 2) / 3);
          const [begin, end] = [time - half, Math.min(time + half, longest)];
          if (end > begin) {
            mass += Math.max(0, Math.min(end, edge) - Math.max(begin, before)) / (end - begin);
          } else if (time <= edge && (time > before || cell === 0)) {
            mass += 1;
          }
        }
        // Half of what is longer than any known is longer than twice the longest, and so on.
        const start = Math.max(1, longest);
        if (edge > longest) mass += start / Math.max(start, before) - start / edge;
        return mass;
      });
      const found = [...massIn(edges, sorted)];
      for (const [cell, mass] of expected.entries()) {
        assert.ok(
          Math.abs((found[cell] ?? 0) - mass) < 1e-6,
          `${found.join()} instead of ${expected.join()}`,
        );
      }
    }),
    // Times of a partner that ends payments at once, too.
    {
      numRuns: 500,
      examples: [
        [
          [0, 1],
          [1, 2, 3],
        ],
      ],
    },
  );
});
