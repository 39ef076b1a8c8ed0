import assert from 'node:assert/strict';
import test from 'node:test';
import { parseJson } from '@duebridge/contract';
import fc from 'fast-check';
import { judgeRecord, type Intent } from './payment-record.ts';
import type { Exchange, NoReply, Reply } from './http-call.ts';
import type { NotSent } from './oauth-client.ts';
import { judgePoll, judgeSubmit } from '../engine/outcome.ts';

const intent: Intent = {
  platform_payment_id: 'pay-1',
  amount_in_cents: 12_345,
  platform_batch_id: 'batch-1',
  biller_id: 'acme',
  account_id: 'ACC-1',
  payment_id: null,
};

const record = {
  payment_id: 'P-1',
  platform_payment_id: 'pay-1',
  platform_batch_id: 'batch-1',
  biller_id: 'acme',
  account_id: 'ACC-1',
  status: 'processing',
  amount_in_cents: 12_345,
  initiated_at: '2026-03-01T10:00:00.000Z',
  posted_at: null,
};

function reply(status: number, text: string, more: Partial<Reply> = {}): Reply {
  const base = { kind: 'reply', status, retryAfter: undefined, waited: false } as const;
  try {
    return { ...base, json: parseJson(text), problem: undefined, ...more };
  } catch {
    return { ...base, json: undefined, problem: 'json', ...more };
  }
}

const answer = (change: object): Reply => reply(200, JSON.stringify({ ...record, ...change }));
const kindOf = (given: Exchange | NotSent, known: Partial<Intent> = {}): string => {
  const outcome = judgeSubmit({ ...intent, ...known }, given);
  if ('reason' in outcome) return `${outcome.kind} ${outcome.reason}`;
  if ('field' in outcome) return `${outcome.kind} ${outcome.field}`;
  if (outcome.kind === 'ended') return `${outcome.kind} ${outcome.ending.status}`;
  if (outcome.kind === 'processing' && outcome.anomaly !== undefined)
    return `processing ${outcome.anomaly}`;
  return outcome.kind;
};

const succeeded = { status: 'succeeded', posted_at: '2026-03-01T10:00:02Z' };

test('only a believed record accepts or ends the payment [PF1 PF4 PF8 ST1 ST2 ST3 ST4]', () => {
  assert.equal(kindOf(answer({})), 'processing');
  assert.equal(kindOf(answer(succeeded)), 'ended succeeded');
  assert.equal(
    kindOf(answer({ status: 'failed', failure_reason: 'No such account.' })),
    'ended failed',
  );
  assert.equal(kindOf(answer({ status: 'canceled' })), 'ended canceled');
});

test('no network or partner failure ever ends a payment [S4 RU5 PL5]', () => {
  const statuses = [
    100, 199, 201, 202, 204, 205, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403,
    404, 405, 406, 408, 409, 410, 411, 413, 415, 417, 418, 422, 423, 425, 426, 428, 429, 431, 451,
    500, 501, 502, 503, 504, 505, 599,
  ];
  const terminal = JSON.stringify({ ...record, ...succeeded });
  for (const status of statuses) {
    const outcome = judgeSubmit(intent, reply(status, terminal));
    assert.ok(
      ['unknown', 'held', 'rejected'].includes(outcome.kind),
      `${status} gave ${outcome.kind}`,
    );
    const polled = judgePoll(intent, reply(status, terminal));
    assert.ok(
      ['unknown', 'held', 'not_found'].includes(polled.kind),
      `${status} gave ${polled.kind}`,
    );
  }
  const reasons: NoReply['reason'][] = [
    'timeout',
    'stopped',
    'connection',
    'name',
    'address',
    'certificate',
    'protocol',
    'too_large',
  ];
  for (const reason of reasons) {
    const outcome = judgeSubmit(intent, { kind: 'no_reply', reason });
    assert.ok(['unknown', 'held'].includes(outcome.kind), `${reason} gave ${outcome.kind}`);
  }
});

test('each answer has one meaning: retry, ask an operator, or hold the partner', () => {
  assert.equal(kindOf(reply(400, '{"code":"INVALID_REQUEST"}')), 'rejected');
  assert.equal(kindOf(reply(422, '{}')), 'rejected');
  assert.equal(kindOf(reply(401, '{}')), 'held credentials');
  assert.equal(kindOf(reply(403, '{}')), 'held scope');
  assert.equal(kindOf({ kind: 'no_reply', reason: 'certificate' }), 'held certificate');
  assert.equal(kindOf({ kind: 'no_reply', reason: 'address' }), 'held address');
  assert.equal(
    kindOf({ kind: 'not_sent', reason: 'refused', retryAfter: undefined }),
    'held credentials',
  );
  assert.equal(kindOf({ kind: 'not_sent', reason: 'scope', retryAfter: undefined }), 'held scope');
  assert.equal(
    kindOf({ kind: 'not_sent', reason: 'unreachable', retryAfter: undefined }),
    'unknown no_token',
  );
  assert.equal(kindOf(reply(302, '')), 'unknown redirect');
  assert.equal(kindOf(reply(404, '{}')), 'unknown not_found');
  assert.equal(kindOf(reply(409, '{}')), 'unknown conflict');
  assert.equal(kindOf(reply(429, '{}')), 'unknown too_many_requests');
  assert.equal(kindOf(reply(405, '{}')), 'unknown misconfigured');
  assert.equal(kindOf(reply(503, '{}')), 'unknown server_error');
  assert.equal(kindOf(reply(206, JSON.stringify(record))), 'unknown other_status');
  assert.equal(judgePoll(intent, reply(404, '{}')).kind, 'not_found');
});

test('a 404 is believed, and a refusal quoted, only if the body says so explicitly [RU5 ST3]', () => {
  const believed = (text: string): boolean | undefined => {
    const outcome = judgePoll(intent, reply(404, text));
    return outcome.kind === 'not_found' ? outcome.believed : undefined;
  };
  assert.equal(believed('{"code":"NOT_FOUND"}'), true);
  for (const text of ['', '{}', 'null', '[]', '"NOT_FOUND"', '{"code":7}', '{"code":"a b"}']) {
    assert.equal(believed(text), false, text);
  }
  assert.equal(believed(`{"code":"${'x'.repeat(64)}"}`), true);
  assert.equal(believed(`{"code":"${'x'.repeat(65)}"}`), false);
  assert.equal(judgePoll(intent, reply(410, '{"code":"GONE"}')).kind, 'not_found');
  const refusal = (status: number, text: string): unknown =>
    judgeSubmit(intent, reply(status, text));
  const kind = 'rejected';
  assert.deepEqual(refusal(422, '{"code":"CLOSED","message":"Closed."}'), {
    kind,
    status: 422,
    code: 'CLOSED',
    message: 'Closed.',
  });
  for (const text of ['', 'null', '"x"', '{}', '{"code":null,"message":null}']) {
    assert.deepEqual(
      refusal(400, text),
      { kind, status: 400, code: undefined, message: undefined },
      text,
    );
  }
  // To a GET, 400 says nothing of the payment.
  assert.deepEqual(judgePoll(intent, reply(400, '{}')), {
    kind: 'unknown',
    reason: 'misconfigured',
  });
});

test('whatever is not strictly a payment record is not believed [S5 PF6 PF7]', () => {
  for (const text of [
    '',
    'null',
    '[]',
    '"x"',
    '{',
    '\uFEFF{}',
    '<html>',
    '{"amount_in_cents":NaN}',
    JSON.stringify(record).replace(
      '"status":"processing"',
      '"status":"processing","status":"succeeded"',
    ),
    JSON.stringify(record).replace('{', '{"__proto__":{"status":"succeeded"},'),
    JSON.stringify(record).replace('12345', '12345.0'),
    JSON.stringify(record).replace('12345', '1.2345e4'),
  ]) {
    assert.match(kindOf(reply(200, text)), /^unknown (not_json|not_a_record)$/, text);
  }
  for (const change of [
    { amount_in_cents: '12345' },
    { amount_in_cents: null },
    { status: undefined },
    { status: 1 },
    { initiated_at: undefined },
    { initiated_at: '2026-03-01T10:00:00' },
    { initiated_at: '2026-02-30T10:00:00Z' },
    { payment_id: '' },
    { payment_id: 7 },
    { payment_id: 'x'.repeat(257) },
  ]) {
    assert.equal(kindOf(answer(change)), 'unknown not_a_record', JSON.stringify(change));
  }
  assert.equal(
    kindOf(reply(200, JSON.stringify(record), { problem: 'content_type' })),
    'unknown not_json',
  );
  assert.equal(
    kindOf(reply(200, JSON.stringify(record), { problem: 'encoding' })),
    'unknown not_json',
  );
});

test('a record of another payment, amount, account or batch freezes ours [PF2 PF3 PF6 PL6 F27 F30]', () => {
  assert.equal(kindOf(answer({ platform_payment_id: 'pay-2' })), 'mismatch platform_payment_id');
  assert.equal(kindOf(answer({ amount_in_cents: 12_344 })), 'mismatch amount_in_cents');
  assert.equal(
    kindOf(answer({ amount_in_cents: 12_344, ...succeeded })),
    'mismatch amount_in_cents',
  );
  assert.equal(kindOf(answer({ platform_batch_id: 'batch-2' })), 'mismatch platform_batch_id');
  assert.equal(kindOf(answer({ account_id: 'ACC-2' })), 'mismatch account_id');
  assert.equal(kindOf(answer({ account_id: 1 })), 'mismatch account_id');
  assert.equal(kindOf(answer({ biller_id: 'other' })), 'mismatch biller_id');
  assert.equal(kindOf(answer({}), { payment_id: 'P-0' }), 'mismatch payment_id');
  assert.equal(kindOf(answer({ ...succeeded }), { payment_id: 'P-0' }), 'mismatch payment_id');
});

test('an unknown status word keeps a payment processing, whatever it looks like [PF4]', () => {
  for (const status of ['Succeeded', 'succeeded ', 'SUCCEEDED', 'cancelled', 'done', '']) {
    assert.equal(kindOf(answer({ ...succeeded, status })), 'processing unknown_status', status);
  }
});

test('succeeded without a usable posted_at is not yet the end [PF8 F35]', () => {
  for (const posted_at of [null, undefined, '', '2026-03-01T10:00:02', 'yesterday', 5]) {
    assert.equal(kindOf(answer({ status: 'succeeded', posted_at })), 'incomplete');
  }
});

test('failed and canceled end without a posting, whatever posted_at says [PF5 PF8]', () => {
  const failed = judgeRecord(
    intent,
    answer({ ...succeeded, status: 'failed', failure_reason: 'a\u0007b' }).json,
  );
  assert.equal(failed.kind, 'ended');
  assert.deepEqual(
    failed.kind === 'ended' && [
      failed.ending.posted_at,
      failed.ending.failure_reason,
      failed.anomaly,
    ],
    [null, 'a b', 'posted_though_not_succeeded'],
  );
  const silent = judgeRecord(intent, answer({ status: 'failed', failure_reason: '  ' }).json);
  assert.equal(silent.kind === 'ended' && silent.anomaly, 'failed_without_reason');
  assert.ok(silent.kind === 'ended' && (silent.ending.failure_reason ?? '').length > 0);
  const long = judgeRecord(
    intent,
    answer({ status: 'failed', failure_reason: '😀'.repeat(600) }).json,
  );
  assert.equal(long.kind === 'ended' && Array.from(long.ending.failure_reason ?? '').length, 500);
});

test('times of any zone are kept in UTC [PF7 PF8]', () => {
  const judged = judgeRecord(
    intent,
    answer({
      status: 'succeeded',
      initiated_at: '2026-03-01T05:00:00-05:00',
      posted_at: '2026-03-01T12:30:00+02:00',
    }).json,
  );
  assert.equal(judged.kind, 'ended');
  assert.deepEqual(
    judged.kind === 'ended' && [judged.ending.initiated_at, judged.ending.posted_at],
    ['2026-03-01T10:00:00.000Z', '2026-03-01T10:30:00.000Z'],
  );
});

test('whatever JSON arrives, a payment ends only by a record that repeats it exactly [PF6 PL6]', () => {
  const field = fc.constantFrom(...Object.keys(record), 'failure_reason', 'other');
  const value = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom(
      'succeeded',
      'failed',
      'canceled',
      'processing',
      'pay-1',
      12_345,
      '2026-03-01T10:00:02Z',
    ),
  );
  fc.assert(
    fc.property(
      fc.array(fc.tuple(field, value), { maxLength: 4 }),
      fc.boolean(),
      (changes, ended) => {
        const sent = {
          ...record,
          ...(ended ? succeeded : {}),
          ...Object.fromEntries(changes),
        } as Record<string, unknown>;
        const judged = judgeRecord(intent, reply(200, JSON.stringify(sent)).json);
        if (judged.kind !== 'ended') return;
        assert.equal(sent['platform_payment_id'], 'pay-1');
        assert.equal(sent['amount_in_cents'], 12_345);
        assert.equal(sent['status'], judged.ending.status);
        assert.ok(['succeeded', 'failed', 'canceled'].includes(judged.ending.status));
        assert.equal(judged.ending.status === 'succeeded', judged.ending.posted_at !== null);
        assert.equal(judged.ending.status === 'failed', judged.ending.failure_reason !== null);
      },
    ),
    { seed: 1, numRuns: 2_000 },
  );
});
