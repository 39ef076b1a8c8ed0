import assert from 'node:assert/strict';
import test from 'node:test';
import { plainText } from './text.ts';

test('control characters are removed from strings of a partner, and the words are kept', () => {
  assert.equal(plainText('  Pay\r\n\tus \u202Elater\u202C\u0000\u200B now '), 'Pay us later now');
  assert.equal(plainText('é'.repeat(200), 10), `${'é'.repeat(9)}…`);
  assert.equal(plainText('😀'.repeat(200), 10), `${'😀'.repeat(9)}…`);
  assert.equal(plainText('¿Qué? 日本 العربية'), '¿Qué? 日本 العربية');
});
