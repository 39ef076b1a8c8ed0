import assert from 'node:assert/strict';
import test from 'node:test';
import { amountRules, judgeAmount } from './flow.ts';
import { MAX_CENTS } from './money.ts';

const rules = (
  due: number | undefined,
  payment_rules: { min_amount_in_cents?: number; max_amount_in_cents?: number } = {},
): ReturnType<typeof amountRules> =>
  amountRules({
    account: {
      masked_account_id: '••••1',
      balance: due === undefined ? null : { amount_due_in_cents: due },
      balance_source: 'partner',
      payment_rules,
    },
  });

test('what may be paid follows from the rules of the account and from what is due', () => {
  assert.deepEqual(rules(500), { min: 1, max: MAX_CENTS, full: 500, fixed: undefined });
  assert.deepEqual(rules(undefined).full, undefined);
  assert.deepEqual(rules(0).full, undefined);
  assert.deepEqual(rules(-500).full, undefined);
  assert.deepEqual(rules(500, { min_amount_in_cents: 501 }).full, undefined);
  assert.deepEqual(rules(500, { max_amount_in_cents: 499 }).full, undefined);
  const fixed = rules(500, { min_amount_in_cents: 500, max_amount_in_cents: 500 });
  assert.deepEqual([fixed.full, fixed.fixed], [500, 500]);
});

test('an amount outside the rules is refused at its edges', () => {
  const allowed = rules(500, { min_amount_in_cents: 100, max_amount_in_cents: 1_000 });
  assert.equal(judgeAmount('0.99', 99, allowed), 'amount_too_small');
  assert.equal(judgeAmount('1', 100, allowed), undefined);
  assert.equal(judgeAmount('10', 1_000, allowed), undefined);
  assert.equal(judgeAmount('10.01', 1_001, allowed), 'amount_too_large');
  assert.equal(judgeAmount(' ', undefined, allowed), 'amount_empty');
  assert.equal(judgeAmount('ten', undefined, allowed), 'amount_unclear');
  assert.equal(judgeAmount('0', 0, rules(500)), 'amount_too_small');
});
