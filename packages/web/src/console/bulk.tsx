/** Acts on several payments: the plan with its dry run, the progress, and what became of each. */
import type { BulkAct } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useEffect } from 'preact/hooks';
import {
  changes,
  continueRun,
  runOf,
  runs,
  startRun,
  stopRun,
  type Item,
  type Run,
} from './bulk-runs.ts';
import { self } from './api.ts';
import { announcement, Facts, fieldsOf, moment, money, Table } from './parts.tsx';
import { link } from './route.ts';

/** How an act is named: what it does, and to how many. */
const NAMES: Readonly<Record<BulkAct, string>> = {
  resume: 'Resume',
  poll: 'Poll',
  withdraw: 'Withdraw',
  close: 'Close',
};
const STATES: Readonly<Record<Run['state'], string>> = {
  planned: 'Not started',
  running: 'Running',
  stopped: 'Stopped',
  done: 'Done',
};

const titleOf = ({ act, items }: Run): string =>
  `${NAMES[act]} ${items.length} ${items.length === 1 ? 'payment' : 'payments'}`;
const countOf = ({ items }: Run, ...states: readonly Item['state'][]): number =>
  items.filter(({ state }) => states.includes(state)).length;

function progressOf(run: Run): string {
  const [done, refused] = [countOf(run, 'done'), countOf(run, 'refused')];
  return `${done} done, ${refused} refused, ${run.items.length - done - refused} left`;
}

/** The runs of this browser. */
export function BulkPage() {
  void changes.value;
  return (
    <>
      <h1>Acts on several payments</h1>
      <p>
        Pick payments in <a href={link('payments')}>the list</a>, by their boxes or with{' '}
        <kbd>x</kbd>, and choose an act. This browser keeps the last ones; the audit keeps every
        act.
      </p>
      <Table
        caption="The last ones, newest first"
        rows={runs()}
        keyOf={(run) => run.id}
        empty="Nothing was done to several payments in this browser."
        columns={[
          { head: 'Act', cell: (run) => <a href={link('bulk', run.id)}>{titleOf(run)}</a> },
          { head: 'State', cell: (run) => STATES[run.state] },
          { head: 'Progress', cell: progressOf },
          { head: 'Reason', cell: (run) => run.reason },
          { head: 'By', cell: (run) => run.by },
          { head: 'Planned', cell: (run) => moment(run.planned_at) },
        ]}
      />
    </>
  );
}

/** One run. */
export function BulkRunPage({ id }: { id: string }) {
  void changes.value;
  const run = runOf(id);
  const state = run?.state;
  useEffect(() => {
    if (run !== undefined && (state === 'done' || state === 'stopped')) {
      announcement.value = `${STATES[state]}: ${progressOf(run)}.`;
    }
  }, [state]);
  if (run === undefined) {
    return (
      <>
        <h1>There is no such run</h1>
        <p>
          It was made in another browser, or long ago. <a href={link('audit')}>The audit</a> has
          every act.
        </p>
      </>
    );
  }
  const ended = countOf(run, 'done', 'refused');
  const sum = run.items.reduce((cents, one) => cents + one.cents, 0);
  const isMine = run.by === self.value?.operator_id;
  return (
    <>
      <h1>{titleOf(run)}</h1>
      <Facts
        facts={[
          ['State', STATES[run.state]],
          ['Together', money(sum)],
          ['By', run.by],
          ['Planned', moment(run.planned_at)],
          ...(run.reason === '' ? [] : [['Reason', run.reason] as const]),
        ]}
      />
      {run.state === 'planned' ? (
        <Start run={run} />
      ) : (
        <p>
          <progress aria-label="Payments acted on" max={run.items.length} value={ended} />{' '}
          {progressOf(run)}
        </p>
      )}
      <p class="buttons">
        {isMine && run.state === 'running' ? (
          <button type="button" onClick={() => stopRun(id)}>
            Stop
          </button>
        ) : null}
        {isMine && run.state === 'stopped' ? (
          <button type="button" class="primary" onClick={() => continueRun(id)}>
            Continue
          </button>
        ) : null}
        <a class="button" href={link('bulk')}>
          All bulk acts
        </a>
      </p>
      <Table
        caption={run.state === 'planned' ? 'What would happen to each' : 'What became of each'}
        rows={run.items}
        keyOf={(one) => one.id}
        empty="No payment was picked."
        columns={[
          { head: 'Result', cell: (one) => <Result item={one} /> },
          { head: 'Payment', cell: (one) => <a href={link('payments', one.id)}>{one.id}</a> },
          { head: 'Partner', cell: (one) => one.partner },
          { head: 'Amount', number: true, cell: (one) => money(one.cents) },
          {
            head: run.state === 'planned' ? 'Would' : 'What was said',
            cell: (one) => (one.told === '' ? one.would : one.told),
          },
        ]}
      />
    </>
  );
}

const RESULTS: Readonly<
  Record<Item['state'], readonly [icon: string, word: string, style: string]>
> = {
  waiting: ['…', 'waiting', 'processing'],
  asking: ['…', 'asking', 'processing'],
  done: ['✓', 'done', 'succeeded'],
  refused: ['✕', 'refused', 'failed'],
};

function Result({ item }: { item: Item }) {
  const [icon, word, style] = RESULTS[item.state];
  return (
    <span class={`status ${style}`}>
      <span aria-hidden="true">{icon}</span> {word}
    </span>
  );
}

/** Nothing was done yet: the reason, and the button that starts it. */
function Start({ run }: { run: Run }) {
  const count = countOf(run, 'waiting');
  if (count === 0)
    return <p class="note">Each of them would be refused: there is nothing to start.</p>;
  if (run.by !== self.value?.operator_id) return <p class="note">Planned by another operator.</p>;
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    startRun(run.id, fieldsOf(event.currentTarget)('reason'));
  };
  return (
    <form class="note" onSubmit={submit}>
      <p>
        Nothing was done yet. {count} of {run.items.length} would be acted on, one after the other;
        each is checked again by itself.
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
