/** `duebridge platform money`: where the money is, and whether every cent is somewhere (docs/money.md). */
import {
  formatCents,
  platformAdminRoutes as routes,
  type BankFileView,
  type CaseEnded,
  type CaseView,
  type MoneyBalances,
  type MoneyCheck,
  type RefundMade,
  type RemittanceView,
} from '@duebridge/contract';
import {
  CommandError,
  exitCodes,
  facts,
  line,
  print,
  tableOf,
  type CommandLine,
} from '@duebridge/runtime/cli';
import { done } from './output.ts';

const OF_PARTNER = { partner_id: { flags: '--partner <id>', help: 'whose biller it is' } };

/** Where money came from on the left of the line, where it is on the right. */
const balances = tableOf<MoneyBalances>(
  'mode',
  'partner_id',
  'biller_id',
  ['TAKEN', (one) => formatCents(one.taken + one.elsewhere)],
  ['NOT COLLECTED', (one) => formatCents(one.uncollected + one.borne)],
  ['OWED', (one) => formatCents(one.owed)],
  ['PAID', (one) => formatCents(one.paid)],
  ['REFUNDED', (one) => formatCents(one.refunded)],
  ['RETURNED', (one) => formatCents(one.returned + one.disputed)],
  ['UNDER WAY', (one) => formatCents(one.under_way + one.remitting + one.refunding)],
);
const cases = tableOf<CaseView>(
  'case_id',
  'platform_payment_id',
  'biller_id',
  'reason_code',
  'amount_in_cents',
  'deadline',
  ['STATE', (one) => one.disposition ?? one.state],
  ['NOTE', (one) => one.outcome ?? one.note],
);
const remittances = tableOf<RemittanceView>(
  'remittance_id',
  'platform_batch_id',
  'biller_id',
  'due_on',
  'payments',
  'gross_in_cents',
  'deducted_in_cents',
  'carried_in_cents',
  'net_in_cents',
  'file_id',
  'state',
  'held',
  'reason',
);

/** What a check found, then the book. */
const checked = ({ balances: book, days, holds, faults }: MoneyCheck): string => {
  const found = holds
    ? [`Every cent is where it should be; payments of the last ${days} days were compared.`]
    : faults;
  return `${found.join('\n')}\n\n${balances({ balances: book })}`;
};

const refund = done<RefundMade>(({ refund: made }) => {
  if (made === undefined) return '';
  const { refund_id, amount_in_cents, borne_by, state, note, made_at } = made;
  const of = `Refund ${refund_id} of ${formatCents(amount_in_cents)}`;
  switch (state) {
    case 'sending':
      return `${of} is with the processor, which is asked again each hour until it answers.`;
    case 'done':
      return `${of} was made at ${made_at}; the ${borne_by} bears it.`;
    case 'refused':
      return `${of} was refused: ${note}`;
  }
});

/** The commands of the book and of remittances. */
export const moneyLines: readonly CommandLine[] = [
  line('money', routes.get_money, balances, {
    help: 'where the money is, by biller: taken, not collected, owed, paid, refunded, returned',
    fields: { day: { help: 'what moved on one day (UTC), such as 2026-03-21' } },
  }),
  line('money check', routes.check_money, checked, {
    help: 'compare the book with the payments; exit code 1 when a cent is missing',
    fields: { days: { flags: '--days <n>', help: 'payments of so many days (default 3)' } },
    run: async ({ terminal, request, options, ask }) => {
      const check = await ask<MoneyCheck>(request.method, request.path);
      print(terminal, options, check, () => checked(check));
      if (!check.holds) {
        throw new CommandError(
          `money is not where it should be: ${check.faults.length} faults`,
          exitCodes.failed,
        );
      }
    },
  }),
  line('money payouts', routes.list_payouts, tableOf(), {
    args: [],
    fields: OF_PARTNER,
  }),
  line('money payout', routes.set_payout, tableOf(), {
    args: [],
    fields: {
      ...OF_PARTNER,
      holder_name: { flags: '--holder <name>' },
      routing_number: { flags: '--routing <number>' },
      account_number: { flags: '--account <number>', secretIn: 'DUEBRIDGE_PAYOUT_ACCOUNT' },
      stripe_account: { help: 'its connected account, acct_…, for --way stripe' },
      minimum_in_cents: {
        flags: '--minimum-cents <n>',
        help: 'less is carried into the next remittance',
        parse: Number,
      },
      held: { flags: '--held <yes|no>', help: 'yes: nothing is transferred', parse: isYes },
      bears_refunds: {
        flags: '--bears-refunds <yes|no>',
        help: 'no: the platform bears its refunds',
        parse: isYes,
      },
    },
  }),
  line('money remittances', routes.list_remittances, remittances, {
    help: 'what billers are owed for their batches, and its transfers, newest first',
  }),
  line('money remit', routes.remit_now, (answer) =>
    answer.waiting.length === 0 ? 'Nothing waits for anybody.' : tableOf()(answer),
  ),
  line('money pay-out', routes.pay_out, remittances, {
    args: [],
    fields: OF_PARTNER,
  }),
  line('money statement', routes.get_remittance_statement, String),
  line('money bank-file', routes.make_bank_file, bankFile, {
    defaults: { way: 'pain001' },
    fields: { mode: { help: 'whose transfers: of live (default) or of test registrations' } },
  }),
  line('money bank-file show', routes.get_bank_file, bankFile),
  line('money end', routes.end_transfer, done(facts), {
    help: 'what became of a transfer, or of all transfers of a file (give its file_id)',
  }),
  line('money refunds', routes.list_refunds, tableOf()),
  line('case', routes.list_cases, cases, {
    help: 'disputes, returned debits, complaints: what has not ended, the most urgent first',
    fields: {
      platform_payment_id: { flags: '--payment <id>' },
      // `case open` has --reason-code.
      reason_code: { flags: '--about <reason>', help: 'the reason of the case, such as disputed' },
    },
  }),
  line('case open', routes.open_case, cases),
  line(
    'case end',
    routes.end_case,
    done<CaseEnded>(({ case: view }) => cases(view)),
  ),
  line('payment refund', routes.refund_payment, refund, {
    fields: {
      amount_in_cents: {
        flags: '--amount-cents <n>',
        help: 'default: all that is left',
        parse: Number,
      },
    },
  }),
];

/** A yes or a no, because what is not given stays as it is. */
function isYes(typed: string): boolean {
  if (typed !== 'yes' && typed !== 'no') {
    throw new CommandError(`"${typed}" is neither yes nor no`, exitCodes.usage);
  }
  return typed === 'yes';
}

/** The content alone is the output, so that it can go into a file; `money end` needs the id, which goes to standard error. */
function bankFile({ file_id, transfers, amount_in_cents, content }: BankFileView): string {
  process.stderr.write(
    `file ${file_id}, ${transfers} transfers, ${formatCents(amount_in_cents)}\n`,
  );
  // The last line break comes with the output. Blanks before it are part of the last record of a NACHA file.
  return content.replace(/\n$/, '');
}
