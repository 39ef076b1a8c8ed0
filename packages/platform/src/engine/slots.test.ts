/** Slots are shared out evenly, by every worker alone, and taken over at the same cost whatever is in flight (LV9). */
import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { force, until } from '@duebridge/runtime/testing';
import { ARRIVALS } from '../store/payments.ts';
import type { Engine } from './engine.ts';
import { idsInSlots, placeArrivals, planSlots, readSlots, SLOTS, takeSlots } from './slots.ts';
import { idleWorker, scriptedPartner, engineRig, type EngineRig } from '../../test/engine-rig.ts';

test('whichever workers join, leave or die, slots are shared evenly, and no two workers plan to take the same one [F88]', () => {
  const event = fc.record({
    worker: fc.nat({ max: 7 }),
    kind: fc.constantFrom('join', 'leave', 'die'),
  });
  fc.assert(
    fc.property(fc.array(event, { minLength: 1, maxLength: 12 }), (events) => {
      const owners = Array.from<string | null>({ length: SLOTS }).fill(null);
      const living = new Set<string>(['w0']);
      const round = (): number => {
        const view = { owners: [...owners], active: [...living], living: [...living] };
        const plans = [...living].map((me) => ({ me, ...planSlots(view, me) }));
        const taken = plans.flatMap((plan) => plan.take);
        assert.equal(new Set(taken).size, taken.length, 'two workers reach for one slot');
        for (const { me, give, take } of plans) {
          for (const slot of give) {
            assert.equal(owners[slot], me);
            owners[slot] = null;
          }
          for (const slot of take) {
            assert.ok(!living.has(owners[slot] ?? ''), 'a slot is taken from the living');
            owners[slot] = me;
          }
        }
        return plans.reduce((sum, plan) => sum + plan.give.length + plan.take.length, 0);
      };
      const settle = (): number => {
        let moved = 0;
        for (let rounds = 0; rounds < 4; rounds += 1) moved += round();
        assert.equal(round(), 0, 'it does not come to rest');
        return moved;
      };
      settle();
      for (const { worker, kind } of events) {
        const id = `w${worker}`;
        if (kind === 'join') living.add(id);
        else if (living.size > 1) living.delete(id);
        if (kind === 'leave') {
          for (const [slot, owner] of owners.entries()) if (owner === id) owners[slot] = null;
        }
        // A slot is moved at most twice: given back and taken.
        assert.ok(settle() <= 2 * SLOTS);
        const counts = [...living].map((one) => owners.filter((owner) => owner === one).length);
        assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, counts.join(' '));
        assert.equal(
          counts.reduce((sum, count) => sum + count, 0),
          SLOTS,
        );
      }
    }),
    { seed: 1 },
  );
});

test('when two workers take the same slots at once, each slot goes to one of them', async (t) => {
  const { database } = await engineRig(t);
  const workers = ['w1', 'w2', 'w3', 'w4'];
  for (const worker of workers) await idleWorker(database, worker, []);
  const all = Array.from({ length: SLOTS }, (_, slot) => slot);
  const view = await readSlots(database, 'w1', 10_000);
  const taken = await Promise.all(
    workers.map((worker, index) =>
      takeSlots(database, worker, index % 2 === 0 ? all : all.toReversed(), view.owners),
    ),
  );
  assert.equal(taken.flat().length, SLOTS);
  assert.equal(new Set(taken.flat()).size, SLOTS);
});

test('slots that cannot be divided evenly stay where they are: a remainder belongs to those who have it', () => {
  // 1,024 is three times 341 and one: whoever has the one more keeps it, whatever it is called.
  for (const rich of [0, 1, 2]) {
    const owners = Array.from({ length: SLOTS }, (_, slot) =>
      slot === SLOTS - 1 ? `w${rich}` : `w${slot % 3}`,
    );
    const workers = ['w0', 'w1', 'w2'];
    for (const [index, me] of workers.entries()) {
      const plan = planSlots({ owners, active: workers, living: workers }, me);
      assert.deepEqual(plan, { give: [], take: [], target: index === rich ? 342 : 341 });
    }
  }
});

test('a slot shows the payments in flight alone, and an arrival goes to slots of its own worker, once', async (t) => {
  const rig = await engineRig(t);
  const { database } = rig;
  await rig.register('acme', 'http://127.0.0.1:9');
  // Never started: it drives nothing.
  const engine = rig.engine();
  const made = async (slot: number): Promise<string> =>
    (await rig.pay(engine, 'acme', { slot })).platform_payment_id;
  await idleWorker(database, 'here', [1, 2]);
  await idleWorker(database, 'other', [3]);
  const settle = (...ids: string[]): Promise<void> =>
    force(
      database,
      `UPDATE duebridge_platform.payments SET status = 'failed', stage = 'ended', failure_reason = 'x', ended_at = now(),
                settled_at = now() WHERE platform_payment_id = ANY($1)`,
      [ids],
    );
  const [mine, foreign, done] = [await made(1), await made(3), await made(1)];
  const [first, second, late] = [await made(ARRIVALS), await made(ARRIVALS), await made(ARRIVALS)];
  await settle(done, late);
  assert.deepEqual(await idsInSlots(database, [1, 2]), [mine]);
  assert.deepEqual(await idsInSlots(database, [3]), [foreign]);
  assert.deepEqual(await placeArrivals(database, 'here', []), []);
  // A slot that went to another worker meanwhile gets nothing.
  assert.deepEqual(await placeArrivals(database, 'here', [3]), []);
  const placed = await placeArrivals(database, 'here', [1, 2]);
  // Ids ascend with time, and slots are filled by turns.
  assert.deepEqual(
    new Map(placed.map((row) => [row.platform_payment_id, row.slot])),
    new Map([
      [first, 1],
      [second, 2],
    ]),
  );
  assert.deepEqual(await placeArrivals(database, 'here', [1, 2]), [], 'not twice');
  const rows = await database.query<{ platform_payment_id: string; slot: number }>(
    'SELECT platform_payment_id, slot FROM duebridge_platform.payments',
  );
  const slots = new Map(rows.map((row) => [row.platform_payment_id, row.slot]));
  const order = [mine, foreign, done, first, second, late];
  assert.deepEqual(
    order.map((id) => slots.get(id)),
    [1, 3, 1, 1, 2, ARRIVALS],
  );
});

async function slotsOf(rig: EngineRig, engine: Engine): Promise<number> {
  const rows = await rig.database.query<{ count: number }>(
    'SELECT count(*) AS count FROM duebridge_platform.slots WHERE worker_id = $1',
    [engine.workerId],
  );
  return rows[0]?.count ?? 0;
}

test('a worker that registers and never reads the slots keeps none from the others', async (t) => {
  const rig = await engineRig(t);
  await idleWorker(rig.database, 'worker-phantom', []);
  const engine = rig.engine();
  await engine.start();
  assert.equal(await slotsOf(rig, engine), SLOTS);
});

test('taking over writes no payment, however many there are, and payments in review are not even read [LV9]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  partner.pollsToEnd = Number.POSITIVE_INFINITY;
  await rig.register('acme', partner.url);
  const filler = await rig.pay(rig.engine(), 'acme', { slot: 1 });
  await rig.database.query(
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id,
                                             amount_in_cents, funding_method, slot)
     SELECT 'made-' || n, partner_id, biller_id, account_id, platform_batch_id, 1, 'sandbox_bank', n % 1024
       FROM duebridge_platform.payments, generate_series(1, 30000) n WHERE platform_payment_id = $1`,
    [filler.platform_payment_id],
  );
  const to = async (stage: string, set: string, where: string): Promise<void> => {
    await rig.database.query(
      `UPDATE duebridge_platform.payments SET stage = '${stage}', ${set} WHERE ${where}`,
    );
  };
  await to('dispatching', 'failure_reason = NULL', "stage = 'created'");
  await to(
    'accepted',
    "payment_id = 'P', initiated_at = now(), accepted_at = now() - interval '2 days'",
    "platform_payment_id LIKE 'made-%5'",
  );
  await to('review', "review_reason = 'x', slot = NULL", "stage = 'dispatching'");
  /** Changes with every row that is written, whatever is written to it. */
  const written = async (): Promise<unknown> =>
    rig.database.query(
      `SELECT md5(string_agg(ctid::text || xmin::text, ',' ORDER BY platform_payment_id)) AS rows FROM duebridge_platform.payments`,
    );
  const before = await written();
  const lines: object[] = [];
  const log = {
    debug: () => undefined,
    info: (details: object, message: string) => void lines.push({ ...details, message }),
    warn: () => undefined,
    error: () => undefined,
  };
  await rig.registry.change('acme', { paused: true }, 'operator');
  const engine = rig.engine({ log });
  await engine.start();
  await until('they are taken over', () => {
    const loaded = lines.map((line) => ('payments' in line ? Number(line.payments) : 0));
    // On a busy machine a worker may lose its lease and read them again.
    return loaded.reduce((sum, count) => sum + count, 0) >= 3_000;
  });
  assert.deepEqual(await written(), before);
});
