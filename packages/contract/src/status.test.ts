import assert from 'node:assert/strict';
import test from 'node:test';
import { canMove, isPaymentStatus, isTerminal, PAYMENT_STATUSES } from './status.ts';

test('only processing changes, and only to a terminal status [RU1 RU2 ST2 ST3 ST4]', () => {
  const moves = PAYMENT_STATUSES.flatMap((from) =>
    PAYMENT_STATUSES.filter((to) => canMove(from, to)).map((to) => `${from}>${to}`),
  );
  assert.deepEqual(moves, ['processing>succeeded', 'processing>failed', 'processing>canceled']);
});

test('a status is one of four exact strings: other case, spaces or a double l do not match [PF4]', () => {
  for (const word of ['Processing', 'succeeded ', 'cancelled', 'pending', '', null, 1]) {
    assert.equal(isPaymentStatus(word), false, String(word));
  }
  assert.equal(PAYMENT_STATUSES.every(isPaymentStatus), true);
  assert.deepEqual(PAYMENT_STATUSES.filter(isTerminal), ['succeeded', 'failed', 'canceled']);
});
