/**
 * Cases over real rows: what a processor tells, in whatever order and however often, moves the book once; each case has an end; and every cent
 * is explained after each step.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import type { CaseEnd } from '@duebridge/contract';
import { silentLog, systemClock } from '@duebridge/runtime';
import { ground, operators, paidByBank } from '../../test/standing.ts';
import type { EventMoney, ProcessorEvent } from '../funding/adapter.ts';
import { applyEvent } from '../funding/apply-event.ts';
import { sweepFunds } from '../funding/sweep.ts';
import { listRefunds, requestRefund } from '../money/refunds.ts';
import { endCase, listCases } from './cases.ts';

const at = '2026-03-01T10:00:05.000Z';
const limit = 1_000;

async function rigOf(t: TestContext) {
  const rig = await ground(t);
  const { database } = rig;
  let events = 0;
  const tell = async (
    platform_payment_id: string,
    kind: ProcessorEvent['kind'],
    money?: ProcessorEvent['money'],
  ): Promise<void> => {
    events += 1;
    const event = { event_id: `e${events}`, platform_payment_id, kind };
    const told = money === undefined ? event : { ...event, money };
    assert.equal(await applyEvent(database, 'a', told, new Date().toISOString()), true);
    // Told again: nothing more.
    assert.equal(await applyEvent(database, 'a', told, new Date().toISOString()), false);
    await rig.holds();
  };
  return {
    ...rig,
    tell,
    /** A payment of $7.00 whose money was taken before the biller has posted it. */
    async takenEarly(): Promise<string> {
      const id = await rig.sent();
      const never = (): Promise<void> => Promise.reject(new Error('not asked for'));
      const capture = (): Promise<void> => Promise.resolve();
      await sweepFunds({ database, clock: systemClock, log: silentLog, capture, release: never });
      return id;
    },
    async end(case_id: string, disposition: CaseEnd['disposition'], who = 'ada') {
      const on = { database, secondPersonAboveCents: limit };
      const ended = await endCase(on, case_id, { disposition, reason: 'r' }, { actor: who, at });
      await rig.holds();
      return ended.outcome;
    },
    async casesOf(platform_payment_id: string) {
      const cases = await listCases(database, { platform_payment_id, state: 'all' });
      return cases
        .toSorted((a, b) => (a.case_id < b.case_id ? -1 : 1))
        .map((one) => [one.reason_code, one.disposition ?? one.state, one.amount_in_cents]);
    },
    async balance() {
      const [one] = (await rig.check()).balances;
      assert.ok(one);
      const { taken, uncollected, borne, owed, returned, disputed, refunded } = one;
      return { taken, uncollected, borne, owed, returned, disputed, refunded };
    },
    payout: (bears_refunds: boolean) => paidByBank(rig, bears_refunds),
    refund: (id: string, amount_in_cents: number) =>
      requestRefund(
        {
          database,
          secondPersonAboveCents: limit,
          clock: systemClock,
          log: silentLog,
          refundPart: () => Promise.resolve({ kind: 'refunded' }),
        },
        id,
        { amount_in_cents, reason_code: 'other', reason: 'r' },
        'ada',
      ),
  };
}

test('a dispute moves its money, and is won or lost once, in whatever order it is told [PL17]', async (t) => {
  const rig = await rigOf(t);
  const dispute = (reference: string, outcome?: 'won' | 'lost') => [
    {
      reference,
      amount_in_cents: 700,
      deadline: '2026-04-01T00:00:00Z',
      ...(outcome && { outcome }),
    },
  ];
  const [won, lost, backwards, part] = [
    await rig.paid(),
    await rig.paid(),
    await rig.paid(),
    await rig.paid(),
  ];
  await rig.tell(won, 'disputed', dispute('d1'));
  assert.deepEqual(await rig.casesOf(won), [['disputed', 'open', 700]]);
  assert.equal((await rig.balance()).disputed, 700);
  // The money is not there to be refunded, nor is the case to be answered away.
  await assert.rejects(rig.refund(won, 1), { code: 'CONFLICT' });
  await assert.rejects(rig.end('a-d1', 'answered'), { code: 'CONFLICT' });
  await assert.rejects(rig.end('a-d1', 'written_off'), { code: 'CONFLICT' });
  await rig.tell(won, 'disputed', dispute('d1', 'won'));
  assert.deepEqual(await rig.casesOf(won), [['disputed', 'won', 700]]);
  assert.equal((await rig.refund(won, 700)).refund?.state, 'done');

  await rig.tell(lost, 'disputed', dispute('d2'));
  await rig.tell(lost, 'disputed', dispute('d2', 'lost'));
  assert.deepEqual(
    [await rig.casesOf(lost), await rig.fundsOf(lost)],
    [[['disputed', 'lost', 700]], 'uncollected'],
  );
  await rig.end('a-d2', 'written_off');
  await assert.rejects(rig.end('a-d2', 'recovered'), { code: 'CONFLICT' });

  // Its end is told before its beginning.
  await rig.tell(backwards, 'disputed', dispute('d3', 'lost'));
  await rig.tell(backwards, 'disputed', dispute('d3'));
  await rig.end('a-d3', 'recovered');
  assert.deepEqual(
    [await rig.casesOf(backwards), await rig.fundsOf(backwards)],
    [[['disputed', 'recovered', 700]], 'captured'],
  );

  // A part is disputed: the rest may still be refunded, and no cent more.
  await rig.tell(part, 'disputed', [{ reference: 'd4', amount_in_cents: 300, outcome: 'lost' }]);
  await assert.rejects(rig.refund(part, 401), { code: 'CONFLICT' });
  await rig.refund(part, 400);
  await rig.holds();
});

test('a dispute that is opened before its payment is posted loses its money once', async (t) => {
  const rig = await rigOf(t);
  await rig.payout(true);
  const [dispute, lost] = [undefined, 'lost' as const].map((outcome) => (reference: string) => [
    { reference, amount_in_cents: 700, ...(outcome && { outcome }) },
  ]) as [(of: string) => EventMoney[], (of: string) => EventMoney[]];
  const [before, later] = [await rig.takenEarly(), await rig.sent()];

  // Lost after the biller is owed the payment.
  await rig.tell(later, 'disputed', dispute('d1'));
  await rig.ends(later, 'succeeded');
  await rig.settles(later);
  await rig.tell(later, 'disputed', lost('d1'));
  await rig.tell(later, 'disputed', lost('d1'));
  assert.deepEqual(await rig.casesOf(later), [
    ['disputed', 'answered', 0],
    ['disputed', 'lost', 700],
  ]);
  assert.equal(await rig.fundsOf(later), 'uncollected');
  await rig.end('a-d1-lost', 'charged_to_biller');

  // Lost before that: whether the biller is owed anything is not known yet.
  await rig.tell(before, 'disputed', lost('d2'));
  await rig.ends(before, 'succeeded');
  await rig.settles(before, { kind: 'captured', source: 'under_way' });
  await rig.end('a-d2-lost', 'answered');
  const { owed, returned, refunded } = await rig.balance();
  assert.deepEqual([owed, returned, refunded], [0, 700, 700]);

  // It fails: its release has nothing to give back, and nobody is charged.
  const failed = await rig.sent();
  await rig.ends(failed, 'failed');
  await rig.tell(failed, 'disputed', lost('d3'));
  await rig.end('a-d3', 'charged_to_biller');
  assert.deepEqual(await rig.casesOf(failed), [['disputed', 'charged_to_biller', 0]]);
});

test('people decide a dispute whose end is never told, and the processor has the last word', async (t) => {
  const rig = await rigOf(t);
  const [won, lost] = [await rig.paid(), await rig.paid()];
  const told = (reference: string, outcome?: 'won' | 'lost') => [
    { reference, amount_in_cents: 700, ...(outcome && { outcome }) },
  ];
  await rig.tell(won, 'disputed', told('d1'));
  await rig.tell(lost, 'disputed', told('d2'));
  await rig.tell(lost, 'disputed', [{ reference: 'd2-inquiry', amount_in_cents: 0 }]);
  await assert.rejects(rig.end('a-d2-inquiry', 'lost'), { code: 'CONFLICT' });
  const twice = { database: rig.database, secondPersonAboveCents: 699 };
  await operators(rig, 'ada', 'bert');
  const say = (actor: string) =>
    endCase(twice, 'a-d1', { disposition: 'won', reason: 'letter 4' }, { actor, at });
  assert.equal((await say('ada')).outcome, 'second_person_needed');
  assert.equal((await say('bert')).outcome, 'done');
  await rig.end('a-d2', 'lost');
  await rig.holds();
  assert.deepEqual(
    [await rig.casesOf(won), await rig.casesOf(lost)],
    [
      [['disputed', 'won', 700]],
      [
        ['disputed', 'lost', 700],
        ['disputed', 'open', 0],
      ],
    ],
  );

  // They were wrong.
  await rig.tell(won, 'disputed', told('d1', 'lost'));
  assert.deepEqual(await rig.casesOf(won), [
    ['disputed', 'won', 700],
    ['disputed', 'lost', 700],
  ]);
  await rig.tell(lost, 'disputed', told('d2', 'won'));
  assert.deepEqual((await rig.casesOf(lost))[0], ['disputed', 'recovered', 700]);
  assert.equal(await rig.fundsOf(lost), 'captured');
});

test('a debit that comes back is a case of its own each time, and ends as recovered, charged or written off', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  const returned = (reference: string) => [{ reference, amount_in_cents: 700 }];
  await rig.tell(id, 'returned', returned('pi_1'));
  assert.equal(await rig.fundsOf(id), 'uncollected');
  await rig.end('a-pi_1', 'recovered');
  // What was collected after all comes back as well.
  await rig.tell(id, 'returned', returned('pi_2'));
  await assert.rejects(rig.end('a-pi_2', 'charged_to_biller'), /bears nothing/);
  await rig.payout(true);
  await rig.end('a-pi_2', 'charged_to_biller');
  assert.deepEqual(await rig.casesOf(id), [
    ['debit_returned', 'recovered', 700],
    ['debit_returned', 'charged_to_biller', 700],
  ]);
  assert.deepEqual(await rig.balance(), {
    taken: 1_400,
    uncollected: 0,
    borne: 0,
    owed: 0,
    returned: 1_400,
    disputed: 0,
    refunded: 0,
  });
  const taken = await rig.database.query(
    `SELECT kind, amount_in_cents FROM duebridge_platform.deductions WHERE remittance_id IS NULL`,
  );
  assert.deepEqual(taken, [{ kind: 'return', amount_in_cents: 700 }]);
});

test('refunds made at the processor are booked by their own ids, and looked at by a person', async (t) => {
  const rig = await rigOf(t);
  await rig.payout(true);
  const id = await rig.paid();
  const [one, two] = [
    { reference: 're_1', amount_in_cents: 200 },
    { reference: 're_2', amount_in_cents: 100 },
  ];
  await rig.tell(id, 'refunded', [one]);
  await rig.tell(id, 'refunded', [one, two]);
  assert.deepEqual(
    (await listRefunds(rig.database, {})).map((each) => [
      each.state,
      each.amount_in_cents,
      each.borne_by,
    ]),
    [
      ['done', 100, 'biller'],
      ['done', 200, 'biller'],
    ],
  );
  assert.deepEqual(await rig.casesOf(id), [
    ['refunded_elsewhere', 'open', 0],
    ['refunded_elsewhere', 'open', 0],
  ]);
  await assert.rejects(rig.refund(id, 401), { code: 'CONFLICT' });
  await rig.end('a-re_1', 'answered');
  await assert.rejects(rig.end('a-re_2', 'written_off'), { code: 'CONFLICT' });
  // More than was taken has gone back: nothing stops that, and the check says it.
  await assert.rejects(
    rig.tell(id, 'refunded', [{ reference: 're_3', amount_in_cents: 500 }]),
    /\$8\.00 are refunded/,
  );
});

test('a refund at the processor before the payment is posted is booked once, by its release or by its case', async (t) => {
  const rig = await rigOf(t);
  await rig.payout(true);
  const [failing, posted] = [await rig.takenEarly(), await rig.takenEarly()];
  const all = (reference: string) => [{ reference, amount_in_cents: 700 }];

  await rig.tell(failing, 'refunded', all('re_1'));
  assert.deepEqual(await rig.casesOf(failing), [['refunded_elsewhere', 'open', 700]]);
  await assert.rejects(rig.end('a-re_1', 'answered'), /has not ended/);
  await rig.ends(failing, 'failed');
  await rig.settles(failing, { kind: 'refunded', source: 'under_way' });
  await rig.end('a-re_1', 'answered');
  const { owed, refunded } = await rig.balance();
  assert.deepEqual([owed, refunded], [0, 700], 'the biller pays nothing');

  await rig.tell(posted, 'refunded', all('re_2'));
  await rig.ends(posted, 'succeeded');
  await assert.rejects(rig.end('a-re_2', 'answered'), /has not ended/);
  await rig.settles(posted, { kind: 'captured', source: 'under_way' });
  assert.deepEqual((await rig.check()).faults, [
    `payment ${posted} of acme: $7.00 went back to the customer before it was posted, and are not booked: end case a-re_2 as answered`,
  ]);
  await rig.end('a-re_2', 'answered');
  assert.equal((await rig.balance()).refunded, 1_400);
  assert.deepEqual(
    await rig.database.query(`SELECT deduction_id, kind FROM duebridge_platform.deductions`),
    [{ deduction_id: 'a-re_2', kind: 'refund' }],
  );

  // It failed after all, so that its customer has nothing, and the biller is owed all of it.
  const neither = await rig.takenEarly();
  await rig.tell(neither, 'refunded', all('re_3'));
  await rig.tell(neither, 'refund_failed', all('re_3'));
  await rig.ends(neither, 'succeeded');
  await rig.settles(neither, { kind: 'captured', source: 'under_way' });
  await rig.holds();
  assert.deepEqual(await rig.casesOf(neither), [
    ['refunded_elsewhere', 'answered', 700],
    ['other', 'open', 0],
  ]);
});

test('a debit that is returned before its capture is settled is told again', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.sent();
  await rig.ends(id, 'succeeded');
  const returned = [{ reference: 'pi_1', amount_in_cents: 700 }];
  const event = { event_id: 'early', platform_payment_id: id, kind: 'returned', money: returned };
  const apply = () => applyEvent(rig.database, 'a', event as ProcessorEvent, at);
  await assert.rejects(apply, /not settled/);
  await rig.settles(id);
  assert.equal(await apply(), true);
  assert.deepEqual(await rig.casesOf(id), [['debit_returned', 'lost', 700]]);
  await rig.holds();
});

test('money above the limit is written off by two persons who are still operators', async (t) => {
  const rig = await rigOf(t);
  const id = await rig.paid();
  await rig.tell(id, 'returned', [{ reference: 'pi_1', amount_in_cents: 700 }]);
  const on = { database: rig.database, secondPersonAboveCents: 699 };
  await operators(rig, 'ada', 'bert', 'carl');
  const say = (disposition: 'written_off' | 'recovered', actor: string) =>
    endCase(on, 'a-pi_1', { disposition, reason: 'r' }, { actor, at }).then(
      ({ outcome }) => outcome,
    );
  assert.equal(await say('written_off', 'ada'), 'second_person_needed');
  await assert.rejects(say('written_off', 'ada'), { code: 'CONFLICT' });
  assert.equal(await say('recovered', 'bert'), 'second_person_needed', 'something else was said');
  await rig.database.query(
    `UPDATE duebridge_platform.operators SET disabled_at = now() WHERE operator_id = 'bert'`,
  );
  assert.equal(await say('recovered', 'carl'), 'second_person_needed', 'bert has left');
  const both = await Promise.allSettled([say('recovered', 'dora'), say('recovered', 'emil')]);
  assert.deepEqual(both.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  await rig.holds();
});
