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
  const world = { seed: 1, payments, billers: 20, days: 30, crashes: 20 };
  const { moved, violations } = await runMoney(t, world);
  t.diagnostic(JSON.stringify(moved));
  assert.deepEqual(violations, []);
  const count = (...what: string[]) => what.reduce((sum, one) => sum + (moved[one] ?? 0), 0);
  assert.ok(count('crash') > 100);
  assert.ok(count('payment refund') > payments / 100);
  assert.ok(count('payment returned', 'payment disputed') > payments / 200);
  assert.ok(count('transfer paid') > 100 && count('transfer returned') > 5);
});
