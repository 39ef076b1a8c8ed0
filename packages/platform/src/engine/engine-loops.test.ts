/**
 * What the engine does around its payments: when it asks for a lease and looks at its slots, what it reads from them, whom it tells of a
 * change, what it keeps doing when something fails, and how it stops. The tables are in memory, and time moves only with the test;
 * slots.test.ts and orphans.test.ts have the slots on PostgreSQL.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { createMetrics, DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { ARRIVALS, type PaymentRow } from '../store/payments.ts';
import { createEngine } from './engine.ts';
import { SLOTS } from './slots.ts';
import { replyOf } from '../../test/engine-rig.ts';

const ORDER = { funding_method: 'sandbox_bank', amount_in_cents: 100 };
/** The place of a new payment while this worker owns no slot. */
const NOWHERE = { slot: ARRIVALS, stage: 'created' };
const PARTNER = { partner_id: 'acme', paused: false };
/** Within this time a worker has looked through every slot that it owns. */
const SWEPT_MS = 40_000;
// Nothing is polled unless a test wants it.
const NEVER = 1e9;

function rig(options: { pollMs?: number } = {}) {
  const time = manualClock();
  const world = {
    /** Pauses that have not ended; each holds up the end of the process. */
    pauses: 0,
    owners: Array.from<string | null>({ length: SLOTS }).fill(null),
    workers: new Set<string>(),
    rows: new Map<string, PaymentRow & { readonly slot: number }>(),
    statements: [] as { name: string; at: number; values: readonly unknown[] }[],
    /** Payments in flight, for whoever reads their slots. */
    found: [] as PaymentRow[],
    paused: [] as string[],
    before: new Map<string, () => Promise<void> | void>(),
    lines: [] as string[],
    leaseIsLost: false,
    polled: [] as string[],
    /** Calls that were aborted. */
    aborted: 0,
    /** What a partner answers to a poll, and what holds the answers. */
    status: 'processing' as PaymentRow['status'],
    answers: undefined as Promise<void> | undefined,
    /** Whether the client does not heed that a call is aborted. */
    isDeaf: false,
  };
  const answer = (name: string, values: readonly unknown[]): unknown[] => {
    const heartbeat_at = new Date(time.now()).toISOString();
    const [first] = values;
    switch (name) {
      case 'worker_register':
        world.workers.add(String(first));
        return [{ heartbeat_at }];
      case 'worker_renew':
        return world.leaseIsLost ? [] : [{ heartbeat_at }];
      case 'worker_remove':
        world.workers.delete(String(first));
        return [];
      case 'slot_view':
        return [...Map.groupBy(world.owners.keys(), (slot) => world.owners[slot] ?? null)].map(
          ([worker_id, slots]) => ({ worker_id, slots }),
        );
      case 'slot_workers':
        return [...world.workers].map((worker_id) => ({ worker_id, active: true }));
      case 'slot_take': {
        const [me, slots, owners] = values as [string, number[], (string | null)[]];
        const free = slots.filter((slot, index) => world.owners[slot] === owners[index]);
        for (const slot of free) world.owners[slot] = me;
        return free.map((slot) => ({ slot }));
      }
      case 'slot_give':
        world.owners = world.owners.map((owner) => (owner === first ? null : owner));
        return [];
      case 'slot_ids':
        return world.found
          .filter(({ slot }) => (first as number[]).includes(Number(slot)))
          .map((row) => ({ ids: [row.platform_payment_id] }));
      case 'slot_load':
        return world.found.filter((row) => (first as string[]).includes(row.platform_payment_id));
      case 'payment_paused_ids':
        return world.paused.map((platform_payment_id) => ({ platform_payment_id }));
      case 'payment_end': {
        const ids = [...world.rows.keys()].filter((id) => String(values[1]).includes(id));
        return ids.flatMap((id) => {
          const ended = {
            ...world.rows.get(id),
            stage: 'ended',
            status: world.status,
          };
          world.rows.set(id, ended as never);
          return [ended];
        });
      }
      default:
        return [];
    }
  };
  const query = async (statement: string | { name: string }, values: readonly unknown[] = []) => {
    const name = typeof statement === 'string' ? statement : statement.name;
    world.statements.push({ name, at: time.monotonic(), values });
    await world.before.get(name)?.();
    return answer(name, values);
  };
  const transaction = (work: (tx: unknown) => unknown) => Promise.resolve(work({ query }));
  const metrics = createMetrics({ processFigures: false });
  const keep = (_details: object, text: string): void => void world.lines.push(text);
  const reply = (id: string, status: PaymentRow['status']) =>
    replyOf(id, status, new Date(time.now()).toISOString());
  const engine = createEngine({
    database: { query, transaction } as unknown as Database,
    clock: {
      ...time,
      random: () => 0.5,
      sleep(ms, signal) {
        world.pauses += 1;
        return time.sleep(ms, signal).finally(() => (world.pauses -= 1));
      },
    },
    log: { ...silentLog, warn: keep, error: keep },
    metrics,
    registry: {
      get: (partner_id: string) =>
        Promise.resolve({
          partner_id,
          refusals: [],
          paused: false,
          budget: {
            max_concurrent_calls: 8,
            max_calls_per_second: 1_000,
            call_timeout_ms: 1_000,
            wait_seconds: 0,
          },
        }),
    } as never,
    client: {
      async poll(
        _partner: unknown,
        { platform_payment_id: id }: { platform_payment_id: string },
        { signal }: { signal?: AbortSignal } = {},
      ) {
        world.polled.push(id);
        const stopped = new Promise<string>((resolve) => {
          if (!world.isDeaf) signal?.addEventListener('abort', () => resolve('stopped'));
        });
        const word = await Promise.race([world.answers, stopped]);
        if (word === 'stopped') {
          world.aborted += 1;
          return { kind: 'no_reply', reason: 'stopped' };
        }
        return reply(id, world.status);
      },
      submit: (_partner: unknown, { platform_payment_id: id }: { platform_payment_id: string }) =>
        Promise.resolve(reply(id, 'processing')),
    } as never,
    funding: { collection: () => 'afterwards' } as never,
    options: { pollMs: options.pollMs ?? NEVER, retryMs: NEVER },
  });
  /** A payment as its row is; another worker drives it unless it is given to the engine. */
  const row = (id: string, more: Partial<PaymentRow> = {}): PaymentRow => {
    const made = {
      platform_payment_id: id,
      partner_id: 'acme',
      biller_id: 'acme',
      account_id: 'A-1',
      platform_batch_id: 'b',
      amount_in_cents: 100,
      funding_method: ORDER.funding_method,
      status: 'processing',
      stage: 'accepted',
      payment_id: `P-${id}`,
      slot: 0,
      created_at: new Date(time.now()).toISOString(),
      accepted_at: new Date(time.now()).toISOString(),
      settled_at: null,
      ...more,
    } as unknown as PaymentRow;
    world.rows.set(id, made as never);
    return made;
  };
  const named = (name: string) => world.statements.filter((one) => one.name === name);
  /** When statements of a name were sent, from now on; the list is emptied. */
  const times = (name: string): number[] => {
    const at = named(name).map((one) => one.at);
    world.statements = world.statements.filter((one) => one.name !== name);
    return at;
  };
  /** A payment in a slot, for whoever reads it. */
  const put = (id: string, slot: number): void => void world.found.push(row(id, { slot }));
  const drives = (...ids: string[]): boolean[] =>
    ids.map((id) => engine.nextStepAt(id) !== undefined);
  return { engine, world, time, metrics, row, put, drives, named, times };
}

const isDown = (): never => {
  throw new DatabaseUnavailable('no connection', 'not_executed');
};

test('a start resolves when the slots were read, and a new payment has a place before and after it [PL9 LV2]', async () => {
  const { engine, world, named, metrics } = rig();
  assert.match(await metrics.text(), /^duebridge_lease_age_seconds 0$/m);
  assert.deepEqual(engine.placeForNew(PARTNER, ORDER), NOWHERE);
  assert.deepEqual([engine.workerId, engine.nextStepAt('x')], ['', undefined]);
  assert.deepEqual(
    engine.health,
    { lease: true, calls: true },
    'nothing is wrong before the start',
  );
  engine.take({} as PaymentRow);
  await engine.stop();
  await engine.start();
  assert.match(engine.workerId, /^worker-[0-9a-f]{16}$/);
  assert.deepEqual([...world.workers], [engine.workerId]);
  assert.ok(world.owners.every((owner) => owner === engine.workerId));
  assert.notEqual(engine.placeForNew(PARTNER, ORDER).slot, ARRIVALS);
  assert.equal(named('slot_view').length, 1);
  await assert.rejects(engine.start(), /already running/);
  assert.equal(named('worker_register').length, 1);
  await engine.stop();
});

test('a worker of a lease that was lost drives nothing, and another one takes over within a heartbeat [PL10 LV1]', async () => {
  const { engine, world, time, metrics, row } = rig({ pollMs: 100 });
  await engine.start();
  const before = engine.workerId;
  world.answers = new Promise(() => undefined);
  engine.take(row('p', { slot: 3 }));
  assert.equal(engine.nextStepAt('p') === undefined, false);
  assert.match(await metrics.text(), /^duebridge_slots_owned 1024$/m);
  assert.match(await metrics.text(), /^duebridge_payments_in_flight 1$/m);
  world.leaseIsLost = true;
  world.before.set('worker_register', isDown);
  await time.advance(2_000);
  assert.deepEqual([world.polled.length, world.aborted], [1, 1], 'the call under way goes on');
  assert.deepEqual(engine.placeForNew(PARTNER, ORDER), NOWHERE);
  assert.equal(engine.nextStepAt('p'), undefined);
  assert.match(await metrics.text(), /^duebridge_slots_owned 0$/m);
  assert.match(await metrics.text(), /^duebridge_payments_in_flight 0$/m);
  world.leaseIsLost = false;
  world.before.clear();
  await time.advance(2_000);
  assert.notEqual(engine.workerId, before);
  assert.ok(world.owners.every((owner) => owner === engine.workerId));
  await engine.stop();
});

test('a stop gives the slots back, leaves the list, and nothing is sent after it; the engine may start again [LV5 LV9]', async () => {
  const { engine, world, time, named } = rig();
  await engine.start();
  const { workerId } = engine;
  await engine.stop();
  assert.ok(world.owners.every((owner) => owner === null));
  assert.deepEqual([...world.workers], []);
  assert.deepEqual(
    [named('slot_give'), named('worker_remove')].map(([one]) => one?.values[0]),
    [workerId, workerId],
  );
  assert.deepEqual(engine.placeForNew(PARTNER, ORDER), NOWHERE);
  await time.advance(0);
  assert.equal(world.pauses, 0, 'a timer holds up the end of the process');
  const sent = world.statements.length;
  await time.advance(100_000);
  await engine.stop();
  assert.equal(world.statements.length, sent);
  assert.deepEqual(world.lines, []);
  await engine.start();
  assert.notEqual(engine.workerId, workerId);
  await time.advance(2_500);
  assert.ok(world.owners.every((owner) => owner === engine.workerId));
  // Started again, it waits for a database that is away as it did before.
  world.before.set('slot_view', isDown);
  world.before.set('SELECT 1', isDown);
  await time.advance(5_000);
  assert.ok(named('SELECT 1').length > 5);
  assert.deepEqual(world.lines, ['the database does not answer; payments wait']);
  await engine.stop();
});

test('a stop gives the slots back within ten seconds, though a call ignores that it is aborted [LV5]', async () => {
  const { engine, world, time, row, named } = rig();
  await engine.start();
  world.answers = new Promise(() => undefined);
  world.isDeaf = true;
  engine.take(row('p', { slot: 1 }));
  await time.advance(2_000);
  assert.deepEqual(world.polled, ['p']);
  let isStopped = false;
  void engine.stop().then(() => (isStopped = true));
  await time.advance(10_000);
  assert.equal(isStopped, true);
  assert.equal(named('slot_give').length, 1);
});

test('a stop while the database is away, or before there ever was a lease, leaves nothing behind [LV5 LV8]', async () => {
  const away = rig();
  await away.engine.start();
  for (const name of ['slot_view', 'SELECT 1']) away.world.before.set(name, isDown);
  await away.time.advance(5_000);
  await away.engine.stop();
  await away.time.advance(0);
  assert.equal(away.world.pauses, 0, 'it still asks whether the database is back');

  const { engine, world, time, named } = rig();
  world.before.set('worker_register', isDown);
  await engine.start();
  assert.equal(engine.workerId, '');
  await engine.stop();
  await time.advance(0);
  assert.deepEqual([world.pauses, named('slot_give'), named('worker_remove')], [0, [], []]);
  assert.ok(!world.lines.includes('could not release the slots'));
});

// Slots ------------------------------------------------------------------------------------------------------------------

test('a payment behind the back of its worker is found within sixteen rounds, though another of its slot was withdrawn [PL9]', async () => {
  const { engine, world, time, put, drives } = rig();
  await engine.start();
  put('a', 5);
  await time.advance(SWEPT_MS);
  world.found = [];
  for (const slot of [0, 5, 511, 1_023]) put(`p${slot}`, slot);
  await time.advance(SWEPT_MS);
  assert.deepEqual(drives('p0', 'p5', 'p511', 'p1023'), [true, true, true, true]);
  await engine.stop();
});

test('a slot in which a payment may have been committed unseen is read at the next round [PL9 F70]', async () => {
  const { engine, time, put, drives } = rig();
  await engine.start();
  await time.advance(SWEPT_MS);
  // Far apart, so that the next round reads at most one of them in its turn.
  put('a', 5);
  put('b', 900);
  engine.lookAgain(5);
  engine.lookAgain(900);
  await time.advance(SWEPT_MS / 16);
  assert.deepEqual(drives('a', 'b'), [true, true]);
  await engine.stop();
});

test('a payment that was dropped while its page was read is not driven again, and later it may be [PL8]', async () => {
  const { engine, world, time, put, drives, named } = rig();
  await engine.start();
  put('p', 0);
  await time.advance(SWEPT_MS);
  assert.deepEqual(drives('p'), [true]);
  // One more row makes the worker read the slot again; its page is read before p leaves.
  put('q', 0);
  const held = Promise.withResolvers<void>();
  world.before.set('slot_load', () => held.promise);
  const before = named('slot_load').length;
  while (named('slot_load').length === before) await time.advance(500);
  world.paused = ['p'];
  await time.advance(3_000);
  assert.deepEqual(drives('p'), [false]);
  held.resolve();
  await time.advance(0);
  assert.deepEqual(drives('p', 'q'), [false, true]);
  world.paused = [];
  await time.advance(SWEPT_MS);
  assert.deepEqual(drives('p'), [true], 'its row is there, so it is driven');
  await engine.stop();
});
