/** How a payment leaves review: closed by an operator, never against what the partner shows. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal, type ErrorCode } from '@duebridge/contract';
import { ARRIVALS, findPayment, type PaymentRow } from '../store/payments.ts';
import { ACCEPTED_AT, advance, ground, lastLine, ME, type Ground } from '../../test/standing.ts';
import { resumePayment } from '../store/operators-acts.ts';
import { closePayment, type ReviewDependencies } from './review.ts';
import { engineRig, reply, scriptedPartner, writer } from '../../test/engine-rig.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;

/** The word of an operator. */
const CANCELED = { outcome: 'canceled', evidence: 'ticket 7' } as const;

const BECAUSE = {
  reason: 'the biller confirmed by phone',
  actor: 'operator-1',
  approved_by: 'operator-2',
};

async function refuses(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(promise, (error) => error instanceof Refusal && error.code === code);
}

for (const [at, ends] of [
  ['processing', ['processing', null, 'declined_after_loss']],
  ['failed', ['failed', 'partner', null]],
  [undefined, ['failed', 'funding', null]],
] as const) {
  test(`funds declined of a payment that may have been sent, and is ${at ?? 'unknown'} at its partner: ${ends.join(', ')} [PL5]`, async (t) => {
    const rig = await engineRig(t);
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url, { budget: { call_timeout_ms: 300, wait_seconds: 0 } });
    const engine = rig.engine();
    const more = { funding_method: 'sandbox_declined', slot: ARRIVALS };
    const { platform_payment_id: id, ...made } = await rig.pay(engine, 'acme', more);
    await rig.database.query(
      'UPDATE duebridge_platform.payments SET maybe_sent = true WHERE platform_payment_id = $1',
      [id],
    );
    const { platform_batch_id, biller_id, account_id, amount_in_cents } = made;
    const ids = { payment_id: 'P', platform_payment_id: id, platform_batch_id };
    const about = { ...ids, biller_id, account_id, amount_in_cents, posted_at: null };
    const initiated_at = ACCEPTED_AT;
    const failure_reason = at === 'failed' ? { failure_reason: 'no such meter' } : {};
    if (at !== undefined)
      partner.payments.set(id, { ...about, initiated_at, status: at, ...failure_reason });
    // An answer that is not the partner's own denies nothing.
    let away = 3;
    partner.script = () => ((away -= 1) > 0 ? { status: 404, json: {} } : undefined);
    const startedAt = performance.now();
    await engine.start();
    const row = await rig.until(id, ({ stage }) => stage === 'review' || stage === 'ended');
    // As long as a call of before the loss may have been under way.
    assert.ok((partner.seen[0]?.at ?? 0) - startedAt >= 600);
    assert.deepEqual([row.status, row.ended_by, row.review_reason], ends);
    if (ends[1] === 'partner') await rig.until(id, settled);
    assert.deepEqual([...new Set(partner.seen.map(({ method }) => method))], ['GET']);
  });
}

const answered = (status: number, json: object) => () => reply(status, json);
/** What a GET may get, built for the payment that it asks about; what it tells an operator; and whether it contradicts one. */
const ANSWERS: readonly (readonly [
  evidence: string,
  answer: (payment: PaymentRow) => Awaited<ReturnType<ReviewDependencies['client']['poll']>>,
  review: 'closed' | ErrorCode,
  rejected: 'closed' | ErrorCode,
])[] = [
  ['processing', record({ status: 'processing' }), 'CONFLICT', 'CONFLICT'],
  ['incomplete', record({ status: 'succeeded' }), 'CONFLICT', 'CONFLICT'],
  [
    'succeeded',
    record({ status: 'succeeded', posted_at: '2026-03-01T10:00:05.000Z' }),
    'CONFLICT',
    'CONFLICT',
  ],
  ['failed', record({ status: 'failed', failure_reason: 'no' }), 'closed', 'CONFLICT'],
  ['canceled', record({ status: 'canceled' }), 'closed', 'CONFLICT'],
  ['mismatch_amount_in_cents', record({ amount_in_cents: 1 }), 'closed', 'CONFLICT'],
  ['not_found', answered(404, { code: 'PAYMENT_NOT_FOUND' }), 'closed', 'closed'],
  ['not_found_by_whom', answered(404, { message: 'no Route' }), 'closed', 'SERVICE_UNAVAILABLE'],
  ['unknown_server_error', answered(500, {}), 'closed', 'SERVICE_UNAVAILABLE'],
  ['held_credentials', answered(401, {}), 'closed', 'SERVICE_UNAVAILABLE'],
];

function record(differences: Record<string, string | number>) {
  return ({ platform_payment_id, platform_batch_id, amount_in_cents }: PaymentRow) =>
    reply(200, {
      payment_id: 'P',
      platform_payment_id,
      platform_batch_id,
      biller_id: 'acme',
      account_id: 'A-1',
      amount_in_cents,
      status: 'processing',
      initiated_at: ACCEPTED_AT,
      posted_at: null,
      ...differences,
    });
}

/** A payment whose PUT was refused with this review reason; a partner that answers each GET so. */
async function refused(
  rig: Ground,
  review_reason: string,
  answer: (
    payment: PaymentRow,
  ) => Awaited<ReturnType<ReviewDependencies['client']['poll']>> = answered(404, {
    code: 'PAYMENT_NOT_FOUND',
  }),
  rejection_message?: string,
) {
  const id = await rig.standing('dispatching');
  await advance(rig.database, writer(ME), [
    {
      platform_payment_id: id,
      from: 'dispatching',
      to: 'review',
      review_reason,
      ...(rejection_message === undefined ? {} : { rejection_message }),
    },
  ]);
  const asked: string[] = [];
  const client = {
    ...rig.client,
    poll: async (_partner: unknown, { platform_payment_id }: { platform_payment_id: string }) => {
      asked.push(platform_payment_id);
      const row = await findPayment(rig.database, platform_payment_id);
      assert(row);
      return answer(row);
    },
  };
  return { id, asked, dependencies: { ...rig, client } };
}

test('an operator closes only what the partner’s answer leaves open, and is told the answer [PL5 PL6]', async (t) => {
  const rig = await ground(t);
  for (const [evidence, answer, review, rejected] of ANSWERS) {
    for (const [close, outcome] of [
      [(on: ReviewDependencies, id: string) => closePayment(on, id, BECAUSE, CANCELED), review],
      [(on: ReviewDependencies, id: string) => closePayment(on, id, BECAUSE), rejected],
    ] as const) {
      const { id, asked, dependencies } = await refused(rig, 'rejected_422', answer);
      if (outcome === 'closed') {
        await close(dependencies, id);
        const [, event, detail] = await lastLine(rig, id);
        assert.equal(event, 'payment_ended');
        const told = (detail as { evidence: string }).evidence;
        assert.equal(told.split(';')[0], evidence);
      } else {
        await assert.rejects(close(dependencies, id), (error) => {
          assert(error instanceof Refusal);
          assert.equal(error.code, outcome, evidence);
          assert.ok(error.message.includes(`(${evidence})`), error.message);
          return true;
        });
        assert.equal((await findPayment(rig.database, id))?.status, 'processing', evidence);
      }
      assert.deepEqual(asked, [id], evidence);
    }
  }
});

test('what the partner did not refuse, or had accepted before, is not closed as refused [ST3 PL5]', async (t) => {
  const rig = await ground(t);
  const late = await refused(rig, 'late');
  await refuses(closePayment(late.dependencies, late.id, BECAUSE), 'CONFLICT');
  assert.deepEqual(late.asked, []);
  // Accepted, then unknown to the partner, then refused when it was sent again.
  const { id, asked, dependencies } = await refused(rig, 'late');
  await resumePayment(rig.database, id, 'again', 'operator');
  const before = { platform_payment_id: id, from: 'dispatching' } as const;
  await rig.database.query(
    'UPDATE duebridge_platform.payments SET slot = $2 WHERE platform_payment_id = $1',
    [id, 7],
  );
  await advance(rig.database, writer(ME), [
    { ...before, to: 'accepted', payment_id: 'P', initiated_at: ACCEPTED_AT },
  ]);
  await advance(rig.database, writer(ME), [{ ...before, from: 'accepted', to: 'dispatching' }]);
  await advance(rig.database, writer(ME), [
    { ...before, to: 'review', review_reason: 'rejected_422' },
  ]);
  assert.equal((await findPayment(rig.database, id))?.payment_id, 'P');
  await refuses(closePayment(dependencies, id, BECAUSE), 'CONFLICT');
  assert.deepEqual(asked, []);
  assert.equal((await findPayment(rig.database, id))?.stage, 'review');
});

test('the customer reads the partner’s words or the operator’s, as they are stored, and no code [PF5 ST3]', async (t) => {
  const rig = await ground(t);
  const cases: [review_reason: string, message: string | undefined, reason: string][] = [
    ['rejected_422_AMOUNT_TOO_HIGH', 'Above $50.', 'Above $50.'],
    // A code is for operators; a customer could do nothing with it.
    ['rejected_422_AMOUNT_TOO_HIGH', undefined, 'The biller gave no reason.'],
    ['rejected_400', undefined, 'The biller gave no reason.'],
  ];
  for (const [review_reason, message, reason] of cases) {
    const { id, dependencies } = await refused(rig, review_reason, undefined, message);
    assert.equal((await closePayment(dependencies, id, BECAUSE)).failure_reason, reason);
  }
  for (const [given, stored] of [
    [undefined, 'The biller gave no reason.'],
    ['The account is closed.', 'The account is closed.'],
  ] as const) {
    const { id, dependencies } = await refused(rig, 'late');
    const row = await closePayment(dependencies, id, BECAUSE, {
      outcome: 'failed',
      evidence: 'ticket 7',
      ...(given !== undefined && { failure_reason: given }),
    });
    assert.deepEqual([row.status, row.failure_reason], ['failed', stored]);
  }
});

test('a payment that left review while the partner was asked, or whose partner is gone, is not closed', async (t) => {
  const rig = await ground(t);
  const { id, dependencies } = await refused(rig, 'rejected_422');
  const meanwhile = {
    ...dependencies,
    client: {
      ...dependencies.client,
      poll: async (...given: Parameters<typeof dependencies.client.poll>) => {
        await resumePayment(rig.database, id, 'again', 'another operator');
        return dependencies.client.poll(...given);
      },
    },
  };
  await refuses(closePayment(meanwhile, id, BECAUSE), 'CONFLICT');
  assert.deepEqual(
    [await findPayment(rig.database, id)].map((row) => [row?.status, row?.stage]),
    [['processing', 'dispatching']],
  );
  await refuses(closePayment(dependencies, id, BECAUSE, CANCELED), 'CONFLICT');
  const other = await refused(rig, 'rejected_422');
  const registry = { ...rig.registry, known: () => rig.registry.known('gone') };
  await refuses(closePayment({ ...other.dependencies, registry }, other.id, BECAUSE), 'NOT_FOUND');
  assert.equal((await findPayment(rig.database, other.id))?.stage, 'review');
});
