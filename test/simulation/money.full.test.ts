/**
 * Thirty days of money with crashes: the equation holds after every step, what was transferred is what the statements say and what the billers'
 * ledgers have less what was taken off, and the check names each bug that is planted. MONEY_PAYMENTS sets how many payments:
 * by hand 100,000.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { BrokenBook, PLANTED_IN_MONEY, runMoney } from './money.ts';

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

for (const planted of PLANTED_IN_MONEY) {
  test(`a planted bug is caught: ${planted}`, async (t) => {
    const world = { seed: 2, payments: 600, billers: 3, days: 3, crashes: 5, planted };
    await assert.rejects(runMoney(t, world), BrokenBook);
  });
}
