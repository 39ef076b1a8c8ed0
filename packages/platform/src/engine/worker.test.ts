/**
 * One life of a worker on tables in memory, with time that moves only with the test: which slots it takes and gives back, that it
 * finds every payment in them, and what it claims of a partner's budget. trouble.test.ts and slots.test.ts have it on PostgreSQL.
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

/** A claim of another worker on a partner's budget. */
interface ForeignClaim {
  readonly partner_id: string;
  readonly worker_id: string;
  readonly calls: number;
  readonly calls_need: number;
  readonly rate: number;
  readonly rate_need: number;
}

function rig(options: { random?: () => number; budget?: Partial<Partner['budget']> } = {}) {
  const time = manualClock();
  const clock: Clock = { ...time, random: options.random ?? (() => 0) };
  const world = {
    owners: Array.from<string | null>({ length: SLOTS }).fill(null),
    others: [] as string[],
    rows: [] as Row[],
    paused: [] as string[],
    foreign: [] as ForeignClaim[],
    /** What this worker has claimed, by partner. */
    claims: new Map<string, Omit<ForeignClaim, 'partner_id' | 'worker_id'>>(),
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
      case 'slot_count': {
        const slots = new Set(values[0] as number[]);
        const some = driven(({ slot }) => slots.has(slot));
        return [...Map.groupBy(some, ({ slot }) => slot)].map(([slot, of]) => ({
          slot,
          payments: of.length,
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
      case 'share_read':
        return world.foreign.filter(({ partner_id }) =>
          (values[0] as string[]).includes(partner_id),
        );
      case 'share_claim': {
        const [, ids, calls, calls_need, rate, rate_need] = values as [
          string,
          string[],
          ...number[][],
        ];
        for (const [index, id] of ids.entries()) {
          world.claims.set(id, {
            calls: calls?.[index] ?? -1,
            calls_need: calls_need?.[index] ?? -1,
            rate: rate?.[index] ?? -1,
            rate_need: rate_need?.[index] ?? -1,
          });
        }
        return [];
      }
      case 'share_drop':
        for (const id of values[1] as string[]) world.claims.delete(id);
        return [];
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
      funding: { isInDatabase: () => world.funded } as never,
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
    assert.deepEqual([worker.slots, named(next).length, named('slot_count').length], [0, 0, 0]);
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

test('a row is driven at once in a slot of its own, and neither when it is over nor when it has no slot', async () => {
  const { worker, rounds } = rig();
  await rounds();
  const row = {
    settled_at: null,
    slot: 7,
    platform_payment_id: 'new',
    partner_id: 'acme',
    stage: 'accepted',
    status: 'processing',
    created_at: '2026-01-01T00:00:00.000Z',
  } as PaymentRow;
  worker.add({ ...row, platform_payment_id: 'over', settled_at: '2026-01-01T00:00:00.000Z' });
  worker.add({ ...row, platform_payment_id: 'nowhere', slot: null });
  worker.add(row);
  assert.deepEqual(
    ['over', 'nowhere', 'new'].map((id) => worker.has(id)),
    [false, false, true],
  );
});

test('a slot is given back when its calls have been recorded, or after two seconds', async () => {
  for (const isAnswered of [true, false]) {
    const { world, worker, time, put, rounds, named, placed } = rig();
    const held = Promise.withResolvers<void>();
    world.answers = held.promise;
    for (let slot = 0; slot < SLOTS; slot += 1) put(`p${slot}`, slot);
    await rounds();
    await worker.exchange();
    await time.advance(100);
    const called = world.polled.map(({ id }) => Number(id.slice(1)));
    assert.ok(called.some((slot) => slot >= SLOTS / 2));
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
  const { world, worker, rounds, placed } = rig();
  await rounds();
  assert.equal(placed(true).stage, 'created', 'its partner is paused');
  world.funded = false;
  assert.equal(placed().stage, 'created', 'its funds are elsewhere');
  world.funded = true;
  await worker.exchange();
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
  await worker.exchange();
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

test('an arrival that an operator changed restarts from its row', async () => {
  const { world, worker, time, put, rounds } = rig();
  const row = put('p', 3);
  await rounds();
  await worker.exchange();
  await time.advance(100);
  assert.equal(world.polled.length, 1);
  const later = worker.dueAt('p');
  // Resumed after a review, for instance: it is due now, not when the next poll would be.
  row.slot = ARRIVALS;
  await rounds();
  await time.advance(100);
  assert.equal(world.polled.length, 2);
  assert.ok((worker.dueAt('p') ?? 0) > (later ?? 0));
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

test('a slot of many pages is read to its end, three slots at a time, and 64 are counted at once [PL9]', async () => {
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
  const counted = named('slot_count').map(({ values }) => (values[0] as number[]).length);
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
    const before = named('slot_count').length;
    await rounds(16);
    assert.equal(worker.size, 5);
    const counted = named('slot_count')
      .slice(before)
      .flatMap(({ values }) => values[0] as number[]);
    assert.deepEqual(
      counted.toSorted((a, b) => a - b),
      Array.from({ length: SLOTS }, (_, slot) => slot),
      'each slot once',
    );
  }
  assert.equal(named('slot_page').length, 5, 'only slots with more payments than memory holds');
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

test('a read that has ended watches no more: a payment that ends is not noted by every read there ever was', async () => {
  const { world, worker, put, rounds, named } = rig();
  put('p', 0);
  for (let reads = 0; reads < 8; reads += 1) {
    put(`q${reads}`, 0);
    await rounds(16);
  }
  assert.ok(named('slot_page').length >= 8);
  world.paused = ['p'];
  type Add = (this: Set<unknown>, value: unknown) => Set<unknown>;
  const add = Reflect.get(Set.prototype, 'add') as Add;
  let noted = 0;
  const counted: Add = function (value) {
    if (value === 'p') noted += 1;
    return add.call(this, value);
  };
  Reflect.set(Set.prototype, 'add', counted);
  try {
    await worker.round();
  } finally {
    Reflect.set(Set.prototype, 'add', add);
  }
  assert.equal(worker.has('p'), false);
  assert.ok(noted < 5, `noted ${noted} times`);
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
  world.before.set('slot_count', () => {
    throw new DatabaseUnavailable('cut off', 'unknown');
  });
  assert.equal(await worker.round(), true);
  await time.advance(1_000);
  assert.equal(worker.size, 0);
  const fail = world.before.get('slot_count');
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

test('slots that were lost before they were read are not read [PL10]', async () => {
  const { world, worker, named } = rig();
  const held = Promise.withResolvers<void>();
  world.before.set('slot_count', () => held.promise);
  await worker.round();
  world.others = ['other'];
  world.owners.fill('other');
  await worker.round();
  held.resolve();
  await worker.loaded();
  assert.equal(named('slot_count').length, 1);
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
  assert.equal(await due(400, 1, 0), 0);
});

test('those of many slots are spread together: what is in memory counts too', async () => {
  const { worker, put, rounds } = rig({
    random: () => 1,
    budget: { max_calls_per_second: 10 },
  });
  for (const id of ['a1', 'a2', 'a3']) put(id, 1);
  await rounds();
  assert.deepEqual(
    ['a1', 'a2', 'a3'].map((id) => worker.dueAt(id)),
    [300, 400, 500],
  );
});

// Shares -----------------------------------------------------------------------------------------------------------------

test('what is due gets a share at once, and its calls leave within the budget [PL16 LV4]', async () => {
  const { world, worker, time, put, rounds } = rig();
  for (let one = 0; one < 3; one += 1) put(`p${one}`, 1);
  await rounds();
  await time.advance(10);
  assert.equal(world.polled.length, 3, 'without a round of the shares');
  // The least is claimed: a burst need not wait for a round.
  assert.deepEqual(world.claims.get('acme'), {
    calls: 4,
    calls_need: 4,
    rate: 1_000,
    rate_need: 1_000,
  });
  assert.equal(worker.stalledMs(), 0);
});

test('the claim follows what is due and what is under way, as a power of two within the budget [PL16]', async () => {
  const claimed = async (
    payments: number,
    budget: { max_concurrent_calls: number; max_calls_per_second: number },
  ) => {
    const { world, worker, time, put, rounds } = rig({ budget });
    world.answers = new Promise(() => undefined);
    for (let one = 0; one < payments; one += 1) put(`p${String(one).padStart(3, '0')}`, 1);
    await rounds();
    await worker.exchange();
    const first = world.claims.get('acme');
    await time.advance(10);
    await worker.exchange();
    return { first, next: world.claims.get('acme'), polled: world.polled.length };
  };
  const small = await claimed(3, { max_concurrent_calls: 100, max_calls_per_second: 1_000 });
  // All three are due: a backlog may have the whole rate.
  assert.deepEqual(small.first, { calls: 4, calls_need: 4, rate: 1_000, rate_need: 1_000 });
  // Under way: twice as many calls, and no backlog any more.
  assert.deepEqual(small.next?.calls_need, 8);
  assert.equal(small.polled, 3);
  const large = await claimed(100, { max_concurrent_calls: 200, max_calls_per_second: 1_000 });
  assert.equal(large.first?.calls_need, 128);
  const capped = await claimed(100, { max_concurrent_calls: 10, max_calls_per_second: 5 });
  assert.deepEqual(capped.first, { calls: 10, calls_need: 10, rate: 5, rate_need: 5 });
});

test('a rate that was used is claimed twice over, and given up when it is not used [PL16]', async () => {
  const { world, worker, time, put, rounds } = rig({
    budget: { max_concurrent_calls: 256, max_calls_per_second: 4_000 },
  });
  world.answers = new Promise(() => undefined);
  for (let one = 0; one < 40; one += 1) put(`p${one}`, 1);
  await rounds();
  await time.advance(100);
  await worker.exchange();
  for (let one = 0; one < 40; one += 1) put(`q${one}`, 64);
  await rounds();
  await time.advance(100);
  assert.equal(world.polled.length, 80);
  // 40 calls in 100 ms, and 80 under way.
  await worker.exchange();
  assert.deepEqual(
    [world.claims.get('acme')?.rate_need, world.claims.get('acme')?.calls_need],
    [1_024, 256],
  );
  await time.advance(100);
  await worker.exchange();
  assert.equal(
    world.claims.get('acme')?.rate_need,
    512,
    'an eighth, so that a burst need not wait',
  );
});

test('a queue that waits for its next poll claims little, and one that waits for hours nothing [PL16]', async () => {
  for (const [dueMs, calls_need, rate_need] of [
    // Two rounds ahead: what is due until then can start.
    [4_000, 4, 1_024],
    [4_001, undefined, undefined],
  ] as const) {
    const { world, worker, put, rounds } = rig({
      random: () => dueMs / 60_000,
      budget: { max_concurrent_calls: 64, max_calls_per_second: 4_104 },
    });
    // A slow partner's payments are spread over a minute.
    world.before.set('slot_page', () => {
      world.budget = { ...world.budget, max_calls_per_second: 0.001 };
    });
    put('p', 1);
    for (let one = 0; one < 40; one += 1) put(`p${one}`, 1);
    await rounds();
    assert.equal(worker.dueAt('p'), dueMs);
    world.budget = { ...world.budget, max_calls_per_second: 4_104 };
    await worker.exchange();
    const claim = world.claims.get('acme');
    assert.deepEqual([claim?.calls_need, claim?.rate_need], [calls_need, rate_need]);
  }
});

test('what others hold is not used, and is asked for again at the usual round [PL16]', async () => {
  const { world, worker, time, put, rounds, named } = rig({
    budget: { max_concurrent_calls: 4, max_calls_per_second: 1_000 },
  });
  world.foreign = [
    { partner_id: 'acme', worker_id: 'other', calls: 4, calls_need: 4, rate: 0, rate_need: 0 },
  ];
  for (let one = 0; one < 8; one += 1) put(`p${one}`, 1);
  await rounds();
  await time.advance(1_000);
  assert.equal(world.polled.length, 0);
  const asked = named('share_read').length;
  assert.ok(asked <= 5, `${asked} exchanges in a second that could bring nothing`);
  assert.equal(worker.stalledMs(), 0, 'it waits for others, so nothing has stalled');
  // The other gives up half.
  world.foreign = [
    { partner_id: 'acme', worker_id: 'other', calls: 2, calls_need: 4, rate: 0, rate_need: 0 },
  ];
  world.answers = new Promise(() => undefined);
  await worker.exchange();
  await time.advance(100);
  assert.equal(world.polled.length, 2);
});

test('a partner that is gone, or for which nothing is left to do, keeps no claim [PL16]', async () => {
  const { world, worker, time, put, rounds, named } = rig();
  put('p', 1);
  put('q', 1, 'gone');
  world.gone.add('gone');
  const held = Promise.withResolvers<void>();
  world.answers = held.promise;
  await rounds();
  await time.advance(100);
  await worker.exchange();
  assert.deepEqual(
    ['p', 'q'].map((id) => worker.has(id)),
    [true, true],
  );
  assert.deepEqual([...world.claims.keys()], ['acme']);
  // One call is under way, and nothing is due.
  assert.equal(world.claims.get('acme')?.calls_need, 4);
  held.resolve();
  await time.advance(100);
  await worker.exchange();
  assert.equal(world.claims.size, 0);
  // And from then on nothing is asked: there is nothing to agree on.
  const before = named('share_read').length;
  await worker.exchange();
  assert.equal(named('share_read').length, before);
});

test('a budget that an operator changed holds from the next exchange on [PL16]', async () => {
  const { world, worker, time, put, rounds } = rig();
  world.answers = new Promise(() => undefined);
  for (let one = 0; one < 40; one += 1) put(`p${one}`, 1);
  await rounds();
  world.budget = { ...world.budget, max_concurrent_calls: 3 };
  await worker.exchange();
  await time.advance(1_000);
  assert.ok(world.polled.length <= 4, `${world.polled.length}`);
  assert.ok((world.claims.get('acme')?.calls ?? 99) <= 4);
});

test('while exchanges fail, a hurry is made every 50 ms at most, and again when the database answers [LV8]', async () => {
  const { world, time, put, rounds, named } = rig();
  world.before.set('share_read', () => {
    throw new DatabaseUnavailable('cut off', 'unknown');
  });
  for (let one = 0; one < 3; one += 1) put(`p${one}`, 1);
  await rounds();
  await time.advance(1_000);
  assert.ok(named('share_read').length <= 21, `${named('share_read').length}`);
  assert.equal(world.polled.length, 0);
  world.before.clear();
  put('another', 0);
  await rounds(16);
  await time.advance(100);
  assert.equal(world.polled.length, 4);
});

test('one exchange at a time, and one that began before a need arose is followed by another [PL16 LV4]', async () => {
  const { world, worker, time, put, rounds, named } = rig();
  await rounds();
  put('p', 64);
  const held = Promise.withResolvers<void>();
  world.before.set('share_read', () => held.promise);
  await rounds();
  await time.advance(10);
  assert.equal(named('share_read').length, 1);
  const [one, two] = [worker.exchange(), worker.exchange()];
  assert.equal(one, two);
  // For another partner: the exchange that is under way does not include it.
  put('q', 128, 'water');
  await rounds();
  await time.advance(100);
  assert.equal(named('share_read').length, 1);
  world.before.clear();
  held.resolve();
  await time.advance(100);
  assert.deepEqual(world.polled.map(({ id }) => id).toSorted(), ['p', 'q']);
});

test('what is needed in many partners’ queues at once is asked for together [LV4]', async () => {
  const { world, time, put, rounds, named } = rig();
  for (let partner = 0; partner < 20; partner += 1) put(`p${partner}`, 1, `partner${partner}`);
  await rounds();
  await time.advance(500);
  assert.equal(world.polled.length, 20);
  assert.ok(named('share_read').length <= 8, `${named('share_read').length} exchanges`);
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

test('however many needs arise, shares are agreed on at once and then every 50 ms [LV4 LV8]', async () => {
  const { worker, time, rounds, named } = rig();
  await rounds();
  await time.advance(1_000);
  for (let ms = 0; ms <= 200; ms += 1) {
    worker.add(committed(`p${ms}`, `partner${ms}`));
    await time.advance(1);
  }
  const times = [...new Set(named('share_claim').map(({ at }) => at - 1_000))];
  assert.deepEqual(times, [0, 50, 100, 150, 200]);
});

test('a burst larger than the share gets a larger one at once, while nobody else wants it [LV4]', async () => {
  const { world, worker, time, rounds } = rig();
  world.answers = new Promise(() => undefined);
  await rounds();
  worker.add(committed('first'));
  await time.advance(100);
  for (let one = 0; one < 20; one += 1) worker.add(committed(`p${one}`));
  await time.advance(300);
  assert.equal(world.polled.length, 21);
});

test('what is given up to another worker is not used from before the claim is written [PL16]', async () => {
  for (const [budget, most] of [
    [{ max_concurrent_calls: 64, max_calls_per_second: 1_000 }, 32],
    // Eight before, and half of twenty in the second that follows.
    [{ max_concurrent_calls: 64, max_calls_per_second: 20 }, 18],
  ] as const) {
    const { world, worker, time, rounds } = rig({ budget });
    world.answers = new Promise(() => undefined);
    await rounds();
    for (let one = 0; one < 4; one += 1) worker.add(committed(`first${one}`));
    await time.advance(2_000);
    worker.proven(2_000);
    // Enough is due to claim all of it, and it is due after the restriction.
    world.before.set('share_claim', () => undefined);
    const { max_concurrent_calls: calls, max_calls_per_second: rate } = budget;
    for (let one = 0; one < 40; one += 1) worker.add(committed(`p${String(one).padStart(2, '0')}`));
    await time.advance(100);
    const before = world.polled.length;
    const held = Promise.withResolvers<void>();
    world.before.set('share_claim', () => held.promise);
    world.foreign = [
      {
        partner_id: 'acme',
        worker_id: 'other',
        calls: 0,
        calls_need: calls,
        rate: 0,
        rate_need: rate,
      },
    ];
    const exchange = worker.exchange();
    await time.advance(0);
    for (let one = 0; one < 40; one += 1) worker.add(committed(`q${one}`));
    await time.advance(1_000);
    assert.ok(
      world.polled.length <= Math.max(before, most),
      `${world.polled.length} calls, ${before} before`,
    );
    held.resolve();
    await exchange;
  }
});

test('the log says how many payments were found, and in which time', async () => {
  const { world, worker, time, put } = rig();
  await time.advance(100);
  put('p', 1);
  const held = Promise.withResolvers<void>();
  world.before.set('slot_page', () => held.promise);
  await worker.round();
  await time.advance(30);
  held.resolve();
  await worker.loaded();
  const at = world.lines.indexOf('payments taken over');
  assert.deepEqual(world.details[at], { payments: 1, ms: 30 });
});

// The end ----------------------------------------------------------------------------------------------------------------

test('a stop lets what is under way be answered, for as long as it is given, and starts nothing [LV5]', async () => {
  for (const isAnswered of [true, false]) {
    const { world, worker, time, put, rounds, placed, named } = rig({
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
    const asked = named('share_read').length;
    await worker.exchange();
    assert.equal(named('share_read').length, asked);
    await time.advance(499);
    assert.equal(isFinished, false);
    if (!isAnswered) await time.advance(1);
    held.resolve();
    await time.advance(1);
    await finished;
    assert.deepEqual([world.polled.length, worker.size, worker.slots], [1, 0, 0]);
    const before = world.statements.length;
    await worker.exchange();
    assert.equal(await rounds(), true);
    assert.equal(world.statements.length, before);
    assert.equal(mine(world).length, SLOTS, 'they are its own until they are released');
    await worker.release();
    assert.deepEqual(mine(world), []);
  }
});

test('a worker that is dropped aborts its calls, forgets its payments, and an exchange under way gives it nothing [PL10]', async () => {
  const { world, worker, time, put, rounds } = rig();
  const held = Promise.withResolvers<void>();
  world.before.set('share_claim', () => held.promise);
  put('p', 1);
  await rounds();
  await time.advance(10);
  worker.drop();
  held.resolve();
  await time.advance(1_000);
  assert.deepEqual([world.polled, worker.size, worker.slots], [[], 0, 0]);
});
