/**
 * Thirty days of money with crashes: the equation holds after every step, what was transferred is what the statements say and what the billers'
 * ledgers have less what was taken off. MONEY_PAYMENTS sets how many payments: by hand 100,000. The bugs that the check must name are in
 * planted.ts.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { runMoney } from './money.ts';

const payments = Number(process.env['MONEY_PAYMENTS'] ?? 6_000);

test(`${payments} payments of 20 billers through 30 days with crashes: every cent is somewhere [PL17]`, async (t) => {
  const moved = await runMoney(t, { seed: 1, payments, billers: 20, days: 30, crashes: 20 });
  t.diagnostic(JSON.stringify(moved));
  assert.ok(moved.crashes > 100);
  assert.ok(moved.refunds > payments / 100 && moved.returns > payments / 200);
  assert.equal(moved.transferred_in_cents, moved.statements_in_cents);
  assert.equal(
    moved.transferred_in_cents + moved.owed_in_cents,
    moved.ledgers_in_cents - moved.taken_off_in_cents,
  );
});
