import assert from 'node:assert/strict';
import test from 'node:test';
import { receiptHtml } from './receipt-files.ts';
import { escapeHtml, plainText } from './text.ts';

test('control characters are removed from strings of a partner, and the words are kept', () => {
  assert.equal(plainText('  Pay\r\n\tus \u202Elater\u202C\u0000\u200B now '), 'Pay us later now');
  assert.equal(plainText('é'.repeat(200), 10), `${'é'.repeat(9)}…`);
  assert.equal(plainText('😀'.repeat(200), 10), `${'😀'.repeat(9)}…`);
  assert.equal(plainText('¿Qué? 日本 العربية'), '¿Qué? 日本 العربية');
});

test('markup in a saved receipt stays text', () => {
  const row = ['<b>&"', "'><script>alert(1)</script>"] as const;
  const html = receiptHtml('<title>', [row], '<i>note', 'en');
  assert.doesNotMatch(html.replace(/<style>[^]*<\/style>/, ''), /<script|<b>|<i>|<title><title>/);
  assert.ok(html.includes(escapeHtml(row[1])));
});
