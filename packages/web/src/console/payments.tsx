/** Finding payments: the list, its export, and the acts on those that are picked. */
import type { PaymentPage, PaymentView, ReviewClose } from '@duebridge/contract';
import { useState } from 'preact/hooks';
import { ApiError, get, post, wordsOf } from './api.ts';
import {
  Act,
  age,
  announcement,
  chosen,
  type Column,
  isViewer,
  lasting,
  List,
  moment,
  money,
  Status,
  words,
} from './parts.tsx';
import { filterOf } from './payments-filter.ts';
import { link, personal, query, withQuery } from './route.ts';
import { Chips } from './search.tsx';

export function PaymentsPage() {
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const { account_id, email } = personal.value;
  const isSearch = account_id !== undefined || email !== undefined;
  const search = query.value.toString();
  // Now, because "yesterday" is another day after midnight.
  const read = (cursor: string): Promise<PaymentPage> => {
    const filter = { ...filterOf(query.value), ...(cursor && { cursor }) };
    return isSearch
      ? post<PaymentPage>('/payments/search', { ...filter, account_id, email })
      : get<PaymentPage>(`/payments?${new URLSearchParams(filter)}`);
  };
  const sort = chosen('sort', 'newest');
  const pick: Column<PaymentView> = [
    'Pick',
    ({ platform_payment_id: id }) => (
      <input
        type="checkbox"
        aria-label={`Pick ${id}`}
        checked={picked.has(id)}
        onChange={({ currentTarget }) =>
          setPicked(
            new Set(
              currentTarget.checked ? [...picked, id] : [...picked].filter((one) => one !== id),
            ),
          )
        }
      />
    ),
  ];
  return (
    <>
      <h1>Payments</h1>
      <div class="buttons">
        <Chips />
        <a href={withQuery({ sort: sort === 'oldest' ? '' : 'oldest', payments_after: '' })}>
          {sort === 'oldest' ? 'Newest' : 'Oldest'} first
        </a>
      </div>
      <List<PaymentView>
        caption={`Payments, ${sort} first`}
        path={JSON.stringify([search, account_id, email])}
        of="payments"
        read={read}
        keyOf={(one) => one.platform_payment_id}
        empty="No payments match."
        columns={[...(isViewer() === undefined ? [pick] : []), ...columns]}
      >
        {(rows) => <Bulk payments={rows.filter((one) => picked.has(one.platform_payment_id))} />}
      </List>
      {/* A file of one person's payments would need a search in the audit, too. */}
      {!isSearch && isViewer() === undefined && <Export />}
    </>
  );
}

/** Saves what the filters find at the press: "yesterday" is another day after midnight. An export has no order. */
function Export() {
  return (
    <p>
      <a
        class="button"
        href="/admin/v1/payments/export"
        download="payments.csv"
        onClick={({ currentTarget }) => {
          const { sort: _, ...filter } = filterOf(query.value);
          currentTarget.href = `/admin/v1/payments/export?${new URLSearchParams(filter)}`;
        }}
      >
        Export CSV
      </a>
    </p>
  );
}

/** Acts on the picked payments, one call after the other; the platform refuses those that an act does not fit. */
function Bulk({ payments }: { payments: readonly PaymentView[] }) {
  /** Those that were not done, each with why. */
  const [undone, setUndone] = useState<readonly string[]>([]);
  if (payments.length === 0) return null;
  const all = `${payments.length} selected, ${money(payments.reduce((cents, one) => cents + one.amount_in_cents, 0))} together`;
  const run = async (act: string, reason: string): Promise<string> => {
    const problems: string[] = [];
    const waiting: string[] = [];
    for (const [done, { platform_payment_id: id }] of payments.entries()) {
      announcement.value = `${act}: ${done} of ${payments.length}`;
      try {
        const path = `/payments/${encodeURIComponent(id)}/${act}`;
        const { outcome } = await post<Partial<ReviewClose>>(path, { reason });
        if (outcome === 'second_person_needed') waiting.push(`${id}: waits for a second person`);
      } catch (error) {
        // What became of a call without an answer is not known: done again it is refused, or does no harm.
        if (error instanceof ApiError && error.again)
          throw new Error(`Stopped after ${done} of ${payments.length}: ${error.message}`, {
            cause: error,
          });
        problems.push(`${id}: ${wordsOf(error)}`);
      } finally {
        setUndone([...problems, ...waiting]);
      }
    }
    const done = payments.length - problems.length - waiting.length;
    const wait = waiting.length === 0 ? '' : `, ${waiting.length} waiting for a second person`;
    return `${act}: ${done} done, ${problems.length} refused${wait}.`;
  };
  return (
    <section class="note" aria-label="Selected payments">
      <p>{all}.</p>
      <div class="buttons">
        {(['Resume', 'Poll', 'Close', 'Withdraw'] as const).map((act) => (
          <Act
            key={act}
            label={`${act} selected`}
            danger={act === 'Close' || act === 'Withdraw'}
            about={`${all}: each is checked and acted on by itself, one after the other. Keep this page open until it is done.`}
            act={(reason) => run(act.toLowerCase(), reason)}
          />
        ))}
      </div>
      <ul>
        {undone.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
    </section>
  );
}

const columns: readonly Column<PaymentView>[] = [
  ['Status', (one) => <Status {...one} />],
  [
    'Payment',
    ({ platform_payment_id: id }) => (
      <a class="id" href={link('payments', id)} title={id}>
        <bdi dir="ltr">{id}</bdi>
      </a>
    ),
  ],
  ['Partner', (one) => <span class="nowrap">{one.partner_id}</span>],
  ['Account', (one) => one.masked_account_id],
  [
    'Amount',
    (one) => (
      // Test payments are marked, so that nobody takes one for money.
      <>
        {one.mode === 'test' && <span class="mode">test</span>} {money(one.amount_in_cents)}
      </>
    ),
    'number',
  ],
  ['Confirmed', (one) => moment(one.created_at)],
  [
    'Took',
    (one) =>
      one.ended_at === null
        ? `${age(one.created_at)} so far`
        : lasting(Date.parse(one.ended_at) - Date.parse(one.created_at)),
    'number',
  ],
  ['Next', nextStep],
  [
    'Reason',
    (one) => (
      <span class="reason">
        {[
          words(one.review_reason ?? one.failure_reason ?? ''),
          one.open_case && `Case: ${one.open_case.note}`,
        ]
          .filter(Boolean)
          .join(' · ')}
      </span>
    ),
  ],
];

const STEPS = { submit: 'send', poll: 'poll', settle: 'settle' } as const;

/** When the next step of a payment is due. */
export function nextStep({ next_step, paused, stage }: PaymentView): string {
  if (paused) return 'paused';
  if (stage === 'review') return 'waits for an operator';
  if (next_step === null) return '–';
  const left_ = Date.parse(next_step.at) - Date.now();
  const step = STEPS[next_step.step];
  return left_ < 1_000 ? `${step} due now` : `${step} in ${lasting(left_)}`;
}
