/** The overview: one list of what needs a person, and how payments went. */
import type { Overview } from '@duebridge/contract';
import { get } from './api.ts';
import { OutcomesChart, TimesChart } from './chart.tsx';
import { Ranges, useFigures } from './figures.tsx';
import { age, counted, moment, money, Table, Trouble, useRead } from './parts.tsx';
import { link } from './route.ts';

export function OverviewPage() {
  const { data, error } = useRead('overview', () => get<Overview>('/overview'));
  const figures = useFigures();
  return (
    <>
      <h1>Overview</h1>
      <Trouble error={error ?? figures.error} />
      {data === undefined ? <p>Loading…</p> : <Work data={data} />}
      <Ranges />
      {figures.data === undefined ? null : (
        <>
          <OutcomesChart figures={figures.data} />
          <TimesChart figures={figures.data} />
        </>
      )}
    </>
  );
}

/** One thing that waits for a person. */
interface Line {
  readonly what: string;
  /** Since when, or until when. */
  readonly when: string;
  /** The act that is next, and where it is done. */
  readonly act: string;
  readonly to: string;
}

/** Everything that needs a person, each with the act that is next; the most pressing first. */
function workOf(data: Overview): Line[] {
  const payments = (status: string): string => `${link('payments')}?status=${status}`;
  const some = (count: number, what: string, line: Omit<Line, 'what'>): Line[] =>
    count === 0 ? [] : [{ what: what.replace('#', counted(count, 'payment')), ...line }];
  const { overdue, paused, oldest_paused_at, unsettled, open_differences } = data;
  return [
    ...data.partners_held.map(({ partner_id, reason }) => ({
      what: `Calls to ${partner_id} are held back`,
      when: reason,
      act: 'Test or resume the partner',
      to: link('partners', partner_id),
    })),
    ...data.reviews.map(({ reason, count, oldest_at }) => ({
      what: `${counted(count, 'payment')} in review: ${reason.replaceAll('_', ' ')}`,
      when: `the oldest for ${age(oldest_at)}`,
      act: 'Resume or close',
      to: payments('review'),
    })),
    ...some(overdue, '# not ended after a day', {
      when: data.oldest_in_flight_at ? `the oldest for ${age(data.oldest_in_flight_at)}` : '',
      act: 'See what the partner answers',
      to: payments('overdue'),
    }),
    ...some(open_differences, counted(open_differences, 'open difference'), {
      when: '',
      act: 'Compare both sides and resolve',
      to: link('reconciliation'),
    }),
    ...some(unsettled, '# whose funds are not settled', {
      when: '',
      act: 'See why',
      to: payments('unsettled'),
    }),
    ...some(paused, '# paused by an operator', {
      when: oldest_paused_at ? `the longest for ${age(oldest_paused_at)}` : '',
      act: 'Resume',
      to: payments('paused'),
    }),
    ...data.cases.map(({ reason_code, count, amount_in_cents, deadline }) => ({
      what: `${counted(count, 'case')}: ${reason_code.replaceAll('_', ' ')}${amount_in_cents > 0 ? `, ${money(amount_in_cents)}` : ''}`,
      when: deadline === null ? '' : `answer by ${moment(deadline)}`,
      act: 'Answer and end',
      to: link('money'),
    })),
    ...data.clients_ending.map(({ partner_id, client_id, ends_at }) => ({
      what: `The last API key of ${client_id} at ${partner_id} expires`,
      when: moment(ends_at),
      act: 'Issue a second key',
      to: link('partners', partner_id),
    })),
    ...data.operators_ending.map(({ operator_id, ends_at }) => ({
      what: `The last key of the operator ${operator_id} expires`,
      when: moment(ends_at),
      act: 'Issue a second key',
      to: link('operators'),
    })),
  ];
}

function Work({ data }: { data: Overview }) {
  return (
    <>
      <p>
        <a href={`${link('payments')}?status=processing`}>
          {counted(data.in_flight, 'payment')} in flight
        </a>
      </p>
      <Table
        caption="What needs a person"
        command={['payments', '--status', 'needs_human']}
        rows={workOf(data)}
        keyOf={(one) => `${one.to} ${one.what}`}
        empty="Nothing needs a person."
        columns={[
          { head: 'What', cell: (one) => one.what },
          { head: 'Since or until', cell: (one) => one.when },
          { head: 'Next', cell: (one) => <a href={one.to}>{one.act}</a> },
        ]}
      />
    </>
  );
}
