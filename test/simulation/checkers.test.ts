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
      payment_id: 'x',
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

test('a forgetful partner may name a payment anew where the platform cannot know of it, for a person to see', () => {
  const twice = answered(600, 1, 'processing', 'y');
  const again = [sent(500, 9, 'PUT'), answered(600, 9, 'processing', 'y')];
  const found = (...more: readonly Event[]) => {
    const seen = { events: [...right, ...more], forgetful: new Set(['p']) };
    return CHECKERS['everythingEnds']?.(evidence(seen, { platform: renamed }))?.length;
  };
  const rewound = (at: number): Event => ({ at, kind: 'rewound' });
  assert.deepEqual([found(twice), found(...again, rewound(700))], [0, 0]);
  // The name came after the failover, or there was none: the platform saw why.
  assert.deepEqual([found(rewound(550), ...again), found(...again), found()], [1, 1, 1]);
});

test('an end that a failover lost may come again', () => {
  const open = { kind: 'row', id: 'a', stage: 'accepted', status: 'processing', slot: 1 } as const;
  const again: Event = { at: 2_000, ...open };
  const rewound: Event = { at: 1_500, kind: 'rewound' };
  const found = (events: readonly Event[]) => CHECKERS['terminalStays']?.(evidence({ events }));
  assert.equal(found([...right, again])?.length, 1);
  assert.deepEqual(found([...right, rewound, again]), []);
});

type Forged = readonly [what: string, checker: string, rule: string, evidence: Evidence];
const ending = (what: string, checker: string, rule: string, end: Partial<Ending>): Forged => {
  return [what, checker, rule, evidence({}, end)];
};
const happening = (what: string, checker: string, rule: string, more: readonly Event[]): Forged => {
  return [what, checker, rule, evidence({ events: [...right, ...more] })];
};
const authorized = { id: 'a', act: 'authorize', cents: 500 };
const failed = row({ status: 'failed' });
const changed: Event = {
  at: 2_000,
  kind: 'row',
  id: 'a',
  stage: 'ended',
  status: 'failed',
  slot: 1,
};
const loop = Array.from({ length: 100 }, (_, call) => sent(30 + call, call, 'GET'));
const puts = Array.from({ length: 70 }, (_, call) => [
  sent(60_000 * call, call, 'PUT'),
  answered(60_000 * call + 1, call, 'processing'),
]).flat();
const stranger = { id: 'b', partner: 'p', status: 'succeeded', cents: 1 };
const open = row({ settled: false, status: 'processing', stage: 'accepted' });

/** What is forged, the checker that must find it, and the guarantee that it must name. */
const forged: readonly Forged[] = [
  ending('a confirmed payment that is gone', 'nothingIsLost', 'PL1', { platform: [] }),
  ending('a payment that nobody confirmed', 'nothingIsLost', 'PL1', {
    partner: [...end.partner, stranger],
  }),
  ending('an answer of 200 for what is not kept', 'noAnswerIsTakenBack', 'KT3', { partner: [] }),
  ending('two postings of one payment', 'postedOnce', 'KT2', {
    postings: [...end.postings, ...end.postings],
  }),
  ending('a posting of another amount', 'postedOnce', 'KT2', { postings: [{ id: 'a', cents: 5 }] }),
  ending('a success without a posting', 'postedOnce', 'KT6', { postings: [] }),
  ending('a PUT after the hold had expired', 'fundsFollowTheEnd', 'PL7', {
    funds: [{ ...authorized, at: 1, until: 5 }],
  }),
  ending('two captures', 'fundsFollowTheEnd', 'PL7', {
    funds: [...end.funds, { id: 'a', act: 'capture', cents: 500 }],
  }),
  ending('a PUT that left before its funds were reserved', 'fundsFollowTheEnd', 'PL7', {
    funds: end.funds.map((one) => ({ ...one, at: 11 })),
  }),
  ending('funds that are captured and released', 'fundsFollowTheEnd', 'PL7', {
    funds: [...end.funds, { id: 'a', act: 'void', cents: 500 }],
  }),
  ending('money that was taken without an authorization', 'fundsFollowTheEnd', 'PL7', {
    funds: end.funds.filter(({ act }) => act === 'capture'),
  }),
  ending('a capture for a failed payment', 'fundsFollowTheEnd', 'EE1', { platform: failed }),
  ending('a settled success that was never taken', 'fundsFollowTheEnd', 'EE1', { funds: [] }),
  ending('failed here, succeeded there', 'bothSidesAgree', 'EE2', { platform: failed }),
  ending('other money captured than posted', 'moneyAddsUp', 'EE3', {
    postings: [{ id: 'a', cents: 499 }],
  }),
  ending('a payment that never ends', 'everythingEnds', 'LV6', { platform: open }),
  happening('a terminal row that changes', 'terminalStays', 'PL4', [changed]),
  happening('a tight loop of polls', 'noTightLoop', 'RU4', loop),
  happening('a PUT that is accepted again and again', 'noEndlessPuts', 'RU4', puts),
  happening('a PUT with other bytes', 'samePutAlways', 'PL2', [sent(40, 9, 'PUT', '{"x":1}')]),
  happening('a call long after the end', 'silenceAfterTheEnd', 'PL8', [sent(90_000, 9, 'GET')]),
  happening('a read that goes back behind the end', 'oneOrderExplains', 'EE4', [
    sent(2_000, 9, 'GET'),
    answered(2_010, 9, 'processing'),
  ]),
  happening('two payment_ids for one id', 'oneOrderExplains', 'EE4', [
    sent(40, 9, 'PUT'),
    answered(50, 9, 'processing', 'y'),
  ]),
  [
    'an end by an answer about another amount',
    'wrongAnswersEndNothing',
    'PL6',
    evidence({ wrong: new Set(['p']) }),
  ],
];

test('each checker finds what is forged for it', () => {
  for (const [what, checker, rule, bad] of forged) {
    const found = (CHECKERS[checker]?.(bad) ?? []).map((violation) => violation.rule);
    assert.ok(found.includes(rule), `${checker} does not find ${what}: ${found.join(' ')}`);
  }
  const proven = new Set(forged.map(([, checker]) => checker));
  assert.deepEqual(
    Object.keys(CHECKERS).filter((name) => !proven.has(name)),
    [],
  );
});
