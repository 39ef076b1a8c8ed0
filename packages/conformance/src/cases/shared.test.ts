/** Which failure reasons a person can read (PF5): a must-check judges by this, so an honest biller must never be accused. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { isReadableReason } from './shared.ts';

const READABLE = [
  'The account was not found or is inactive.',
  'Duplicate entry: this payment was already received.',
  'The amount violates the minimum payment rule.',
  'Please select another account from the list.',
  'A payment plan is not defined for this account.',
  'We cannot read property tax accounts.',
  'Autopay is not a function of this account.',
  'Unexpected token for this card: enter it again.',
  'Geschlossen',
  '口座が停止されています',
];

const INTERNAL = [
  'account_inactive',
  'E_ACCT_0017',
  'TypeError: cannot read properties of undefined',
  'Refused\n    at post (/srv/ledger.js:4:2)',
  'Traceback (most recent call last):',
];

test('a reason in plain words is readable, whatever words it uses [PF5]', () => {
  const accused = READABLE.filter((reason) => !isReadableReason(reason));
  assert.deepEqual(accused, []);
});

test('a code or a stack trace is not readable [PF5]', () => {
  const missed = INTERNAL.filter(isReadableReason);
  assert.deepEqual(missed, []);
});
