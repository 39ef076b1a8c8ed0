/** What the commands print for people. An answer of the admin API enters; a table, facts or a sentence leaves. */
import {
  formatCents,
  type AuditEntry,
  type BatchPage,
  type BatchView,
  type OperatorView,
  type PaymentDetail,
  type PaymentView,
  type Person,
  type Reconciliation,
} from '@duebridge/contract';
import { facts, tableOf } from '@duebridge/runtime/cli';

/** What an act that may need two persons has done, or that it waits for the second one. */
export const done =
  <Answer extends { readonly outcome: string }>(show: (answer: Answer) => string) =>
  (answer: Answer): string =>
    answer.outcome === 'done'
      ? show(answer)
      : 'Noted. It needs two persons: a second operator has to run the same command.';

const next = ({ paused, next_step }: PaymentView): string =>
  paused ? 'paused' : next_step === null ? '-' : `${next_step.step} at ${next_step.at}`;

/** With what is happening to each payment now. */
export const payments = tableOf<PaymentView>(
  'platform_payment_id',
  'status',
  'stage',
  'partner_id',
  'mode',
  'masked_account_id',
  'amount_in_cents',
  'created_at',
  'attempts',
  ['NEXT', next],
  ['REASON', (one) => one.review_reason ?? one.failure_reason],
  ['CASE', (one) => one.open_case?.reason_code],
);

/** Everything about one payment. */
export function paymentStory({ payment, ...rest }: PaymentDetail): string {
  return facts({ ...payment, next_step: next(payment), ...rest });
}

export const batches = tableOf<BatchPage['batches'][number]>(
  'platform_batch_id',
  'partner_id',
  'cutoff_at',
  'closed_at',
  ['PAYMENTS', (one) => one.statement?.count],
  [
    'AMOUNT',
    ({ statement }) =>
      statement && formatCents(statement.totals.reduce((sum, one) => sum + one.amount_in_cents, 0)),
  ],
);

/** A batch with its statement; the comparison with that of its partner follows. */
export function batch({ statement, comparison, ...view }: BatchView): string {
  const compared =
    comparison &&
    `${comparedPayments(comparison.compared)} at ${comparison.compared_at} by ${comparison.actor}; ${differences(comparison.differences)}`;
  return facts({ ...view, ...statement, compared });
}

/** A comparison of a batch with its partner: a sentence, then each difference. */
export function reconciliation({
  compared,
  method,
  file_needed,
  ...found
}: Reconciliation): string {
  const by = { statement: 'by statement', payments: 'one by one', csv: 'with the file' }[method];
  const said = `${comparedPayments(compared)} ${by}: ${differences(found.differences.length)}.`;
  const table =
    found.differences.length === 0 ? '' : `\n\n${tableOf()({ differences: found.differences })}`;
  return `${said}${file_needed === undefined ? '' : `\n${file_needed}`}${table}`;
}

/** How many payments were compared, and how many differences were found, in words. Pure. */
export const comparedPayments = (count: number): string =>
  count === 1 ? '1 payment was compared' : `${count} payments were compared`;
export const differences = (count: number): string =>
  count === 1 ? '1 difference' : `${count === 0 ? 'no' : count} differences`;

export function person({ payments: made, ...rest }: Person): string {
  return `${facts(rest)}\n\n${payments({ payments: made })}`;
}

/** With the keys that are not revoked. */
export const operators = tableOf<OperatorView>('operator_id', 'name', 'role', 'disabled_at', [
  'KEYS',
  ({ keys }) =>
    keys.flatMap(({ key_id, revoked_at, expires_at: end }) =>
      revoked_at === null ? [end === null ? key_id : `${key_id} until ${end}`] : [],
    ),
]);

export const audit = tableOf<AuditEntry>('at', 'actor', 'event', 'detail');
