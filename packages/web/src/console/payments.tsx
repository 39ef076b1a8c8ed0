/** Finding payments: a list whose rows never move while it is read, and the acts on those that are selected. */
import type { BulkAct, ListedPayment, PaymentPage, PaymentView } from '@duebridge/contract';
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, post, wordsOf } from './api.ts';
import { planRun } from './bulk.tsx';
import { NextStep } from './next-step.tsx';
import {
  age,
  announcement,
  type Column,
  focusRow,
  isViewer,
  lasting,
  moment,
  money,
  refreshes,
  setting,
  settings,
  Status,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { commandOf, filterOf, keepView } from './payments-filter.ts';
import { go, keepHere, keptHere, link, personal, query } from './route.ts';
import { Chips } from './search.tsx';

/** The list as it was left, for Back: its rows, of whatever number of pages. */
let left: { readonly key: string; readonly page: PaymentPage } | undefined;

/** The rows that are shown: they keep their places while the list is read again. */
function useList() {
  const text = query.value.toString();
  const { account_id, email } = personal.value;
  const isSearch = account_id !== undefined || email !== undefined;
  const key = JSON.stringify([text, account_id, email]);
  const readPage = (cursor?: string): Promise<PaymentPage> => {
    // Now, because "the last hour" is another one at each read.
    const filter = { ...filterOf(query.value), ...(cursor === undefined ? {} : { cursor }) };
    return isSearch
      ? post<PaymentPage>('/payments/search', { ...filter, account_id, email })
      : get<PaymentPage>(`/payments?${new URLSearchParams(filter)}`);
  };
  // The audit records each search for a person, so search only once.
  const { data, error, again } = useRead(key, () => readPage(), { live: !isSearch });
  const [shown, setShown] = useState(left);
  const [failed, setFailed] = useState<string>();
  const isRefresh = useRef(false);
  // Rows keep their positions: known payments are updated in place, and new ones appear after a click on a button, or the key r.
  useEffect(() => {
    if (data === undefined) return;
    if (shown?.key !== key || shown.page.payments.length === 0 || isRefresh.current) {
      isRefresh.current = false;
      setShown({ key, page: data });
      return;
    }
    const fresh = new Map(data.payments.map((one) => [one.platform_payment_id, one]));
    const payments = shown.page.payments.map((one) => fresh.get(one.platform_payment_id) ?? one);
    setShown({ key, page: { ...shown.page, payments } });
  }, [data]);
  useEffect(() => {
    isRefresh.current = refreshes.value > 0;
  }, [refreshes.value]);
  const page = shown?.key === key ? shown.page : data;
  useEffect(() => {
    if (page !== undefined) left = { key, page };
  }, [page]);
  // Back shows the list where it was left.
  const isThere = page !== undefined;
  useEffect(() => {
    if (isThere) scrollTo(0, Number(keptHere('scroll') ?? 0));
  }, [key, isThere]);
  const known = new Set(page?.payments.map((one) => one.platform_payment_id));
  const fresh = data?.payments.filter((one) => !known.has(one.platform_payment_id)) ?? [];
  useEffect(() => {
    if (fresh.length > 0) announcement.value = `${fresh.length} new payments`;
  }, [fresh.length]);
  const more = page?.next_cursor ?? null;
  const loadMore = async (): Promise<void> => {
    if (page === undefined || more === null) return;
    try {
      const next = await readPage(more);
      setFailed(undefined);
      setShown({ key, page: { ...next, payments: [...page.payments, ...next.payments] } });
      announcement.value = `${next.payments.length} more`;
      requestAnimationFrame(() => focusRow(page.payments.length));
    } catch (trouble) {
      setFailed(wordsOf(trouble));
    }
  };
  const showFresh = (): void => {
    if (data !== undefined) setShown({ key, page: data });
  };
  return {
    page,
    fresh,
    showFresh,
    more,
    loadMore,
    again,
    trouble: error ?? failed,
    text,
    isSearch,
  };
}

export function PaymentsPage() {
  const { page, fresh, showFresh, more, loadMore, again, trouble, text, isSearch } = useList();
  const [picked, setPicked] = useState<ReadonlySet<string>>(
    () => new Set((keptHere('picked') ?? '').split(' ').filter((id) => id !== '')),
  );
  useEffect(() => keepHere({ picked: [...picked].join(' ') }), [picked]);
  // An export, and an act on all that match, have no order.
  const { sort = 'newest', ...filter } = filterOf(query.value);
  const saveView = (): void => {
    const name = prompt('Name of this view');
    if (name === null || name.trim() === '') return;
    keepView(name.trim(), text);
    announcement.value = `The search field suggests it: ${name.trim()}`;
  };
  return (
    <>
      <h1>Payments</h1>
      {/* Always as high: what appears here moves no row. */}
      <div class="buttons toolbar">
        <Chips />
        {text === '' ? null : (
          <button type="button" onClick={saveView}>
            Save this view
          </button>
        )}
        <span role="status">
          {fresh.length > 0 ? (
            <button type="button" onClick={showFresh}>
              Show {fresh.length} new
            </button>
          ) : null}
        </span>
      </div>
      <Trouble error={trouble} />
      {page === undefined ? (
        <p>Loading…</p>
      ) : (
        <Table
          caption={`Payments, ${sort} first`}
          rows={page.payments}
          keyOf={(one) => one.platform_payment_id}
          empty="No payments match."
          command={commandOf(query.value)}
          columns={[
            ...(isViewer() !== undefined ? [] : [pickColumn(picked, setPicked)]),
            ...shownColumns(),
          ]}
        />
      )}
      <Bulk
        payments={page?.payments ?? []}
        picked={picked}
        filter={isSearch || Object.keys(filter).length === 0 ? undefined : filter}
      />
      <ColumnChoice />
      <p class="buttons">
        {more === null ? null : (
          <button type="button" data-older onClick={() => void loadMore()}>
            More
          </button>
        )}
        <button type="button" onClick={again}>
          Refresh
        </button>
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

/** The column of check boxes for bulk actions. */
function pickColumn(picked: ReadonlySet<string>, pick: (picked: ReadonlySet<string>) => void) {
  return {
    head: 'Pick',
    cell: ({ platform_payment_id: id }: PaymentView) => (
      <input
        type="checkbox"
        aria-label={`Pick ${id}`}
        checked={picked.has(id)}
        onChange={({ currentTarget }) => {
          const next = new Set(picked);
          if (currentTarget.checked) next.add(id);
          else next.delete(id);
          pick(next);
        }}
      />
    ),
  };
}

/** The acts on the selected payments, or on all that the filter finds: each leads to a page that first shows what would happen. */
function Bulk(props: {
  payments: readonly PaymentView[];
  picked: ReadonlySet<string>;
  /** Undefined when all payments are listed, or those of a person: then they are picked one by one. */
  filter: Readonly<Record<string, string>> | undefined;
}) {
  const chosen = props.payments.filter((one) => props.picked.has(one.platform_payment_id));
  const [trouble, setTrouble] = useState<string>();
  if (isViewer() !== undefined) return null;
  const plan = async (act: BulkAct, over: Parameters<typeof planRun>[1]): Promise<void> => {
    try {
      await planRun(act, over);
      go(link('bulk'));
    } catch (error) {
      setTrouble(wordsOf(error));
    }
  };
  const buttons = (which: string, over: Parameters<typeof planRun>[1]) => (
    <div class="buttons">
      {bulkActs.map(([act, label]) => (
        <button type="button" key={act} onClick={() => void plan(act, over)}>
          {label} {which}…
        </button>
      ))}
    </div>
  );
  const { filter } = props;
  return (
    <>
      {chosen.length === 0 ? null : (
        <section class="note" aria-label="Selected payments">
          <p>
            {chosen.length} selected,{' '}
            {money(chosen.reduce((cents, one) => cents + one.amount_in_cents, 0))} together. What
            would happen to each is shown first.
          </p>
          {buttons('selected', {
            platform_payment_ids: chosen.map((one) => one.platform_payment_id),
          })}
        </section>
      )}
      {filter === undefined || props.payments.length === 0 ? null : (
        <details>
          <summary>Act on all that match</summary>
          <p>Also those on pages not shown, at most 1,000. What would happen is shown first.</p>
          {buttons('all that match', { filter })}
        </details>
      )}
      <Trouble error={trouble} />
    </>
  );
}

const bulkActs: readonly (readonly [BulkAct, string])[] = [
  ['resume', 'Resume'],
  ['poll', 'Poll'],
  ['close', 'Close'],
  ['withdraw', 'Withdraw'],
];

/** Lets this person choose the columns of the payments list. */
function shownColumns() {
  const { hidden } = settings.value;
  return listColumns.filter((one) => !hidden.includes(one.head));
}

function ColumnChoice() {
  const [open, setOpen] = useState(false);
  const { hidden } = settings.value;
  const columns = listColumns.filter(({ head }) => head !== 'Payment');
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Columns</summary>
      {open ? (
        <fieldset class="columns">
          <legend>Columns of the list</legend>
          {columns.map(({ head }) => (
            <label key={head}>
              <input
                type="checkbox"
                checked={!hidden.includes(head)}
                onChange={({ currentTarget }) =>
                  setting({
                    hidden: currentTarget.checked
                      ? hidden.filter((one) => one !== head)
                      : [...hidden, head],
                  })
                }
              />{' '}
              {head}
            </label>
          ))}
        </fieldset>
      ) : null}
    </details>
  );
}

/** A payment in a list; one of a person's has no more than the view. */
type Shown = PaymentView & Partial<ListedPayment>;

const why = (one: Shown): string =>
  (one.review_reason ?? one.failure_reason ?? '').replaceAll('_', ' ');

/** The columns of every list of payments. */
export const paymentColumns: readonly Column<Shown>[] = [
  {
    head: 'Status',
    cell: (one) => <Status {...one} paused={one.paused === true} />,
    filter: (one) => ({
      status: one.paused ? 'paused' : one.stage === 'review' ? 'review' : one.status,
    }),
  },
  {
    head: 'Payment',
    cell: (one) => (
      <a
        class="id"
        href={link('payments', one.platform_payment_id)}
        title={one.platform_payment_id}
      >
        <bdi dir="ltr">{one.platform_payment_id}</bdi>
      </a>
    ),
    copy: (one) => one.platform_payment_id,
  },
  {
    head: 'Partner',
    cell: (one) => <span class="nowrap">{one.partner_id}</span>,
    filter: (one) => ({ partner_id: one.partner_id }),
    copy: (one) => one.partner_id,
  },
  { head: 'Account', cell: (one) => one.masked_account_id },
  {
    head: 'Amount',
    number: true,
    // Test payments are marked, so that nobody takes one for money.
    cell: (one) => (
      <>
        {one.mode === 'test' ? <span class="mode">test</span> : null} {money(one.amount_in_cents)}
      </>
    ),
    filter: (one) => ({ amount: (one.amount_in_cents / 100).toFixed(2) }),
  },
  {
    head: 'Confirmed',
    cell: (one) => moment(one.created_at),
    sort: ['newest', 'oldest'],
    copy: (one) => one.created_at,
  },
  {
    head: 'Took',
    number: true,
    cell: (one) =>
      one.ended_at === null
        ? `${age(one.created_at)} so far`
        : lasting(Date.parse(one.ended_at) - Date.parse(one.created_at)),
  },
  {
    head: 'Reason',
    cell: (one) => (
      <span class="reason">
        {[why(one), one.open_case && `Case: ${one.open_case.note}`].filter(Boolean).join(' · ')}
      </span>
    ),
    copy: (one) => one.review_reason ?? one.failure_reason,
  },
];

const listColumns: readonly Column<ListedPayment>[] = [
  ...paymentColumns.slice(0, -1),
  { head: 'Attempts', number: true, cell: (one) => one.attempts },
  { head: 'Next', cell: (one) => <NextStep payment={one} /> },
  ...paymentColumns.slice(-1),
  // Hidden until somebody wants them.
  { head: 'Last result', cell: (one) => one.last_result ?? '–' },
  { head: 'At the partner', cell: (one) => one.payment_id ?? '–', copy: (one) => one.payment_id },
  { head: 'Biller', cell: (one) => one.biller_id, copy: (one) => one.biller_id },
  {
    head: 'Batch',
    cell: (one) => one.platform_batch_id,
    filter: (one) => ({ id: one.platform_batch_id }),
    copy: (one) => one.platform_batch_id,
  },
  { head: 'Posted', cell: (one) => moment(one.posted_at) },
];
