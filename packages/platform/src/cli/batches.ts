import type { BatchPage, BatchView, Reconciliation } from '@duebridge/contract';
import {
  columns,
  CommandError,
  exitCodes,
  jsonOption,
  print,
  queryOf,
  readTextFile,
  table,
  type Terminal,
} from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { ask } from './ask.ts';

/** `duebridge platform batch` and `reconcile`: what was paid in a window, and whether the partner has the same. */
export function addBatches(command: Command, terminal: Terminal): void {
  command
    .command('batch')
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
            String(one.statement.count),
            String(one.statement.totals.reduce((sum, total) => sum + total.amount_in_cents, 0)),
          ]),
        ),
      );
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
      const result = await ask<Reconciliation>(
        terminal,
        'POST',
        `/admin/v1/batches/${encodeURIComponent(id)}/reconcile`,
        csv === undefined ? {} : { csv },
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
  ];
  const totals = table(
    ['STATUS', 'PAYMENTS', 'CENTS'],
    statement.totals.map((one) => [one.status, String(one.count), String(one.amount_in_cents)]),
  );
  return `${columns(facts)}\n\n${totals}`;
}

function describeReconciliation(result: Reconciliation): string {
  if (result.differences.length === 0) {
    return `Both sides agree on ${result.compared} payments (by ${result.method}).`;
  }
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
