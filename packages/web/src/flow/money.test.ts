import assert from 'node:assert/strict';
import test from 'node:test';
import { formatMoney, MAX_CENTS, parseAmount } from './money.ts';

test('amounts are read as people write them, and never rounded [S5]', () => {
  const read: [typed: string, locale: string, cents: number | undefined][] = [
    ['1,234.50', 'en-US', 123_450],
    ['1234,5', 'en-US', 123_450],
    ['1234.5', 'en-US', 123_450],
    ['1.234,50', 'es-ES', 123_450],
    ['1.234,50', 'en-US', 123_450],
    ['1 234,50', 'es-ES', 123_450],
    ['1\u00A0234,50', 'en-US', 123_450],
    ["1'234.50", 'en-US', 123_450],
    ['$ 42', 'en-US', 4_200],
    ['42 USD', 'es-US', 4_200],
    ['US$42.00', 'es-US', 4_200],
    ['.5', 'en-US', 50],
    ['0.07', 'en-US', 7],
    ['007', 'en-US', 700],
    ['0', 'en-US', 0],
    ['19.99', 'en-US', 1_999],
    ['1,234', 'en-US', 123_400],
    ['1.234', 'es-ES', 123_400],
    ['1,234,567.89', 'en-US', 123_456_789],
    ['999,999,999.99', 'en-US', MAX_CENTS],
    // Either 1.23 or 1234 may be meant: ask instead of guessing.
    ['1.234', 'en-US', undefined],
    ['1,234', 'es-ES', undefined],
    ['1,23,456', 'en-US', undefined],
    ['1,234.567', 'en-US', undefined],
    ['1,234,56', 'en-US', undefined],
    ['12.', 'en-US', undefined],
    ['-5', 'en-US', undefined],
    ['1e3', 'en-US', undefined],
    ['0x10', 'en-US', undefined],
    ['', 'en-US', undefined],
    ['.', 'en-US', undefined],
    ['$', 'en-US', undefined],
    ['10000000000000', 'en-US', undefined],
    ['NaN', 'en-US', undefined],
  ];
  for (const [typed, locale, cents] of read) {
    assert.equal(parseAmount(typed, locale), cents, `${typed} in ${locale}`);
  }
});

test('the page can parse the amounts that it shows', () => {
  for (const locale of ['en-US', 'es-US', 'es-ES', 'es-MX', 'fr-US', 'fr-FR', 'pt-US', 'pt-BR']) {
    for (const cents of [1, 99, 100, 12_345, 100_000, MAX_CENTS]) {
      const shown = formatMoney(cents, locale);
      assert.equal(parseAmount(shown, locale), cents, `${shown} in ${locale}`);
    }
  }
});

test('the largest amount keeps its cents, and a credit its sign', () => {
  assert.equal(formatMoney(MAX_CENTS, 'en-US'), '$999,999,999.99');
  assert.equal(formatMoney(-5, 'en-US'), '-$0.05');
});
