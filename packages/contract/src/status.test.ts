import assert from 'node:assert/strict';
import test from 'node:test';
import { isPaymentStatus, isTerminal, PAYMENT_STATUSES } from './status.ts';

test('a status is one of four exact strings: other case, spaces or a double l do not match [PF4]', () => {
  for (const word of ['Processing', 'succeeded ', 'cancelled', 'pending', '', null, 1]) {
    assert.equal(isPaymentStatus(word), false, String(word));
  }
  assert.equal(PAYMENT_STATUSES.every(isPaymentStatus), true);
  assert.deepEqual(PAYMENT_STATUSES.filter(isTerminal), ['succeeded', 'failed', 'canceled']);
});
