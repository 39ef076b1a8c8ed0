/** Every rule that moves a payment, one event at a time: what is remembered, said of the partner, written, and due when. */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Acceptance } from '../partners/payment-record.ts';
import type { PaymentRow } from '../store/payments.ts';
import { activePayment } from './active-payment.ts';
import type { Ending } from '../store/steps.ts';
import {
  decide,
  nextStep,
  WAITING_AGE_MS,
  type AnswerFacts,
  type Decision,
  type PaymentEvent,
  type PaymentMemory,
  type Surroundings,
} from './payment-steps.ts';
import { SettlementTimes } from './poll-schedule.ts';

const NOW = 1_000_000;
const ROW = { stage: 'created', status: 'processing', payment_id: null, accepted_at: null };
const BEGIN = { now: 0, at: 0, databaseNow: '' };
const CREATED: PaymentMemory = activePayment(ROW as PaymentRow, 0, undefined as never, BEGIN);
const SENT: PaymentMemory = { ...CREATED, stage: 'dispatching' };
const TAKEN: PaymentMemory = { ...SENT, stage: 'accepted', payment_id: 'P-1', acceptedAt: NOW };
/** In the middle of its spread, so that a poll comes at its time, a retry at three quarters, and Retry-After 5 % later. */
const AROUND: Surroundings = {
  now: NOW,
  random: () => 0.5,
  times: { retryMs: 200, maxRetryMs: 60_000, pollMs: 1_000, trialMs: 2_000 },
  callsEndMs: 30_000,
  collection: 'reserved',
  refusals: ['CLOSED'],
  settlements: new SettlementTimes(),
  canWait: false,
  workedAt: Number.NEGATIVE_INFINITY,
};
const FACTS: AnswerFacts = {
  status: 200,
  dueAt: NOW - 10,
  startedAt: NOW - 10,
  retryAfterMs: undefined,
  waited: false,
  askedToWait: false,
};
const TOLD: Acceptance = { payment_id: 'P-1', initiated_at: '2026-03-01T10:00:00.000Z' };
const ENDED: Ending = {
  status: 'succeeded',
  payment_id: 'P-1',
  initiated_at: TOLD.initiated_at,
  posted_at: '2026-03-01T10:00:02.000Z',
  failure_reason: null,
};

type Outcome = Extract<PaymentEvent, { kind: 'polled' }>['outcome'];
type Submitted = Extract<PaymentEvent, { kind: 'submitted' }>['outcome'];

/** The decision without what it leaves out. */
const decided = (
  payment: PaymentMemory,
  event: PaymentEvent,
  around: Partial<Surroundings> = {},
): Decision => bare(decide(payment, event, { ...AROUND, ...around }));
const bare = <T extends object>(value: T): T =>
  Object.fromEntries(
    Object.entries(value)
      .filter(([, one]) => one !== undefined)
      .map(([name, one]) => [name, name === 'write' || name === 'signal' ? bare(one) : one]),
  ) as T;
const submitted = (
  payment: PaymentMemory,
  outcome: Submitted,
  facts: Partial<AnswerFacts> = {},
  around: Partial<Surroundings> = {},
): Decision =>
  decided(payment, { kind: 'submitted', outcome, facts: { ...FACTS, ...facts } }, around);
const polled = (
  payment: PaymentMemory,
  outcome: Outcome,
  facts: Partial<AnswerFacts> = {},
  around: Partial<Surroundings> = {},
): Decision => decided(payment, { kind: 'polled', outcome, facts: { ...FACTS, ...facts } }, around);
const PROCESSING = { kind: 'processing', acceptance: TOLD, anomaly: undefined } as const;
const TIMEOUT = { kind: 'unknown', reason: 'timeout' } as const;

test('each stage has its one next call', () => {
  assert.equal(nextStep(CREATED, 'reserved'), 'authorize');
  assert.equal(nextStep(CREATED, 'afterwards'), 'submit');
  assert.equal(nextStep(CREATED, 'elsewhere'), 'submit');
  assert.equal(nextStep({ ...CREATED, hold: {} }, 'reserved'), 'submit');
  const authorized: PaymentMemory = { ...CREATED, stage: 'authorized' };
  assert.equal(nextStep(authorized, 'reserved'), 'authorize', 'after a takeover');
  assert.equal(nextStep({ ...authorized, hold: {} }, 'reserved'), 'submit');
  assert.equal(nextStep(SENT, 'reserved'), 'submit');
  assert.equal(nextStep(TAKEN, 'reserved'), 'poll');
  assert.equal(nextStep({ ...TAKEN, resubmit: true }, 'reserved'), 'submit');
  assert.equal(nextStep({ ...SENT, resubmit: true }, 'reserved'), 'submit');
  assert.equal(nextStep({ ...TAKEN, stage: 'ended' }, 'reserved'), 'settle');
});

test('funds come first: authorized, declined, waited for, failed, settled', () => {
  assert.deepEqual(decided({ ...CREATED, tries: 2 }, { kind: 'authorized' }), {
    memory: { tries: 0, hold: {} },
    next: 0,
  });
  const hold = { expires_at: 5 };
  assert.deepEqual(decided(CREATED, { kind: 'authorized', ...hold }).memory.hold, hold);
  assert.deepEqual(decided(CREATED, { kind: 'declined', reason: `\u0000${'x'.repeat(600)}` }), {
    memory: { tries: 0 },
    write: {
      kind: 'end',
      by: 'funding',
      ending: {
        status: 'failed',
        payment_id: null,
        initiated_at: null,
        posted_at: null,
        failure_reason: 'x'.repeat(500),
      },
    },
    next: 0,
  });
  assert.deepEqual(decided(CREATED, { kind: 'waits', afterMs: 77 }), {
    memory: { tries: 0 },
    next: 77,
  });
  assert.deepEqual(decided({ ...CREATED, tries: 2 }, { kind: 'funding_failed' }), {
    memory: { tries: 3 },
    next: 600,
  });
  assert.deepEqual(decided(TAKEN, { kind: 'funds_settled' }), {
    memory: {},
    write: { kind: 'settle' },
    next: 'forget',
  });
  const settled = { kind: 'refunded' } as const;
  assert.deepEqual(decided(TAKEN, { kind: 'funds_settled', settled }).write, {
    kind: 'settle',
    settled,
  });
});

test('an acceptance is written once and resets the failures before it [PF1 RU5]', () => {
  const before = { ...SENT, tries: 3, failedAt: 5, ownFaults: 2, crossed: 3, polls: 9 };
  assert.deepEqual(submitted(before, PROCESSING), {
    signal: { kind: 'works' },
    memory: {
      tries: 0,
      failedAt: undefined,
      ownFaults: 0,
      crossed: 0,
      resubmit: false,
      anomaly: undefined,
      acceptedAt: NOW,
      polls: 0,
      payment_id: 'P-1',
    },
    write: { kind: 'advance', to: 'accepted', ...TOLD },
    next: 1_000,
  });
  const again = polled({ ...TAKEN, resubmit: true, polls: 1 }, PROCESSING);
  assert.equal(again.write, undefined);
  assert.equal(again.memory.polls, 2);
  assert.equal(again.memory.acceptedAt, undefined);
  assert.equal(again.memory.resubmit, false);
  assert.ok(Math.abs(Number(again.next) - 1_000 * 1.6 ** 2) < 1);
});

test('Retry-After is honoured on any answer, or our own delay if that is longer [PL16]', () => {
  assert.equal(submitted(SENT, PROCESSING, { retryAfterMs: 10_000 }).next, 10_500);
  assert.equal(submitted(SENT, PROCESSING, { retryAfterMs: 100 }).next, 1_000);
  assert.equal(submitted(SENT, TIMEOUT, { retryAfterMs: 10_000 }).next, 10_500);
});

test('an open read replaces polls while the partner holds it, for ten minutes', () => {
  const open = { canWait: true };
  assert.equal(submitted(SENT, PROCESSING, {}, open).next, 0);
  const old = (age: number): PaymentMemory => ({ ...TAKEN, acceptedAt: NOW - age, polls: 3 });
  assert.equal(polled(old(1), PROCESSING, { waited: true }, open).next, 0);
  assert.equal(polled(old(WAITING_AGE_MS - 1), PROCESSING, { waited: true }, open).next, 0);
  assert.equal(WAITING_AGE_MS, 600_000);
  assert.notEqual(polled(old(WAITING_AGE_MS), PROCESSING, { waited: true }, open).next, 0);
  assert.notEqual(polled(old(1), PROCESSING, { waited: false }, open).next, 0);
  assert.notEqual(polled(old(1), PROCESSING, { waited: true }).next, 0);
});

test('a repeated anomaly is reported once', () => {
  const odd = { ...PROCESSING, anomaly: 'unknown_status' } as const;
  assert.deepEqual(submitted(SENT, odd).breach, 'unknown_status');
  assert.deepEqual(submitted({ ...SENT, anomaly: 'unknown_status' }, odd).breach, undefined);
  assert.deepEqual(submitted({ ...SENT, anomaly: 'unknown_status' }, PROCESSING).breach, undefined);
});

test('the end is written with the partner’s own record, and the funds with it [PF8 ST2]', () => {
  const end = { kind: 'ended', ending: ENDED, anomaly: undefined } as const;
  const decision = submitted({ ...SENT, tries: 1 }, end);
  assert.deepEqual(decision, {
    signal: { kind: 'works' },
    tookMs: 2_000,
    memory: {
      tries: 0,
      failedAt: undefined,
      ownFaults: 0,
      crossed: 0,
      anomaly: undefined,
    },
    write: { kind: 'end', by: 'partner', ending: ENDED, settles: false },
    next: 0,
  });
  const { write } = polled(TAKEN, end, {}, { collection: 'elsewhere' });
  assert.deepEqual(write, { kind: 'end', by: 'partner', ending: ENDED, settles: true });
});

test('succeeded without posted_at is accepted, polled five more times, and then left to an operator [PF8 F35]', () => {
  const incomplete = { kind: 'incomplete', acceptance: TOLD } as const;
  const first = submitted({ ...SENT, grace: 8 }, incomplete);
  assert.deepEqual(first.write, { kind: 'advance', to: 'accepted', ...TOLD });
  assert.deepEqual(first.breach, 'succeeded_without_posted_at');
  assert.deepEqual(first.signal, { kind: 'works' });
  assert.equal(first.next, 1_000);
  const fifth = polled({ ...TAKEN, grace: 4, tries: 2 }, incomplete);
  assert.equal(fifth.write, undefined);
  assert.equal(fifth.memory.grace, 5);
  assert.equal(fifth.memory.tries, 0);
  const sixth = polled({ ...TAKEN, grace: 5 }, incomplete);
  assert.deepEqual(sixth.write, {
    kind: 'advance',
    to: 'review',
    review_reason: 'succeeded_without_posted_at',
  });
  assert.equal(sixth.next, 'forget');
  assert.deepEqual(sixth.memory, { polls: 1, losses: 0, grace: 6 });
});

test('an answer about another payment is requested again on fresh connections, three times, then reviewed [PF2]', () => {
  const other = { kind: 'mismatch', field: 'platform_payment_id' } as const;
  assert.deepEqual(submitted({ ...SENT, tries: 1, ownFaults: 1 }, other), {
    breach: 'crossed_answer',
    memory: { tries: 2, failedAt: NOW, ownFaults: 2, crossed: 1 },
    resetConnections: true,
    next: 300,
  });
  // A gateway that mixes up answers may do so twice in a row, and fail in other ways in between.
  const third = submitted({ ...SENT, tries: 9, crossed: 2 }, other);
  assert.deepEqual([third.write, third.memory.tries, third.memory.crossed], [undefined, 10, 3]);
  assert.equal(third.resetConnections, true);
  const fourth = submitted({ ...SENT, tries: 3, crossed: 3 }, other);
  assert.deepEqual(fourth.write, {
    kind: 'advance',
    to: 'review',
    review_reason: 'mismatch_platform_payment_id',
  });
  // Failures of another kind before it say nothing about whose answers these are.
  assert.equal(submitted({ ...SENT, tries: 3 }, other).write, undefined);
  assert.deepEqual(submitted(SENT, { kind: 'mismatch', field: 'amount_in_cents' }), {
    signal: { kind: 'works' },
    breach: 'mismatch_amount_in_cents',
    memory: {},
    write: { kind: 'advance', to: 'review', review_reason: 'mismatch_amount_in_cents' },
    next: 'forget',
  });
});

test('an accepted payment that is no longer found gets the same PUT again [RU5 PF2]', () => {
  const before = { ...TAKEN, tries: 1, polls: 4, ownFaults: 1 };
  const decision = polled(before, { kind: 'not_found', believed: true }, { retryAfterMs: 5_000 });
  assert.deepEqual(decision, {
    signal: { kind: 'works' },
    breach: 'accepted_payment_not_found',
    memory: { polls: 5, losses: 1, tries: 2, failedAt: NOW, ownFaults: 2, resubmit: true },
    write: {
      kind: 'advance',
      to: 'dispatching',
      detail: { reason: 'accepted_payment_not_found' },
    },
    next: 5_250,
  });
  // A 404 that is not the partner's own word does not let it change the payment's id.
  const doubted = polled(before, { kind: 'not_found', believed: false });
  assert.equal(doubted.write, undefined);
  assert.equal(doubted.memory.resubmit, true);
  assert.equal(doubted.next, 300);
});

test('a partner that takes the same PUT for ever and never finds it is asked later and later, and then waits for a person [LV6]', () => {
  let payment: PaymentMemory = SENT;
  let [calls, ms] = [0, 0];
  const takes = (decision: Decision): Decision['write'] => {
    calls += 1;
    ms += typeof decision.next === 'number' ? decision.next : 0;
    payment = { ...payment, ...decision.memory };
    if (decision.write?.kind === 'advance') payment.stage = decision.write.to;
    return decision.write;
  };
  for (let round = 0; round < 500; round += 1) {
    takes(submitted(payment, PROCESSING));
    const write = takes(polled(payment, { kind: 'not_found', believed: true }));
    if (write?.kind === 'advance' && write.to === 'review') break;
  }
  assert.equal(payment.stage, 'review');
  assert.ok(calls <= 30, `${calls} calls`);
  assert.ok(ms > 3 * 60_000 && ms < 15 * 60_000, `within ${ms} ms`);
  // A poll that finds it ends the count, and a 404 of a proxy is no reason for a review.
  assert.equal(polled({ ...TAKEN, losses: 12 }, PROCESSING).memory.losses, 0);
  const doubted = polled({ ...TAKEN, losses: 40 }, { kind: 'not_found', believed: false });
  assert.deepEqual([doubted.write, doubted.memory.losses], [undefined, 41]);
});

test('only a refusal that the partner declared final, of a payment it never had, ends it as failed [ST3 RU5]', () => {
  const rejected = (
    payment: PaymentMemory,
    code: string | undefined,
    found: Outcome,
    message?: string,
    collection: Surroundings['collection'] = 'reserved',
  ): Decision =>
    decided(
      payment,
      {
        kind: 'rejected',
        rejection: { kind: 'rejected', status: 422, code, message },
        found,
        facts: FACTS,
      },
      { ...AROUND, collection },
    );
  const absent = { kind: 'not_found', believed: true } as const;
  assert.deepEqual(rejected({ ...SENT, tries: 3 }, 'CLOSED', absent, 'The account is closed.'), {
    signal: { kind: 'works' },
    memory: { tries: 0 },
    write: {
      kind: 'end',
      by: 'refusal',
      ending: {
        status: 'failed',
        payment_id: null,
        initiated_at: null,
        posted_at: null,
        failure_reason: 'The account is closed.',
      },
      settles: false,
    },
    next: 0,
  });
  const { write } = rejected(SENT, 'CLOSED', absent, undefined, 'elsewhere');
  assert.ok(write?.kind === 'end' && write.settles === true);
  // The code is for operators, in the attempt; a customer could do nothing with it.
  assert.equal(write.ending.failure_reason, 'The biller gave no reason.');
  const reviewed: [Decision, string][] = [
    [rejected(SENT, 'OTHER', absent), 'rejected_422_OTHER'],
    [rejected(SENT, undefined, absent), 'rejected_422'],
    [rejected(SENT, 'CLOSED', { kind: 'not_found', believed: false }), 'rejected_422_CLOSED'],
    [rejected({ ...SENT, payment_id: 'P-1' }, 'CLOSED', absent), 'rejected_422_CLOSED'],
  ];
  for (const [decision, review_reason] of reviewed) {
    assert.deepEqual(decision.write, { kind: 'advance', to: 'review', review_reason });
  }
  const said = rejected(SENT, 'OTHER', absent, 'No.').write;
  assert.ok(said?.kind === 'advance' && said.rejection_message === 'No.');
  assert.equal(rejected(SENT, 'CLOSED', PROCESSING).memory.acceptedAt, NOW);
});

test('refused credentials concern the partner, or one payment when the others are answered [S3 LV3]', () => {
  const held = { kind: 'held', reason: 'credentials' } as const;
  const signal = { kind: 'fails', reason: 'credentials', isAnswer: false, hold: 'credentials' };
  // However often it has failed, it is there for the next trial of its partner.
  assert.deepEqual(submitted({ ...SENT, tries: 9 }, held, { status: 401 }), {
    signal,
    memory: { tries: 10, failedAt: NOW, ownFaults: 0 },
    next: 2_000,
  });
  // Without an answer the call was not even sent: whatever others are told, it concerns them all.
  assert.deepEqual(
    submitted({ ...SENT, ownFaults: 5 }, held, { status: undefined }, { workedAt: NOW }).signal,
    signal,
  );
  assert.deepEqual(submitted({ ...SENT, tries: 9 }, held, { status: 401 }, { workedAt: NOW }), {
    breach: 'refused_alone_credentials',
    memory: { tries: 10, failedAt: NOW, ownFaults: 1 },
    next: 45_000,
  });
});

test('an unknown outcome is retried, and counts against the partner only if other payments fail too [RU5 LV3]', () => {
  assert.deepEqual(submitted({ ...SENT, tries: 1 }, TIMEOUT, { status: undefined }), {
    signal: { kind: 'fails', reason: 'timeout', isAnswer: false },
    memory: { tries: 2, failedAt: NOW, ownFaults: 0 },
    next: 300,
  });
  assert.deepEqual(submitted(SENT, { kind: 'unknown', reason: 'stopped' }), {
    memory: {},
    next: 200,
  });
  assert.deepEqual(submitted(SENT, { kind: 'unknown', reason: 'redirect' }).breach, 'redirect');
  // Others were answered since this call left, or since this payment last failed: it fails alone.
  const own = (payment: Partial<PaymentMemory>, workedAt: number): number | undefined =>
    submitted({ ...SENT, ...payment }, TIMEOUT, {}, { workedAt }).memory.ownFaults;
  assert.equal(own({}, NOW - 9), 1);
  assert.equal(own({}, NOW - 10), 0);
  assert.equal(own({ failedAt: NOW - 5 }, NOW - 5), 0);
  assert.equal(own({ failedAt: NOW - 5 }, NOW - 4), 1);
  // One failure alone is suspected for two seconds, two are proof.
  assert.equal(own({ failedAt: NOW - 1, ownFaults: 1 }, NOW - 1_999), 1);
  assert.equal(own({ failedAt: NOW - 1, ownFaults: 1 }, NOW - 2_000), 0);
  assert.equal(own({ failedAt: NOW - 1, ownFaults: 0 }, NOW - 1_999), 0);
  assert.equal(own({ failedAt: NOW - 1, ownFaults: 2 }, NOW - 90_000), 2);
  const late = { ...SENT, tries: 9 };
  assert.equal(submitted(late, TIMEOUT).next, 2_000, 'there for the next trial');
  const alone = submitted(late, TIMEOUT, {}, { workedAt: NOW });
  assert.deepEqual([alone.signal, alone.next], [undefined, 45_000], 'its own growing delay');
});

test('a Retry-After binds the payment that got it; a 429 without one says nothing about the partner', () => {
  const busy = { kind: 'unknown', reason: 'too_many_requests' } as const;
  const down = { kind: 'unknown', reason: 'server_error' } as const;
  const rest = { retryAfterMs: 10_000 };
  for (const [outcome, facts] of [
    [down, { status: 503, ...rest }],
    [busy, { status: 429, ...rest }],
  ] as const) {
    const { signal, next } = submitted(SENT, outcome, facts);
    assert.deepEqual(signal, { kind: 'fails', reason: outcome.reason, isAnswer: true });
    assert.equal(next, 10_500);
    assert.equal(submitted(SENT, outcome, facts, { workedAt: NOW }).signal, undefined);
  }
  const many = submitted({ ...SENT, tries: 9 }, busy, { status: 429 });
  assert.deepEqual([many.signal, many.next], [undefined, 45_000]);
});

test('a partner’s times are learned from its own clock where our polls do not contradict it', () => {
  const ended = (ms: number | null) => {
    const posted_at =
      ms === null ? null : new Date(Date.parse(TOLD.initiated_at) + ms).toISOString();
    return { kind: 'ended', ending: { ...ENDED, posted_at }, anomaly: undefined } as const;
  };
  const payment = { ...TAKEN, acceptedAt: NOW - 2_000, processingMs: 500 };
  // The poll was due 1,000 ms after the acceptance.
  const found = (
    ms: number | null,
    more: Partial<PaymentMemory> = {},
    facts: Partial<AnswerFacts> = {},
  ) => polled({ ...payment, ...more }, ended(ms), { dueAt: NOW - 1_000, ...facts }).tookMs;
  assert.equal(found(999), 999);
  assert.equal(found(1_000), undefined, 'posted after the poll was due, as if by the poll');
  assert.equal(found(499), undefined, 'dated back before the poll that found it processing');
  assert.equal(found(null), undefined, 'failed: it has no time');
  assert.equal(found(1_500, { tries: 1 }), 1_500, 'by its clock alone where the call was a retry');
  assert.equal(found(null, {}, { askedToWait: true }), 2_000, 'a read that was held until then');
  assert.equal(polled(payment, PROCESSING, { startedAt: NOW - 300 }).memory.processingMs, 1_700);
});

test('a payment accepted in the future, by a clock that was stepped back since, counts as accepted now [EE7]', () => {
  const row = { accepted_at: '2026-03-01T11:00:00.000Z', created_at: '' } as PaymentRow;
  const ages = ['2026-03-01T10:00:00.000Z', '2026-03-01T11:00:05.000Z'].map((databaseNow) => {
    const times = { now: 60_000, at: 60_000, databaseNow };
    return 60_000 - activePayment(row, 0, undefined as never, times).acceptedAt;
  });
  assert.deepEqual(ages, [0, 5_000]);
});
