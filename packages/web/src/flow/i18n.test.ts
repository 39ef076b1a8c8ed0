import assert from 'node:assert/strict';
import test from 'node:test';
import { CATALOGUES, language } from './i18n.ts';

test('both languages say everything, with the same blanks to fill', () => {
  const { en, es } = CATALOGUES;
  assert.deepEqual(Object.keys(es), Object.keys(en));
  const blanks = (text: string): string[] => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const [word, text] of Object.entries(en)) {
    const other = es[word as keyof typeof es];
    assert.notEqual(other.trim(), '');
    assert.deepEqual(blanks(other), blanks(text), word);
    // A text left untranslated; no two of these are the same word in both.
    assert.notEqual(other, text, word);
  }
});

test('what a site asks for becomes a language that we have', () => {
  const chosen = ['en', 'en-GB', 'es', 'es-MX', 'ES', 'fr', '', 'x y', 'est'].map((asked) => {
    const { tag, locale } = language(asked);
    return [asked, tag, locale];
  });
  assert.deepEqual(chosen, [
    ['en', 'en', 'en-US'],
    ['en-GB', 'en', 'en-GB'],
    ['es', 'es', 'es-US'],
    ['es-MX', 'es', 'es-MX'],
    ['ES', 'es', 'es-US'],
    ['fr', 'en', 'en-US'],
    ['', 'en', 'en-US'],
    ['x y', 'en', 'en-US'],
    ['est', 'en', 'en-US'],
  ]);
});

test('numbers take their plural, dates keep their day, values cannot be mistaken for blanks', () => {
  const [en, es] = [language('en'), language('es')];
  assert.equal(en.duration(1), '1 second');
  assert.equal(en.duration(59), '59 seconds');
  assert.equal(en.duration(119), '1 minute');
  assert.equal(es.duration(1), '1 segundo');
  assert.equal(es.duration(180), '3 minutos');
  assert.equal(en.date('2026-03-01'), 'March 1, 2026');
  assert.equal(es.date('2026-03-01'), '1 de marzo de 2026');
  assert.equal(en.say('pay_amount', { amount: '$& {biller} $1' }), 'Pay $& {biller} $1');
});
