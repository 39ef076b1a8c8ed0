/**
 * What the commands print for people. An answer of the admin API enters; a table, facts or a sentence leaves.
 *
 * Fields are printed under their own names, so that what a person reads is what `--json` gives a program.
 */
import {
  formatCents,
  type AuditEntry,
  type BatchPage,
  type BatchView,
  type ListedPayment,
  type OperatorView,
  type PaymentDetail,
  type PaymentView,
  type Person,
  type Reconciliation,
} from '@duebridge/contract';
import { columns, table } from '@duebridge/runtime/cli';

/** A column: the name of a field, or a heading with the value in a row. */
type Column<Row> = (keyof Row & string) | readonly [head: string, of: (row: Row) => unknown];

/** A value as text; null, undefined and an empty text are a dash. Amounts are in dollars. */
function textOf(name: string, value: unknown): string {
  if (value === null || value === undefined || value === '') return '-';
  if (typeof value === 'number' && name.endsWith('_in_cents')) return formatCents(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (typeof value !== 'object') return JSON.stringify(value);
  const parts = Object.entries(value).map(([key, one]) =>
    Array.isArray(value) ? textOf('', one) : `${key}=${textOf(key, one)}`,
  );
  return parts.length === 0 ? '-' : parts.join(' ');
}

/** `platform_payment_id` and `created_at` as headings: PAYMENT and CREATED. */
function headOf(name: string): string {
  const words = name.replace(/^platform_/, '').replace(/_(?:id|at|in_cents)$/, '');
  return words.replaceAll('_', ' ').toUpperCase();
}

/** Rows in columns; a sentence when there are none. */
function inColumns<Row extends object>(
  shape: readonly Column<Row>[],
  rows: readonly Row[],
): string {
  const cells = shape.map((column) =>
    typeof column === 'string'
      ? { head: headOf(column), of: (row: Row) => textOf(column, row[column]) }
      : { head: column[0], of: (row: Row) => textOf('', column[1](row)) },
  );
  return table(
    cells.map(({ head }) => head),
    rows.map((row) => cells.map(({ of }) => of(row))),
  );
}

/** Prints the one list that an answer or a page consists of, or any other answer as the one row; without a shape, every field. */
export function tableOf<Row extends object>(
  ...shape: readonly Column<Row>[]
): (answer: object) => string {
  return (answer) => {
    const { next_cursor, ...fields } = answer as { readonly next_cursor?: string | null };
    const [only, ...others] = Object.values(fields);
    const rows = Array.isArray(only) && others.length === 0 ? (only as Row[]) : [answer as Row];
    const more = typeof next_cursor === 'string' ? `\nMore: --cursor '${next_cursor}'` : '';
    const all = Object.keys(rows[0] ?? {}) as (keyof Row & string)[];
    return inColumns(shape.length === 0 ? all : shape, rows) + more;
  };
}

/** Every field of an answer: one a line, then its lists of records as tables. */
export function facts(answer: object): string {
  const entries = Object.entries(answer) as [string, unknown][];
  const isList = ([, value]: [string, unknown]): boolean =>
    Array.isArray(value) && typeof value[0] === 'object';
  const lines = entries
    .filter((entry) => !isList(entry))
    .map(([name, value]) => [name, textOf(name, value)]);
  const tables = entries.filter(isList).map(([name, value]) => {
    const rows = value as Record<string, unknown>[];
    return `${headOf(name)}\n${inColumns(Object.keys(rows[0] ?? {}), rows)}`;
  });
  return [columns(lines), ...tables].join('\n\n');
}

/** What an act that may need two persons has done, or that it waits for the second one. */
export const done =
  <Answer extends { readonly outcome: string }>(show: (answer: Answer) => string) =>
  (answer: Answer): string =>
    answer.outcome === 'done'
      ? show(answer)
      : 'Noted. It needs two persons: a second operator has to run the same command.';

const PAYMENT = [
  'platform_payment_id',
  'status',
  'stage',
  'partner_id',
  'mode',
  'masked_account_id',
  'amount_in_cents',
  'created_at',
] as const satisfies readonly Column<PaymentView>[];
const REASON: Column<PaymentView> = ['REASON', (one) => one.review_reason ?? one.failure_reason];

export const payments = tableOf<PaymentView>(...PAYMENT, REASON);

const next = ({ paused, next_step }: ListedPayment): string =>
  paused ? 'paused' : next_step === null ? '-' : `${next_step.step} at ${next_step.at}`;

/** With what is happening to each payment now. */
export const listedPayments = tableOf<ListedPayment>(
  ...PAYMENT,
  'attempts',
  ['NEXT', next],
  REASON,
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
