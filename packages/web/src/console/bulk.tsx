/**
 * Acts on several payments: the plan with its dry run, the progress, and what became of each. The platform drives a run (decision
 * 200); these pages show it to everybody, and closing them stops nothing.
 */
import type { BulkAct, BulkItem, BulkRun, BulkRunDetail } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { get, post, self } from './api.ts';
import { announcement, Facts, fieldsOf, moment, money, Table, Trouble, useRead } from './parts.tsx';
import { link, query, withQuery } from './route.ts';

/** How an act is named: what it does, and to how many. */
const NAMES: Readonly<Record<BulkAct, string>> = {
  resume: 'Resume',
  poll: 'Poll',
  withdraw: 'Withdraw',
  close: 'Close',
};
const STATES: Readonly<Record<BulkRun['state'], string>> = {
  planned: 'Not started',
  running: 'Running',
  stopped: 'Stopped',
  done: 'Done',
};
/** Payments of a run on one page. */
const SHOWN = 500;
/** How often a running one is read: sooner than a page whose changes nobody waits for. */
const FOLLOW_EVERY_MS = 1_000;

const titleOf = ({ act, payments }: BulkRun): string =>
  `${NAMES[act]} ${payments} ${payments === 1 ? 'payment' : 'payments'}`;
const stateOf = ({ state, note }: BulkRun): string =>
  note === '' ? STATES[state] : `${STATES[state]}: ${note}`;
const progressOf = ({ done, refused, payments }: BulkRun): string =>
  `${done} done, ${refused} refused, ${payments - done - refused} left`;

/** Plans a run over these payments, or over all that a filter finds; returns its id. Throws ApiError. */
export async function planRun(
  act: BulkAct,
  chosen:
    { platform_payment_ids: readonly string[] } | { filter: Readonly<Record<string, string>> },
): Promise<string> {
  return (await post<BulkRunDetail>('/bulk-runs', { act, ...chosen })).run.run_id;
}

/** The last runs, of every operator. */
export function BulkPage() {
  const { data, error } = useRead('bulk', () => get<{ runs: BulkRun[] }>('/bulk-runs'));
  return (
    <>
      <h1>Acts on several payments</h1>
      <p>
        Pick payments in <a href={link('payments')}>the list</a>, by their boxes or with{' '}
        <kbd>x</kbd>, and choose an act. The platform goes on while nobody looks; the audit keeps
        every act.
      </p>
      <Trouble error={error} />
      <Table
        caption="The last ones, newest first"
        command={['bulk', 'list']}
        rows={data?.runs ?? []}
        keyOf={(run) => run.run_id}
        empty={data === undefined ? 'Loading…' : 'Nothing was done to several payments yet.'}
        columns={[
          { head: 'Act', cell: (run) => <a href={link('bulk', run.run_id)}>{titleOf(run)}</a> },
          { head: 'State', cell: stateOf },
          { head: 'Progress', cell: progressOf },
          { head: 'Reason', cell: (run) => run.reason ?? '' },
          { head: 'By', cell: (run) => run.actor },
          { head: 'Planned', cell: (run) => moment(run.planned_at) },
        ]}
      />
    </>
  );
}

/** One run. */
export function BulkRunPage({ id }: { id: string }) {
  const path = `/bulk-runs/${encodeURIComponent(id)}`;
  const from = query.value.get('from') ?? '0';
  const { data, error, again } = useRead(`bulk ${id} ${from}`, () =>
    get<BulkRunDetail>(`${path}?${new URLSearchParams({ cursor: from, limit: String(SHOWN) })}`),
  );
  const [trouble, setTrouble] = useState<string>();
  const run = data?.run;
  const state = run?.state;
  useEffect(() => {
    if (run !== undefined && (state === 'done' || state === 'stopped')) {
      announcement.value = `${STATES[state]}: ${progressOf(run)}.`;
    }
  }, [state]);
  useEffect(() => {
    if (state !== 'running') return undefined;
    const timer = setTimeout(again, FOLLOW_EVERY_MS);
    return () => clearTimeout(timer);
  }, [data]);
  if (data === undefined || run === undefined) {
    return (
      <>
        <h1>Acts on several payments</h1>
        {error === undefined ? <p>Loading…</p> : <Trouble error={error} />}
      </>
    );
  }
  const ask = async (verb: 'start' | 'stop' | 'continue', body?: object): Promise<void> => {
    try {
      await post(`${path}/${verb}`, body);
      setTrouble(undefined);
    } catch (refused) {
      setTrouble(refused instanceof Error ? refused.message : String(refused));
    }
    again();
  };
  const isMine = run.actor === self.value?.operator_id;
  const mayStop = self.value?.role !== 'viewer';
  return (
    <>
      <h1>{titleOf(run)}</h1>
      <Trouble error={trouble ?? error} />
      <Facts
        facts={[
          ['State', stateOf(run)],
          ['Together', money(run.amount_in_cents)],
          ['By', run.actor],
          ['Planned', moment(run.planned_at)],
          ...(run.started_at === null ? [] : [['Started', moment(run.started_at)] as const]),
          ...(run.ended_at === null ? [] : [['Ended', moment(run.ended_at)] as const]),
          ...(run.reason === null ? [] : [['Reason', run.reason] as const]),
        ]}
      />
      {run.state === 'planned' ? (
        <Start run={run} isMine={isMine} start={(reason) => ask('start', { reason })} />
      ) : (
        <p>
          <progress
            aria-label="Payments acted on"
            max={run.payments}
            value={run.done + run.refused}
          />{' '}
          {progressOf(run)}
        </p>
      )}
      <p class="buttons">
        {mayStop && run.state === 'running' ? (
          <button type="button" onClick={() => void ask('stop')}>
            Stop
          </button>
        ) : null}
        {isMine && run.state === 'stopped' ? (
          <button type="button" class="primary" onClick={() => void ask('continue')}>
            Continue
          </button>
        ) : null}
        <a class="button" href={link('bulk')}>
          All bulk acts
        </a>
      </p>
      <Table
        command={['bulk', 'show', run.run_id]}
        caption={run.state === 'planned' ? 'What would happen to each' : 'What became of each'}
        rows={data.items}
        keyOf={(one) => one.platform_payment_id}
        empty="No payment is left on this page."
        columns={[
          { head: 'Result', cell: (one) => <Result item={one} /> },
          {
            head: 'Payment',
            cell: (one) => (
              <a href={link('payments', one.platform_payment_id)}>{one.platform_payment_id}</a>
            ),
          },
          { head: 'Partner', cell: (one) => one.partner_id ?? '' },
          {
            head: 'Amount',
            number: true,
            cell: (one) => (one.amount_in_cents === null ? '' : money(one.amount_in_cents)),
          },
          {
            head: run.state === 'planned' ? 'What would happen' : 'Note',
            cell: (one) => one.note,
          },
        ]}
      />
      <p class="buttons">
        {from === '0' ? null : (
          <a class="button" data-newer href={withQuery({ from: '' })}>
            First
          </a>
        )}
        {data.next_cursor === null ? null : (
          <a class="button" data-older href={withQuery({ from: data.next_cursor })}>
            Next {SHOWN}
          </a>
        )}
      </p>
    </>
  );
}

const RESULTS: Readonly<
  Record<BulkItem['state'], readonly [icon: string, word: string, style: string]>
> = {
  waiting: ['…', 'waiting', 'processing'],
  acting: ['…', 'acting', 'processing'],
  done: ['✓', 'done', 'succeeded'],
  refused: ['✕', 'refused', 'failed'],
};

function Result({ item }: { item: BulkItem }) {
  const [icon, word, style] = RESULTS[item.state];
  return (
    <span class={`status ${style}`}>
      <span aria-hidden="true">{icon}</span> {word}
    </span>
  );
}

/** Nothing was done yet: the reason, and the button that starts it. */
function Start(props: { run: BulkRun; isMine: boolean; start: (reason: string) => Promise<void> }) {
  const { run, isMine, start } = props;
  const count = run.payments - run.refused;
  if (count === 0)
    return <p class="note">Each of them would be refused: there is nothing to start.</p>;
  if (!isMine) return <p class="note">Planned by another operator.</p>;
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void start(fieldsOf(event.currentTarget)('reason'));
  };
  return (
    <form class="note" onSubmit={submit}>
      <p>
        Nothing was done yet. {count} of {run.payments} would be acted on, one after the other; each
        is checked again by itself.
      </p>
      <label>
        Reason, kept in the audit of each
        <textarea name="reason" required maxLength={256} rows={2} />
      </label>
      <div class="buttons">
        <button
          type="submit"
          class={run.act === 'withdraw' || run.act === 'close' ? 'danger' : 'primary'}
        >
          {NAMES[run.act]} {count} now
        </button>
      </div>
    </form>
  );
}
