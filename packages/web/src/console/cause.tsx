/** Why a payment is in review or differs: what was asked, what the partner answered, and what an operator can do next. */
import type { Attempt, PaymentView } from '@duebridge/contract';
import { moment, money, Table } from './parts.tsx';

/** What an operator can do, by the beginning of the reason of the review. */
const NEXT: readonly (readonly [reason: string, next: string])[] = [
  [
    'rejected_',
    'The partner refused it. Close it as failed when it stays so: the funds are released and the customer may pay anew. Resume it once the partner would take it; the same id and bytes are sent.',
  ],
  [
    'mismatch_amount_in_cents',
    'Ask the partner which amount it booked. Resume once its record says the amount that was asked.',
  ],
  [
    'mismatch_',
    'The record under this id is of something else. Ask the partner to look at both, then resume; never send the payment under another id.',
  ],
  [
    'accepted_payment_not_found',
    'The partner accepted it and now does not know it: it may have lost data. Ask it, then resume; the same id and bytes are sent.',
  ],
  [
    'declined_after_loss',
    'It may have been sent before a loss, and its partner has it; its funds are declined now. Resume it: it ends as the partner says.',
  ],
  [
    'succeeded_without_posted_at',
    'The partner says that it succeeded and not when. Ask it for the time of posting, then resume.',
  ],
];

/** The fields of an answer that is a record; undefined for any other answer, or one that may not be shown. */
function recordOf(body: string | null): Readonly<Record<string, unknown>> | undefined {
  try {
    const json: unknown = JSON.parse(body ?? '');
    const isRecord = typeof json === 'object' && json !== null && 'platform_payment_id' in json;
    return isRecord ? { ...json } : undefined;
  } catch {
    return undefined;
  }
}

type Line = readonly [field: string, asked: string, answered: string, differs: boolean];

/** Both sides, field by field. A status and a time of posting may be another one. */
const FIELDS: readonly (readonly [field: string, name: keyof PaymentView, may?: 'differ'])[] = [
  ['Amount', 'amount_in_cents'],
  ['Payment', 'platform_payment_id'],
  ['Batch', 'platform_batch_id'],
  ['Biller', 'biller_id'],
  ['Account', 'masked_account_id'],
  ['Status', 'status', 'differ'],
  ['At the partner', 'payment_id'],
  ['Posted', 'posted_at', 'differ'],
];

function compared(payment: PaymentView, record: Readonly<Record<string, unknown>>): Line[] {
  return FIELDS.map(([field, name, may]) => {
    const wire = name === 'masked_account_id' ? 'account_id' : name;
    const theirs = record[wire];
    const isOther = theirs !== undefined && payment[name] !== null && theirs !== payment[name];
    const show = (value: unknown): string =>
      name === 'amount_in_cents' && typeof value === 'number' ? money(value) : String(value);
    return [
      field,
      show(payment[name]),
      theirs === undefined ? 'not said' : theirs === null ? 'nothing' : show(theirs),
      // The reason knows a difference that the masks hide; what may be left out is none.
      may === undefined && (isOther || payment.review_reason === `mismatch_${wire}`),
    ];
  });
}

export function Cause(props: { payment: PaymentView; attempts: readonly Attempt[] }) {
  const { payment, attempts } = props;
  const last = attempts.findLast(({ body }) => recordOf(body) !== undefined);
  const record = recordOf(last?.body ?? null);
  const { review_reason: reason } = payment;
  if (reason === null && record === undefined) return null;
  const refused = attempts.findLast(({ kind, body }) => kind === 'put' && body !== null);
  const next = NEXT.find(([begins]) => reason?.startsWith(begins))?.[1];
  return (
    <section class="note" aria-label="Why">
      {last === undefined || record === undefined ? (
        <p>
          We asked to book {money(payment.amount_in_cents)} for {payment.masked_account_id}.{' '}
          {refused === undefined
            ? null
            : `The partner answered ${refused.http_status}: ${refused.body}`}
        </p>
      ) : (
        <Table
          caption={`What the ${last.kind === 'put' ? 'PUT' : 'poll'} of ${moment(last.at)} was answered with`}
          rows={compared(payment, record)}
          empty=""
          columns={[
            ['Field', ([field]) => field],
            ['We asked', ([, asked]) => asked],
            [
              'The partner answered',
              ([, , answered, differs]) =>
                differs ? <strong class="failed">✕ {answered}</strong> : answered,
            ],
          ]}
        />
      )}
      {next === undefined || reason === null ? null : (
        <p>
          <strong>Next:</strong> {next}
        </p>
      )}
    </section>
  );
}
