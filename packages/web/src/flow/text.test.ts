import assert from 'node:assert/strict';
import test from 'node:test';
import { themeProperties, contrast } from './appearance.ts';
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

test('colours of a site are applied only when the text stays readable', () => {
  assert.equal(Math.round(contrast('#000', '#ffffff')), 21);
  const dark = themeProperties({ theme: 'dark' }, false);
  assert.equal(dark.theme, 'dark');
  assert.equal(themeProperties({}, true).theme, 'dark');
  assert.equal(themeProperties({ theme: 'light' }, true).theme, 'light');

  const look = (variables: Record<string, string>): Readonly<Record<string, string>> =>
    themeProperties({ theme: 'light', variables }, false).properties;
  assert.equal(look({ text: '#222222', background: '#fafafa' })['--bg'], '#fafafa');
  assert.equal(look({ text: '#999', background: '#aaa' })['--bg'], undefined);
  // On its own, against the theme's other half.
  assert.equal(look({ background: '#222222' })['--bg'], undefined);
  assert.equal(look({ accent: '#ffee00' })['--on-accent'], '#000000');
  assert.equal(look({ accent: '#ffee00' })['--link'], 'var(--text)');
  assert.equal(look({ accent: '#0a5' })['--accent'], '#0a5');
});

test('appearance values that are not plain colours, lengths or fonts are ignored', () => {
  const { properties } = themeProperties(
    {
      variables: {
        accent: 'url(https://evil.example)',
        background: 'red;}',
        radius: '999999px',
        fontFamily: 'x; background: url(//evil.example)',
        ...({ '--bg': '#000' } as object),
      },
    },
    false,
  );
  assert.deepEqual(Object.keys(properties).sort(), ['--accent', '--link', '--mark', '--on-accent']);
  assert.ok(!JSON.stringify(properties).includes('evil'));
});
