/** The database is away: who waits for it, how often it is asked, and what the log says. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { Outage } from './outage.ts';

/** An outage whose time, chance and database are the test's. */
function outages() {
  const clock = manualClock(0);
  const lines: string[] = [];
  const world = { isDown: true, asked: [] as number[] };
  const stop = new AbortController();
  const outage = new Outage({
    database: {
      query() {
        world.asked.push(clock.monotonic());
        return world.isDown ? Promise.reject(new Error('away')) : Promise.resolve([]);
      },
    } as unknown as Database,
    clock: {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      random: () => 0.75,
      sleep: (ms, signal) => clock.sleep(ms, signal),
    },
    log: {
      ...silentLog,
      error: (details, message) => void lines.push(`error ${message} ${JSON.stringify(details)}`),
      warn: (details, message) => void lines.push(`warn ${message} ${JSON.stringify(details)}`),
      info: (details, message) => void lines.push(`info ${message} ${JSON.stringify(details)}`),
    },
    signal: stop.signal,
  });
  return { clock, lines, world, stop, outage };
}

const gone = (): DatabaseUnavailable => new DatabaseUnavailable('it is away', 'unknown');

test('one probe every quarter of a second asks for all that wait, and each outage is told once at either end [LV8]', async () => {
  const { clock, lines, world, outage } = outages();
  let over = 0;
  for (let count = 0; count < 3; count += 1) void outage.over(gone()).then(() => (over += 1));
  assert.equal(lines.length, 1);
  await clock.advance(274);
  assert.deepEqual(world.asked, []);
  await clock.advance(1);
  assert.deepEqual(world.asked, [275]);
  assert.equal(over, 0, 'it is still away');
  world.isDown = false;
  await clock.advance(275);
  assert.deepEqual(world.asked, [275, 550]);
  assert.equal(over, 3);
  assert.equal(lines.length, 1);
  await clock.advance(1_999);
  assert.equal(lines.length, 1, 'it may be met again at once');
  await clock.advance(8_001);
  assert.equal(world.asked.length, 2, 'nobody waits, so nobody asks');
  const told = [
    'error the database does not answer; payments wait {"error":"it is away"}',
    'info the database answers again {"ms":550}',
  ];
  assert.deepEqual(lines, told);
  // Another outage begins anew.
  const later = outage.over(gone());
  await clock.advance(275);
  await later;
  await clock.advance(2_000);
  assert.deepEqual(lines, [...told, told[0], 'info the database answers again {"ms":275}']);
});

test('a stop ends the probing, and nobody waits any more', async () => {
  const { clock, world, stop, outage } = outages();
  const waiting = outage.over(gone());
  stop.abort();
  await waiting;
  await outage.over(gone());
  await clock.advance(10_000);
  assert.deepEqual(world.asked, []);
  assert.equal(clock.sleeping, 0);
});
