import {
  DIFFERENCE_AGES,
  DIFFERENCE_KINDS,
  type BatchPage,
  type BatchView,
  type DifferencePage,
  type DifferenceSummary,
  type OpenDifference,
  type Reconciliation,
} from '@duebridge/contract';
import {
  columns,
  CommandError,
  exitCodes,
  jsonOption,
  print,
  progressReport,
  queryOf,
  readTextFile,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import { Option, type Command } from 'commander';
import { adminPath, ask } from './ask.ts';

/** `duebridge platform batch` and `reconcile`: what was paid in a window, and whether the partner agrees. */
export function addBatches(command: Command, terminal: Terminal): void {
  const batch = command.command('batch');
  batch
    .description('list batches, newest first, or read the statement of one')
    .argument('[platform_batch_id]', 'one batch')
    .option('--partner <id>', 'of one partner')
    .addOption(jsonOption())
    .action(async (id: string | undefined, options: { partner?: string; json?: true }) => {
      if (id !== undefined) {
        const batch = await ask<BatchView>(
          terminal,
          'GET',
          `/admin/v1/batches/${encodeURIComponent(id)}`,
        );
        print(terminal, options, batch, () => describeBatch(batch));
        return;
      }
      const { batches } = await ask<BatchPage>(
        terminal,
        'GET',
        `/admin/v1/batches${queryOf({ partner_id: options.partner })}`,
      );
      print(terminal, options, { batches }, () =>
        table(
          ['BATCH', 'PARTNER', 'CUT-OFF', 'CLOSED', 'PAYMENTS', 'CENTS'],
          batches.map((one) => [
            one.platform_batch_id,
            one.partner_id,
            one.cutoff_at,
            one.closed_at ?? '-',
            String(one.statement?.count ?? '-'),
            String(
              one.statement?.totals.reduce((sum, total) => sum + total.amount_in_cents, 0) ?? '-',
            ),
          ]),
        ),
      );
    });

  batch
    .command('close')
    .description(
      'close a batch whose window and payments have ended, without waiting for the next round',
    )
    .argument('<platform_batch_id>')
    .requiredOption('--reason <text>', 'kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const view = await ask<BatchView>(terminal, 'POST', adminPath`batches/${id}/close`, {
        reason,
      });
      print(terminal, options, view, () => describeBatch(view));
    });

  command
    .command('differences')
    .description('differences found by reconciliation, newest first')
    .addOption(new Option('--state <state>').choices(['open', 'resolved']).default('open'))
    .addOption(new Option('--kind <kind>').choices(DIFFERENCE_KINDS))
    .addOption(
      new Option(
        '--age <age>',
        'first found less than an hour, a day, three days ago, or earlier',
      ).choices(DIFFERENCE_AGES),
    )
    .option('--summary', 'the open ones by age, and the value of their payments')
    .option('--partner <id>', 'of one partner')
    .option('--batch <id>', 'of one batch')
    .option('--limit <n>', 'maximum number of rows (default 50)')
    .option('--cursor <cursor>', 'continue from the next_cursor of the previous page')
    .addOption(jsonOption())
    .action(
      async (options: {
        state: string;
        kind?: string;
        age?: string;
        summary?: true;
        partner?: string;
        batch?: string;
        limit?: string;
        cursor?: string;
        json?: true;
      }) => {
        const { state, kind, age, partner, batch: platform_batch_id, limit, cursor } = options;
        if (options.summary === true) {
          const path = adminPath`differences/summary`;
          const query = queryOf({ partner_id: partner, platform_batch_id });
          const summary = await ask<DifferenceSummary>(terminal, 'GET', path + query);
          print(terminal, options, summary, () => describeSummary(summary));
          return;
        }
        const page = await ask<DifferencePage>(
          terminal,
          'GET',
          adminPath`differences` +
            queryOf({ state, kind, age, partner_id: partner, platform_batch_id, limit, cursor }),
        );
        print(terminal, options, page, () => differenceTable(page.differences));
      },
    );

  command
    .command('resolve')
    .description('resolve a difference, saying how')
    .argument('<difference_id>')
    .requiredOption('--reason <text>', 'how it was resolved; kept in the audit')
    .addOption(jsonOption())
    .action(async (id: string, options: { reason: string; json?: true }) => {
      const { reason } = options;
      const path = adminPath`differences/${id}/resolve`;
      const one = await ask<OpenDifference>(terminal, 'POST', path, { reason });
      print(terminal, options, one, () => differenceTable([one]));
    });

  command
    .command('reconcile')
    .description('compare a batch with the partner; exit code 1 when they differ')
    .argument('<platform_batch_id>')
    .option(
      '--csv <file>',
      "compare with the partner's file: platform_payment_id,status,amount_in_cents",
    )
    .addOption(jsonOption())
    .action(async (id: string, options: { csv?: string; json?: true }) => {
      const csv = options.csv === undefined ? undefined : await readTextFile(terminal, options.csv);
      // A file is sent unchanged, whatever its length; without a file the partner is asked.
      const result =
        csv === undefined
          ? await compareToTheEnd(terminal, id)
          : await ask<Reconciliation>(
              terminal,
              'POST',
              adminPath`batches/${id}/reconcile-file`,
              csv,
            );
      print(terminal, options, result, () => describeReconciliation(result));
      if (result.differences.length > 0) {
        const count = result.differences.length;
        throw new CommandError(
          `found ${count === 1 ? '1 difference' : `${count} differences`}; ${result.compared} payments were compared`,
          exitCodes.failed,
        );
      }
    });
}

function differenceTable(differences: readonly OpenDifference[]): string {
  return table(
    ['DIFFERENCE', 'BATCH', 'PAYMENT', 'KIND', 'HERE', 'THERE', 'FOUND', 'RESOLVED'],
    differences.map((one) => [
      one.difference_id,
      one.platform_batch_id,
      one.platform_payment_id,
      one.kind,
      one.here ?? '-',
      one.there ?? '-',
      one.found_at,
      one.resolution ?? '-',
    ]),
  );
}

function describeSummary(summary: DifferenceSummary): string {
  const { ages, ...totals } = summary;
  return [
    columns(Object.entries(totals).map(([name, value]) => [name, String(value ?? '-')])),
    table(
      ['AGE', 'OPEN', 'CENTS'],
      ages.map((one) => [one.age, String(one.open), String(one.value_at_risk_in_cents)]),
    ),
  ].join('\n\n');
}

function describeBatch(batch: BatchView): string {
  const { statement } = batch;
  const facts = [
    ['platform_batch_id', batch.platform_batch_id],
    ['partner_id', batch.partner_id],
    ['opened_at', batch.opened_at],
    ['cutoff_at', batch.cutoff_at],
    ['closed_at', batch.closed_at ?? '-'],
    ['count', String(statement.count)],
    ['sha256', statement.sha256],
    ...comparisonFacts(batch),
  ];
  const totals = table(
    ['STATUS', 'PAYMENTS', 'CENTS'],
    statement.totals.map((one) => [one.status, String(one.count), String(one.amount_in_cents)]),
  );
  return `${columns(facts)}\n\n${totals}`;
}

/** The partner's figures when the batch was last compared, beside ours. */
function comparisonFacts({ comparison, statement }: BatchView): string[][] {
  if (comparison === null) return [['compared_at', 'never']];
  const { compared_at, actor, method, differences, partner_statement: theirs } = comparison;
  const agrees = theirs?.sha256 === statement.sha256 ? 'the same as ours' : 'not ours';
  return [
    ['compared_at', `${compared_at} by ${actor}, by ${method}: ${differences} differences`],
    ['partner_count', String(theirs?.count ?? '-')],
    [
      'partner_sha256',
      theirs === null ? '- (it has no statements)' : `${theirs.sha256} (${agrees})`,
    ],
  ];
}

/** A comparison that reads payment by payment answers with its progress until it has ended. */
async function compareToTheEnd(terminal: Terminal, id: string): Promise<Reconciliation> {
  const report = progressReport();
  for (;;) {
    const path = adminPath`batches/${id}/reconcile`;
    const result = await ask<Reconciliation>(terminal, 'POST', path, {});
    if (result.running === undefined) return result;
    report(`${result.compared} of ${result.running.of} payments read`);
  }
}

function describeReconciliation(result: Reconciliation): string {
  const hint = result.file_needed === undefined ? '' : `\n${result.file_needed}`;
  if (result.differences.length === 0) {
    return `Both sides agree on ${result.compared} payments (by ${result.method}).${hint}`;
  }
  return `${differencesOf(result)}${hint}`;
}

function differencesOf(result: Reconciliation): string {
  return table(
    ['PAYMENT', 'DIFFERENCE', 'HERE', 'THERE'],
    result.differences.map((one) => [
      one.platform_payment_id,
      one.kind,
      one.here ?? '-',
      one.there ?? '-',
    ]),
  );
}
