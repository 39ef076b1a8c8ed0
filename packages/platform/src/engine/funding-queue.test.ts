/** The funding port hangs, is slow, or fails; what comes of the payments behind and beside it. */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import {
  DatabaseUnavailable,
  silentLog,
  systemClock,
  type Database,
  type Statement,
} from '@duebridge/runtime';
import { sandboxFunding, type Funding } from '../funding.ts';
import type { PaymentRow } from '../store/payments.ts';
import { FundingQueue } from './funding-queue.ts';
import { Outage } from './outage.ts';
import { actsOf, eventually, keptLog, scriptedPartner, engineRig } from './testing.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;
const all = (): boolean => true;
const never = (): Promise<never> => new Promise<never>(() => undefined);

test('partners take turns at a funding method: ten thousand payments of one keep no other waiting [LV3]', () => {
  const queue = new FundingQueue<{ at: number; name: string }>();
  for (let count = 0; count < 10_000; count += 1) queue.push({ at: 0, name: 'dead' }, 'dead');
  for (const name of ['b', 'c']) queue.push({ at: 1, name }, name);
  const names = [1, 2, 3, 4].map(() => {
    const turn = queue.take(2, all);
    return turn.kind === 'start' ? turn.item.name : turn.kind;
  });
  assert.deepEqual(names.toSorted(), ['b', 'c', 'dead', 'dead']);
});

test('256 hanging calls delay a method for a second, and the number of hanging calls is bounded', () => {
  const queue = new FundingQueue<{ at: number }>();
  for (let count = 0; count < 5_000; count += 1) queue.push({ at: 0 }, 'acme');
  let underWay = 0;
  let now = 0;
  for (; now < 60_000; now += 1_000) {
    for (let turn = queue.take(now, all); turn.kind === 'start'; turn = queue.take(now, all)) {
      underWay += 1;
    }
    if (now === 0) assert.equal(underWay, 256);
    if (now === 1_000) assert.equal(underWay, 512);
  }
  assert.equal(underWay, 1_024);
});

test('a funding method that never answers delays neither the others nor a stop [LV3 LV5]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  let hanging = 0;
  const funding: Funding = {
    ...rig.funding,
    authorize(order, call) {
      if (order.funding_method !== 'hanging_bank') return rig.funding.authorize(order, call);
      hanging += 1;
      return never();
    },
  };
  const engine = rig.engine({ funding, options: { stopMs: 300 } });
  await engine.start();
  await Promise.all(
    Array.from({ length: 300 }, () => rig.pay(engine, 'acme', { funding_method: 'hanging_bank' })),
  );
  await eventually('the port hangs', () => hanging >= 256);
  const { platform_payment_id } = await rig.pay(engine, 'acme');
  assert.equal((await rig.until(platform_payment_id, settled)).status, 'succeeded');
  const from = performance.now();
  await engine.stop();
  assert.ok(performance.now() - from < 10_000, 'the stop ends within its limit');
});

test('an authorization that arrives after the release is declined', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const { platform_payment_id } = await rig.pay(rig.engine(), 'acme');
  const order = { platform_payment_id, funding_method: 'sandbox_bank', amount_in_cents: 12_345 };
  await rig.funding.void(order);
  assert.equal((await rig.funding.authorize(order)).kind, 'declined');
  assert.deepEqual(await actsOf(rig, platform_payment_id), ['void']);
});

test('a database outage is logged once, and all that waited for it continues at once [LV8]', async (t) => {
  const log = keptLog();
  const rig = await engineRig(t, { log });
  const partner = await scriptedPartner(t);
  let isDown = false;
  let refused = 0;
  const away = (statement?: Statement): Promise<never> => {
    const isStep = typeof statement === 'object' && /^payment_(advance|end)$/.test(statement.name);
    if (isStep) refused += 1;
    return Promise.reject(new DatabaseUnavailable('it is away', 'unknown'));
  };
  const database: Database = {
    ...rig.database,
    query: (statement, values) =>
      isDown ? away(statement) : rig.database.query(statement, values),
    transaction: (work, options) => (isDown ? away() : rig.database.transaction(work, options)),
  };
  await rig.register('acme', partner.url);
  const engine = rig.engine({
    database,
    leaseDatabase: rig.database,
    funding: sandboxFunding({ database }),
  });
  await engine.start();
  const warm = await rig.pay(engine, 'acme');
  await rig.until(warm.platform_payment_id, settled);
  // The answers arrive while the database is away.
  partner.script = (seen) => {
    isDown ||= seen.method === 'PUT';
    return undefined;
  };
  const rows = await Promise.all(Array.from({ length: 30 }, () => rig.pay(engine, 'acme')));
  await eventually('payments wait for the database', () => refused > 0);
  partner.script = () => undefined;
  isDown = false;
  const from = performance.now();
  for (const row of rows) {
    assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
  }
  assert.ok(performance.now() - from < 5_000, `${performance.now() - from} ms`);
  const errors = log.lines.filter((line) => line.message.includes('payments wait'));
  assert.equal(errors.length, 1, 'once, not once for each payment');
  assert.ok(log.lines.some((line) => line.message.includes('answers again')));
});

test('ten thousand payments that wait for the database cost one listener, and a stop ends their waiting [LV8]', async () => {
  let isDown = true;
  const database = {
    query: () => (isDown ? Promise.reject(new Error('away')) : Promise.resolve([])),
  } as unknown as Database;
  const engine = new AbortController();
  const worker = new AbortController();
  const outage = new Outage({
    database,
    clock: systemClock,
    log: silentLog,
    signal: engine.signal,
  });
  const waiting = Array.from({ length: 10_000 }, () =>
    outage.over(worker.signal, new Error('away')),
  );
  assert.equal(getEventListeners(worker.signal, 'abort').length, 1);
  worker.abort();
  await Promise.all(waiting);
  const others = Array.from({ length: 100 }, () => outage.over(engine.signal, new Error('away')));
  isDown = false;
  await Promise.all(others);
  assert.equal(getEventListeners(engine.signal, 'abort').length, 0);
});
