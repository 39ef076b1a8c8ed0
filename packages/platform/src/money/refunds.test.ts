/** Refunds over real rows: never more than was taken, once at the processor whatever answer is lost, and every cent explained after each step. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { silentLog, systemClock } from '@duebridge/runtime';
import { openCase } from '../store/cases.ts';
import { ground, operators, paidByBank } from '../../test/standing.ts';
import { listRefunds, repeatRefunds, requestRefund } from './refunds.ts';

const at = '2026-03-01T10:00:05.000Z';
const why = { reason_code: 'charged_twice', reason: 'ticket 7' } as const;

async function rigOf(t: TestContext) {
  const rig = await ground(t);
  const { database } = rig;
  await operators(rig, 'ada', 'bert', 'carl');
  /** What the processor has refunded, by our id; and what happens to its next answer. */
  const refunded = new Map<string, number>();
  const processor: { answers: 'well' | 'not at all' | 'lost' | 'refuses' } = { answers: 'well' };
  const refunding = {
    database,
    secondPersonAboveCents: 500,
    clock: systemClock,
    log: silentLog,
    async refundPart(
      _order: unknown,
      { refund_id, amount_in_cents }: { refund_id: string; amount_in_cents: number },
    ) {
      if (processor.answers === 'not at all') throw new Error('away');
      if (processor.answers === 'refuses') return { kind: 'refused', reason: 'too old' } as const;
      refunded.set(refund_id, amount_in_cents);
      if (processor.answers === 'lost') throw new Error('the answer was lost');
      return { kind: 'refunded' } as const;
    },
  };
  return {
    ...rig,
    refunding,
    refunded,
    processor,
    payout: (bears_refunds: boolean) => paidByBank(rig, bears_refunds),
    /** Its state, or that a second person is needed. */
    async refund(id: string, more: object = {}, who = 'ada') {
      const { outcome, refund } = await requestRefund(refunding, id, { ...why, ...more }, who);
      return refund?.state ?? outcome;
    },
    async balance() {
      const [one] = (await rig.check()).balances;
      return [one?.owed, one?.borne, one?.refunding, one?.refunded];
    },
  };
}

test('parts of a payment are refunded up to what was taken, and no cent more, by however many at once [PL17]', async (t) => {
  const rig = await rigOf(t);
  await rig.payout(true);
  const id = await rig.paid();
  assert.equal(await rig.refund(id, { amount_in_cents: 200 }), 'done');
  assert.deepEqual(await rig.balance(), [500, 0, 0, 200]);
  await rig.holds();
  // Two operators at the same moment: one of them is too late.
  const both = await Promise.allSettled([
    rig.refund(id, { amount_in_cents: 300 }),
    rig.refund(id, { amount_in_cents: 300, reason: 'ticket 8' }, 'bert'),
  ]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  await assert.rejects(rig.refund(id, { amount_in_cents: 201 }), { code: 'CONFLICT' });
  // All that is left. Parts do not avoid the second person: together they are above the limit.
  assert.equal(await rig.refund(id), 'second_person_needed');
  assert.equal(await rig.refund(id, {}, 'carl'), 'done');
  await assert.rejects(rig.refund(id, { reason: 'ticket 9' }), { code: 'CONFLICT' });
  assert.equal(
    [...rig.refunded.values()].reduce((sum, one) => sum + one),
    700,
  );
  await rig.holds();
});

test('only money that was taken is refunded', async (t) => {
  const rig = await rigOf(t);
  await assert.rejects(rig.refund('nobody'), { code: 'PAYMENT_NOT_FOUND' });
  for (const id of [await rig.standing('accepted'), await rig.paid('uncollected')]) {
    await assert.rejects(rig.refund(id), { code: 'CONFLICT' });
  }
  assert.deepEqual(await listRefunds(rig.database, {}), []);
});

test('above the limit two persons ask for the same refund, while nothing else has moved its money', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  const needed = 'second_person_needed';
  assert.equal(await rig.refund(id), needed);
  await assert.rejects(rig.refund(id), { code: 'CONFLICT' });
  assert.equal(rig.refunded.size, 0);
  assert.equal(await rig.refund(id, { amount_in_cents: 600 }, 'bert'), needed, 'another amount');
  // Refunded meanwhile in part, by what one person may do alone: nobody has asked for what is left.
  assert.equal(await rig.refund(id, { amount_in_cents: 50 }), 'done');
  assert.equal(await rig.refund(id, { amount_in_cents: 600 }, 'carl'), needed);
  await rig.database.query(
    `UPDATE duebridge_platform.operators SET disabled_at = now() WHERE operator_id = 'carl'`,
  );
  assert.equal(await rig.refund(id, { amount_in_cents: 600 }, 'bert'), needed, 'carl has left');
  const both = await Promise.allSettled([
    rig.refund(id, { amount_in_cents: 600 }),
    rig.refund(id, { amount_in_cents: 600, reason: 'ticket 8' }),
  ]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  const [row] = await listRefunds(rig.database, { platform_payment_id: id });
  assert.deepEqual([row?.state, row?.asked_by, row?.approved_by], ['done', 'bert', 'ada']);
  // No account of the biller: it has agreed to nothing, and the platform bears it.
  assert.deepEqual(await rig.balance(), [700, 650, 0, 650]);
  await rig.holds();
});

test('what its customer’s bank has taken back is not refunded too, and one that was is named', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  assert.equal(await rig.refund(id, { amount_in_cents: 300 }), 'done');
  assert.equal(await rig.refund(id), 'second_person_needed');
  await rig.holds();
  await openCase(rig.database, 'disputed', {
    case_id: 'd1',
    platform_payment_id: id,
    reason_code: 'disputed',
    amount_in_cents: 700,
    actor: 'stripe',
    reason: 'fraudulent',
    at,
  });
  await assert.rejects(rig.refund(id, {}, 'bert'), { code: 'CONFLICT' });
  assert.deepEqual((await rig.check()).faults, [
    `payment ${id} of acme: $10.00 are refunded or returned, and only $7.00 were taken`,
  ]);
});

test('a lost answer is asked for again under the same id; a refusal gives everything back', async (t) => {
  const rig = await rigOf(t);
  const { processor, refunding, refunded } = rig;
  await rig.payout(true);
  const id = await rig.paid();
  for (const answers of ['not at all', 'lost'] as const) {
    processor.answers = answers;
    const asked = { amount_in_cents: 100, reason: `answered ${answers}` };
    assert.equal(await rig.refund(id, asked), 'sending');
    assert.deepEqual((await rig.balance())[2], 100, 'on its way');
    await rig.holds();
    await repeatRefunds(refunding);
    processor.answers = 'well';
    await Promise.all([repeatRefunds(refunding), repeatRefunds(refunding)]);
    assert.equal((await listRefunds(rig.database, { state: 'sending' })).length, 0);
    await rig.holds();
  }
  assert.equal(refunded.size, 2);
  processor.answers = 'refuses';
  assert.equal(await rig.refund(id, { amount_in_cents: 500 }), 'second_person_needed');
  assert.equal(await rig.refund(id, { amount_in_cents: 500 }, 'bert'), 'refused');
  assert.equal((await listRefunds(rig.database, { state: 'refused' }))[0]?.note, 'too old');
  assert.deepEqual(await rig.balance(), [500, 0, 0, 200]);
  const deductions = await rig.database.query(
    'SELECT kind, amount_in_cents AS cents FROM duebridge_platform.deductions ORDER BY made_at, deduction_id',
  );
  assert.deepEqual(
    deductions.map((one) => Object.values(one as object).join(' ')),
    ['refund 100', 'refund 100', 'refund 500', 'correction -500'],
  );
  await rig.holds();
});

test('the same words again are the same refund, and one that was refused is asked for anew', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  const part = { amount_in_cents: 100 };
  // The second one is of an operator, or a program, whose answer was lost.
  for (const _ of [1, 2]) assert.equal(await rig.refund(id, part), 'done');
  assert.equal(rig.refunded.size, 1);
  assert.equal(await rig.refund(id, { ...part, reason: 'ticket 8' }), 'done', 'another reason');
  assert.equal(rig.refunded.size, 2);
  rig.processor.answers = 'refuses';
  for (const _ of [1, 2]) assert.equal(await rig.refund(id, { amount_in_cents: 150 }), 'refused');
  rig.processor.answers = 'well';
  assert.equal(await rig.refund(id, { amount_in_cents: 150 }), 'done');
  // All that is left, by two persons, and again.
  assert.equal(await rig.refund(id), 'second_person_needed');
  for (const _ of [1, 2]) assert.equal(await rig.refund(id, {}, 'bert'), 'done');
  assert.equal((await rig.balance())[3], 700);
  await rig.holds();
});
