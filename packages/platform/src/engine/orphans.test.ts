/**
 * No payment that is on its way may be left with nobody who drives it, whatever answer of the database is lost or late and
 * whatever its clock does (PL9).
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import { DatabaseUnavailable, type Database } from '@duebridge/runtime';
import { seededRandom } from '@duebridge/runtime/testing';
import {
  around,
  eventually,
  idleWorker,
  scriptedPartner,
  engineRig,
  sandboxFunds,
} from '../../test/engine-rig.ts';
import { registerWorker } from './ownership.ts';
import { planSlots, readSlots } from './slots.ts';
import { ARRIVALS, type PaymentRow } from '../store/payments.ts';
import { withdrawPayment } from '../store/terminal.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;

test('the funds of a payment withdrawn while its partner is paused are released at once, not after the pause', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await engine.start();
  await rig.registry.change('acme', { paused: true }, 'operator');
  const row = await rig.pay(engine, 'acme');
  await rig.until(row.platform_payment_id, (now) => now.stage === 'authorized');
  const shown: string[] = [];
  const unwatch = engine.watch(row.platform_payment_id, (now) => shown.push(now.status));
  await withdrawPayment(rig.database, row.platform_payment_id, 'customer asked', 'operator');
  const done = await rig.until(row.platform_payment_id, settled);
  assert.equal(done.status, 'canceled');
  await eventually('the customer who watches is told', () => shown.includes('canceled'));
  unwatch();
  await rig.registry.change('acme', { paused: false }, 'operator');
  const next = await rig.pay(engine, 'acme');
  await rig.until(next.platform_payment_id, settled);
  assert.deepEqual(partner.created, [next.platform_payment_id]);
});

test('payments that were placed into a slot without an answer are driven all the same', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  let lost = 0;
  const database = around(rig.database, 'slot_place', async (run) => {
    const rows = await run();
    if (rows.length === 0 || lost > 0) return rows;
    lost += 1;
    throw new DatabaseUnavailable('the answer was lost', 'unknown');
  });
  const engine = rig.engine({ database });
  await engine.start();
  const rows = await Promise.all(
    Array.from({ length: 5 }, () => rig.pay(engine, 'acme', { slot: ARRIVALS })),
  );
  for (const row of rows) {
    const done = await rig.until(row.platform_payment_id, settled);
    assert.equal(done.status, 'succeeded');
  }
  assert.equal(lost, 1);
  assert.equal(partner.created.length, 5);
});

test('a payment confirmed while its worker is coming back from a lost lease is driven', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  let registrations = 0;
  const comingBack = Promise.withResolvers<void>();
  const mayRegister = Promise.withResolvers<void>();
  const database = around(rig.database, 'INSERT INTO duebridge_platform.workers', async (run) => {
    registrations += 1;
    if (registrations === 2) {
      comingBack.resolve();
      await mayRegister.promise;
    }
    return run();
  });
  const engine = rig.engine({ database, options: { leaseMs: 1_000 } });
  await engine.start();
  await rig.database.query(
    `UPDATE duebridge_platform.workers SET heartbeat_at = heartbeat_at - interval '1 hour'`,
  );
  await comingBack.promise;
  const row = await rig.pay(engine, 'acme');
  mayRegister.resolve();
  const done = await rig.until(row.platform_payment_id, settled);
  assert.equal(done.status, 'succeeded');
});

test('a worker that died before the database clock stepped back is not considered alive [EE7 F87]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await registerWorker(rig.database, 'worker-dead');
  await rig.database.query(
    `UPDATE duebridge_platform.workers SET heartbeat_at = clock_timestamp() + interval '1 hour' WHERE worker_id = 'worker-dead'`,
  );
  await rig.database.query(`UPDATE duebridge_platform.slots SET worker_id = 'worker-dead'`);
  const row = await rig.pay(engine, 'acme', { slot: 700 });
  await engine.start();
  const done = await rig.until(row.platform_payment_id, settled);
  assert.equal(done.status, 'succeeded');
  // One that lives writes the clock as it is now with its next beat, and keeps what it has.
  await idleWorker(rig.database, 'worker-ahead', [700]);
  await rig.database.query(
    `UPDATE duebridge_platform.workers SET heartbeat_at = clock_timestamp() + interval '1 second' WHERE worker_id = 'worker-ahead'`,
  );
  const plan = planSlots(await readSlots(rig.database, 'worker-other', 5_000), 'worker-other');
  assert.equal(plan.take.includes(700), false);
});

test('whichever database answers are lost, every payment ends once, and its funds with it [S4 RU2 RU5 EE1]', async (t) => {
  const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
  t.diagnostic(`seed ${seed}`);
  const random = seededRandom(seed);
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, {
    budget: {
      call_timeout_ms: 1_000,
      wait_seconds: 0,
      max_calls_per_second: 1_000,
      max_concurrent_calls: 16,
    },
  });
  let stormy = true;
  let lost = 0;
  /** Loses one answer in eight: half of them before the statement reached the server, half after it was done. */
  const losing = async <T>(run: () => Promise<T>): Promise<T> => {
    const chance = stormy ? random() : 1;
    if (chance < 1 / 8) lost += 1;
    if (chance < 1 / 16) throw new DatabaseUnavailable('no connection', 'not_executed');
    const result = await run();
    if (chance < 1 / 8) throw new DatabaseUnavailable('the answer was lost', 'unknown');
    return result;
  };
  const database: Database = {
    ...rig.database,
    query: (statement, values) => losing(() => rig.database.query(statement, values)),
    transaction: (work, options) => losing(() => rig.database.transaction(work, options)),
  };
  partner.script = () => (stormy && random() < 0.1 ? { status: 500, json: {} } : undefined);
  const funding = sandboxFunds(database);
  const engines = [0, 1].map(() =>
    rig.engine({ database, funding, options: { leaseMs: 2_000, beatMs: 100, pausedMs: 20 } }),
  );
  for (const engine of engines) {
    // A start that fails is tried again by whoever starts the process.
    for (let started = false; !started;) {
      started = await engine.start().then(
        () => true,
        () => false,
      );
      if (!started) await engine.stop();
    }
  }
  const rows: PaymentRow[] = [];
  let withdrawn = 0;
  // At least 120, and until the storm has done what it is for: a fast machine needs more payments for that.
  const isEnough = (): boolean => lost > 20 && withdrawn > 0;
  for (let made = 0; made < 120 || (made < 2_000 && !isEnough()); made += 1) {
    const [engine] = random() < 0.5 ? engines : engines.toReversed();
    assert(engine);
    rows.push(await rig.pay(engine, 'acme', random() < 0.2 ? { slot: ARRIVALS } : {}));
    if (made % 120 === 40) await rig.registry.change('acme', { paused: true }, 'operator');
    if (made % 120 === 80) await rig.registry.change('acme', { paused: false }, 'operator');
    if (random() < 0.2) {
      const some = rows[Math.floor(random() * rows.length)];
      assert(some);
      await withdrawPayment(rig.database, some.platform_payment_id, 'storm', 'operator').then(
        () => (withdrawn += 1),
        (error: unknown) => {
          assert(error instanceof Refusal);
        },
      );
    }
  }
  stormy = false;
  await rig.registry.change('acme', { paused: false }, 'operator');
  const done = await Promise.all(rows.map((row) => rig.until(row.platform_payment_id, settled)));
  const acts = await rig.database.query<{ platform_payment_id: string; act: string }>(
    `SELECT platform_payment_id, act FROM duebridge_platform.sandbox_funds WHERE phase = 'settle'`,
  );
  const settledBy = new Map(acts.map((one) => [one.platform_payment_id, one.act]));
  for (const row of done) {
    assert.equal(
      settledBy.get(row.platform_payment_id),
      row.status === 'succeeded' ? 'capture' : 'void',
    );
    const there = partner.payments.get(row.platform_payment_id);
    assert.equal(there?.status, row.status === 'succeeded' ? 'succeeded' : undefined);
  }
  assert.equal(new Set(partner.created).size, partner.created.length);
  assert.ok(done.some((row) => row.status === 'canceled') && lost > 20);
});
