import assert from 'node:assert/strict';
import test from 'node:test';
import type { RecordedCall } from '../store/attempts.ts';
import type { PaymentRow } from '../store/payments.ts';
import { healthOf } from './partner-health.ts';

test('how an endpoint does is said in words: times, errors and breaches, each with its latest payment', () => {
  const paid = (n: number, posted: number | null): PaymentRow =>
    ({
      platform_payment_id: `p${n}`,
      created_at: '2026-03-21T10:00:00.000Z',
      posted_at:
        posted === null
          ? null
          : new Date(Date.parse('2026-03-21T10:00:00Z') + posted).toISOString(),
    }) as unknown as PaymentRow;
  const call = (change: Partial<RecordedCall>): RecordedCall => ({
    kind: 'get',
    count: 1,
    took_ms: 40,
    http_status: 200,
    result: 'processing',
    last_at: 0,
    at: 0,
    request_id: 'r',
    ...change,
  });
  const unavailable = call({ http_status: 503, result: 'http_503' });
  const health = healthOf(
    [paid(3, 2_000), paid(2, 600_000), paid(1, null)],
    new Map([
      ['p3', [call({ kind: 'put', took_ms: 90 }), call({ http_status: 404, result: 'NOT_FOUND' })]],
      ['p2', [unavailable, call({ body: 'sealed', count: 2 })]],
      ['p1', [call({ http_status: null, result: 'timeout' }), unavailable]],
    ]),
  );
  assert.deepEqual(health.summary, [
    '7 calls for its latest 3 payments; 5 failed.',
    'Its answers came within 40 ms for half, within 90 ms for 95 of 100.',
    'Payments were posted within 10 minutes for half, within 10 minutes for 95 of 100.',
  ]);
  assert.deepEqual(health.troubles, [
    { what: 'An answer 503.', count: 2, platform_payment_id: 'p2' },
    {
      what: 'A 200 with a record that breaks the interface.',
      count: 2,
      platform_payment_id: 'p2',
    },
    { what: 'No answer: timeout.', count: 1, platform_payment_id: 'p1' },
  ]);
  assert.deepEqual(healthOf([], new Map()).summary, ['No payment was sent to it yet.']);
});
