/**
 * A replica that accepts payments but no longer applies them reports that it is not ready: readiness covers the sweep, the lease
 * and posting, not only the database (LV2).
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import {
  DatabaseUnavailable,
  silentLog,
  systemClock,
  type Clock,
  type Database,
} from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { Applier, type ApplierOptions } from './apply.ts';
import { ledger } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { startPartner } from './server.ts';
import { insertPayments } from './store.ts';
import { haveAccounts, kitDatabase, TEST_KEY } from '../test/kit.ts';

const ALL_WELL = { sweep: true, lease: true, posting: true };

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

function applierOn(database: Database, clock: Clock, more: Partial<ApplierOptions> = {}) {
  return new Applier({
    database,
    accounts: ledger(database),
    billers: undefined,
    holdMs: 0,
    announce: () => undefined,
    metrics: kitMetrics(undefined),
    log: silentLog,
    clock,
    ...more,
  });
}

async function oneAccepted(database: Database) {
  const [payment] = (
    await insertPayments(database, [
      {
        platform_payment_id: 'p',
        platform_batch_id: 'b',
        biller_id: 'acme',
        account_id: 'A-1',
        client_id: 'static-key',
        amount_in_cents: 100,
      },
    ])
  ).values();
  assert(payment);
  return payment;
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
  const applier = applierOn(watched, clock);
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

test('payments in memory that are never tried make the replica not ready; a slow account system does not [LV2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const clock = movable();
  const payment = await oneAccepted(database);

  // A transaction that never ends, as a bug or a lost answer could cause.
  const ended = Promise.withResolvers<never>();
  let begun = false;
  const stuck = applierOn(
    {
      ...database,
      transaction: () => {
        begun = true;
        return ended.promise;
      },
    },
    clock,
  );
  stuck.take([payment]);
  await until('it is tried', () => begun);
  assert.equal(stuck.health.posting, true);
  clock.move(61_000);
  assert.equal(stuck.health.posting, false);
  ended.reject(new Error('over'));
  await stuck.stop();
  assert.equal(stuck.health.posting, true);

  let asked = false;
  const answer = Promise.withResolvers<readonly [{ outcome: 'posted' }]>();
  const slow = applierOn(database, clock, {
    accounts: {
      posts: 'in_own_system',
      findAccount: () => Promise.resolve(undefined),
      post: () => {
        asked = true;
        return answer.promise;
      },
      calls: { deadlineMs: 600_000 },
    },
  });
  slow.take([payment]);
  await until('the account system is asked', () => asked);
  clock.move(61_000);
  assert.equal(slow.health.posting, true);
  answer.resolve([{ outcome: 'posted' }]);
  await slow.stop();
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
