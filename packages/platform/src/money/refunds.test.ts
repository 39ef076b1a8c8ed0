/** Refunds over real rows: never more than was taken, once at the processor whatever answer is lost, and every cent explained after each step. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { silentLog, systemClock } from '@duebridge/runtime';
import { openCase } from '../store/cases.ts';
import { ground, paidByBank } from '../../test/standing.ts';
import { decideRefund, listRefunds, repeatRefunds, requestRefund } from './refunds.ts';

const at = '2026-03-01T10:00:05.000Z';
const why = { reason_code: 'charged_twice', reason: 'ticket 7' } as const;

async function rigOf(t: TestContext) {
  const rig = await ground(t);
  const { database } = rig;
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
    refund: (id: string, more: object = {}, who = 'ada') =>
      requestRefund(refunding, id, { ...why, ...more }, who),
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
  assert.equal((await rig.refund(id, { amount_in_cents: 200 })).state, 'done');
  assert.deepEqual(await rig.balance(), [500, 0, 0, 200]);
  await rig.holds();
  // Two operators at the same moment: one of them is too late.
  const both = await Promise.allSettled([
    rig.refund(id, { amount_in_cents: 400 }),
    rig.refund(id, { amount_in_cents: 400 }, 'bert'),
  ]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  await assert.rejects(rig.refund(id, { amount_in_cents: 101 }), { code: 'CONFLICT' });
  // All that is left, and the same request again.
  const last = await rig.refund(id, { refund_id: 'mine' });
  // Parts do not avoid the second person: together they are above the limit.
  assert.deepEqual([last.amount_in_cents, last.state], [100, 'asked']);
  assert.deepEqual(await rig.refund(id, { refund_id: 'mine' }), last);
  for (const { refund_id } of await listRefunds(rig.database, { state: 'asked' })) {
    await decideRefund(rig.refunding, refund_id, 'approve', 'carl');
  }
  await assert.rejects(rig.refund(id), { code: 'CONFLICT' });
  await assert.rejects(rig.refund(await rig.paid(), { refund_id: 'mine' }), { code: 'CONFLICT' });
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

test('above the limit a second person approves or withdraws it', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  const asked = await rig.refund(id);
  assert.equal(asked.state, 'asked');
  assert.equal(rig.refunded.size, 0);
  // What waits counts: it cannot be given twice meanwhile.
  await assert.rejects(rig.refund(id, { amount_in_cents: 1 }), { code: 'CONFLICT' });
  const decide = (decision: 'approve' | 'withdraw', who: string) =>
    decideRefund(rig.refunding, asked.refund_id, decision, who);
  await assert.rejects(decide('approve', 'ada'), { code: 'CONFLICT' });
  const [done] = await Promise.allSettled([decide('approve', 'bert'), decide('approve', 'carl')]);
  assert.ok(done);
  const [row] = await listRefunds(rig.database, { platform_payment_id: id });
  assert.equal(row?.state, 'done');
  assert.notEqual(row?.approved_by, 'ada');
  await assert.rejects(decide('withdraw', 'bert'), { code: 'CONFLICT' });
  // No account of the biller: it has agreed to nothing, and the platform bears it.
  assert.deepEqual(await rig.balance(), [700, 700, 0, 700]);
  const other = await rig.refund(await rig.paid());
  assert.equal(
    (await decideRefund(rig.refunding, other.refund_id, 'withdraw', 'ada')).state,
    'refused',
  );
  await rig.holds();
});

test('what its customer’s bank has taken back is not refunded too, and one that was is named', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  const sent = await rig.refund(id, { amount_in_cents: 300 });
  const asked = await rig.refund(id);
  assert.deepEqual([sent.state, asked.state], ['done', 'asked']);
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
  await assert.rejects(decideRefund(rig.refunding, asked.refund_id, 'approve', 'bert'), {
    message: 'Its money is not with the platform any more: withdraw this refund',
  });
  const withdrawn = await decideRefund(rig.refunding, asked.refund_id, 'withdraw', 'bert');
  assert.equal(withdrawn.state, 'refused');
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
    const refund = await rig.refund(id, { amount_in_cents: 100 });
    assert.equal(refund.state, 'sending');
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
  const waits = await rig.refund(id, { amount_in_cents: 500 });
  const refused = await decideRefund(refunding, waits.refund_id, 'approve', 'bert');
  assert.deepEqual([refused.state, refused.note], ['refused', 'too old']);
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
