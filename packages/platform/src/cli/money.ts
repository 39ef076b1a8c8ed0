import { formatCents, type MoneyBalances, type MoneyCheck } from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  jsonOption,
  print,
  queryOf,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { adminPath, ask } from './ask.ts';

/** `duebridge platform money`: where the money is, and whether every cent is somewhere (docs/money.md). */
export function addMoney(command: Command, terminal: Terminal): void {
  const money = command
    .command('money')
    .description('where the money is, by biller: taken, owed, paid, refunded, returned')
    .option('--day <day>', 'what moved on one day (UTC), such as 2026-03-21')
    .addOption(jsonOption())
    .action(async (options: { day?: string; json?: true }) => {
      const page = await ask<{ balances: MoneyBalances[] }>(
        terminal,
        'GET',
        adminPath`money` + queryOf({ day: options.day }),
      );
      print(terminal, options, page, () => balanceTable(page.balances));
    });
  money
    .command('check')
    .description('compare the book with the payments; exit code 1 when a cent is missing')
    .option('--days <n>', 'payments of so many days (default 3)')
    .addOption(jsonOption())
    .action(async (options: { days?: string; json?: true }, self: Command) => {
      const given = { ...self.optsWithGlobals<{ json?: true }>(), ...options };
      const check = await ask<MoneyCheck>(
        terminal,
        'GET',
        adminPath`money/check` + queryOf({ days: options.days }),
      );
      print(terminal, given, check, () => describeCheck(check));
      if (!check.holds) {
        throw new CommandError(
          `money is not where it should be: ${check.faults.length} faults`,
          exitCodes.failed,
        );
      }
    });
}

/** Where money came from on the left of the line, where it is on the right. */
function balanceTable(balances: readonly MoneyBalances[]): string {
  if (balances.length === 0) return 'No money has moved.';
  return table(
    ['MODE', 'PARTNER', 'BILLER', 'TAKEN', 'OWED', 'PAID', 'REFUNDED', 'RETURNED', 'UNDER WAY'],
    balances.map((one) => [
      one.mode,
      one.partner_id,
      one.biller_id,
      formatCents(one.taken + one.elsewhere + one.uncollected + one.borne),
      formatCents(one.owed),
      formatCents(one.paid),
      formatCents(one.refunded),
      formatCents(one.returned + one.disputed),
      formatCents(one.under_way + one.remitting + one.refunding),
    ]),
  );
}

function describeCheck({ days, faults, balances }: MoneyCheck): string {
  return faults.length === 0
    ? `${balanceTable(balances)}\nEvery cent of the payments of ${days} days is where it should be.`
    : faults.join('\n');
}
