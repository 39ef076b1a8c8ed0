/**
 * The list of workers. What is at stake: a worker that believes in a heartbeat which others think dead drives payments beside their new
 * owner, and a row that nobody forgets, or that somebody forgets too early, hides who is alive.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { manualClock, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import {
  DatabaseTime,
  forgetDeadWorkers,
  registerWorker,
  removeWorker,
  renewHeartbeat,
} from './ownership.ts';

const LEASE_MS = 10_000;
/** Far more than any statement takes here, far less than a lease. */
const SLACK_MS = 4_000;

const START = Date.UTC(2026, 0, 1);

/** Workers whose heartbeats are this many milliseconds old; a negative age lies ahead. */
async function workers(database: Database, ages: Readonly<Record<string, number>>): Promise<void> {
  await database.query(
    `INSERT INTO duebridge_platform.workers (worker_id, heartbeat_at)
     SELECT id, now() - age * interval '1 millisecond' FROM unnest($1::text[], $2::float8[]) AS w (id, age)`,
    [Object.keys(ages), Object.values(ages)],
  );
}

async function ages(database: Database): Promise<Record<string, number>> {
  const rows = await database.query<{ worker_id: string; age: number }>(
    `SELECT worker_id, (extract(epoch FROM now() - heartbeat_at) * 1000)::float8 AS age
       FROM duebridge_platform.workers ORDER BY worker_id`,
  );
  return Object.fromEntries(rows.map(({ worker_id, age }) => [worker_id, age]));
}

test('the database’s time is carried on between heartbeats, whatever the wall clock does [EE7]', async () => {
  const clock = manualClock(START);
  // The process has run for a minute already.
  await clock.advance(60_000);
  const time = new DatabaseTime(clock);
  await clock.advance(1_000);
  assert.equal(Date.parse(time.now()), START + 61_000, 'until it is learned, our own');
  // The database is an hour ahead; its answer takes two seconds, and was right in the middle of them.
  const heartbeat_at = new Date(START + 3_600_000).toISOString();
  const rows = await time.learn(async () => {
    await clock.advance(2_000);
    return [{ heartbeat_at }];
  });
  assert.deepEqual(rows, [{ heartbeat_at }]);
  assert.equal(Date.parse(time.now()), START + 3_600_000 + 1_000);
  clock.stepWallClock(-86_400_000);
  await clock.advance(5_000);
  assert.equal(Date.parse(time.now()), START + 3_600_000 + 6_000);
  // No row, nothing learned: the lease was refused.
  await time.learn(() => Promise.resolve([]));
  assert.equal(Date.parse(time.now()), START + 3_600_000 + 6_000);
});

test('a heartbeat is renewed only while nobody may have taken over, and only the own one [PL10 EE7]', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'ownership' });
  const clock = manualClock(START);
  const time = new DatabaseTime(clock);
  await registerWorker(database, 'me', time);
  const learned = Date.parse(time.now());
  assert.ok(Math.abs(learned - Date.now()) < 60_000, 'the time of the database is learned');
  await registerWorker(database, 'without a clock');
  await workers(database, {
    fresh: LEASE_MS - SLACK_MS,
    stale: LEASE_MS + SLACK_MS,
    // The clock stepped back since, or its host was wrong: how old these are nobody knows.
    ahead: -(LEASE_MS - SLACK_MS),
    'far ahead': -(LEASE_MS + SLACK_MS),
  });
  const renew = (id: string): Promise<boolean> => renewHeartbeat(database, id, LEASE_MS, time);
  assert.deepEqual(
    [await renew('fresh'), await renew('ahead'), await renew('stale'), await renew('far ahead')],
    [true, true, false, false],
  );
  assert.equal(await renew('nobody'), false);
  const after = await ages(database);
  assert.ok((after['fresh'] ?? Infinity) < SLACK_MS && (after['ahead'] ?? -Infinity) >= 0);
  assert.ok((after['stale'] ?? 0) > LEASE_MS && (after['far ahead'] ?? 0) < -LEASE_MS);
  await removeWorker(database, 'fresh');
  assert.deepEqual(
    Object.keys(await ages(database)),
    Object.keys(after).filter((id) => id !== 'fresh'),
  );
});

test('workers that died long ago are forgotten, on either side of now, and no other [EE7]', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'ownership' });
  await workers(database, {
    now: 0,
    dead: LEASE_MS + SLACK_MS,
    'dead for long': 10 * LEASE_MS - SLACK_MS,
    'dead for ever': 10 * LEASE_MS + SLACK_MS,
    ahead: -10 * LEASE_MS + SLACK_MS,
    'impossibly ahead': -10 * LEASE_MS - SLACK_MS,
  });
  await forgetDeadWorkers(database, LEASE_MS);
  assert.deepEqual(Object.keys(await ages(database)).toSorted(), [
    'ahead',
    'dead',
    'dead for long',
    'now',
  ]);
});
