/** A checker that cannot fail proves nothing: each gets a history with one thing wrong and must report it. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { check, CHECKERS, type Evidence } from './checkers.ts';
import type { Ending, Event } from './history.ts';

const right: readonly Event[] = [
  { at: 0, kind: 'confirmed', id: 'a', partner: 'p', cents: 500 },
  sent(10, 1, 'PUT'),
  answered(20, 1, 'processing'),
  { at: 30, kind: 'row', id: 'a', stage: 'accepted', status: 'processing', slot: 1 },
  sent(1_000, 2, 'GET'),
  answered(1_010, 2, 'succeeded'),
  { at: 1_020, kind: 'row', id: 'a', stage: 'ended', status: 'succeeded', slot: 1 },
];
const end: Ending = {
  platform: [
    {
      id: 'a',
      partner: 'p',
      status: 'succeeded',
      stage: 'ended',
      settled: true,
      cents: 500,
      review_reason: null,
    },
  ],
  funds: [
    { id: 'a', act: 'authorize', cents: 500 },
    { id: 'a', act: 'capture', cents: 500 },
  ],
  partner: [{ id: 'a', partner: 'p', status: 'succeeded', cents: 500 }],
  postings: [{ id: 'a', cents: 500 }],
};

function sent(at: number, call: number, method: 'PUT' | 'GET', payload = '{}'): Event {
  return { at, kind: 'sent', call, by: 'w', method, id: 'a', partner: 'p', payload };
}
function answered(at: number, call: number, status: string, payment_id = 'x'): Event {
  const answer = { http: 200, status, payment_id, amount_in_cents: 500, initiated_at: 't' };
  return { at, kind: 'answered', call, id: 'a', answer };
}
function evidence(more: Partial<Evidence> = {}, ending: Partial<Ending> = {}): Evidence {
  return {
    events: right,
    end: { ...end, ...ending },
    wrong: new Set(),
    forgetful: new Set(),
    ...more,
  };
}
function row(more: Partial<Ending['platform'][number]>): Ending['platform'] {
  return end.platform.map((one) => ({ ...one, ...more }));
}

test('the checkers find nothing in a history in which all went well', () => {
  assert.deepEqual(check(evidence()), []);
});

const renamed = row({
  settled: false,
  status: 'processing',
  stage: 'review',
  review_reason: 'mismatch_payment_id',
});

test('a forgetful partner that got a PUT twice may name the payment anew, for a person to see', () => {
  const twice = [...right, answered(600, 1, 'processing', 'y')];
  const seen = evidence({ events: twice, forgetful: new Set(['p']) }, { platform: renamed });
  assert.deepEqual(CHECKERS['everythingEnds']?.(seen), []);
});

test('an end that a failover lost may come again', () => {
  const open = { kind: 'row', id: 'a', stage: 'accepted', status: 'processing', slot: 1 } as const;
  const again: Event = { at: 2_000, ...open };
  const rewound: Event = { at: 1_500, kind: 'rewound' };
  const found = (events: readonly Event[]) => CHECKERS['terminalStays']?.(evidence({ events }));
  assert.equal(found([...right, again])?.length, 1);
  assert.deepEqual(found([...right, rewound, again]), []);
});

/** What is forged, the checker that must find it, and the guarantee that it must name. */
const forged: readonly (readonly [string, keyof typeof CHECKERS, string, Evidence])[] = [
  ['a confirmed payment that is gone', 'nothingIsLost', 'PL1', evidence({}, { platform: [] })],
  [
    'a payment at the partner that nobody confirmed',
    'nothingIsLost',
    'PL1',
    evidence(
      {},
      { partner: [...end.partner, { id: 'b', partner: 'p', status: 'succeeded', cents: 1 }] },
    ),
  ],
  [
    'an answer of 200 for what is not kept',
    'noAnswerIsTakenBack',
    'KT3',
    evidence({}, { partner: [] }),
  ],
  [
    'two postings of one payment',
    'postedOnce',
    'KT2',
    evidence({}, { postings: [...end.postings, ...end.postings] }),
  ],
  [
    'a posting of another amount',
    'postedOnce',
    'KT2',
    evidence({}, { postings: [{ id: 'a', cents: 5 }] }),
  ],
  [
    'a payment that succeeded without a posting',
    'postedOnce',
    'KT6',
    evidence({}, { postings: [] }),
  ],
  [
    'a PUT after the hold had expired',
    'fundsFollowTheEnd',
    'PL7',
    evidence({}, { funds: [{ id: 'a', act: 'authorize', cents: 500, at: 1, until: 5 }] }),
  ],
  [
    'two captures',
    'fundsFollowTheEnd',
    'PL7',
    evidence({}, { funds: [...end.funds, { id: 'a', act: 'capture', cents: 500 }] }),
  ],
  [
    'a PUT that left before its funds were reserved',
    'fundsFollowTheEnd',
    'PL7',
    evidence({}, { funds: end.funds.map((one) => ({ ...one, at: 11 })) }),
  ],
  [
    'funds that are captured and released',
    'fundsFollowTheEnd',
    'PL7',
    evidence({}, { funds: [...end.funds, { id: 'a', act: 'void', cents: 500 }] }),
  ],
  [
    'a capture for a payment that failed',
    'fundsFollowTheEnd',
    'EE1',
    evidence({}, { platform: row({ status: 'failed' }) }),
  ],
  [
    'a settled success whose money was never taken',
    'fundsFollowTheEnd',
    'EE1',
    evidence({}, { funds: [] }),
  ],
  [
    'failed here, succeeded there',
    'bothSidesAgree',
    'EE2',
    evidence({}, { platform: row({ status: 'failed' }) }),
  ],
  [
    'other money captured than posted',
    'moneyAddsUp',
    'EE3',
    evidence({}, { postings: [{ id: 'a', cents: 499 }] }),
  ],
  [
    'a terminal row that changes',
    'terminalStays',
    'PL4',
    evidence({
      events: [
        ...right,
        { at: 2_000, kind: 'row', id: 'a', stage: 'ended', status: 'failed', slot: 1 },
      ],
    }),
  ],
  [
    'money that was taken without an authorization',
    'fundsFollowTheEnd',
    'PL7',
    evidence({}, { funds: end.funds.filter(({ act }) => act === 'capture') }),
  ],
  [
    'an end by an answer about another amount',
    'wrongAnswersEndNothing',
    'PL6',
    evidence({ wrong: new Set(['p']) }),
  ],
  [
    'a tight loop of polls',
    'noTightLoop',
    'RU4',
    evidence({ events: Array.from({ length: 100 }, (_, call) => sent(30 + call, call, 'GET')) }),
  ],
  [
    'a PUT that is accepted again and again',
    'noEndlessPuts',
    'RU4',
    evidence({
      events: Array.from({ length: 70 }, (_, call) => [
        sent(60_000 * call, call, 'PUT'),
        answered(60_000 * call + 1, call, 'processing'),
      ]).flat(),
    }),
  ],
  [
    'a PUT with other bytes',
    'samePutAlways',
    'PL2',
    evidence({ events: [...right, sent(40, 9, 'PUT', '{"x":1}')] }),
  ],
  [
    'a call long after the end',
    'silenceAfterTheEnd',
    'PL8',
    evidence({ events: [...right, sent(90_000, 9, 'GET')] }),
  ],
  [
    'a read that goes back behind the end',
    'oneOrderExplains',
    'EE4',
    evidence({ events: [...right, sent(2_000, 9, 'GET'), answered(2_010, 9, 'processing')] }),
  ],
  [
    'two payment_ids for one id',
    'oneOrderExplains',
    'EE4',
    evidence({ events: [...right, sent(40, 9, 'PUT'), answered(50, 9, 'processing', 'y')] }),
  ],
  [
    'a payment that never ends',
    'everythingEnds',
    'LV6',
    evidence({}, { platform: row({ settled: false, status: 'processing', stage: 'accepted' }) }),
  ],
  [
    'a review at a forgetful partner that got its PUT once',
    'everythingEnds',
    'LV6',
    evidence({ forgetful: new Set(['p']) }, { platform: renamed }),
  ],
];

for (const [what, checker, rule, bad] of forged) {
  test(`the checkers find ${what}`, () => {
    const found = CHECKERS[checker]?.(bad) ?? [];
    assert.ok(found.length > 0, checker);
    assert.ok(
      found.some((violation) => violation.rule === rule),
      JSON.stringify(found),
    );
  });
}

test('no checker is without a forged history that it refuses', () => {
  const proven = new Set(forged.map(([, checker]) => checker));
  assert.deepEqual(
    Object.keys(CHECKERS).filter((name) => !proven.has(name)),
    [],
  );
});
