import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { instantText, isDate, isDateTime, isOwnInstant, parseInstant } from './time.ts';

test('a date that does not exist is refused instead of rolling over [TR3 F104]', () => {
  const odd = ['2026-02-30', '2026-13-01', '2026-00-10', '2026-1-1', '2025-02-29', '20260101'];
  for (const date of odd) {
    assert.equal(isDate(date), false, date);
  }
  assert.equal(isDate('2028-02-29'), true);
});

test('a time without a zone is not an instant and is not read as local time [PF7 PF8 F104]', () => {
  assert.equal(parseInstant('2026-03-01T10:00:00'), undefined);
  assert.equal(isDateTime('2026-03-01T10:00:00'), true);
  for (const bad of [
    '2026-03-01',
    '2026-03-01T24:00:00Z',
    '2026-03-01T10:60:00Z',
    '2026-03-01T23:59:60Z',
    '2026-02-30T10:00:00Z',
    '2026-03-01 10:00:00Z',
    '2026-03-01T10:00:00+24:00',
    '2026-03-01T10:00:00z',
    '0000-06-01T00:00:00Z',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-12:00',
    'yesterday',
  ]) {
    assert.equal(parseInstant(bad), undefined, bad);
  }
});

test('every zone format of ISO 8601 is accepted and applied [PF7]', () => {
  const expected = Date.UTC(2026, 2, 1, 8, 30, 0, 250);
  for (const good of [
    '2026-03-01T08:30:00.250Z',
    '2026-03-01T10:30:00.25+02:00',
    '2026-03-01T10:30:00,250+0200',
    '2026-03-01T10:30:00.250999+02',
    '2026-03-01T03:00:00.250-05:30',
  ]) {
    assert.equal(parseInstant(good), expected, good);
    assert.equal(instantText(good), '2026-03-01T08:30:00.250Z', good);
  }
});

test('our own APIs take the one form that every reader takes alike [F104]', () => {
  for (const good of ['2026-03-01T10:30:00Z', '2026-03-01T10:30:00.250999+02:00']) {
    assert.equal(isOwnInstant(good), true, good);
  }
  for (const other of [
    '2026-03-01T10:30:00,250Z',
    '2026-03-01T10:30:00+00',
    '2026-03-01T10:30:00+0000',
    '2026-03-01T10:30Z',
    '2026-03-01T10:30:00',
    '2026-02-30T10:30:00Z',
  ]) {
    assert.equal(isOwnInstant(other), false, other);
  }
});

test('every instant that JavaScript formats parses back to the same value', () => {
  fc.assert(
    fc.property(
      fc.date({
        min: new Date('0001-01-01T00:00:00Z'),
        max: new Date('9999-12-31T00:00:00Z'),
        noInvalidDate: true,
      }),
      (date) => {
        assert.equal(parseInstant(date.toISOString()), date.getTime());
        assert.equal(instantText(date.toISOString()), date.toISOString());
      },
    ),
    { seed: 1 },
  );
});
