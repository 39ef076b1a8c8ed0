/** The overview: what needs an operator, and how payments went. */
import type { Overview } from '@duebridge/contract';
import { get } from './api.ts';
import { OutcomesChart, TimesChart } from './chart.tsx';
import { Ranges, useFigures } from './figures.tsx';
import { age, moment, Table, Trouble, useRead } from './parts.tsx';
import { link } from './route.ts';

export function OverviewPage() {
  const { data, error } = useRead('overview', () => get<Overview>('/overview'));
  const figures = useFigures();
  return (
    <>
      <h1>Overview</h1>
      <Trouble error={error ?? figures.error} />
      {data === undefined ? (
        <p>Loading…</p>
      ) : (
        <>
          <ul class="cards">
            <Card name="In flight" value={data.in_flight} to="?status=processing" />
            <Card
              name="In review"
              value={data.reviews.reduce((sum, one) => sum + one.count, 0)}
              to="?status=review"
              alarm
            />
            <Card name="Overdue" value={data.overdue} to="?status=overdue" alarm />
            <Card name="Unsettled" value={data.unsettled} to="?status=unsettled" />
            <Card name="Paused" value={data.paused} to="?status=paused" alarm />
            <Card name="Follow-up" value={data.follow_ups} to="?status=follow_up" />
            <li class={data.open_differences > 0 ? 'alarm' : ''}>
              <a href={link('reconciliation')}>
                <strong>{data.open_differences}</strong> Open differences
              </a>
            </li>
          </ul>
          <h2>Waiting for an operator</h2>
          <Table
            caption="Reviews by reason"
            command={['payments', '--status', 'needs_human']}
            rows={data.reviews}
            keyOf={(one) => one.reason}
            empty="Nothing waits for an operator."
            columns={[
              {
                head: 'Reason',
                cell: (one) => one.reason,
              },
              { head: 'Payments', number: true, cell: (one) => one.count },
              { head: 'Oldest waits', cell: (one) => age(one.oldest_at) },
            ]}
          />
          <Ending
            title="API keys that expire soon"
            caption="Clients whose last key expires within 14 days: issue a second one"
            rows={data.clients_ending}
            keyOf={(one) => one.client_id}
            columns={[
              {
                head: 'Partner',
                cell: (one) => <a href={link('partners', one.partner_id)}>{one.partner_id}</a>,
              },
              { head: 'Client', cell: (one) => one.client_id },
            ]}
          />
          <Ending
            title="Keys of operators that expire soon"
            caption="Operators whose last key expires within 14 days: issue a second one"
            rows={data.operators_ending}
            keyOf={(one) => one.operator_id}
            columns={[{ head: 'Operator', cell: (one) => one.operator_id }]}
          />
          {data.partners_held.length === 0 ? null : (
            <>
              <h2>Partners on hold</h2>
              <Table
                caption="Held partners"
                rows={data.partners_held}
                keyOf={(one) => one.partner_id}
                empty=""
                columns={[
                  {
                    head: 'Partner',
                    cell: (one) => <a href={link('partners', one.partner_id)}>{one.partner_id}</a>,
                  },
                  { head: 'Why', cell: (one) => one.reason },
                ]}
              />
            </>
          )}
        </>
      )}
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

/** What expires soon; nothing is shown where nothing does. */
function Ending<Row extends { ends_at: string }>(props: {
  title: string;
  caption: string;
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  columns: Parameters<typeof Table<Row>>[0]['columns'];
}) {
  const { title, caption, rows, keyOf, columns } = props;
  if (rows.length === 0) return null;
  return (
    <>
      <h2>{title}</h2>
      <Table
        caption={caption}
        rows={rows}
        keyOf={keyOf}
        empty=""
        columns={[...columns, { head: 'Expires', cell: (one) => moment(one.ends_at) }]}
      />
    </>
  );
}

function Card(props: { name: string; value: number; to: string; alarm?: boolean }) {
  return (
    <li class={props.alarm === true && props.value > 0 ? 'alarm' : ''}>
      <a href={link('payments') + props.to}>
        <strong>{props.value}</strong> {props.name}
      </a>
    </li>
  );
}
