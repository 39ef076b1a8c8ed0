/** The overview: one list of what needs a person, and how payments went. */
import type { Overview } from '@duebridge/contract';
import { FiguresOf } from './figures.tsx';
import { age, counted, moment, money, Show, Table, words } from './parts.tsx';
import { link } from './route.ts';

export function OverviewPage() {
  return (
    <>
      <h1>Overview</h1>
      <Show<Overview> path="/overview">
        {(data) => (
          <>
            <p>
              <a href={`${link('payments')}?status=processing`}>
                {counted(data.in_flight, 'payment')} in flight
              </a>
            </p>
            <Table
              caption="What needs a person"
              rows={workOf(data)}
              empty="Nothing needs a person."
              columns={[
                ['What', ([what]) => what],
                ['Since or until', ([, when]) => when],
                [
                  'Next',
                  ([, , act, to]) => (to === '' ? <code>{act}</code> : <a href={to}>{act}</a>),
                ],
              ]}
            />
          </>
        )}
      </Show>
      <h2>How payments went</h2>
      <FiguresOf />
    </>
  );
}

/** One thing that waits for a person; since when, or until when; the act that is next, and where: by a command without an address. */
type Line = readonly [what: string, when: string, act: string, to: string];

/** Everything that needs a person, each with the act that is next; the most pressing first. */
function workOf(data: Overview): Line[] {
  const payments = (status: string): string => `${link('payments')}?status=${status}`;
  const since = (what: string, at: string | null): string => (at ? `${what} for ${age(at)}` : '');
  const some = (count: number, ...line: Line): Line[] => (count === 0 ? [] : [line]);
  const { overdue, paused, unsettled, open_differences: open } = data;
  return [
    ...data.partners_held.map(({ partner_id: id, reason }): Line => [
      `Calls to ${id} are held back`,
      reason,
      'Test or resume the partner',
      link('partners', id),
    ]),
    ...data.reviews.map(({ reason, count, oldest_at }): Line => [
      `${counted(count, 'payment')} in review: ${words(reason)}`,
      since('the oldest', oldest_at),
      'Resume or close',
      payments('review'),
    ]),
    ...some(
      overdue,
      `${counted(overdue, 'payment')} not ended after a day`,
      since('the oldest', data.oldest_in_flight_at),
      'See what the partner answers',
      payments('overdue'),
    ),
    ...some(
      open,
      counted(open, 'open difference'),
      '',
      'Compare both sides and resolve',
      link('reconciliation'),
    ),
    ...some(
      unsettled,
      `${counted(unsettled, 'payment')} whose funds are not settled`,
      '',
      'See why',
      payments('unsettled'),
    ),
    ...some(
      paused,
      `${counted(paused, 'payment')} paused by an operator`,
      since('the longest', data.oldest_paused_at),
      'Resume',
      payments('paused'),
    ),
    ...data.cases.map(({ reason_code, count, amount_in_cents, deadline }): Line => [
      `${counted(count, 'case')}: ${words(reason_code)}${amount_in_cents > 0 ? `, ${money(amount_in_cents)}` : ''}`,
      deadline === null ? '' : `answer by ${moment(deadline)}`,
      'Answer and end',
      link('money'),
    ]),
    ...data.clients_ending.map(({ partner_id, client_id, ends_at }): Line => [
      `The last API key of ${client_id} at ${partner_id} expires`,
      moment(ends_at),
      'Issue a second key',
      link('partners', partner_id),
    ]),
    ...data.operators_ending.map(({ operator_id, ends_at }): Line => [
      `The last key of the operator ${operator_id} expires`,
      moment(ends_at),
      `duebridge platform operator key ${operator_id}`,
      '',
    ]),
  ];
}
