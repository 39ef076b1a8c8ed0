/**
 * One act on several payments: what would happen to each, then one call for each, one after the other (decision 166).
 *
 * holds: the plan lives in this tab. A call whose result is not known stops the run; it may be continued, or planned anew after a
 *        reload, because the platform refuses what was done already.
 */
import type { BulkAct, BulkPreview, PaymentPage } from '@duebridge/contract';
import { bulkNote } from '@duebridge/contract/bulk-note';
import { signal } from '@preact/signals';
import type { TargetedSubmitEvent } from 'preact';
import { useEffect } from 'preact/hooks';
import { ApiError, get, post, wordsOf } from './api.ts';
import { announcement, Facts, fieldsOf, money, Status, Table, Trouble } from './parts.tsx';
import { link } from './route.ts';

/** How an act is named. */
const NAMES: Readonly<Record<BulkAct, string>> = {
  resume: 'Resume',
  poll: 'Poll',
  withdraw: 'Withdraw',
  close: 'Close',
};
/** Payments of one preview, as many as the admin API takes. */
const PREVIEW_SIZE = 500;
/** Most payments of one run in a browser; the command line takes more. */
const MAX_PAYMENTS = 1_000;

/** One payment of the plan. */
interface Item {
  readonly platform_payment_id: string;
  readonly partner_id: string | undefined;
  readonly amount_in_cents: number;
  readonly state: 'waiting' | 'done' | 'refused';
  /** What would happen; once it is done or refused, what did. */
  readonly note: string;
}

interface Run {
  readonly act: BulkAct;
  readonly items: readonly Item[];
  readonly state: 'planned' | 'running' | 'stopping' | 'stopped' | 'done';
  readonly reason?: string;
  /** Why it stopped by itself. */
  readonly trouble?: string;
}

const run = signal<Run | undefined>(undefined);

/** Plans an act on these payments, or on all that a filter finds: nothing is done yet. Throws ApiError, or Error for too many. */
export async function planRun(
  act: BulkAct,
  chosen:
    { platform_payment_ids: readonly string[] } | { filter: Readonly<Record<string, string>> },
): Promise<void> {
  const ids = 'filter' in chosen ? await idsOf(chosen.filter) : chosen.platform_payment_ids;
  const items: Item[] = [];
  for (let from = 0; from < ids.length; from += PREVIEW_SIZE) {
    const platform_payment_ids = ids.slice(from, from + PREVIEW_SIZE);
    const preview = await post<BulkPreview>('/payments/preview', { act, platform_payment_ids });
    for (const { platform_payment_id, payment, refused, would } of preview.payments) {
      const { partner_id, amount_in_cents = 0 } = payment ?? {};
      const state = refused ? 'refused' : 'waiting';
      items.push({ platform_payment_id, partner_id, amount_in_cents, state, note: would });
    }
  }
  run.value = { act, items, state: 'planned' };
}

async function idsOf(filter: Readonly<Record<string, string>>): Promise<readonly string[]> {
  const ids: string[] = [];
  let cursor: string | null = null;
  do {
    const query: Record<string, string> = { ...filter, limit: '1000', ...(cursor && { cursor }) };
    const page: PaymentPage = await get(`/payments?${new URLSearchParams(query)}`);
    ids.push(...page.payments.map((one) => one.platform_payment_id));
    if (ids.length > MAX_PAYMENTS) {
      throw new Error(
        `More than ${MAX_PAYMENTS} payments match: choose fewer, or use duebridge platform bulk.`,
      );
    }
    cursor = page.next_cursor;
  } while (cursor !== null);
  return ids;
}

/** Acts on one payment after the other until the plan is done, is stopped, or a result is not known. */
async function drive(reason: string): Promise<void> {
  const { act } = run.value ?? {};
  if (act === undefined) return;
  change({ state: 'running', reason });
  for (const [place, item] of (run.value?.items ?? []).entries()) {
    if (run.value?.state !== 'running') break;
    if (item.state !== 'waiting') continue;
    try {
      const path = `/payments/${encodeURIComponent(item.platform_payment_id)}/${act}`;
      end(place, 'done', bulkNote(act, await post<unknown>(path, { reason })));
    } catch (error) {
      if (error instanceof ApiError && !error.again) end(place, 'refused', error.message);
      else change({ state: 'stopped', trouble: wordsOf(error) });
    }
  }
  const isDone = run.value?.items.every(({ state }) => state !== 'waiting') === true;
  change({ state: isDone ? 'done' : 'stopped' });
  announcement.value = `${isDone ? 'Done' : 'Stopped'}: ${progress()}.`;
}

function change(to: Partial<Run>): void {
  if (run.value !== undefined) run.value = { ...run.value, ...to };
}

function end(at: number, state: Item['state'], note: string): void {
  const items = run.value?.items.map((item, place) =>
    place === at ? { ...item, state, note } : item,
  );
  if (items !== undefined) change({ items });
}

function count(state: Item['state']): number {
  return run.value?.items.filter((one) => one.state === state).length ?? 0;
}

const progress = (): string =>
  `${count('done')} done, ${count('refused')} refused, ${count('waiting')} left`;

/** The plan, its progress, and what became of each payment. */
export function BulkPage() {
  const planned = run.value;
  const state = planned?.state;
  // Leaving the page in the middle stops the run.
  useEffect(() => {
    if (state !== 'running') return undefined;
    const ask = (event: BeforeUnloadEvent): void => event.preventDefault();
    addEventListener('beforeunload', ask);
    return () => removeEventListener('beforeunload', ask);
  }, [state]);
  if (planned === undefined) {
    return (
      <>
        <h1>Acts on several payments</h1>
        <p>
          Nothing is planned. Pick payments in <a href={link('payments')}>the list</a>, by their
          boxes or with <kbd>x</kbd>, and choose an act.
        </p>
      </>
    );
  }
  const { act, items, reason, trouble } = planned;
  return (
    <>
      <h1>
        {NAMES[act]} {items.length} {items.length === 1 ? 'payment' : 'payments'}
      </h1>
      <Trouble error={trouble} />
      <Facts
        facts={[
          ['Together', money(items.reduce((sum, one) => sum + one.amount_in_cents, 0))],
          ...(reason === undefined ? [] : [['Reason', reason] as const]),
        ]}
      />
      {planned.state === 'planned' ? <Start act={act} all={items.length} /> : <Progress />}
      <Table
        caption={planned.state === 'planned' ? 'What would happen to each' : 'What became of each'}
        rows={items}
        keyOf={(one) => one.platform_payment_id}
        empty="No payment matches."
        columns={[
          { head: 'Result', cell: (one) => <Status status={one.state} /> },
          {
            head: 'Payment',
            cell: (one) => (
              <a href={link('payments', one.platform_payment_id)}>{one.platform_payment_id}</a>
            ),
          },
          { head: 'Partner', cell: (one) => one.partner_id ?? '' },
          { head: 'Amount', number: true, cell: (one) => money(one.amount_in_cents) },
          { head: 'Note', cell: (one) => one.note },
        ]}
      />
    </>
  );
}

/** Nothing was done yet: the reason, and the button that starts it. */
function Start({ act, all }: { act: BulkAct; all: number }) {
  const left = count('waiting');
  if (left === 0)
    return <p class="note">Each of them would be refused: there is nothing to start.</p>;
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void drive(fieldsOf(event.currentTarget)('reason'));
  };
  return (
    <form class="note" onSubmit={submit}>
      <p>
        Nothing was done yet. {left} of {all} would be acted on, one after the other; each is
        checked again by itself. Keep this page open until it is done.
      </p>
      <label>
        Reason, kept in the audit of each
        <textarea name="reason" required maxLength={256} rows={2} />
      </label>
      <div class="buttons">
        <button type="submit" class={act === 'withdraw' || act === 'close' ? 'danger' : 'primary'}>
          {NAMES[act]} {left} now
        </button>
      </div>
    </form>
  );
}

function Progress() {
  const { state, items = [], reason = '' } = run.value ?? {};
  return (
    <>
      <p>
        <progress
          aria-label="Payments acted on"
          max={items.length}
          value={items.length - count('waiting')}
        />{' '}
        {progress()}
      </p>
      <p class="buttons">
        {state === 'running' ? (
          <button type="button" onClick={() => change({ state: 'stopping' })}>
            Stop
          </button>
        ) : null}
        {state === 'stopped' ? (
          <button type="button" class="primary" onClick={() => void drive(reason)}>
            Continue
          </button>
        ) : null}
      </p>
    </>
  );
}
