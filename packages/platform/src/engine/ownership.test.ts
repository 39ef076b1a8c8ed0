/**
 * The list of workers. What is at stake: a worker that believes in a heartbeat which others think dead drives payments beside their new
 * owner, and a row that nobody forgets, or that somebody forgets too early, hides who is alive.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { manualClock, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { WorkerList } from './ownership.ts';

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

test('the database’s time is learned at a heartbeat and carried on, whatever the wall clock does [EE7]', async () => {
  const clock = manualClock(START);
  // The database is an hour ahead; its answer takes two seconds, and was right in the middle of them.
  const heartbeat_at = new Date(START + 3_600_000).toISOString();
  let rows = [{ heartbeat_at }];
  const query = async () => {
    await clock.advance(2_000);
    return rows;
  };
  const list = new WorkerList({ query } as unknown as Database, clock, LEASE_MS);
  assert.equal(Date.parse(list.now()), START, 'until it is learned, our own');
  assert.equal(await list.renew('me'), true);
  assert.equal(Date.parse(list.now()), START + 3_600_000 + 1_000);
  clock.stepWallClock(-86_400_000);
  // No row, nothing learned: the lease was refused.
  rows = [];
  assert.equal(await list.renew('me'), false);
  assert.equal(Date.parse(list.now()), START + 3_600_000 + 3_000);
});

test('a heartbeat is renewed only while nobody may have taken over, and only the own one [PL10 EE7]', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'ownership' });
  const list = new WorkerList(database, manualClock(START), LEASE_MS);
  await list.register('me');
  assert.ok(Math.abs(Date.parse(list.now()) - Date.now()) < 60_000);
  await workers(database, {
    fresh: LEASE_MS - SLACK_MS,
    stale: LEASE_MS + SLACK_MS,
    // The clock stepped back since, or its host was wrong: how old these are nobody knows.
    ahead: -(LEASE_MS - SLACK_MS),
    'far ahead': -(LEASE_MS + SLACK_MS),
  });
  for (const [id, is] of [
    ['fresh', true],
    ['ahead', true],
    ['stale', false],
    ['far ahead', false],
    ['nobody', false],
  ] as const) {
    assert.equal(await list.renew(id), is, id);
  }
  const after = await ages(database);
  assert.ok((after['fresh'] ?? Infinity) < SLACK_MS && (after['ahead'] ?? -Infinity) >= 0);
  assert.ok((after['stale'] ?? 0) > LEASE_MS && (after['far ahead'] ?? 0) < -LEASE_MS);
  await list.remove('fresh');
  const { fresh: _, ...others } = after;
  assert.deepEqual(Object.keys(await ages(database)), Object.keys(others));
});

test('a worker that registers forgets those that died long ago, on either side of now, and no other [EE7]', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'ownership' });
  await workers(database, {
    now: 0,
    dead: LEASE_MS + SLACK_MS,
    'dead for long': 10 * LEASE_MS - SLACK_MS,
    'dead for ever': 10 * LEASE_MS + SLACK_MS,
    ahead: -10 * LEASE_MS + SLACK_MS,
    'impossibly ahead': -10 * LEASE_MS - SLACK_MS,
  });
  await new WorkerList(database, manualClock(START), LEASE_MS).register('new');
  assert.deepEqual(Object.keys(await ages(database)).toSorted(), [
    'ahead',
    'dead',
    'dead for long',
    'new',
    'now',
  ]);
});
