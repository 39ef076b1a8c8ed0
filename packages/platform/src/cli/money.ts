/** `duebridge platform money`: where the money is, and whether every cent is somewhere (docs/money.md). */
import {
  formatCents,
  platformAdminRoutes as routes,
  type MoneyBalances,
  type MoneyCheck,
} from '@duebridge/contract';
import { CommandError, exitCodes, line, print, type CommandLine } from '@duebridge/runtime/cli';
import { inColumns } from './output.ts';

/** The commands of the book. */
export const moneyLines: readonly CommandLine[] = [
  line('money', routes.get_money, ({ balances }) => balanceTable(balances), {
    help: 'where the money is, by biller: taken, owed, paid, refunded, returned',
    fields: { day: { help: 'what moved on one day (UTC), such as 2026-03-21' } },
  }),
  line('money check', routes.check_money, describeCheck, {
    help: 'compare the book with the payments; exit code 1 when a cent is missing',
    fields: { days: { flags: '--days <n>', help: 'payments of so many days (default 3)' } },
    run: async ({ terminal, request, options, ask }) => {
      const check = await ask<MoneyCheck>(request.method, request.path);
      print(terminal, options, check, () => describeCheck(check));
      if (!check.holds) {
        throw new CommandError(
          `money is not where it should be: ${check.faults.length} faults`,
          exitCodes.failed,
        );
      }
    },
  }),
];

/** Where money came from on the left of the line, where it is on the right. */
function balanceTable(balances: readonly MoneyBalances[]): string {
  if (balances.length === 0) return 'No money has moved.';
  return inColumns(
    [
      ['MODE', (one) => one.mode],
      ['PARTNER', (one) => one.partner_id],
      ['BILLER', (one) => one.biller_id],
      ['TAKEN', (one) => formatCents(one.taken + one.elsewhere + one.uncollected + one.borne)],
      ['OWED', (one) => formatCents(one.owed)],
      ['PAID', (one) => formatCents(one.paid)],
      ['REFUNDED', (one) => formatCents(one.refunded)],
      ['RETURNED', (one) => formatCents(one.returned + one.disputed)],
      ['UNDER WAY', (one) => formatCents(one.under_way + one.remitting + one.refunding)],
    ],
    balances,
  );
}

function describeCheck({ days, faults, balances }: MoneyCheck): string {
  return faults.length === 0
    ? `${balanceTable(balances)}\nEvery cent of the payments of ${days} days is where it should be.`
    : faults.join('\n');
}
