import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { maskAccountId } from '../mask.ts';
import { NO_REASON } from '../partners/payment-record.ts';
import { plainText } from '../plain-text.ts';
import { toFlowPayment } from './confirm.ts';
import type { PaymentRow } from '../store/payments.ts';

const row: PaymentRow = {
  platform_payment_id: '018f0000-0000-7000-8000-000000000000',
  partner_id: 'p',
  biller_id: 'b',
  account_id: 'a',
  platform_batch_id: 'batch',
  amount_in_cents: 100,
  funding_method: 'sandbox_bank',
  status: 'processing',
  stage: 'dispatching',
  maybe_sent: null,
  review_reason: null,
  rejection_message: null,
  slot: 7,
  payment_id: null,
  failure_reason: null,
  ended_by: null,
  initiated_at: null,
  posted_at: null,
  created_at: '2026-01-01T00:00:00.000Z',
  accepted_at: null,
  ended_at: null,
  settled_at: null,
};

test('a payment whose outcome is unknown is on its way, never failed, and does not say what holds it back [EE9]', () => {
  for (const stage of ['created', 'authorized', 'dispatching', 'review'] as const) {
    const held: PaymentRow = { ...row, stage, review_reason: 'amount_mismatch' };
    const shown = toFlowPayment(held);
    assert.ok(!JSON.stringify(shown).includes('amount_mismatch'));
    assert.equal(shown.status, 'processing');
    assert.equal(shown.progress, 'sending');
    assert.equal(shown.failure_reason, undefined);
  }
  const accepted = toFlowPayment({ ...row, stage: 'review', payment_id: 'there' });
  assert.equal(accepted.progress, 'accepted');
});

test('where the biller gave no words for a failure the page uses its own, in the language of the customer', () => {
  const failed = { ...row, status: 'failed', stage: 'ended', ended_by: 'partner' } as const;
  const shown = (failure_reason: string): string | undefined =>
    toFlowPayment({ ...failed, failure_reason }).failure_reason;
  assert.equal(shown('The office is closed'), 'The office is closed');
  assert.equal(shown(NO_REASON), undefined);
});

test('a reason is one short line of well-formed text without control or direction characters', () => {
  assert.equal(plainText('a\u0000b\r\nc\td'), 'a b c d');
  assert.equal(plainText('\u202eevil\u2066 text\u200f'), 'evil text');
  assert.equal(plainText('<b>bold</b>'), '<b>bold</b>');
  assert.equal(plainText('x'.repeat(600)).length, 500);
  assert.equal(Array.from(plainText('😀'.repeat(600))).length, 500);
  // Whatever a partner writes.
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 700 }), (text) => {
      const plain = plainText(text);
      assert.ok(Array.from(plain).length <= 500);
      assert.ok(plain.isWellFormed());
      assert.doesNotMatch(plain, /[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
    }),
    { seed: 1 },
  );
});

test('a masked account id shows only its end, and at most half of a short one', () => {
  assert.equal(maskAccountId('1234567890'), '••••7890');
  assert.equal(maskAccountId('12345'), '••••45');
  assert.equal(maskAccountId('1'), '••••');
});
