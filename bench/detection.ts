/**
 * F7: how late the platform learns that a payment has ended, at equal numbers of polls, on four shapes of the time that partners
 * take; compared with
 *   fixed     a fixed interval
 *   backoff   growing intervals (x1.6 with jitter)
 * each tuned to cost at most as many polls as ours does, with the very times that it is then judged by.
 * Ours learns from other times of the same shape. Simulated: times are drawn, nothing waits. `--payments` per shape, default 20,000.
 *
 * Real waiting reads beside it, over HTTP against the partner kit: the time from the posting of a payment to the answer of a read
 * that waits for it, and the requests that this takes.
 */
import { seededRandom, testDatabase } from '@duebridge/runtime/testing';
import {
  learn,
  newSettlementTimes,
  nextPollMs,
} from '../packages/platform/src/engine/poll-schedule.ts';
import { migrations } from '../packages/partner/src/migrations.ts';
import { instruction, paymentPath, startKit } from '../packages/partner/src/testing.ts';
import { benchOptions } from './options.ts';
import { quantile, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, { payments: '20000', seed: '1' });
const count = Number(flags.payments);
const HOUR = 3_600_000;

/** Times from acceptance to the end, in milliseconds. */
const SHAPES: Readonly<Record<string, (random: () => number) => number>> = {
  'log-normal around 2 s': (random) => 2_000 * Math.exp(0.5 * normal(random)),
  '80 % at once, 20 % overnight': (random) =>
    random() < 0.8 ? 20 + 80 * random() : 8 * HOUR + HOUR * random(),
  'heavy tail': (random) => Math.min(24 * HOUR, 500 * (1 - random()) ** (-1 / 1.1)),
  '5 s, give or take 0.5': (random) => 4_500 + 1_000 * random(),
};

function normal(random: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

type NextMs = (age: number, polls: number) => number;

function simulate(times: readonly number[], nextMs: NextMs) {
  const delays: number[] = [];
  let polls = 0;
  for (const time of times) {
    let age = 0;
    for (let asked = 0; age < time; asked += 1) {
      age += nextMs(age, asked);
      polls += 1;
    }
    delays.push(age - time);
  }
  delays.sort((a, b) => a - b);
  return {
    polls: polls / times.length,
    mean: delays.reduce((sum, delay) => sum + delay, 0) / delays.length,
    p99: quantile(delays, 0.99),
  };
}

/** The best schedule of a family, by one parameter, among those that cost at most `polls` per payment. */
function tuned(times: readonly number[], polls: number, family: (scale: number) => NextMs) {
  let [low, high] = [1, 10 ** 8];
  for (let round = 0; round < 40; round += 1) {
    const middle = Math.sqrt(low * high);
    if (simulate(times, family(middle)).polls > polls) low = middle;
    else high = middle;
  }
  // Cost and delay do not fall evenly: an interval that divides the longest time may be better than a shorter one.
  const longest = times.reduce((most, time) => Math.max(most, time), 0);
  const divisors = Array.from({ length: 20 }, (_, index) => longest / (index + 1));
  const tried = [high, ...divisors].map((scale) => simulate(times, family(scale)));
  const allowed = tried.filter((one) => one.polls <= polls);
  return allowed.toSorted((a, b) => a.mean - b.mean)[0] ?? simulate(times, family(high));
}

for (const [shape, draw] of Object.entries(SHAPES)) {
  const random = seededRandom(Number(flags.seed));
  const settlements = newSettlementTimes();
  for (let n = 0; n < 2_000; n += 1) learn(settlements, draw(random));
  const times = Array.from({ length: count }, () => draw(random));
  const ours = simulate(times, (age, polls) => nextPollMs(settlements, age, polls, random()));
  const fixed = tuned(times, ours.polls, (ms) => () => ms);
  const backoff = tuned(
    times,
    ours.polls,
    (ms) => (_age, polls) => ms * 1.6 ** Math.min(polls, 40) * (0.8 + 0.4 * random()),
  );
  console.log(
    `${shape}: ${ours.polls.toFixed(1)} polls a payment; mean delay ours ${ours.mean.toFixed(0)}, fixed ${fixed.mean.toFixed(0)}, backoff ${backoff.mean.toFixed(0)} ms; p99 ours ${ours.p99.toFixed(0)}, fixed ${fixed.p99.toFixed(0)}, backoff ${backoff.p99.toFixed(0)} ms`,
  );
  const target = 'at most 0.8';
  const best = Math.min(fixed.mean, backoff.mean);
  report({
    figure: 'F7',
    what: `mean delay / best of both, ${shape}`,
    value: ours.mean / best,
    target,
  });
}

// Waiting reads over HTTP ---------------------------------------------------------------------------------------------------

const hooks: (() => Promise<void>)[] = [];
try {
  const database = await testDatabase(
    { after: (hook) => hooks.push(hook) },
    { migrations, name: 'detection' },
  );
  const kit = await startKit(database, { holdMs: 3_600_000, connections: 300 });
  const delays: number[] = [];
  let requests = 0;
  for (let round = 0; round < 5; round += 1) {
    const ids = Array.from({ length: 100 }, (_, index) => `p-${round}-${index}`);
    await Promise.all(ids.map((id) => kit.call('PUT', paymentPath(id), { body: instruction() })));
    const endedAt = new Map<string, number>();
    const reads = ids.map(async (id) => {
      for (;;) {
        requests += 1;
        const { body } = await kit.call('GET', paymentPath(id), {
          headers: { 'x-api-key': 'a-static-key-for-tests', prefer: 'wait=20' },
        });
        if (body['status'] !== 'processing') break;
      }
      // An answer may overtake the return of the call that ended the payment.
      const answeredAt = performance.now();
      delays.push(answeredAt - (endedAt.get(id) ?? answeredAt));
    });
    await new Promise((resolve) => setTimeout(resolve, 500));
    for (const id of ids) {
      await kit.app.partnerKit.cancel(id, 'bench', 'measured');
      endedAt.set(id, performance.now());
    }
    await Promise.all(reads);
  }
  delays.sort((a, b) => a - b);
  report({ figure: 'F7', what: 'waiting reads, mean delay', ...spread(delays), unit: 'ms' });
  report({
    figure: 'F7',
    what: 'waiting reads, p99 delay',
    value: quantile(delays, 0.99),
    unit: 'ms',
    target: 'at most 50 ms',
  });
  report({
    figure: 'F7',
    what: 'waiting reads, requests a payment',
    value: requests / delays.length,
    target: 'at most 2',
  });
} finally {
  for (const hook of hooks) await hook();
}
