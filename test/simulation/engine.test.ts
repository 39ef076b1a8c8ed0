/**
 * What a worker does around its payments: how it begins, stops and loses its lease, and how it finds what nobody handed to it. The real
 * engine on the real tables, in virtual time.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { batchFor } from '../../packages/platform/src/reconciliation/batch.ts';
import { ARRIVALS, insertPayment } from '../../packages/platform/src/store/payments.ts';
import { openScene, type Sickness } from './beside.ts';
import { healthyDatabase, SimulatedPostgres } from './database.ts';
import { Process } from './time.ts';

const ORDER = { funding_method: 'elsewhere' };
/** A stop has ten seconds, whatever hangs. */
const STOP_MS = 10_000;
/** Within this time a worker has looked through every slot that it owns. */
const SWEPT_MS = 40_000;

const postgres = await SimulatedPostgres.open();
const hangs: Sickness = () => Promise.resolve({ kind: 'silent' });

async function scene(sick: Sickness = () => Promise.resolve(undefined)) {
  const { world, history, partner, around, worker, pay } = await openScene(postgres, { sick });
  const { engine } = worker;
  /** Whether a promise is fulfilled within some virtual time. */
  const within = async (ms: number, work: Promise<unknown>): Promise<boolean> => {
    let isDone = false;
    void work.then(() => (isDone = true));
    return world.run(ms, () => isDone);
  };
  const hasPlace = (): boolean => engine.placeForNew(partner, ORDER).slot !== ARRIVALS;
  const sent = (): number => history.events.filter(({ kind }) => kind === 'sent').length;
  const owners = () =>
    postgres.look<{ worker_id: string | null; slots: number }>(
      'SELECT worker_id, count(*)::int AS slots FROM duebridge_platform.slots GROUP BY worker_id',
    );
  const workers = () => postgres.look('SELECT worker_id FROM duebridge_platform.workers');
  /** Commits a payment into a slot without a word to its worker; gives its id. */
  const putInto = async (slot: number): Promise<string> => {
    const database = postgres.connect(new Process(world, 'another'), healthyDatabase());
    const put = async (): Promise<string> => {
      const row = await insertPayment(database, {
        partner_id: 'acme',
        biller_id: 'acme',
        account_id: 'sick',
        platform_batch_id: await batchFor(database, partner, world.now()),
        amount_in_cents: 100,
        ...ORDER,
        slot,
        stage: 'created',
        actor: 'test',
      });
      return row.platform_payment_id;
    };
    const made = put();
    assert.ok(await within(1_000, made));
    return made;
  };
  return {
    world,
    around,
    worker,
    engine,
    pay,
    within,
    hasPlace,
    sent,
    owners,
    workers,
    putInto,
    isDriven: (id: string): boolean => engine.nextStepAt(id) !== undefined,
    started: async () => {
      void worker.start();
      assert.ok(await world.run(5_000, hasPlace));
    },
  };
}

test('a worker has a place for payments from its start to its stop, which gives its slots back; then it sends nothing, and may start again [PL9 LV2 LV5 LV9]', async () => {
  const { world, engine, pay, within, hasPlace, sent, owners, workers, started } = await scene();
  assert.deepEqual([hasPlace(), engine.workerId], [false, undefined]);
  assert.deepEqual(engine.health, { lease: true, calls: true }, 'nothing is wrong before it');
  assert.ok(await within(0, engine.stop()));
  await started();
  const former = engine.workerId;
  assert.deepEqual(await owners(), [{ worker_id: former, slots: 1_024 }]);
  await assert.rejects(engine.start(), /already running/);
  void pay('sick', 100);
  await world.run(5_000);
  assert.ok(await within(STOP_MS, engine.stop()));
  assert.deepEqual([await owners(), await workers()], [[{ worker_id: null, slots: 1_024 }], []]);
  assert.equal(hasPlace(), false);
  const before = sent();
  await world.run(100_000);
  assert.ok(await within(0, engine.stop()));
  assert.equal(sent(), before);
  await started();
  assert.notEqual(engine.workerId, former);
  assert.deepEqual(await owners(), [{ worker_id: engine.workerId, slots: 1_024 }]);
});

test('a partner whose calls may hang for two minutes leaves the engine ready, with all of its places taken [LV2 LV3]', async () => {
  const budget = { max_concurrent_calls: 1, call_timeout_ms: 120_000 };
  const { world, worker, pay } = await openScene(postgres, { sick: hangs, budget });
  void worker.start();
  await world.run(5_000);
  for (let cents = 1; cents <= 3; cents += 1) void pay('sick', cents);
  assert.equal(await world.run(600_000, () => !worker.engine.health.calls), false);
});

test('a stop gives the slots back within ten seconds, though a call ignores that it is aborted [LV5]', async () => {
  const { world, around, engine, pay, within, sent, owners, started } = await scene(hangs);
  around.networkFaults.deaf = true;
  await started();
  void pay('sick', 100);
  assert.ok(await world.run(5_000, () => sent() === 1));
  assert.ok(await within(STOP_MS, engine.stop()));
  assert.deepEqual(await owners(), [{ worker_id: null, slots: 1_024 }]);
});

test('a stop while the database is away, or before there ever was a lease, ends, and nobody comes back [LV5 LV8]', async () => {
  for (const hadLease of [true, false]) {
    const { world, around, engine, worker, within, workers, started } = await scene();
    if (hadLease) await started();
    around.databaseFaults.down = true;
    if (!hadLease) void worker.start();
    await world.run(5_000);
    assert.ok(await within(STOP_MS, engine.stop()));
    around.databaseFaults.down = false;
    await world.run(60_000);
    assert.equal((await workers()).length, hadLease ? 1 : 0, 'it was not taken off the list');
  }
});

test('a worker whose lease was lost drives nothing until it has another, within two heartbeats [PL10 LV1]', async () => {
  const { world, engine, pay, hasPlace, owners, started, around } = await scene();
  await started();
  void pay('sick', 100);
  await world.run(1_000);
  const former = engine.workerId;
  await postgres.look('DELETE FROM duebridge_platform.workers');
  assert.ok(await world.run(4_000, () => !hasPlace()), 'it relies on its lease');
  assert.ok(await world.run(4_000, hasPlace));
  assert.notEqual(engine.workerId, former);
  assert.deepEqual(await owners(), [{ worker_id: engine.workerId, slots: 1_024 }]);
  assert.deepEqual(around.bugs, []);
});

test('a payment behind the back of its worker is found within sixteen rounds, and at the next where one may have been committed unseen [PL9 F70]', async () => {
  const { world, engine, putInto, isDriven, started } = await scene();
  await started();
  await world.run(SWEPT_MS);
  const ids: string[] = [];
  for (const slot of [0, 5, 511, 1_023]) ids.push(await putInto(slot));
  assert.ok(await world.run(SWEPT_MS, () => ids.every(isDriven)));
  // Far apart, so that the next round reads at most one of them in its turn.
  const unseen = [await putInto(5), await putInto(900)];
  engine.lookAgain(5);
  engine.lookAgain(900);
  assert.ok(await world.run(SWEPT_MS / 16, () => unseen.every(isDriven)));
});
