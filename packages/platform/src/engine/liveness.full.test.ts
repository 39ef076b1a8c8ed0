/**
 * An engine never dies unseen: a lease is not lost to the worker's own work, nor to what others do to the database, and where it
 * is lost all the same, readiness says so and the worker comes back (LV1, LV2, LV10).
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { systemClock, type Database } from '@duebridge/runtime';
import { assertInTime, holdLock, testInRealTime, until } from '@duebridge/runtime/testing';
import { newSecret } from '../checkout/secrets.ts';
import { startTestPlatform } from '../checkout/testing.ts';
import { around, scriptedPartner, engineRig } from '../../test/engine-rig.ts';

test('a worker that reads its taken-over payments for longer than its lease keeps the lease, and drives what is confirmed meanwhile [LV1]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const adopted = Promise.withResolvers<void>();
  let asked = 0;
  const database = around(rig.database, 'payment_find', async (run) => {
    asked += 1;
    await adopted.promise;
    return run();
  });
  const orphan = await rig.pay(rig.engine(), 'acme', { slot: 8 });
  // Longer than a busy machine keeps a heartbeat waiting.
  const leaseMs = 4_000;
  const engine = rig.engine({ database, options: { leaseMs, beatMs: 100 } });
  // Resolves although nothing has been taken over: a server opens its listeners after it.
  await engine.start();
  const { workerId } = engine;
  await until('it takes over', () => asked > 0);
  for (const end = performance.now() + leaseMs + 500; performance.now() < end;) {
    await systemClock.sleep(100);
    const row = await rig.pay(engine, 'acme');
    const done = await rig.until(row.platform_payment_id, (now) => now.settled_at !== null);
    assert.equal(done.status, 'succeeded');
  }
  assert.equal(engine.workerId, workerId, 'the lease was lost to the work of its own worker');
  assert.equal(engine.health.lease, true);
  adopted.resolve();
  await rig.until(orphan.platform_payment_id, (now) => now.settled_at !== null);
});

/** Holds a lock on a table of the platform until it is told to let go. */
function locked(database: { readonly url: string }, table: string): Promise<() => Promise<void>> {
  return holdLock(database.url, `LOCK TABLE duebridge_platform.${table} IN ACCESS EXCLUSIVE MODE`);
}

/** When the only worker last proved that it lives, in milliseconds; undefined when there is not exactly one worker. */
async function heartbeat(database: Database): Promise<{ id: string; at: number } | undefined> {
  const rows = await database.query<{ id: string; at: number }>(
    `SELECT worker_id AS id, (extract(epoch FROM heartbeat_at) * 1000)::bigint AS at FROM duebridge_platform.workers`,
  );
  return rows.length === 1 ? rows[0] : undefined;
}

testInRealTime(
  'more slow requests than there are connections do not disturb the heartbeat [F103]',
  async (t) => {
    const rig = await startTestPlatform(t);
    const unlock = await locked(rig.database, 'sessions');
    t.after(unlock);
    const before = await heartbeat(rig.database);
    assert.ok(before);
    // Only a bearer with the form of a secret is looked up, and one statement looks up all that came meanwhile.
    const slow = Array.from({ length: 60 }, () =>
      rig.call('GET', '/v1/flow/session', {
        headers: { authorization: `Bearer ${newSecret('dbs_')}` },
      }),
    );
    await until('the front waits for the lock', async () => {
      const rows = await rig.database.query(
        `SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND NOT l.granted`,
      );
      return rows.length > 0;
    });
    // Three more heartbeats, each in time.
    let last = before;
    for (let beats = 0; beats < 3; beats += 1) {
      const seen = last;
      await until('the next heartbeat', async () => {
        const now = await heartbeat(rig.database);
        if (now === undefined || now.at === seen.at) return false;
        last = now;
        return true;
      });
      assertInTime(
        last.at - seen.at < 7_000,
        'a heartbeat came so late that the lease was given up',
      );
    }
    assert.equal(last.id, before.id);
    await unlock();
    await Promise.all(slow);
  },
);

testInRealTime(
  'readiness fails when the heartbeat cannot be renewed, and comes back with it [LV2]',
  async (t) => {
    const rig = await startTestPlatform(t);
    const ready = async () => {
      const response = await fetch(new URL('/readyz', rig.url));
      const body = (await response.json()) as { checks: Record<string, boolean> };
      return { status: response.status, checks: body.checks };
    };
    assert.deepEqual(await ready(), {
      status: 200,
      checks: { database: true, lease: true, calls: true },
    });
    const unlock = await locked(rig.database, 'workers');
    t.after(unlock);
    const lockedAt = performance.now();
    await until('it is not ready', async () => (await ready()).status === 503);
    assertInTime(performance.now() - lockedAt < 15_000, 'it was seen too late');
    assert.deepEqual((await ready()).checks, { database: true, lease: false, calls: true });
    await unlock();
    await until('it is ready again', async () => (await ready()).status === 200);
  },
);
