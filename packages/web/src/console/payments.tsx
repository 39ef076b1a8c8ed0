/**
 * Finding payments: filters in the address, saved views, a list whose rows never move while it is read, and one payment's
 * history.
 * One file because the list, its filters and the payment beside it share one address and one selection.
 */
import type {
  Attempt,
  AuditEntry,
  BulkAct,
  PartnerAnswer,
  PaymentDetail,
  PaymentPage,
  PaymentView,
  ReviewClose,
  UnmaskedAccount,
} from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, post, self } from './api.ts';
import { planRun } from './bulk.tsx';
import {
  Act,
  age,
  announcement,
  Facts,
  fieldsOf,
  focusRow,
  isViewer,
  lasting,
  moment,
  money,
  PAGE_ROWS,
  refreshes,
  setting,
  settings,
  Status,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { go, keepHere, keptHere, link, query, secret, withQuery } from './route.ts';

const DAY_MS = 86_400_000;

/** A UTC day in the form of the query. */
function day(offset: number): string {
  return new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS + offset * DAY_MS)
    .toISOString()
    .slice(0, 10);
}

const views: readonly (readonly [string, string])[] = [
  ['All', ''],
  ['Processing', 'status=processing'],
  ['Needs a human', 'stage=review'],
  ['Overdue', 'overdue=true'],
  ['Failed', 'status=failed'],
  ['Failed today', 'status=failed&day=today'],
  ['Amount mismatch', 'stage=review&failure_reason=mismatch_amount'],
  ['Many attempts', 'status=processing&min_attempts=10'],
  ['Yesterday', 'day=yesterday'],
  ['Unsettled', 'unsettled=true'],
];

/** The times before now that the address may name. */
const PRESETS: Readonly<Record<string, readonly [words: string, ms: number]>> = {
  '15m': ['last 15 minutes', 900_000],
  '1h': ['last hour', 3_600_000],
  '24h': ['last 24 hours', DAY_MS],
  '7d': ['last 7 days', 7 * DAY_MS],
  '30d': ['last 30 days', 30 * DAY_MS],
};

/**
 * The filter in the form of the admin API. A named day such as "yesterday", and a time before now, stay names in the address, because
 * their dates change.
 */
function filterOf(params: URLSearchParams): Record<string, string> {
  const {
    day: named,
    last,
    amount,
    ...filter
  } = Object.fromEntries(params) as Record<string, string>;
  const before = PRESETS[last ?? '']?.[1];
  if (before !== undefined) filter['from'] = new Date(Date.now() - before).toISOString();
  const date = named === 'yesterday' ? day(-1) : named === 'today' ? day(0) : named;
  if (date !== undefined) {
    filter['from'] = `${date}T00:00:00Z`;
    filter['to'] = new Date(Date.parse(filter['from']) + DAY_MS).toISOString();
  }
  const cents = amount === undefined ? undefined : toCents(amount);
  if (cents !== undefined) filter['amount_in_cents'] = cents;
  return filter;
}

/** Parses a dollar amount as people write it into cents. */
function toCents(text: string): string | undefined {
  const match = /^\$?(\d{1,9})(?:\.(\d{2}))?$/.exec(text.trim().replaceAll(',', ''));
  return match === null ? undefined : String(Number(`${match[1]}${match[2] ?? '00'}`));
}

function ownViews(): Record<string, string> {
  try {
    return JSON.parse(localStorage.getItem('views') ?? '{}') as Record<string, string>;
  } catch {
    return {};
  }
}

/** The list as it was left, for Back: its rows, of whatever number of pages. */
let left: { readonly key: string; readonly page: PaymentPage } | undefined;

export function PaymentsPage() {
  const text = query.value.toString();
  const personal = secret.value;
  const { account_id, email } = personal;
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
  const [own, setOwn] = useState(ownViews);
  const [picked, setPicked] = useState<ReadonlySet<string>>(
    () => new Set((keptHere('picked') ?? '').split(' ').filter((id) => id !== '')),
  );
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
  useEffect(() => keepHere({ picked: [...picked].join(' ') }), [picked]);
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
      setFailed(trouble instanceof Error ? trouble.message : String(trouble));
    }
  };
  const filter = filterOf(query.value);
  const saveView = (): void => {
    const name = prompt('Name of this view');
    if (name === null || name.trim() === '') return;
    const kept = { ...own, [name.trim()]: text };
    localStorage.setItem('views', JSON.stringify(kept));
    setOwn(kept);
  };
  return (
    <>
      <h1>Payments</h1>
      <nav class="views" aria-label="Views">
        {[...views, ...Object.entries(own)].map(([name, search]) => (
          <a
            key={name}
            href={link('payments') + (search === '' ? '' : `?${search}`)}
            aria-current={search === text && !isSearch ? 'page' : undefined}
          >
            {name}
          </a>
        ))}
        <button type="button" onClick={saveView}>
          Save this view
        </button>
      </nav>
      <Filters />
      <Chips />
      <Trouble error={error ?? failed} />
      <div class="pill" role="status">
        {fresh.length > 0 && data !== undefined ? (
          <button type="button" onClick={() => setShown({ key, page: data })}>
            Show {fresh.length} new
          </button>
        ) : null}
      </div>
      {page === undefined ? (
        <p>Loading…</p>
      ) : (
        <Table
          caption="Payments, newest first"
          rows={page.payments}
          keyOf={(one) => one.platform_payment_id}
          empty={more === null ? 'No payments match.' : 'None found yet: search further back.'}
          columns={[
            ...(self.value?.role === 'viewer' ? [] : [pickColumn(picked, setPicked)]),
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
            {(page?.payments.length ?? 0) % PAGE_ROWS === 0 && page?.payments.length !== 0
              ? 'More'
              : 'Search further back'}
          </button>
        )}
        <button type="button" onClick={again}>
          Refresh
        </button>
        <button type="button" onClick={() => void copyCommand(query.value)}>
          Copy as command
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
  if (self.value?.role === 'viewer') return null;
  const plan = async (act: BulkAct, over: Parameters<typeof planRun>[1]): Promise<void> => {
    try {
      go(link('bulk', await planRun(act, over)));
    } catch (error) {
      setTrouble(error instanceof Error ? error.message : String(error));
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
          <p>Also those on pages not shown, at most 10,000. What would happen is shown first.</p>
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
  return [...paymentColumns, ...moreColumns].filter((one) => !hidden.includes(one.head));
}

function ColumnChoice() {
  const [open, setOpen] = useState(false);
  const { hidden } = settings.value;
  const columns = [...paymentColumns, ...moreColumns].filter(({ head }) => head !== 'Payment');
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

/** The columns of every list of payments. */
export const paymentColumns = [
  {
    head: 'Status',
    cell: (one: PaymentView) => <Status status={one.status} stage={one.stage} />,
  },
  {
    head: 'Payment',
    cell: (one: PaymentView) => (
      <a href={link('payments', one.platform_payment_id)}>{one.platform_payment_id}</a>
    ),
  },
  { head: 'Partner', cell: (one: PaymentView) => one.partner_id },
  { head: 'Mode', cell: (one: PaymentView) => <Mode mode={one.mode} /> },
  { head: 'Account', cell: (one: PaymentView) => one.masked_account_id },
  { head: 'Amount', number: true as const, cell: (one: PaymentView) => money(one.amount_in_cents) },
  { head: 'Confirmed', cell: (one: PaymentView) => moment(one.created_at) },
  {
    head: 'Took',
    number: true as const,
    cell: (one: PaymentView) =>
      one.ended_at === null
        ? `${age(one.created_at)} so far`
        : lasting(Date.parse(one.ended_at) - Date.parse(one.created_at)),
  },
  { head: 'Reason', cell: (one: PaymentView) => one.review_reason ?? one.failure_reason ?? '' },
];

/** Columns hidden by default. */
const moreColumns = [
  { head: 'At the partner', cell: (one: PaymentView) => one.payment_id ?? '–' },
  { head: 'Biller', cell: (one: PaymentView) => one.biller_id },
  { head: 'Batch', cell: (one: PaymentView) => one.platform_batch_id },
  { head: 'Posted', cell: (one: PaymentView) => moment(one.posted_at) },
];

/** Test payments are marked, so that nobody takes one for money. */
function Mode({ mode }: { mode: PaymentView['mode'] }) {
  return mode === 'test' ? <span class="mode">test</span> : <>live</>;
}

async function copyCommand(params: URLSearchParams): Promise<void> {
  const flags: Readonly<Record<string, string>> = {
    status: '--status',
    stage: '--stage',
    partner_id: '--partner',
    platform_batch_id: '--batch',
    amount: '--amount',
    id: '--id',
    failure_reason: '--failure-reason',
    min_attempts: '--attempts',
  };
  const words = [...params].flatMap(([name, value]) => {
    if (name === 'overdue' || name === 'unsettled') return [`--${name}`];
    if (name === 'day') {
      const date = value === 'yesterday' ? day(-1) : value === 'today' ? day(0) : value;
      return ['--from', date, '--to', date];
    }
    if (name === 'last') {
      return ['--from', new Date(Date.now() - (PRESETS[value]?.[1] ?? 0)).toISOString()];
    }
    const flag = flags[name];
    return flag === undefined ? [] : [flag, `'${value.replaceAll("'", String.raw`'\''`)}'`];
  });
  await navigator.clipboard.writeText(['duebridge platform payments', ...words].join(' '));
  announcement.value = 'The command is on the clipboard.';
}

function Filters() {
  const params = query.value;
  const [trouble, setTrouble] = useState('');
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const field = fieldsOf(event.currentTarget);
    const amount = field('amount');
    if (amount !== '' && toCents(amount) === undefined) {
      setTrouble('The amount is dollars, such as 25 or 25.00.');
      return;
    }
    setTrouble('');
    const personal: Record<string, string> = {};
    if (field('account_id') !== '') personal['account_id'] = field('account_id');
    if (field('email') !== '') personal['email'] = field('email');
    go(
      withQuery({
        id: field('id'),
        amount,
        day: field('day'),
        last: field('last'),
        partner_id: field('partner_id'),
        status: field('status'),
        failure_reason: field('failure_reason'),
        min_attempts: field('min_attempts'),
      }),
      personal,
    );
  };
  const named = params.get('day');
  const date = named === 'yesterday' ? day(-1) : named === 'today' ? day(0) : (named ?? '');
  const maySearch = self.value?.role !== 'viewer';
  return (
    <search>
      <form class="filters" key={params.toString()} onSubmit={submit}>
        <label>
          Any id
          <input name="id" id="search" value={params.get('id') ?? ''} autocomplete="off" />
        </label>
        <label>
          Amount
          <input name="amount" value={params.get('amount') ?? ''} inputMode="decimal" size={8} />
        </label>
        <label>
          Day (UTC)
          <input name="day" type="date" value={date} />
        </label>
        <label>
          Partner
          <input name="partner_id" value={params.get('partner_id') ?? ''} size={14} />
        </label>
        <label>
          Status
          <select name="status" value={params.get('status') ?? ''}>
            <option value="">any</option>
            {['processing', 'succeeded', 'failed', 'canceled'].map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
        <label>
          Time
          <select name="last" value={params.get('last') ?? ''}>
            <option value="">any</option>
            {Object.entries(PRESETS).map(([name, [words]]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <label>
          Reason
          <input
            name="failure_reason"
            value={params.get('failure_reason') ?? ''}
            maxLength={120}
            size={18}
          />
        </label>
        <label>
          Attempts, at least
          <input
            name="min_attempts"
            type="number"
            min={1}
            max={999_999}
            value={params.get('min_attempts') ?? ''}
          />
        </label>
        {maySearch ? (
          <>
            <label>
              Account <small>(audited)</small>
              <input
                name="account_id"
                value={secret.value['account_id'] ?? ''}
                autocomplete="off"
              />
            </label>
            <label>
              E-mail <small>(audited)</small>
              <input
                name="email"
                type="email"
                value={secret.value['email'] ?? ''}
                autocomplete="off"
              />
            </label>
          </>
        ) : null}
        <button type="submit" class="primary">
          Find
        </button>
      </form>
      <Trouble error={trouble} />
    </search>
  );
}

/** What the filters of the address are called. */
const FILTERS: Readonly<Record<string, string>> = {
  status: 'status',
  stage: 'stage',
  partner_id: 'partner',
  platform_batch_id: 'batch',
  amount: 'amount',
  day: 'day',
  last: 'time',
  from: 'from',
  to: 'to',
  id: 'id',
  overdue: 'overdue',
  unsettled: 'unsettled',
  failure_reason: 'reason',
  min_attempts: 'attempts, at least',
};

/** Every filter that is on, also those that a view set and the form does not show; each can be removed. */
function Chips() {
  const on = [...query.value].filter(([name]) => name in FILTERS);
  if (on.length === 0) return null;
  return (
    <ul class="chips" aria-label="Filters that are on">
      {on.map(([name, value]) => (
        <li key={name}>
          <a href={withQuery({ [name]: '' })} title="Remove this filter">
            {FILTERS[name]}: {PRESETS[value]?.[0] ?? value} <span aria-hidden="true">×</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

// One payment ----------------------------------------------------------------------------------------------------------------

export function PaymentPageOf({ id }: { id: string }) {
  const { data, error, again } = useRead(`payment ${id}`, () =>
    get<PaymentDetail>(`/payments/${encodeURIComponent(id)}`),
  );
  const [account, setAccount] = useState<string>();
  if (data === undefined) {
    return (
      <>
        <h1>Payment</h1>
        {error === undefined ? <p>Loading…</p> : <Trouble error={error} />}
      </>
    );
  }
  const { payment, pending_close, partner_held } = data;
  const name = `${money(payment.amount_in_cents)} to ${payment.partner_id}, ${id}`;
  const path = `/payments/${encodeURIComponent(id)}`;
  const did = (text: string): string => {
    again();
    return text;
  };
  const inReview = payment.stage === 'review' ? undefined : 'Only a payment in review.';
  const refused =
    inReview ??
    (payment.review_reason?.startsWith('rejected_') === true
      ? undefined
      : 'The partner did not refuse it.');
  const unsent =
    payment.stage === 'created' || payment.stage === 'authorized'
      ? undefined
      : 'It may have reached the partner; only the partner can cancel it.';
  return (
    <>
      <p>
        <a href={link('payments')}>Payments</a>
      </p>
      <h1>
        {money(payment.amount_in_cents)} <Status status={payment.status} stage={payment.stage} />
      </h1>
      <Trouble error={error} />
      <Facts
        facts={[
          ['Payment', <code>{id}</code>],
          ['At the partner', <code>{payment.payment_id ?? '–'}</code>],
          ['Partner', <a href={link('partners', payment.partner_id)}>{payment.partner_id}</a>],
          ['Mode', payment.mode === 'test' ? 'test: no money moves' : 'live'],
          ['Account', account ?? payment.masked_account_id],
          [
            'Batch',
            <a href={link('batches', payment.platform_batch_id)}>{payment.platform_batch_id}</a>,
          ],
          ['Confirmed', moment(payment.created_at)],
          ['Accepted by the partner', moment(payment.initiated_at)],
          ['Posted', moment(payment.posted_at)],
          ['Ended', moment(payment.ended_at)],
          ['Reason', payment.review_reason ?? payment.failure_reason ?? '–'],
        ]}
      />
      {partner_held === null ? null : (
        <p class="note">
          It waits, because nothing is sent to{' '}
          <a href={link('partners', payment.partner_id)}>{payment.partner_id}</a>: {partner_held}
        </p>
      )}
      {pending_close === null ? null : (
        <p class="note">
          {pending_close.requested_by} asked on {moment(pending_close.requested_at)} to close this:{' '}
          {pending_close.reason}. A second person has to do the same.
        </p>
      )}
      <div class="buttons">
        <Act
          label="Close as failed"
          danger
          blocked={isViewer() ?? refused}
          about={`Ends ${name} as failed. The partner is asked first and must not know it; the funds are released and the customer may pay anew.`}
          act={async (reason) => {
            const { outcome } = await post<ReviewClose>(`${path}/close`, { reason });
            return did(
              outcome === 'closed' ? 'Closed.' : 'Noted. A second person has to confirm it.',
            );
          }}
        />
        <Act
          label="Resume"
          blocked={isViewer() ?? inReview}
          about={`Sends ${name} again, with the same id and the same bytes. A partner that has it already returns the existing payment.`}
          act={async (reason) => {
            await post(`${path}/resume`, { reason });
            return did('Resumed.');
          }}
        />
        <Act
          label="Poll now"
          blocked={
            isViewer() ??
            (unsent === undefined ? 'Nothing has been sent to the partner yet.' : undefined)
          }
          about={`Asks the partner for the status of ${name} now. Nothing is changed; the next poll records the result.`}
          act={async (reason) => {
            const { answer } = await post<PartnerAnswer>(`${path}/poll`, { reason });
            return did(`The partner says: ${answer.replaceAll('_', ' ')}.`);
          }}
        />
        <Act
          label="Withdraw"
          danger
          blocked={isViewer() ?? unsent}
          about={`Cancels ${name}, which cannot have left yet.`}
          act={async (reason) => {
            await post(`${path}/withdraw`, { reason });
            return did('Withdrawn.');
          }}
        />
        <Act
          label="Show the account"
          blocked={isViewer()}
          about={`Shows the whole account id of ${name}.`}
          act={async (reason) => {
            setAccount((await post<UnmaskedAccount>(`${path}/unmask`, { reason })).account_id);
            return 'The account is shown.';
          }}
        />
      </div>
      <h2>What happened</h2>
      <Story attempts={data.attempts} audit={data.audit} />
    </>
  );
}

interface Line {
  readonly at: string;
  readonly what: string;
  readonly how: string;
  readonly attempt?: Attempt;
}

/** Attempts and decisions in chronological order; a pause of more than a minute is shown. */
function Story({
  attempts,
  audit,
}: {
  attempts: readonly Attempt[];
  audit: readonly AuditEntry[];
}) {
  const lines: Line[] = [
    ...audit.map((entry) => ({
      at: entry.at,
      what: entry.event.replaceAll('_', ' '),
      how: [
        entry.actor,
        ...Object.entries(entry.detail).map(([name, value]) => `${name}: ${value}`),
      ].join(' · '),
    })),
    ...attempts.map((attempt) => ({ at: attempt.at, what: callOf(attempt), how: '', attempt })),
  ].sort((a, b) => (a.at < b.at ? -1 : 1));
  return (
    <ol class="story">
      {lines.map((line, index) => {
        const before = lines[index - 1];
        const since = before === undefined ? 0 : Date.parse(line.at) - Date.parse(endOf(before));
        return (
          <li
            key={`${line.at} ${line.what} ${index}`}
            class={line.attempt === undefined ? '' : 'attempt'}
          >
            {since > 60_000 ? <p class="pause">{lasting(since)} later</p> : null}
            <time dateTime={line.at}>{moment(line.at)}</time> <strong>{line.what}</strong>
            {line.attempt === undefined ? (
              <span class="how">{line.how}</span>
            ) : (
              <AttemptLine attempt={line.attempt} />
            )}
          </li>
        );
      })}
    </ol>
  );
}

function endOf(line: Line): string {
  return line.attempt?.last_at ?? line.at;
}

function callOf({ kind, count }: Attempt): string {
  if (kind === 'put') return 'PUT';
  return count === 1 ? 'poll' : `${count} polls`;
}

function AttemptLine({ attempt }: { attempt: Attempt }) {
  const { count, result, http_status, took_ms, request_id, body, last_at } = attempt;
  return (
    <>
      <span class="how">
        {count > 1 ? `all ${result}, until ${moment(last_at)}` : result} · HTTP {http_status ?? '–'}{' '}
        · {took_ms} ms · request <code>{request_id}</code>
      </span>
      {body === null ? null : (
        <details>
          <summary>What the partner answered</summary>
          <pre>{body}</pre>
        </details>
      )}
    </>
  );
}
