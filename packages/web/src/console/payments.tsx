/** Finding payments: a list whose rows never move while it is read, and the acts on those that are picked. */
import type { ListedPayment, PaymentPage, PaymentView, ReviewClose } from '@duebridge/contract';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, get, post, wordsOf } from './api.ts';
import {
  Act,
  age,
  announcement,
  type Column,
  isViewer,
  lasting,
  moment,
  money,
  Status,
  Table,
  Trouble,
  useRead,
  words,
} from './parts.tsx';
import { filterOf } from './payments-filter.ts';
import { keptHere, link, personal, query, withQuery } from './route.ts';
import { Chips } from './search.tsx';

/** The list as it was left, for Back: its rows, of whatever number of pages. */
let left: { readonly key: string; readonly page: PaymentPage } | undefined;

/** The rows that are shown: they keep their places while the list is read again. */
function useList() {
  const { account_id, email } = personal.value;
  const isSearch = account_id !== undefined || email !== undefined;
  const key = JSON.stringify([query.value.toString(), account_id, email]);
  const readPage = (cursor?: string): Promise<PaymentPage> => {
    // Now, because "the last hour" is another one at each read.
    const filter = { ...filterOf(query.value), ...(cursor === undefined ? {} : { cursor }) };
    return isSearch
      ? post<PaymentPage>('/payments/search', { ...filter, account_id, email })
      : get<PaymentPage>(`/payments?${new URLSearchParams(filter)}`);
  };
  // The audit records each search for a person, so search only once.
  const { data, error } = useRead(key, () => readPage(), { live: !isSearch });
  const [shown, setShown] = useState(left);
  const [failed, setFailed] = useState<string>();
  const page = shown?.key === key ? shown.page : data;
  // Known payments are updated in place; new ones appear after a press of a button.
  useEffect(() => {
    if (data === undefined) return;
    const known = shown?.key === key ? shown.page : undefined;
    if (known === undefined || known.payments.length === 0) return setShown({ key, page: data });
    const fresh = new Map(data.payments.map((one) => [one.platform_payment_id, one]));
    const payments = known.payments.map((one) => fresh.get(one.platform_payment_id) ?? one);
    setShown({ key, page: { ...known, payments } });
  }, [data]);
  // Back shows the list where it was left.
  const isThere = page !== undefined;
  useEffect(() => {
    if (page !== undefined) left = { key, page };
  }, [page]);
  useEffect(() => {
    if (isThere) scrollTo(0, Number(keptHere('scroll') ?? 0));
  }, [key, isThere]);
  const ids = new Set(page?.payments.map((one) => one.platform_payment_id));
  const fresh = data?.payments.filter((one) => !ids.has(one.platform_payment_id)) ?? [];
  useEffect(() => {
    if (fresh.length > 0) announcement.value = `${fresh.length} new payments`;
  }, [fresh.length]);
  const loadMore = async (): Promise<void> => {
    if (!page?.next_cursor) return;
    try {
      const next = await readPage(page.next_cursor);
      setFailed(undefined);
      setShown({ key, page: { ...next, payments: [...page.payments, ...next.payments] } });
      announcement.value = `${next.payments.length} more`;
    } catch (trouble) {
      setFailed(wordsOf(trouble));
    }
  };
  const showFresh = (): void => setShown(data && { key, page: data });
  return { page, fresh, showFresh, loadMore, trouble: error ?? failed };
}

export function PaymentsPage() {
  const { page, fresh, showFresh, loadMore, trouble } = useList();
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  // An export has no order.
  const { sort = 'newest', ...filter } = filterOf(query.value);
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
      {/* Always as high: what appears here moves no row. */}
      <div class="buttons toolbar">
        <Chips />
        <a href={withQuery({ sort: sort === 'oldest' ? '' : 'oldest', cursor: '' })}>
          {sort === 'oldest' ? 'Newest' : 'Oldest'} first
        </a>
        <span role="status">
          {fresh.length > 0 && (
            <button type="button" onClick={showFresh}>
              Show {fresh.length} new
            </button>
          )}
        </span>
      </div>
      <Trouble error={trouble} />
      {page === undefined ? (
        <p>Loading…</p>
      ) : (
        <>
          <Table
            caption={`Payments, ${sort} first`}
            rows={page.payments}
            keyOf={(one) => one.platform_payment_id}
            empty="No payments match."
            columns={[...(isViewer() === undefined ? [pick] : []), ...listColumns]}
          />
          <Bulk payments={page.payments.filter((one) => picked.has(one.platform_payment_id))} />
        </>
      )}
      <p class="buttons">
        {page?.next_cursor && (
          <button type="button" onClick={() => void loadMore()}>
            More
          </button>
        )}
        <a
          class="button"
          download
          href={`/admin/v1/payments/export?${new URLSearchParams(filter)}`}
        >
          Export CSV
        </a>
      </p>
    </>
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

/** A payment in a list; one of a person's has no more than the view. */
type Shown = PaymentView & Partial<ListedPayment>;

const amount: Column<Shown> = [
  'Amount',
  (one) => (
    // Test payments are marked, so that nobody takes one for money.
    <>
      {one.mode === 'test' && <span class="mode">test</span>} {money(one.amount_in_cents)}
    </>
  ),
  'number',
];
const reason: Column<Shown> = [
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
];

/** The columns of every list of payments. */
export const paymentColumns: readonly Column<Shown>[] = [
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
  amount,
  ['Confirmed', (one) => moment(one.created_at)],
  [
    'Took',
    (one) =>
      one.ended_at === null
        ? `${age(one.created_at)} so far`
        : lasting(Date.parse(one.ended_at) - Date.parse(one.created_at)),
    'number',
  ],
  reason,
];

const listColumns: readonly Column<ListedPayment>[] = [
  ...paymentColumns.slice(0, -1),
  ['Next', nextStep],
  reason,
];

const STEPS = { submit: 'send', poll: 'poll', settle: 'settle' } as const;

/** When the next step of a payment is due. */
export function nextStep({ next_step, paused, stage }: ListedPayment): string {
  if (paused) return 'paused';
  if (stage === 'review') return 'waits for an operator';
  if (next_step === null) return '–';
  const left_ = Date.parse(next_step.at) - Date.now();
  const step = STEPS[next_step.step];
  return left_ < 1_000 ? `${step} due now` : `${step} in ${lasting(left_)}`;
}
