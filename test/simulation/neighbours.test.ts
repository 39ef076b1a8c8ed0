/**
 * No payment waits for another, with the pauses and limits of production (LV3): whatever a partner does to some payments, the healthy
 * ones beside them end as if they were alone. In virtual time, so a busy machine changes nothing.
 */
import assert from 'node:assert/strict';
import test, { describe } from 'node:test';
import { FIRST_RETRY_MS } from '../../packages/platform/src/engine/poll-schedule.ts';
import { play, refusal, type Fared, type Scene, type Sickness } from './beside.ts';
import { SimulatedPostgres } from './database.ts';

/** A partner that bears little, so that every call for a sick payment is missing elsewhere. */
const SMALL = { max_concurrent_calls: 8, max_calls_per_second: 20 };
const hang: Sickness = () => Promise.resolve({ kind: 'silent' });
const accept: Sickness = () => Promise.resolve(undefined);
const always =
  (...response: Parameters<typeof refusal>): Sickness =>
  () =>
    Promise.resolve(refusal(...response));
/**
 * When the last payment is sent to a partner that hung and is right again: its trial left just before, hangs until the deadline of a call
 * (15 s), and is its third failure at most (23 payments shared a trial each 1.5 to 2 s), after which it waits for at most 4 x 250 ms
 * (poll-schedule.ts). And a little for the way.
 */
const LAST_MS = 15_000 + 4 * FIRST_RETRY_MS + 100;

const SCENES: readonly (readonly [what: string, scene: Scene])[] = [
  ['20 payments are answered 500', { sick: always(500), count: 20, budget: SMALL, seconds: 5 }],
  ['200 payments are answered 500', { sick: always(500), count: 200, seconds: 5 }],
  [
    'one payment is answered 503 with Retry-After',
    { sick: always(503, { retryAfter: '20' }), count: 1, budget: SMALL, seconds: 5 },
  ],
  [
    'payments are answered 503 with Retry-After again and again',
    { sick: always(503, { retryAfter: '20' }), count: 5, sickEveryMs: 500, seconds: 10 },
  ],
  ['one payment is answered 403', { sick: always(403), count: 1, seconds: 3 }],
  ['40 payments are answered 429', { sick: always(429), count: 40, everyMs: 100, seconds: 4 }],
  ['40 payments hang', { sick: hang, count: 40, seconds: 20 }],
  [
    '150 payments are polled',
    { sick: accept, count: 150, budget: SMALL, aheadMs: 16_000, everyMs: 500, seconds: 5 },
  ],
];

const postgres = await SimulatedPostgres.open();
const alone = await play(postgres, { sick: always(500), count: 0, budget: SMALL, seconds: 5 });

describe('with the pauses of production', () => {
  for (const [what, scene] of SCENES) {
    test(`${what} forever, and others of the same partner end as if they were alone [LV3]`, async (t) => {
      const beside = await play(postgres, scene);
      t.diagnostic(`alone ${told(alone)}; beside ${told(beside)}`);
      assert.ok(at(beside.ends, 0.5) <= at(alone.ends, 0.5) * 1.5);
      assert.ok(at(beside.ends, 1) <= at(alone.ends, 1) + 2_000);
      assert.ok(at(beside.puts, 1) <= at(alone.puts, 1) + 1_000);
    });
  }

  test('one payment is answered 500 forever, and is left to itself although others come one by one [LV3]', async () => {
    const scene = { sick: always(500), count: 1, everyMs: 20_000, seconds: 300 };
    const { sickCalls } = await play(postgres, scene);
    assert.ok(sickCalls.length <= 20, `${sickCalls.length} calls in five minutes`);
  });

  for (const [what, fails] of [
    ['dates each posting by the poll that asks for it', false],
    ['fails every payment, and so names no time', true],
  ] as const) {
    test(`a partner that ${what} is not asked later and later`, async (t) => {
      const { endsInTurn } = await play(postgres, {
        sick: accept,
        count: 0,
        everyMs: 100,
        seconds: 18,
        fails,
      });
      const median = at(
        endsInTurn.slice(-60).toSorted((a, b) => a - b),
        0.5,
      );
      t.diagnostic(`median of the latest 60: ${median.toFixed(0)} ms`);
      // Such times teach nothing, so the first poll comes after a second.
      assert.ok(median < 1_200, `${median} ms`);
    });
  }

  for (const [what, response, hung] of [
    ['refused our credentials', refusal(401), 0],
    ['had an invalid certificate', { kind: 'certificate' }, 0],
    ['answered 500', refusal(500), 0],
    // Those whose trial hangs wait for its deadline.
    ['hung', { kind: 'silent' }, 10],
  ] as const) {
    test(`a partner that ${what} for a minute is sent all that waited within two seconds [LV8]`, async (t) => {
      let healedAt = Infinity;
      const waits = new Map<string, number>();
      const sick: Sickness = ({ id, method }, world) => {
        if (world.elapsed < 70_000) return Promise.resolve(response);
        healedAt = Math.min(healedAt, world.elapsed);
        if (method === 'PUT' && !waits.has(id)) waits.set(id, world.elapsed - 70_000);
        return Promise.resolve(undefined);
      };
      const scene = { sick, count: 20, sickEveryMs: 20_000, aheadMs: 75_000, seconds: 1 };
      await play(postgres, scene);
      const longest = Math.max(...waits.values());
      t.diagnostic(`first ${healedAt - 70_000} ms, last ${longest} ms after it was right again`);
      const soon = [...waits.values()].filter((ms) => ms <= 2_100).length;
      assert.ok(soon >= 23 - hung, `${soon} were sent within two seconds`);
      assert.ok(
        waits.size >= 23 && longest <= LAST_MS,
        `the last of ${waits.size} after ${longest}`,
      );
    });
  }

  test('a partner that is down is called no more often than before, whoever waits for it [LV3 LV8]', async (t) => {
    for (const [what, sick, most] of [
      // Half of the budget for payments that were never tried, and one trial of a failed one every two seconds at most.
      ['answers 500', always(500), 100 + 20],
      ['answers 401', always(401), 8 + 4],
      ['hangs', hang, 8 + 10],
    ] as const) {
      const { sickCalls } = await play(postgres, {
        sick,
        count: 60,
        everyMs: 60_000,
        seconds: 1,
        aheadMs: 10_000,
        budget: SMALL,
      });
      const calls = sickCalls.filter((after) => after < 10_000).length;
      t.diagnostic(`${what}: ${calls} calls in ten seconds`);
      assert.ok(calls > 4 && calls <= most, `${what}: ${calls} calls`);
    }
  });
});

function at(times: readonly number[], part: number): number {
  return times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? Infinity;
}

function told({ ends, puts }: Fared): string {
  const of = (times: readonly number[]): string =>
    [0.5, 0.99, 1].map((part) => Math.round(at(times, part))).join(' ');
  return `ends ${of(ends)}, PUTs ${of(puts)} ms`;
}
