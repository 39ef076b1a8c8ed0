import assert from 'node:assert/strict';
import test from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { PAYMENT_STAGES, PAYMENT_STATUSES } from '@duebridge/contract';
import { seededRandom } from '@duebridge/runtime/testing';
import fc from 'fast-check';
import { ActivePayment, type PaymentGroup } from './active-payment.ts';
import { HeldPayments } from './held-payments.ts';
import type { Lane } from './due-heap.ts';
import { PartnerQueue } from './partner-queue.ts';

const GROUPS: readonly PaymentGroup[] = ['acme', 'utility'].map((partner_id) => ({
  queue: new PartnerQueue(partner_id, 1_000, 2_000),
  biller_id: partner_id,
  platform_batch_id: 'batch',
  funding_method: 'bank',
}));

const SLOTS = 4;
const LANES = 3;

/** In the order in which they are visited. */
function creationTimes(held: HeldPayments): number[] {
  const times: number[] = [];
  held.eachCreationTime((createdAt) => times.push(createdAt));
  return times;
}

/** Ids that the platform mints, and some that it does not: those stay objects. */
const id = fc.oneof(
  { weight: 2, arbitrary: fc.uuid() },
  // Few, so that they come again; and alike, so that they meet in the table.
  {
    weight: 8,
    arbitrary: fc
      .nat(40)
      .map((n) => `0199aaaa-0000-7000-${n % 2 === 0 ? 8 : 9}000-0000000000${n + 10}`),
  },
  fc.uuid().map((text) => text.toUpperCase()),
  fc.constantFrom('', 'x', '00000000-0000-0000-0000-00000000000', 'not-a-uuid'),
);
/** Texts of every length; some that UTF-8 would change. */
const text = fc.oneof(
  { weight: 6, arbitrary: fc.string({ maxLength: 40 }) },
  fc.string({ unit: 'grapheme', maxLength: 40 }),
  fc.constantFrom('', '\ud800', 'é'.repeat(1_100), 'x'.repeat(2_049), '\u0000'),
);
const whole = fc.oneof(fc.nat(1_000), fc.integer({ min: -1e12, max: 1e12 }));
const count = fc.oneof({ weight: 6, arbitrary: fc.nat(3) }, fc.constantFrom(255, 256, 2 ** 32));

const payment = fc
  .record({
    facts: fc.record({
      at: fc.nat(50),
      platform_payment_id: id,
      account_id: text,
      amount_in_cents: fc.integer({ min: 1, max: 99_999_999_999 }),
      group: fc.constantFrom(...GROUPS),
      createdAt: whole,
      stage: fc.constantFrom(...PAYMENT_STAGES),
      status: fc.constantFrom(...PAYMENT_STATUSES),
      payment_id: fc.option(text),
      acceptedAt: whole,
      slot: fc.nat(SLOTS - 1),
    }),
    memory: fc.record({
      polls: count,
      tries: count,
      failedAt: fc.option(whole, { nil: undefined }),
      ownFaults: count,
      crossed: fc.nat(3),
      grace: count,
      resubmit: fc.boolean(),
      anomaly: fc.constantFrom(undefined, 'unknown_status', 'posted_before_initiated'),
    }),
  })
  .map(({ facts, memory }) => Object.assign(new ActivePayment(facts), memory));

/** What happens to the payments of a worker. Numbers choose among what there is. */
const act = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ kind: fc.constant('add'), payment, lane: fc.nat(LANES - 1) }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('pop'), lane: fc.nat(LANES - 1) }) },
  fc.record({ kind: fc.constant('pop_latest'), lane: fc.nat(LANES - 1), now: fc.nat(50) }),
  fc.record({ kind: fc.constant('take_all'), lane: fc.nat(LANES - 1) }),
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('remove'), which: fc.nat() }) },
  fc.record({ kind: fc.constant('remove_slot'), slot: fc.nat(SLOTS - 1) }),
);
type Act = (typeof act extends fc.Arbitrary<infer T> ? T : never) & { readonly kind: string };

/** All that a payment is, for comparison. */
function contentOf(one: ActivePayment): Record<string, unknown> {
  return { ...Object.fromEntries(Object.entries(one)), slot: one.slot };
}

/** The same acts on payments that are kept as plain objects. */
class Model {
  readonly payments = new Map<string, { lane: number; content: Record<string, unknown> }>();

  in(lane: number): Record<string, unknown>[] {
    return [...this.payments.values()].filter((one) => one.lane === lane).map((one) => one.content);
  }

  /** Takes what a lane returned, which must be one of those that may come next. */
  took(taken: ActivePayment | undefined, allowed: readonly Record<string, unknown>[]): void {
    if (taken === undefined) {
      assert.equal(allowed.length, 0);
      return;
    }
    const known = allowed.find((one) => one['platform_payment_id'] === taken.platform_payment_id);
    assert.deepEqual(contentOf(taken), known);
    this.payments.delete(taken.platform_payment_id);
  }
}

const least = (ats: readonly unknown[]): number => Math.min(...ats.map(Number));
const most = (ats: readonly unknown[]): number => Math.max(...ats.map(Number));

/** What a partner's queue does with entries that are out of date. */
function firstCurrent(lane: Lane<ActivePayment>): ActivePayment | undefined {
  for (let head = lane.peek(); head !== undefined && !head.isCurrent; head = lane.peek()) {
    assert.equal(lane.pop(), head);
  }
  return lane.peek();
}

function run(acts: readonly Act[]): void {
  const held = new HeldPayments((one) => one.amount_in_cents % 5 !== 0);
  const lanes = Array.from({ length: LANES }, () => held.newLane());
  const model = new Model();
  const laneAt = (index: number): Lane<ActivePayment> => lanes[index] as Lane<ActivePayment>;
  for (const one of acts) {
    switch (one.kind) {
      case 'add': {
        const { platform_payment_id } = one.payment;
        assert.equal(held.has(platform_payment_id), model.payments.has(platform_payment_id));
        if (model.payments.has(platform_payment_id)) break;
        // A shrunk run meets the same object again.
        const fresh = copyOf(one.payment);
        model.payments.set(platform_payment_id, { lane: one.lane, content: contentOf(fresh) });
        held.add(fresh);
        laneAt(one.lane).push(fresh);
        break;
      }
      case 'pop': {
        const head = firstCurrent(laneAt(one.lane));
        const taken = laneAt(one.lane).pop();
        assert.equal(taken, head);
        const all = model.in(one.lane);
        const first = least(all.map(({ at }) => at));
        model.took(
          taken,
          all.filter(({ at }) => at === first),
        );
        if (taken !== undefined) assert.ok(held.remove(taken));
        break;
      }
      case 'pop_latest': {
        let taken = laneAt(one.lane).popLatest(one.now);
        while (taken !== undefined && !taken.isCurrent) taken = laneAt(one.lane).popLatest(one.now);
        const due = model.in(one.lane).filter(({ at }) => Number(at) <= one.now);
        const latest = most(due.map(({ at }) => at));
        model.took(
          taken,
          due.filter(({ at }) => at === latest),
        );
        if (taken !== undefined) assert.ok(held.remove(taken));
        break;
      }
      case 'take_all': {
        for (const taken of laneAt(one.lane).takeAll()) {
          if (!taken.isCurrent) continue;
          model.took(taken, model.in(one.lane));
          assert.ok(held.remove(taken));
        }
        assert.deepEqual(model.in(one.lane), []);
        assert.equal(laneAt(one.lane).size, 0);
        break;
      }
      case 'remove': {
        const ids = [...model.payments.keys()];
        const chosen = ids[one.which % Math.max(1, ids.length)] ?? 'none';
        const removed = held.removeById(chosen);
        assert.equal(removed?.slot, model.payments.get(chosen)?.content['slot']);
        model.payments.delete(chosen);
        assert.ok(!held.has(chosen));
        break;
      }
      case 'remove_slot': {
        const gone = [...held.removeSlots(new Set([one.slot]))].map(
          (removed) => removed.platform_payment_id,
        );
        const expected = [...model.payments].filter(
          ([, { content }]) => content['slot'] === one.slot,
        );
        assert.deepEqual(gone.toSorted(), expected.map(([known]) => known).toSorted());
        for (const known of gone) {
          model.payments.delete(known);
          assert.ok(!held.has(known));
        }
        break;
      }
    }
    assert.equal(held.size, model.payments.size);
  }
  for (const known of model.payments.keys()) assert.ok(held.has(known), known);
  assert.deepEqual(
    creationTimes(held).toSorted((a, b) => a - b),
    [...model.payments.values()]
      .map(({ content }) => Number(content['createdAt']))
      .toSorted((a, b) => a - b),
  );
}

/** A copy that shares nothing with the payment itself. */
function copyOf(one: ActivePayment): ActivePayment {
  return Object.assign(new ActivePayment(one), Object.fromEntries(Object.entries(one)));
}

test('payments that wait as bytes come back unchanged, in order of time, whatever was removed meanwhile', () => {
  // A failure prints the seed and the shortest run that shows it.
  fc.assert(
    fc.property(fc.array(act, { maxLength: 120, size: 'max' }), (acts) => run(acts)),
    { numRuns: 300 },
  );
});

test('tens of thousands of payments wait, and records and texts are used again', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  const random = seededRandom(11);
  const alive = new Map<string, string>();
  const make = (index: number): ActivePayment => {
    const hex = Math.floor(random() * 2 ** 48)
      .toString(16)
      .padStart(12, '0');
    const platform_payment_id = `01${hex.slice(0, 6)}-0000-7000-8000-${hex}`;
    const account_id = 'A'.repeat(index % 90);
    alive.set(platform_payment_id, account_id);
    return new ActivePayment({
      at: Math.floor(random() * 1e6),
      platform_payment_id,
      account_id,
      amount_in_cents: index + 1,
      group: GROUPS[0] as PaymentGroup,
      createdAt: 0,
      stage: 'accepted',
      status: 'processing',
      payment_id: `P-${hex}`,
      acceptedAt: 0,
      slot: 0,
    });
  };
  for (let round = 0; round < 4; round += 1) {
    for (let index = 0; index < 10_000; index += 1) {
      const one = make(index);
      held.add(one);
      lane.push(one);
    }
    // Half of them leave, in order of time.
    let before = -1;
    for (let index = 0; index < 5_000; index += 1) {
      const one = lane.pop();
      assert.ok(one !== undefined && one.at >= before);
      before = one.at;
      assert.equal(one.account_id, alive.get(one.platform_payment_id));
      assert.equal(one.payment_id, `P-${one.platform_payment_id.slice(24)}`);
      assert.ok(alive.delete(one.platform_payment_id) && held.remove(one) !== undefined);
    }
    assert.equal(held.size, alive.size);
  }
  for (const id of alive.keys()) assert.ok(held.has(id), id);
});

test('payments that come and go take no more memory than those that wait at one time', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  // What other tests left must not be collected while this one measures.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = process.memoryUsage().arrayBuffers;
  for (let cycle = 0; cycle < 25; cycle += 1) {
    for (let index = 0; index < 2_000; index += 1) {
      const one = new ActivePayment({
        at: index,
        platform_payment_id: `0199aaaa-0000-7000-8000-${String(index).padStart(12, '0')}`,
        account_id: 'A'.repeat(index % 4 < 2 ? 2_000 : 1_000),
        amount_in_cents: 1,
        group: GROUPS[0] as PaymentGroup,
        createdAt: 0,
        stage: 'accepted',
        status: 'processing',
        payment_id: index % 4 < 2 ? null : 'P'.repeat(1_000),
        acceptedAt: 0,
        slot: index % 2,
      });
      held.add(one);
      lane.push(one);
    }
    // Half are removed with their slot, and half are taken, all at once or one after the other.
    for (const removed of held.removeSlots(new Set([0]))) assert.equal(removed.slot, 0);
    if (cycle % 2 === 0) for (const taken of lane.takeAll()) held.remove(taken);
    for (let taken = lane.pop(); taken !== undefined; taken = lane.pop()) held.remove(taken);
    assert.equal(held.size, 0);
  }
  collect();
  const megabytes = (process.memoryUsage().arrayBuffers - before) / 2 ** 20;
  assert.ok(megabytes < 8, `${megabytes} MB, where 4 MB wait at one time`);
  // Until here it is in use, so that nothing of it was collected.
  assert.deepEqual([held.size, lane.size], [0, 0]);
});

/** A payment that can be written as bytes. */
function plain(
  number: number,
  at: number,
  facts: Partial<ConstructorParameters<typeof ActivePayment>[0]> = {},
): ActivePayment {
  return new ActivePayment({
    at,
    platform_payment_id: `0199aaaa-0000-7000-8000-${String(number).padStart(12, '0')}`,
    account_id: 'A-1',
    amount_in_cents: 100,
    group: GROUPS[0] as PaymentGroup,
    createdAt: number,
    stage: 'accepted',
    status: 'processing',
    payment_id: null,
    acceptedAt: 0,
    slot: 0,
    ...facts,
  });
}

test('a payment that only waits becomes bytes, and one that somebody still holds stays the object it is', () => {
  const busy = plain(2, 20);
  const held = new HeldPayments((payment) => payment !== busy);
  const lane = held.newLane();
  const idle = plain(1, 10);
  for (const payment of [idle, busy]) {
    held.add(payment);
    lane.push(payment);
  }
  assert.deepEqual([idle.isCurrent, busy.isCurrent], [false, true]);
  assert.equal(lane.size, 2);
  assert.deepEqual(
    [idle, busy].map(({ platform_payment_id }) => held.dueAt(platform_payment_id)),
    [10, 20],
  );
  assert.equal(held.dueAt(plain(3, 0).platform_payment_id), undefined);
  // What is left of it as an object is out of date, and ends nothing.
  assert.equal(held.remove(idle), undefined);
  assert.ok(held.has(idle.platform_payment_id));
  const first = lane.pop();
  assert.ok(first !== undefined && first !== idle && first.isCurrent);
  assert.equal(first.platform_payment_id, idle.platform_payment_id);
  assert.equal(lane.pop(), busy);
});

test('a payment that was removed on its way into a lane does not come back to life there', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  const payment = plain(1, 10);
  held.add(payment);
  held.remove(payment);
  lane.push(payment);
  assert.equal(held.has(payment.platform_payment_id), false);
  assert.equal(held.size, 0);
  assert.equal(lane.pop(), payment);
  assert.equal(payment.isCurrent, false);
});

test('of the payments that wait, the next one alone becomes an object', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  for (const payment of [plain(1, 30), plain(2, 20), plain(3, 10)]) {
    held.add(payment);
    lane.push(payment);
  }
  assert.deepEqual(creationTimes(held), [1, 2, 3]);
  assert.equal(lane.peek()?.createdAt, 3);
  assert.equal(lane.peek()?.createdAt, 3);
  // Objects are listed first, so the others are bytes still.
  assert.deepEqual(creationTimes(held), [3, 1, 2]);
});

test('the latest due is taken out of the middle of what waits, and the rest keeps its order', () => {
  const held = new HeldPayments(() => true);
  const fill = (ats: readonly number[]): Lane<ActivePayment> => {
    const lane = held.newLane();
    for (const [index, at] of ats.entries()) {
      const payment = plain(held.size + 1_000 * (index + 1), at);
      held.add(payment);
      lane.push(payment);
    }
    return lane;
  };
  const drain = (lane: Lane<ActivePayment>): number[] => {
    const ats: number[] = [];
    for (let next = lane.pop(); next !== undefined; next = lane.pop()) {
      ats.push(next.at);
      held.remove(next);
    }
    return ats;
  };
  const random = seededRandom(7);
  const lane = fill(Array.from({ length: 500 }, () => Math.floor(random() * 1_000)));
  const taken = Array.from({ length: 50 }, () => {
    const payment = lane.popLatest(600);
    assert.ok(payment !== undefined && held.remove(payment) !== undefined);
    return payment.at;
  });
  assert.deepEqual(
    taken,
    taken.toSorted((a, b) => b - a),
  );
  assert.ok(taken.every((at) => at <= 600 && at > 400));
  const left = drain(lane);
  assert.equal(left.length, 450);
  assert.deepEqual(
    left,
    left.toSorted((a, b) => a - b),
  );
  // The last of the heap takes the place of one whose parent is later than it.
  for (const ats of [
    [1, 10, 2, 20, 21, 3, 4],
    [1, 10, 2, 21, 20, 3, 4],
    [1, 2, 10, 3, 4, 21, 20, 5],
    [1, 2, 10, 3, 4, 20, 21, 5],
  ]) {
    const small = fill(ats);
    const latest = small.popLatest(21);
    assert.ok(latest?.at === 21 && held.remove(latest) !== undefined);
    assert.deepEqual(
      drain(small),
      ats.filter((at) => at !== 21).toSorted((a, b) => a - b),
    );
  }
  assert.equal(held.size, 0);
});

test('payments whose ids differ in one part alone are told apart, however they meet in the table', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  // All that differ in the first half, and those that differ in one bit of the last part, have one place in a table of that size.
  const ids = [
    '0199aaaa-0000-7000-8000-000000000001',
    '0199aaab-0000-7000-8000-000000000001',
    '0199aaaa-0001-7000-8000-000000000001',
    '0199aaaa-0000-7001-8000-000000000001',
    '0199aaaa-0000-7000-8000-000080000001',
    '0199aaaa-0000-7000-8000-000040000001',
  ];
  const make = (platform_payment_id: string, at: number): ActivePayment =>
    plain(1, at, { platform_payment_id });
  for (const [at, id] of ids.entries()) {
    assert.equal(held.has(id), false, id);
    assert.equal(held.removeById(id), undefined);
    const payment = make(id, at);
    held.add(payment);
    lane.push(payment);
    assert.equal(held.dueAt(id), at);
  }
  assert.deepEqual(
    ids.map((id) => held.dueAt(id)),
    [0, 1, 2, 3, 4, 5],
  );
  for (const id of ids.toReversed()) {
    assert.equal(held.removeById(id)?.platform_payment_id, id);
    assert.equal(held.has(id), false);
  }
  assert.equal(held.size, 0);
});

test('texts that are too long together stay in the object', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  const text = 'x'.repeat(1_500);
  const payment = plain(1, 0, { account_id: text, payment_id: text });
  held.add(payment);
  lane.push(payment);
  assert.ok(payment.isCurrent);
  assert.equal(lane.pop(), payment);
});

test('a payment that was removed while it waited stays removed when many others come', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  const { platform_payment_id: removed } = plain(0, 0);
  for (let number = 0; number < 20_000; number += 1) {
    const payment = plain(number, number);
    held.add(payment);
    lane.push(payment);
    // Its bytes stay in the lane until their turn comes, also while the table of ids is made anew.
    if (number === 0) held.removeById(removed);
  }
  assert.deepEqual([held.has(removed), held.size], [false, 19_999]);
  assert.equal(lane.peek()?.createdAt, 1);
});

test('forty thousand payments wait at once, each is found by its id, and one that is not among them is not', () => {
  const held = new HeldPayments(() => true);
  const lane = held.newLane();
  for (let number = 0; number < 40_000; number += 1) {
    const payment = plain(number, number);
    held.add(payment);
    lane.push(payment);
  }
  for (const number of [0, 16_383, 16_384, 32_768, 39_999]) {
    assert.equal(held.dueAt(plain(number, 0).platform_payment_id), number);
  }
  assert.equal(held.has(plain(40_000, 0).platform_payment_id), false);
  assert.equal(creationTimes(held).length, 40_000);
});
