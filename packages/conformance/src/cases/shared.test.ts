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
  'duplicate key value violates unique constraint "payment_account_key"',
  'new row for relation "ledger" violates check constraint "positive"',
  'null value in column "x" of relation "y" violates not-null constraint',
  "Duplicate entry '7' for key 'PRIMARY'",
  'Could not run: SELECT id FROM accounts WHERE id = 7',
  'could not execute: select a1.id from account a1 where a1.id = ?',
  'insert into payment (id) values (7)',
  'Query failed: UPDATE accounts SET due = due - 1',
  'account is not defined',
  'Error in handler: accounts.find is not a function',
  "Cannot read properties of undefined (reading 'id')",
  "Cannot read property 'id' of undefined",
  'Unexpected token < in JSON at position 0',
  `Unexpected token '<', "<html>" is not valid JSON`,
  'rpc error: code = NotFound desc = no rows in result set',
  'Payment of {{amount}} failed',
  '[object Object]',
  'undefined',
  'account_inactive',
];

test('a reason in plain words is readable, whatever words it uses [PF5]', () => {
  const accused = READABLE.filter((reason) => !isReadableReason(reason));
  assert.deepEqual(accused, []);
});

test('a reason that a program or a database printed is not readable [PF5]', () => {
  const missed = INTERNAL.filter(isReadableReason);
  assert.deepEqual(missed, []);
});
