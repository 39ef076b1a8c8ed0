/** The audit, filtered by the query of the address. */
import type { AuditPage } from '@duebridge/contract';
import { chosen, Form, moment, Show, Table } from './parts.tsx';
import { go, query, withQuery } from './route.ts';

export function AuditPageOf() {
  const search = query.value.toString();
  return (
    <>
      <h1>Audit</h1>
      <Form
        key={search}
        fields={[
          { name: 'actor', label: 'Who', defaultValue: chosen('actor') },
          { name: 'event', label: 'Event', defaultValue: chosen('event') },
          { name: 'partner_id', label: 'Partner', defaultValue: chosen('partner_id') },
        ]}
        button="Filter"
        submit={(values) => go(withQuery({ ...values, cursor: '' }))}
      />
      <Show<AuditPage> path={`/audit?${search}`}>
        {({ entries, next_cursor }) => (
          <>
            <Table
              caption="Who did what, newest first"
              rows={entries}
              empty="No entries match."
              columns={[
                ['When', (one) => moment(one.at)],
                ['Who', (one) => one.actor],
                ['Event', (one) => one.event],
                [
                  'Detail',
                  (one) =>
                    Object.entries(one.detail)
                      .map(([name, value]) => `${name}: ${value}`)
                      .join(' · '),
                ],
              ]}
            />
            <p class="buttons">
              {chosen('cursor') !== '' && (
                <a class="button" href={withQuery({ cursor: '' })}>
                  Newest
                </a>
              )}
              {next_cursor !== null && (
                <a class="button" href={withQuery({ cursor: next_cursor })}>
                  Older
                </a>
              )}
            </p>
          </>
        )}
      </Show>
    </>
  );
}
