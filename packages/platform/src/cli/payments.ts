import {
  FILTER_STATUSES,
  PAYMENT_SORTS,
  type Attempt,
  type ListedPayment,
  type PartnerAnswer,
  type PaymentDetail,
  type PaymentStage,
  type PaymentPage,
  type PaymentView,
  type ReviewClose,
  type SettleFunds,
  type UnmaskedAccount,
} from '@duebridge/contract';
import {
  columns,
  CommandError,
  exitCodes,
  jsonOption,
  print,
  queryOf,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Option, type Command } from 'commander';
import { adminPath, ask, stream } from './ask.ts';
import { auditTable } from './audit.ts';

interface CloseOptions {
  reason: string;
  outcome?: 'failed' | 'canceled' | 'succeeded';
  evidence?: string;
  failureReason?: string;
  paymentId?: string;
  postedAt?: string;
  json?: true;
}

function closedText(done: ReviewClose): string {
  return done.outcome === 'closed'
    ? paymentTable([done.payment])
    : 'Noted. The amount is above the limit: a second operator has to run the same command.';
}

export interface FilterOptions {
  id?: string;
  status?: string;
  partner?: string;
  amount?: string;
  from?: string;
  to?: string;
}

interface PaymentsOptions extends FilterOptions {
  account?: string;
  email?: string;
  sort?: string;
  limit?: string;
  cursor?: string;
  json?: true;
}

/** Adds the filters that lists, exports and acts on several payments share. */
export function withFilters(command: Command): Command {
  return command
    .option('--id <id>', 'with this id: the platform’s, the partner’s, a batch’s or a session’s')
    .addOption(
      new Option(
        '--status <status>',
        'how it stands; needs_human: in review, paused, marked, late or with open funds',
      ).choices(FILTER_STATUSES),
    )
    .option('--partner <id>', 'of one partner')
    .option('--amount <dollars>', 'of this amount, such as 25 or 25.00')
    .option('--from <day or time>', 'confirmed at or after; a day such as 2026-03-21 is a UTC day')
    .option('--to <day or time>', 'confirmed before; a day counts with all its hours');
}

/** The filters as the admin API takes them. */
export function filterOf(options: FilterOptions): Record<string, string | undefined> {
  return {
    id: options.id,
    status: options.status,
    partner_id: options.partner,
    amount_in_cents: cents('--amount', options.amount),
    from: options.from === undefined ? undefined : instant(options.from, false),
    to: options.to === undefined ? undefined : instant(options.to, true),
  };
}

/** Parses a dollar amount as people write it into cents, without binary fractions. */
function cents(option: string, text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const match = /^\$?(\d{1,9})(?:\.(\d{2}))?$/.exec(text.replaceAll(',', ''));
  if (match === null) {
    throw new CommandError(
      `${option} ${text} is not an amount: give dollars, such as 25 or 25.00`,
      exitCodes.usage,
    );
  }
  return String(Number(`${match[1]}${match[2] ?? '00'}`));
}

/** Parses a day or a time into an instant; a day that ends a range is included as a whole. */
function instant(text: string, isEnd: boolean): string {
  const day = /^\d{4}-\d{2}-\d{2}$/.test(text);
  const at = Date.parse(day ? `${text}T00:00:00Z` : text);
  if (Number.isNaN(at)) {
    throw new CommandError(
      `${text} is neither a day such as 2026-03-21 nor a time such as 2026-03-21T14:00:00Z`,
      exitCodes.usage,
    );
  }
  return new Date(day && isEnd ? at + 86_400_000 : at).toISOString();
}

/** `duebridge platform payments`, `payment …`, `review …` and `export`: find payments, show one with its history, act on it. */
export function addPayments(command: Command, terminal: Terminal): void {
  withFilters(
    command
      .command('payments')
      .description('list payments, or read one with its attempts and audit trail')
      .argument('[platform_payment_id]', 'one payment'),
  )
    .option('--account <account_id>', 'of one account; the audit keeps that you searched')
    .option('--email <address>', 'of one person; the audit keeps that you searched')
    .addOption(new Option('--sort <order>', 'newest first unless given').choices(PAYMENT_SORTS))
    .option('--limit <n>', 'maximum number of rows (default 50)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .addOption(jsonOption())
    .action(async (id: string | undefined, options: PaymentsOptions) => {
      if (id !== undefined) {
        await showPayment(terminal, id, options);
        return;
      }
      const { sort, limit, cursor, account, email } = options;
      const filter = { ...filterOf(options), sort, limit, cursor };
      const personal = { account_id: account, email };
      // Values that identify a person or an account are not put into a URL.
      const page =
        account === undefined && email === undefined
          ? await ask<PaymentPage>(terminal, 'GET', adminPath`payments` + queryOf(filter))
          : await ask<PaymentPage>(
              terminal,
              'POST',
              adminPath`payments/search`,
              JSON.parse(JSON.stringify({ ...filter, ...personal })) as object,
            );
      print(terminal, options, page, () => {
        const more = page.next_cursor === null ? '' : `\nMore: --cursor ${page.next_cursor}`;
        return listTable(page.payments) + more;
      });
    });

  withFilters(
    command
      .command('export')
      .description('write payments to standard output, as CSV for spreadsheets or JSON lines'),
  )
    .addOption(new Option('--format <format>').choices(['csv', 'jsonl']).default('csv'))
    .option('--unmasked', 'whole account ids; needs the role admin, and is audited')
    .action(async (options: FilterOptions & { format: string; unmasked?: true }) => {
      const unmasked = options.unmasked === true ? 'true' : undefined;
      const query = queryOf({ ...filterOf(options), format: options.format, unmasked });
      for await (const text of stream(terminal, adminPath`payments/export` + query)) {
        terminal.write(text);
      }
    });

  const payment = command.command('payment').description('read or act on one payment');
  payment
    .command('show')
    .description('everything about one payment: what was tried, what came back, who did what')
    .argument('<platform_payment_id>')
    .addOption(jsonOption())
    .action((id: string, options: { json?: true }) => showPayment(terminal, id, options));
  payment
    .command('unmask')
    .description('show the whole account id of a payment; audited')
    .argument('<platform_payment_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const path = adminPath`payments/${id}/unmask`;
      const shown = await ask<UnmaskedAccount>(terminal, 'POST', path, { reason });
      print(terminal, options, shown, () => columns(Object.entries(shown)));
    });
  command
    .command('review')
    .description('payments that wait for an operator')
    .command('close')
    .description(
      'close a payment that the partner refused and does not have; with --outcome, any in review or paused',
    )
    .argument('<platform_payment_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(
      new Option('--outcome <status>', 'what the partner or the biller has confirmed').choices([
        'failed',
        'canceled',
        'succeeded',
      ]),
    )
    .option('--evidence <text>', 'where that is written; with --outcome')
    .option('--failure-reason <text>', 'for the customer; with --outcome failed')
    .option('--payment-id <id>', 'the partner’s id of the payment; with --outcome succeeded')
    .option('--posted-at <instant>', 'when the partner posted it; with --outcome succeeded')
    .addOption(jsonOption())
    .action(async (id: string, options: CloseOptions) => {
      const { reason, outcome, evidence, failureReason, paymentId, postedAt } = options;
      const stated = {
        outcome,
        evidence,
        failure_reason: failureReason,
        payment_id: paymentId,
        posted_at: postedAt,
      };
      const path = adminPath`payments/${id}/close`;
      const body = { reason, ...(outcome === undefined ? {} : { word: stated }) };
      const done = await ask<ReviewClose>(terminal, 'POST', path, body);
      print(terminal, options, done, () => closedText(done));
    });
  payment
    .command('settle')
    .description('settle the funds of an ended payment that nothing else settles')
    .argument('<platform_payment_id>')
    .addOption(
      new Option('--outcome <outcome>', 'what became of the money')
        .choices(['captured', 'borne', 'released', 'refunded'])
        .makeOptionMandatory(),
    )
    .requiredOption('--evidence <text>', 'where that is written')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: SettleFunds & { json?: true }) => {
      const { outcome, reason, evidence } = options;
      const path = adminPath`payments/${id}/settle`;
      const done = await ask<ReviewClose>(terminal, 'POST', path, { outcome, reason, evidence });
      print(terminal, options, done, () => closedText(done));
    });
  for (const [verb, description] of [
    ['resume', 'take a payment out of review, which sends the same PUT again, or end its pause'],
    ['pause', 'send nothing more for a payment until it is resumed'],
    ['withdraw', 'cancel a payment that cannot have left yet'],
  ] as const) {
    payment
      .command(verb)
      .description(description)
      .argument('<platform_payment_id>')
      .requiredOption('--reason <text>', 'kept in the audit')
      .addOption(jsonOption())
      .action(async (id: string, options: { reason: string; json?: true }) => {
        const view = await ask<PaymentView>(terminal, 'POST', adminPath`payments/${id}/${verb}`, {
          reason: options.reason,
        });
        print(terminal, options, view, () => paymentTable([view]));
      });
  }
  payment
    .command('follow-up')
    .description('mark a payment for the partner to look at, or clear the mark')
    .argument('<platform_payment_id>')
    .requiredOption(
      '--reason <text>',
      'the note, or with --clear what came of it; kept in the audit',
    )
    .option('--clear', 'clear the mark')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; clear?: true; json?: true }) => {
      const { reason } = options;
      const path =
        options.clear === true
          ? adminPath`payments/${id}/follow-up/clear`
          : adminPath`payments/${id}/follow-up`;
      const view = await ask<PaymentView>(terminal, 'POST', path, { reason });
      print(terminal, options, view, () => paymentTable([view]));
    });
  payment
    .command('poll')
    .description('ask the partner for the status of a payment now; changes nothing')
    .argument('<platform_payment_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const path = adminPath`payments/${id}/poll`;
      const answer = await ask<PartnerAnswer>(terminal, 'POST', path, { reason });
      print(terminal, options, answer, () => {
        const said = answer.answer.replaceAll('_', ' ');
        return said.startsWith('unknown ')
          ? `Nothing was learned (${said.slice('unknown '.length)}): the payment is polled on.`
          : `The partner says: ${said}`;
      });
    });
}

type PaymentColumn<Row> = readonly [head: string, cell: (row: Row) => string];

const COLUMNS: readonly PaymentColumn<PaymentView>[] = [
  ['PAYMENT', (one) => one.platform_payment_id],
  ['STATUS', (one) => one.status],
  ['STAGE', (one) => one.stage],
  ['PARTNER', (one) => one.partner_id],
  ['MODE', (one) => one.mode],
  ['ACCOUNT', (one) => one.masked_account_id],
  ['CENTS', (one) => String(one.amount_in_cents)],
  ['CREATED', (one) => one.created_at],
];
const REASON: PaymentColumn<PaymentView> = [
  'REASON',
  (one) => one.review_reason ?? one.failure_reason ?? '-',
];

/** Payments in columns. */
export function paymentTable(payments: readonly PaymentView[]): string {
  return inColumns([...COLUMNS, REASON], payments);
}

/** A list with what is happening to each payment now. */
function listTable(payments: readonly ListedPayment[]): string {
  return inColumns<ListedPayment>(
    [
      ...COLUMNS,
      ['CALLS', (one) => String(one.attempts)],
      ['NEXT', nextOf],
      REASON,
      ['FOLLOW-UP', (one) => one.follow_up?.note ?? '-'],
    ],
    payments,
  );
}

function inColumns<Row>(columns: readonly PaymentColumn<Row>[], rows: readonly Row[]): string {
  return table(
    columns.map(([head]) => head),
    rows.map((row) => columns.map(([, cell]) => cell(row))),
  );
}

function nextOf({ paused, next_step }: ListedPayment): string {
  if (paused) return 'paused';
  return next_step === null ? '-' : `${next_step.step} at ${next_step.at}`;
}

async function showPayment(
  terminal: Terminal,
  id: string,
  options: { json?: true },
): Promise<void> {
  const detail = await ask<PaymentDetail>(terminal, 'GET', adminPath`payments/${id}`);
  print(terminal, options, detail, () => describePayment(detail));
}

function describePayment(detail: PaymentDetail): string {
  const { payment, attempts, audit, pending_close, partner_held } = detail;
  const { next_step: _next, follow_up, ...shown } = payment;
  const facts = Object.entries({ ...shown, next_step: nextOf(payment) }).map(([name, value]) => [
    name,
    String(value ?? '-'),
  ]);
  const waiting = [
    ...(payment.paused ? ['It is paused: nothing is sent until an operator resumes it.'] : []),
    ...(follow_up === null
      ? []
      : [`${follow_up.marked_by} marked it for the partner to look at: ${follow_up.note}`]),
    ...(partner_held === null
      ? []
      : [`It waits, because calls to ${payment.partner_id} are held back: ${partner_held}`]),
    ...(pending_close === null
      ? []
      : [`${pending_close.requested_by} asked to close it: ${pending_close.reason}`]),
  ];
  return [
    columns(facts),
    ...waiting,
    attemptTable(attempts, payment.stage),
    auditTable(audit),
  ].join('\n\n');
}

function attemptTable(attempts: readonly Attempt[], stage: PaymentStage): string {
  // Once a payment has ended, retention or the erasure of a person may have removed its attempts.
  if (attempts.length === 0) {
    return stage === 'ended' ? 'No attempts are kept.' : 'Nothing was tried yet.';
  }
  return table(
    ['TRIED AT', 'CALL', 'TIMES', 'HTTP', 'RESULT', 'MS', 'REQUEST ID', 'ANSWER'],
    attempts.map((one) => [
      one.at,
      one.kind.toUpperCase(),
      one.count === 1 ? '1' : `${one.count} until ${one.last_at}`,
      String(one.http_status ?? '-'),
      one.result,
      String(one.took_ms),
      one.request_id,
      one.body ?? '-',
    ]),
  );
}
