/**
 * No payment that is on its way may be left with nobody who drives it, whatever answer of the database is lost or late and
 * whatever its clock does (PL9).
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { until } from '@duebridge/runtime/testing';
import { around, idleWorker, scriptedPartner, engineRig } from '../../test/engine-rig.ts';
import { planSlots, readSlots } from './slots.ts';
import type { PaymentRow } from '../store/payments.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;

test('a worker that died before the database clock stepped back is not considered alive [EE7 F87]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await idleWorker(rig.database, 'worker-dead', []);
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

test('a payment that ended while its page was read is not driven again [PL8]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const row = await rig.pay(rig.engine(), 'acme', { slot: 8 });
  const { platform_payment_id: id } = row;
  const read = Promise.withResolvers<void>();
  const letGo = Promise.withResolvers<void>();
  const database = around(rig.database, 'payment_find', async (run) => {
    const rows = await run();
    read.resolve();
    await letGo.promise;
    return rows;
  });
  const engine = rig.engine({ database });
  await engine.start();
  await read.promise;
  engine.take(row);
  await rig.until(id, settled);
  await until('it is forgotten', () => engine.nextStepAt(id) === undefined);
  letGo.resolve();
  // The page arrives, with the payment as it was.
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  assert.equal(engine.nextStepAt(id), undefined);
  assert.deepEqual(partner.created, [id]);
});
