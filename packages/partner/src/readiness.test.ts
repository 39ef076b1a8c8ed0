/**
 * A replica that accepts payments but no longer applies them reports that it is not ready: readiness covers the sweep and the lease, not
 * only the database (LV2).
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { DatabaseUnavailable, systemClock, type Clock, type Database } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { ledger } from './ledger.ts';
import { startPartner } from './server.ts';
import { applierOn, kitDatabase, TEST_KEY } from '../test/kit.ts';

const ALL_WELL = { sweep: true, lease: true };

/** A clock that the test moves; pauses of the code under test take a fiftieth. */
function movable(): Clock & { move(ms: number): void } {
  let ahead = 0;
  return {
    ...systemClock,
    monotonic: () => systemClock.monotonic() + ahead,
    sleep: (ms, signal) => systemClock.sleep(ms / 50, signal),
    move(ms) {
      ahead += ms;
    },
  };
}

test('a sweep that fails or hangs for fifteen seconds makes the replica not ready; the next good one makes it ready [LV2]', async (t) => {
  const database = await kitDatabase(t);
  const clock = movable();
  let mode: 'works' | 'fails' | 'hangs' = 'works';
  let letGo = Promise.withResolvers<void>();
  const watched: Database = {
    ...database,
    async query<Row>(...args: Parameters<Database['query']>): Promise<Row[]> {
      if (mode === 'fails') throw new DatabaseUnavailable('it is away', 'not_executed');
      if (mode === 'hangs') await letGo.promise;
      return database.query<Row>(...args);
    },
  };
  const applier = applierOn(watched, { accounts: ledger(database), clock });
  applier.start();
  assert.deepEqual(applier.health, ALL_WELL);
  for (const trouble of ['fails', 'hangs'] as const) {
    mode = trouble;
    letGo = Promise.withResolvers<void>();
    await until('it is seen', () => {
      clock.move(500);
      return !applier.health.sweep;
    });
    mode = 'works';
    letGo.resolve();
    await until('it is ready again', () => applier.health.sweep);
  }
  await applier.stop();
});

test('/readyz names each reason, on both listeners', async (t) => {
  const database = await kitDatabase(t);
  const directory = await mkdtemp(path.join(tmpdir(), 'kit-ready-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const partner = await startPartner({
    auth: { method: 'key', header: 'x-api-key', keys: [TEST_KEY] },
    databaseUrl: database.url,
    dataDirectory: directory,
    port: 0,
    adminPort: 0,
  });
  database.closing(() => partner.stop());
  for (const base of [partner.url, partner.adminUrl]) {
    const response = await fetch(new URL('/readyz', base));
    assert.equal(response.status, 200);
    assert.deepEqual(await response.json(), {
      ready: true,
      checks: { database: true, ...ALL_WELL },
    });
  }
});
