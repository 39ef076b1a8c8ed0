/** The audit, filtered by the query of the address. */
import type { AuditPage } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { get } from './api.ts';
import { fieldsOf, moment, Table, Trouble, useRead } from './parts.tsx';
import { go, query, withQuery } from './route.ts';

export function AuditPageOf() {
  const search = query.value.toString();
  const { data, error } = useRead(`audit ${search}`, () => get<AuditPage>(`/audit?${search}`));
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const field = fieldsOf(event.currentTarget);
    go(
      withQuery({
        actor: field('actor'),
        event: field('event'),
        partner_id: field('partner_id'),
        cursor: '',
      }),
    );
  };
  return (
    <>
      <h1>Audit</h1>
      <form class="filters" key={search} onSubmit={submit}>
        {(['actor', 'event', 'partner_id'] as const).map((name) => (
          <label key={name}>
            {{ actor: 'Who', event: 'Event', partner_id: 'Partner' }[name]}
            <input name={name} value={query.value.get(name) ?? ''} />
          </label>
        ))}
        <button type="submit" class="primary">
          Filter
        </button>
      </form>
      <Trouble error={error} />
      <Table
        caption="Who did what, newest first"
        rows={(data?.entries ?? []).map((entry, index) => ({ ...entry, index }))}
        keyOf={(one) => `${one.at} ${one.index}`}
        empty={data === undefined ? 'Loading…' : 'No entries match.'}
        columns={[
          { head: 'When', cell: (one) => moment(one.at) },
          { head: 'Who', cell: (one) => one.actor },
          { head: 'Event', cell: (one) => one.event },
          {
            head: 'Detail',
            cell: (one) =>
              Object.entries(one.detail)
                .map(([name, value]) => `${name}: ${value}`)
                .join(' · '),
          },
        ]}
      />
      {data?.next_cursor === null || data === undefined ? null : (
        <a class="button" href={withQuery({ cursor: data.next_cursor })}>
          Older
        </a>
      )}
    </>
  );
}
