import assert from 'node:assert/strict';
import test from 'node:test';
import { formatCents, wholeCents } from './money.ts';

test('cents are formatted as dollars without the rounding error of a division [S5]', () => {
  assert.equal(formatCents(0), '$0.00');
  assert.equal(formatCents(-5), '-$0.05');
  assert.equal(formatCents(123_450), '$1,234.50');
  assert.equal(formatCents(9_007_199_254_740_991), '$90,071,992,547,409.91');
});

test('a value that is not whole cents throws at once', () => {
  for (const value of [0.5, Number.NaN, Infinity, 2 ** 53]) {
    assert.throws(() => wholeCents(value), RangeError);
  }
});
