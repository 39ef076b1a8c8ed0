import type { PaymentDetail, PaymentPage, PaymentView } from '@duebridge/contract';
import { columns, jsonOption, print, queryOf, table, type Terminal } from '@duebridge/runtime/cli';
import type { Command } from 'commander';
import { ask } from './ask.ts';
import { auditTable } from './audit.ts';

interface PaymentsOptions {
  status?: string;
  stage?: string;
  partner?: string;
  batch?: string;
  overdue?: true;
  limit?: string;
  cursor?: string;
  json?: true;
}

/** `duebridge platform payments` and `payment …`: find one, read its story, act on it. */
export function addPayments(command: Command, terminal: Terminal): void {
  command
    .command('payments')
    .description('list payments, newest first, or read one with its audit trail')
    .argument('[platform_payment_id]', 'one payment')
    .option('--status <status>', 'processing, succeeded, failed or canceled')
    .option('--stage <stage>', 'created, authorized, dispatching, accepted, review or ended')
    .option('--partner <id>', 'of one partner')
    .option('--batch <id>', 'of one batch')
    .option('--overdue', 'not ended a day after it was confirmed: for a person to look at')
    .option('--limit <n>', 'at most this many; 50')
    .option('--cursor <cursor>', 'go on from the next_cursor of the page before')
    .addOption(jsonOption())
    .action(async (id: string | undefined, options: PaymentsOptions) => {
      if (id !== undefined) {
        const detail = await ask<PaymentDetail>(
          terminal,
          'GET',
          `/admin/v1/payments/${encodeURIComponent(id)}`,
        );
        print(terminal, options, detail, () => describePayment(detail));
        return;
      }
      const page = await ask<PaymentPage>(
        terminal,
        'GET',
        `/admin/v1/payments${queryOf({
          status: options.status,
          stage: options.stage,
          partner_id: options.partner,
          platform_batch_id: options.batch,
          overdue: options.overdue === true ? 'true' : undefined,
          limit: options.limit,
          cursor: options.cursor,
        })}`,
      );
      print(terminal, options, page, () => {
        const more = page.next_cursor === null ? '' : `\nMore: --cursor ${page.next_cursor}`;
        return paymentTable(page.payments) + more;
      });
    });

  const payment = command.command('payment').description('act on one payment');
  for (const [verb, description] of [
    ['resume', 'take a payment out of review: the same id and bytes are put again'],
    ['withdraw', 'cancel a payment that cannot have left yet'],
  ] as const) {
    payment
      .command(verb)
      .description(description)
      .argument('<platform_payment_id>')
      .requiredOption('--reason <text>', 'kept in the audit')
      .addOption(jsonOption())
      .action(async (id: string, options: { reason: string; json?: true }) => {
        const view = await ask<PaymentView>(
          terminal,
          'POST',
          `/admin/v1/payments/${encodeURIComponent(id)}/${verb}`,
          { reason: options.reason },
        );
        print(terminal, options, view, () => paymentTable([view]));
      });
  }
}

function paymentTable(payments: readonly PaymentView[]): string {
  return table(
    ['PAYMENT', 'STATUS', 'STAGE', 'PARTNER', 'ACCOUNT', 'CENTS', 'CREATED', 'REASON'],
    payments.map((one) => [
      one.platform_payment_id,
      one.status,
      one.stage,
      one.partner_id,
      one.masked_account_id,
      String(one.amount_in_cents),
      one.created_at,
      one.review_reason ?? one.failure_reason ?? '-',
    ]),
  );
}

function describePayment({ payment, audit }: PaymentDetail): string {
  const facts = Object.entries(payment).map(([name, value]) => [name, String(value ?? '-')]);
  return `${columns(facts)}\n\n${auditTable(audit)}`;
}
