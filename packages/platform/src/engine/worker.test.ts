/**
 * One life of a worker on tables in memory, with time that moves only with the test: which slots it takes and gives back, and that it
 * finds every payment in them. trouble.test.ts and slots.test.ts have it on PostgreSQL.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { DatabaseUnavailable, silentLog, type Clock, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { Partner } from '../partners/registry.ts';
import { ARRIVALS, type PaymentRow } from '../store/payments.ts';
import { keptMs } from './lease.ts';
import { engineMetrics } from './metrics.ts';
import { DEFAULT_TIMES, type EngineTimes } from './options.ts';
import { Outage } from './outage.ts';
import { DatabaseTime } from './ownership.ts';
import { SLOTS } from './slots.ts';
import { replyOf } from './testing.ts';
import { Worker } from './worker.ts';

// Once polled, a payment is not due again within these tests.
const TIMES: EngineTimes = { ...DEFAULT_TIMES, retryMs: 1_000, pollMs: 10_000_000 };
const ORDER = { funding_method: 'sandbox_bank', amount_in_cents: 100 };

interface Row {
  readonly id: string;
  slot: number;
  readonly partner_id: string;
  /** Neither ended nor paused. */
  isDriven: boolean;
}

function rig(options: { random?: () => number; budget?: Partial<Partner['budget']> } = {}) {
  const time = manualClock();
  const clock: Clock = { ...time, random: options.random ?? (() => 0) };
  const world = {
    owners: Array.from<string | null>({ length: SLOTS }).fill(null),
    others: [] as string[],
    rows: [] as Row[],
    paused: [] as string[],
    /** Statements by name, in their order. */
    statements: [] as { name: string; values: readonly unknown[]; at: number }[],
    /** Something done before a statement of this name, which may hold it or make it fail. */
    before: new Map<string, () => Promise<void> | void>(),
    budget: {
      max_concurrent_calls: 64,
      max_calls_per_second: 1_000,
      call_timeout_ms: 1_000,
      wait_seconds: 0,
      ...options.budget,
    },
    /** Partners that are registered no more. */
    gone: new Set<string>(),
    /** Payments polled, in their order; and what holds the answers. */
    polled: [] as { id: string; at: number }[],
    answers: undefined as Promise<void> | undefined,
    lines: [] as string[],
    /** What was logged with each of them. */
    details: [] as object[],
    funded: true,
  };
  const loaded = ({ id, slot, partner_id }: Row) => ({
    ...committed(id, partner_id),
    slot,
    accepted_age_ms: 0,
  });
  const driven = (holds: (row: Row) => boolean): Row[] =>
    world.rows
      .filter((row) => row.isDriven && holds(row))
      .toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const answer = (name: string, values: readonly unknown[]): unknown[] => {
    switch (name) {
      case 'slot_view':
        return [...Map.groupBy(world.owners.keys(), (slot) => world.owners[slot] ?? null)].map(
          ([worker_id, slots]) => ({ worker_id, slots }),
        );
      case 'slot_workers':
        return ['me', ...world.others].map((worker_id) => ({ worker_id, active: true }));
      case 'slot_take': {
        const [me, slots, owners] = values as [string, number[], (string | null)[]];
        const free = slots.filter((slot, index) => world.owners[slot] === owners[index]);
        for (const slot of free) world.owners[slot] = me;
        return free.map((slot) => ({ slot }));
      }
      case 'slot_give': {
        const [me, slots] = values as [string, number[]];
        for (const slot of slots) if (world.owners[slot] === me) world.owners[slot] = null;
        return [];
      }
      case 'slot_give_all':
        world.owners = world.owners.map((owner) => (owner === values[0] ? null : owner));
        return [];
      case 'slot_ids': {
        const slots = new Set(values[0] as number[]);
        const some = driven(({ slot }) => slots.has(slot));
        return [...Map.groupBy(some, ({ slot }) => slot)].map(([slot, of]) => ({
          slot,
          ids: of.map(({ id }) => id),
        }));
      }
      case 'slot_page': {
        const [slot, cursor, limit] = values as [number, string, number];
        const all = driven((row) => row.slot === slot && row.id > cursor);
        return all.slice(0, limit).map(loaded);
      }
      case 'slot_arrived':
        return driven(({ slot }) => slot === ARRIVALS)
          .slice(0, values[0] as number)
          .map(({ id }) => ({ platform_payment_id: id }));
      case 'slot_place': {
        const [, ids, slots] = values as [string, string[], number[]];
        const moved = ids.flatMap((id, index) => {
          const row = world.rows.find((one) => one.id === id);
          if (row?.slot !== ARRIVALS) return [];
          row.slot = slots[index] ?? ARRIVALS;
          return [{ platform_payment_id: id }];
        });
        return moved;
      }
      case 'slot_placed': {
        const ids = new Set(values[0] as string[]);
        return driven(({ id }) => ids.has(id)).map(loaded);
      }
      case 'payment_paused_ids':
        return world.paused.map((platform_payment_id) => ({ platform_payment_id }));
      default:
        return [];
    }
  };
  const database = {
    async query(statement: string | { name: string }, values: readonly unknown[] = []) {
      const name = typeof statement === 'string' ? statement : statement.name;
      world.statements.push({ name, values, at: clock.monotonic() });
      await world.before.get(name)?.();
      return answer(name, values);
    },
  } as unknown as Database;
  const keep = (details: object, text: string): void => {
    world.lines.push(text);
    world.details.push(details);
  };
  const log = {
    ...silentLog,
    info: keep,
    warn: keep,
  };
  const engine = new AbortController();
  const worker = new Worker(
    {
      database,
      clock,
      log,
      registry: {
        get: (partner_id: string) =>
          Promise.resolve(
            world.gone.has(partner_id) ? undefined : { partner_id, budget: world.budget },
          ),
      } as never,
      client: {
        async poll(
          _partner: unknown,
          { platform_payment_id: id }: { platform_payment_id: string },
        ) {
          world.polled.push({ id, at: clock.monotonic() });
          await world.answers;
          return replyOf(id);
        },
      } as never,
      funding: { collection: () => (world.funded ? 'afterwards' : 'reserved') } as never,
    },
    TIMES,
    engineMetrics(undefined, { inFlight: () => 0, ages: () => ({ oldestSeconds: 0, overdue: 0 }) }),
    'me',
    clock.monotonic(),
    new DatabaseTime(clock),
    new Outage({ database, clock, log: silentLog, signal: engine.signal }),
    () => undefined,
  );
  const put = (id: string, slot: number, partner_id = 'acme'): Row => {
    const row = { id, slot, partner_id, isDriven: true };
    world.rows.push(row);
    return row;
  };
  /** Rounds as the engine makes them, each with what it began to read. */
  const rounds = async (count = 1): Promise<boolean> => {
    let isSettled = false;
    for (let round = 0; round < count; round += 1) {
      isSettled = await worker.round();
      await worker.loaded();
    }
    return isSettled;
  };
  const named = (name: string) => world.statements.filter((one) => one.name === name);
  const placed = (paused = false) => worker.placeForNew({ partner_id: 'acme', paused }, ORDER);
  return { world, worker, time, put, rounds, named, placed };
}

const mine = ({ owners }: { owners: readonly (string | null)[] }): number[] =>
  owners.flatMap((owner, slot) => (owner === 'me' ? [slot] : []));

// Slots ------------------------------------------------------------------------------------------------------------------

test('alone it takes every slot, and gives back what another worker should have [LV9]', async () => {
  const { world, worker, rounds, named } = rig();
  assert.equal(await rounds(), true);
  assert.deepEqual([worker.slots, mine(world).length], [SLOTS, SLOTS]);
  assert.deepEqual(world.lines, ['slots taken over']);
  assert.equal(await rounds(), true);
  assert.equal(named('slot_take').length, 1, 'nothing is left to take');
  world.others = ['other'];
  assert.equal(await rounds(), true);
  assert.deepEqual([worker.slots, mine(world).length], [SLOTS / 2, SLOTS / 2]);
  assert.deepEqual(world.lines, ['slots taken over', 'slots returned']);
  assert.equal(named('slot_give').length, 1);
  // What the other took while this one looked is not its own.
  world.others = [];
  world.before.set('slot_take', () => {
    world.owners[1_000] = 'dead';
  });
  assert.equal(await rounds(), false, 'one is missing, so it looks again soon');
  assert.equal(worker.slots, SLOTS - 1);
});

test('slots whose taking was not answered are its own, because the table says so [LV9]', async () => {
  const { world, worker, rounds, named } = rig();
  world.others = ['other'];
  world.owners.fill('me', 0, SLOTS / 2).fill('other', SLOTS / 2);
  assert.equal(await rounds(), true);
  assert.deepEqual([worker.slots, named('slot_take').length], [SLOTS / 2, 0]);
});

test('a worker that ended while it looked takes nothing more and reads nothing [PL10]', async () => {
  for (const [at, next] of [
    ['slot_view', 'slot_take'],
    ['slot_take', 'slot_arrived'],
  ] as const) {
    const { world, worker, rounds, named } = rig();
    world.before.set(at, () => worker.drop());
    assert.equal(await rounds(), true);
    assert.deepEqual([worker.slots, named(next).length, named('slot_ids').length], [0, 0, 0]);
    const before = world.statements.length;
    assert.equal(await rounds(), true);
    assert.equal(world.statements.length, before);
  }
});

test('a slot that names another worker is not driven any more, whatever this one believes [PL10]', async () => {
  const { world, worker, put, rounds, placed } = rig();
  world.others = ['other'];
  world.owners.fill('other', SLOTS / 2);
  for (const [id, slot] of [
    ['kept', 1],
    ['lost', 2],
  ] as const) {
    put(id, slot);
  }
  await rounds();
  assert.deepEqual([worker.has('kept'), worker.has('lost'), worker.size], [true, true, 2]);
  // Another took it: this worker had not beaten in time.
  world.owners[2] = 'other';
  await rounds();
  assert.deepEqual([worker.has('kept'), worker.has('lost'), worker.size], [true, false, 1]);
  assert.ok(world.lines.includes('slots were taken by another worker'));
  for (let one = 0; one < SLOTS; one += 1) assert.notEqual(placed().slot, 2);
  // The row of a slot that is not ours is its owner's to drive.
  const row = { settled_at: null, slot: 2, platform_payment_id: 'new' } as PaymentRow;
  worker.add(row);
  assert.equal(worker.has('new'), false);
});

test('a slot is given back when its calls have been recorded, or after two seconds', async () => {
  for (const isAnswered of [true, false]) {
    const { world, worker, time, put, rounds, named, placed } = rig();
    const held = Promise.withResolvers<void>();
    world.answers = held.promise;
    for (let slot = SLOTS / 2 - 10; slot < SLOTS / 2 + 10; slot += 1) put(`p${slot}`, slot);
    await rounds();
    await time.advance(100);
    assert.equal(world.polled.length, 20);
    world.others = ['other'];
    const round = worker.round();
    await time.advance(0);
    // From this moment no new payment is put there, and what only waits is dropped.
    assert.equal(worker.slots, SLOTS / 2);
    for (let one = 0; one < SLOTS; one += 1) assert.ok(placed().slot < SLOTS / 2);
    await time.advance(1_900);
    assert.equal(named('slot_give').length, 0, 'a call of them is under way');
    if (isAnswered) held.resolve();
    await time.advance(isAnswered ? 20 : 99);
    assert.equal(named('slot_give').length, isAnswered ? 1 : 0);
    await time.advance(isAnswered ? 0 : 20);
    assert.equal(named('slot_give').length, 1);
    assert.equal(await round, true);
    held.resolve();
  }
});

// New payments -----------------------------------------------------------------------------------------------------------

test('new payments go to its own slots by turns, and to all workers while it owns none [PL9]', async () => {
  const { world, worker, rounds, placed } = rig();
  const waits = { slot: ARRIVALS, stage: 'created' };
  assert.deepEqual(placed(), waits);
  world.others = ['other'];
  world.owners.fill('other', 0, SLOTS / 2);
  await rounds();
  const slots = Array.from({ length: SLOTS / 2 }, () => placed().slot);
  assert.deepEqual(new Set(slots), new Set(mine(world)), 'each of them once');
  await worker.finish(0);
  assert.deepEqual(placed(), waits);
});

test('a new payment begins as dispatching if its put can leave at once, and waits otherwise [PL1]', async () => {
  const { world, rounds, placed } = rig();
  await rounds();
  assert.equal(placed(true).stage, 'created', 'its partner is paused');
  world.funded = false;
  assert.equal(placed().stage, 'created', 'its funds are elsewhere');
  world.funded = true;
  const { slot, stage } = placed();
  assert.equal(stage, 'dispatching');
  assert.ok(slot >= 0 && slot < SLOTS);
});

test('without proof of its lease for seven seconds it sends nothing and takes nothing [PL10 LV1]', async () => {
  const { world, worker, time, put, rounds, placed } = rig();
  put('p', 1);
  await rounds();
  await time.advance(keptMs(TIMES) - 1);
  assert.notEqual(placed().slot, ARRIVALS);
  await time.advance(1);
  assert.equal(placed().slot, ARRIVALS);
  const polled = world.polled.length;
  worker.proven(1);
  assert.notEqual(placed().slot, ARRIVALS);
  // An answer that comes late proves less than the one before it.
  worker.proven(0);
  assert.notEqual(placed().slot, ARRIVALS);
  await time.advance(1);
  assert.equal(placed().slot, ARRIVALS);
  await time.advance(100);
  assert.equal(world.polled.length, polled);
});

// Arrivals and pauses ----------------------------------------------------------------------------------------------------

test('who keeps the arrivals places all of them in its slots, page by page, and drives them [PL9]', async () => {
  const { world, worker, put, rounds, named } = rig();
  for (let one = 0; one < 1_200; one += 1) put(`p${one}`, ARRIVALS);
  await rounds();
  assert.equal(worker.size, 1_200);
  assert.equal(named('slot_arrived').length, 3);
  assert.ok(world.rows.every(({ slot }) => slot !== ARRIVALS));
  await rounds();
  assert.equal(named('slot_arrived').length, 4, 'asked in each round');
  const exactly = rig();
  for (let one = 0; one < 500; one += 1) exactly.put(`p${one}`, ARRIVALS);
  await exactly.rounds();
  assert.deepEqual([exactly.worker.size, exactly.named('slot_arrived').length], [500, 2]);
  const ending = rig();
  for (let one = 0; one < 1_200; one += 1) ending.put(`p${one}`, ARRIVALS);
  ending.world.before.set('slot_placed', () => ending.worker.drop());
  await ending.rounds();
  assert.deepEqual([ending.worker.size, ending.named('slot_arrived').length], [0, 1]);
  // Another worker owns slot 0.
  const other = rig();
  other.world.others = ['other'];
  other.world.owners.fill('other', 0, SLOTS / 2);
  other.put('p', ARRIVALS);
  await other.rounds(2);
  assert.deepEqual([other.worker.size, other.named('slot_arrived').length], [0, 0]);
  // They are spread like those of a slot.
  const slow = rig({ random: () => 1, budget: { max_calls_per_second: 10 } });
  slow.put('p', ARRIVALS);
  await slow.rounds();
  assert.equal(slow.worker.dueAt('p'), 100);
});

test('arrivals whose placing was not answered are found in the slots, whichever they are in [PL9]', async () => {
  const { world, worker, put, rounds } = rig();
  await rounds();
  for (let one = 0; one < 5; one += 1) put(`p${one}`, ARRIVALS);
  world.before.set('slot_placed', () => {
    world.before.clear();
    throw new DatabaseUnavailable('cut off', 'unknown');
  });
  await assert.rejects(worker.round(), DatabaseUnavailable);
  assert.ok(world.rows.every(({ slot }) => slot !== ARRIVALS));
  assert.equal(worker.size, 0);
  await rounds();
  assert.equal(worker.size, 5, 'at the next round, not when their slots are counted in turn');
});

test('what an operator paused is dropped at the next round, and nothing is asked while nothing is driven', async () => {
  const { world, worker, put, rounds, named } = rig();
  await rounds(2);
  assert.equal(named('payment_paused_ids').length, 0);
  put('p', 1);
  const paused = put('q', 2);
  world.rows.push({ ...paused, id: 'r', slot: 3 });
  await rounds(17);
  assert.equal(worker.size, 3);
  paused.isDriven = false;
  world.paused = ['q', 'unheard-of'];
  await rounds();
  assert.deepEqual([worker.has('p'), worker.has('q'), worker.size], [true, false, 2]);
});

// Loading ----------------------------------------------------------------------------------------------------------------

test('a slot of many pages is read to its end, three slots at a time, and the ids of 64 at once [PL9]', async () => {
  const { world, worker, put, rounds, named } = rig();
  for (let one = 0; one < 1_100; one += 1) put(`a${one}`, 5);
  for (let one = 0; one < 999; one += 1) put(`b${one}`, 6);
  for (let slot = 7; slot < 17; slot += 1) put(`c${slot}`, slot);
  let [now, most] = [0, 0];
  world.before.set('slot_page', async () => {
    now += 1;
    most = Math.max(most, now);
    await Promise.resolve();
    now -= 1;
  });
  await rounds();
  assert.equal(worker.size, 1_100 + 999 + 10);
  assert.equal(most, 3);
  // Three pages of the first, two of the second: the second page begins behind the first.
  assert.equal(named('slot_page').length, 3 + 2 + 10);
  const counted = named('slot_ids').map(({ values }) => (values[0] as number[]).length);
  assert.deepEqual(
    counted,
    Array.from({ length: SLOTS / 64 }, () => 64),
  );
  assert.ok(world.lines.includes('payments taken over'));
});

test('a payment behind the back of its worker is found within sixteen rounds, wherever it is [PL9]', async () => {
  const { worker, put, rounds, named } = rig();
  await rounds();
  for (const slot of [0, 1, 511, 1_022, 1_023]) put(`p${slot}`, slot);
  for (let cycle = 0; cycle < 2; cycle += 1) {
    const before = named('slot_ids').length;
    await rounds(16);
    assert.equal(worker.size, 5);
    const counted = named('slot_ids')
      .slice(before)
      .flatMap(({ values }) => values[0] as number[]);
    assert.deepEqual(
      counted.toSorted((a, b) => a - b),
      Array.from({ length: SLOTS }, (_, slot) => slot),
      'each slot once',
    );
  }
  assert.equal(named('slot_page').length, 5, 'only slots with payments that memory does not hold');
  // Fewer slots than rounds, and a number that rounds do not divide.
  const few = rig();
  few.world.others = Array.from({ length: 99 }, (_, index) => `other${index}`);
  few.world.owners.fill('other1', 10);
  await few.rounds();
  assert.equal(few.worker.slots, 10);
  for (const slot of mine(few.world)) few.put(`p${slot}`, slot);
  for (let round = 1; round <= 10; round += 1) {
    await few.rounds();
    assert.equal(few.worker.size, round, 'one more slot in each round');
  }
});

test('a payment behind the back of its worker is found although another of its slot was withdrawn meanwhile [PL9]', async () => {
  const { worker, put, rounds } = rig();
  const withdrawn = put('p', 5);
  await rounds();
  withdrawn.isDriven = false;
  put('q', 5);
  await rounds(16);
  assert.equal(worker.has('q'), true);
});

test('a payment that was dropped while its page was read is not driven again, and later it may be [PL8]', async () => {
  const { world, worker, time, put, rounds, named } = rig();
  const held = Promise.withResolvers<void>();
  for (const id of ['p', 'q']) put(id, 0);
  await rounds(16);
  assert.equal(worker.size, 2);
  // One more row makes it read the slot again; its page was read before p left.
  put('r', 0);
  const before = named('slot_page').length;
  world.before.set('slot_page', () => held.promise);
  await worker.round();
  await time.advance(0);
  assert.equal(named('slot_page').length, before + 1);
  world.paused = ['p'];
  await worker.round();
  assert.equal(worker.has('p'), false);
  held.resolve();
  await worker.loaded();
  assert.deepEqual(
    ['p', 'q', 'r'].map((id) => worker.has(id)),
    [false, true, true],
  );
  world.paused = [];
  await rounds(16);
  assert.equal(worker.has('p'), true, 'its row is there, so it is driven');
});

test('what is read of a slot that was lost, or after the end, is not driven [PL10]', async () => {
  for (const isOver of [true, false]) {
    const { world, worker, time, put, named } = rig();
    put('p', 1);
    const held = Promise.withResolvers<void>();
    world.before.set('slot_page', () => held.promise);
    await worker.round();
    await time.advance(0);
    assert.equal(named('slot_page').length, 1);
    if (isOver) {
      worker.drop();
    } else {
      world.others = ['other'];
      world.owners.fill('other');
      await worker.round();
    }
    held.resolve();
    await worker.loaded();
    assert.equal(worker.size, 0);
  }
});

test('a read that failed is made again at the next round, and the round itself does not wait for it [LV8]', async () => {
  const { world, worker, time, put, rounds } = rig();
  put('p', 1);
  world.before.set('slot_ids', () => {
    throw new DatabaseUnavailable('cut off', 'unknown');
  });
  assert.equal(await worker.round(), true);
  await time.advance(1_000);
  assert.equal(worker.size, 0);
  const fail = world.before.get('slot_ids');
  assert(fail);
  world.before.clear();
  world.before.set('slot_page', fail);
  await worker.round();
  await time.advance(1_000);
  assert.equal(worker.size, 0);
  world.before.clear();
  await rounds();
  assert.equal(worker.size, 1, 'not when its slot is counted in turn');
});

test('many payments are spread over the time that their partner needs for them, a minute at most [PL9]', async () => {
  const due = async (payments: number, perSecond: number, random: number): Promise<number> => {
    const { worker, put, rounds } = rig({
      random: () => random,
      budget: { max_calls_per_second: perSecond },
    });
    for (let one = 0; one < payments; one += 1) put(`p${one}`, 1);
    await rounds();
    assert.equal(worker.size, payments);
    return worker.dueAt(`p0`) ?? Infinity;
  };
  // The first of a slot, when nothing else is in memory.
  assert.equal(await due(1, 10, 1), 100);
  assert.equal(await due(20, 10, 1), 2_000);
  assert.equal(await due(20, 10, 0.5), 1_000);
  assert.equal(await due(20, 1_000, 1), 20);
  assert.equal(await due(400, 1, 1), 60_000);
  assert.equal(await due(400, 1, 0.01), 600);
});

/** A row that was just committed into a slot. */
function committed(platform_payment_id: string, partner_id = 'acme'): PaymentRow {
  return {
    platform_payment_id,
    partner_id,
    biller_id: 'acme',
    account_id: 'A-1',
    platform_batch_id: 'b',
    amount_in_cents: 100,
    funding_method: ORDER.funding_method,
    slot: 7,
    stage: 'accepted',
    status: 'processing',
    payment_id: `P-${platform_payment_id}`,
    created_at: '2026-01-01T00:00:00.000Z',
    settled_at: null,
  } as PaymentRow;
}

// The end ----------------------------------------------------------------------------------------------------------------

test('a stop lets what is under way be answered, for as long as it is given, and starts nothing [LV5]', async () => {
  for (const isAnswered of [true, false]) {
    const { world, worker, time, put, rounds, placed } = rig({
      budget: { max_concurrent_calls: 1, max_calls_per_second: 1_000 },
    });
    const held = Promise.withResolvers<void>();
    world.answers = held.promise;
    for (const id of ['p', 'q']) put(id, 1);
    await rounds();
    await time.advance(100);
    assert.equal(world.polled.length, 1);
    let isFinished = false;
    const finished = worker.finish(500).then(() => (isFinished = true));
    assert.equal(placed().slot, ARRIVALS);
    await time.advance(499);
    assert.equal(isFinished, false);
    if (!isAnswered) await time.advance(1);
    held.resolve();
    await time.advance(1);
    await finished;
    assert.deepEqual([world.polled.length, worker.size, worker.slots], [1, 0, 0]);
    const before = world.statements.length;
    assert.equal(await rounds(), true);
    assert.equal(world.statements.length, before);
    assert.equal(mine(world).length, SLOTS, 'they are its own until they are released');
    await worker.release();
    assert.deepEqual(mine(world), []);
  }
});

test('a worker that is dropped sends nothing more and forgets its payments [PL10]', async () => {
  const { world, worker, time, put, rounds } = rig();
  const held = Promise.withResolvers<void>();
  world.answers = held.promise;
  put('p', 1);
  await rounds();
  await time.advance(10);
  worker.drop();
  held.resolve();
  await time.advance(1_000);
  assert.deepEqual([world.polled.length, worker.size, worker.slots], [1, 0, 0]);
});
