import assert from 'node:assert/strict';
import test from 'node:test';
import { language } from './i18n.ts';
import { tagOf, TAGS } from './tags.ts';
import { WORDS, type Word } from './words.ts';

const { en } = WORDS;
/** Words that two languages really share. */
const SAME: readonly Word[] = ['problem_reference', 'continue', 'due_today', 'posted'];

test('each language has every text, with the same placeholders', () => {
  const blanks = (text: string): string[] => [...new Set(text.match(/\{\w+\}/g))].sort();
  for (const tag of TAGS.slice(1)) {
    const other = WORDS[tag];
    assert.deepEqual(Object.keys(other).sort(), Object.keys(en).sort(), tag);
    for (const [word, text] of Object.entries(en) as [Word, string][]) {
      assert.notEqual(other[word].trim(), '');
      assert.deepEqual(blanks(other[word]), blanks(text), `${tag} ${word}`);
      // A text left untranslated.
      if (!SAME.includes(word)) assert.notEqual(other[word], text, `${tag} ${word}`);
    }
  }
});

test('a requested locale maps to a language that we have', () => {
  const chosen = [
    'en',
    'en-GB',
    'es',
    'es-MX',
    'ES',
    'fr-CA',
    'pt',
    'pt-BR',
    'de',
    '',
    'x y',
    'est',
  ].map((asked) => {
    const tag = tagOf(asked);
    return [asked, tag, language(asked, tag, WORDS[tag]).locale];
  });
  assert.deepEqual(chosen, [
    ['en', 'en', 'en-US'],
    ['en-GB', 'en', 'en-GB'],
    ['es', 'es', 'es-US'],
    ['es-MX', 'es', 'es-MX'],
    ['ES', 'es', 'es-US'],
    ['fr-CA', 'fr', 'fr-CA'],
    ['pt', 'pt', 'pt-US'],
    ['pt-BR', 'pt', 'pt-BR'],
    ['de', 'en', 'en-US'],
    ['', 'en', 'en-US'],
    ['x y', 'en', 'en-US'],
    ['est', 'en', 'en-US'],
  ]);
});

test('dates keep their day, values cannot be mistaken for blanks', () => {
  const english = language('en', 'en', en);
  const spanish = language('es', 'es', WORDS.es);
  assert.equal(english.date('2026-03-01'), 'March 1, 2026');
  assert.equal(spanish.date('2026-03-01'), '1 de marzo de 2026');
  assert.equal(english.say('pay_now', { amount: '$& {biller} $1' }), 'Pay $& {biller} $1');
});
