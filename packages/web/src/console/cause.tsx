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

interface Line {
  readonly field: string;
  readonly asked: string;
  readonly answered: string;
  readonly differs: boolean;
}

/** Both sides, field by field. */
function compared(payment: PaymentView, record: Readonly<Record<string, unknown>>): Line[] {
  const line = (
    field: string,
    name: keyof PaymentView,
    theirs = record[name],
    show: (value: unknown) => string = String,
  ): Line => ({
    field,
    asked: show(payment[name]),
    answered: theirs === undefined ? 'not said' : theirs === null ? 'nothing' : show(theirs),
    // The reason knows a difference that the masks hide; what may be left out is none.
    differs:
      payment.review_reason === `mismatch_${name}` ||
      (theirs !== undefined && payment[name] !== null && theirs !== payment[name]),
  });
  const dollars = (value: unknown): string =>
    typeof value === 'number' ? money(value) : String(value);
  return [
    line('Amount', 'amount_in_cents', record['amount_in_cents'], dollars),
    line('Payment', 'platform_payment_id'),
    line('Batch', 'platform_batch_id'),
    line('Biller', 'biller_id'),
    {
      ...line('Account', 'masked_account_id', record['account_id']),
      ...(payment.review_reason === 'mismatch_account_id' ? { differs: true } : {}),
    },
    { ...line('Status', 'status'), differs: false },
    line('At the partner', 'payment_id'),
    { ...line('Posted', 'posted_at'), differs: false },
  ];
}

export function Cause({
  payment,
  attempts,
}: {
  payment: PaymentView;
  attempts: readonly Attempt[];
}) {
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
            ['Field', (one) => one.field],
            ['We asked', (one) => one.asked],
            [
              'The partner answered',
              (one) =>
                one.differs ? <strong class="failed">✕ {one.answered}</strong> : one.answered,
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
