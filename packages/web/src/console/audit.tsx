/** The audit, filtered by the query of the address. */
import type { AuditEntry } from '@duebridge/contract';
import { chosen, Form, List, moment } from './parts.tsx';
import { go, withQuery } from './route.ts';

export function AuditPageOf() {
  const filter = ['actor', 'event', 'partner_id'].map((name) => [name, chosen(name)]);
  const search = new URLSearchParams(filter.filter(([, value]) => value !== '')).toString();
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
        submit={(values) => go(withQuery({ ...values, entries_after: '' }))}
      />
      <List<AuditEntry>
        caption="Who did what, newest first"
        path={`/audit?${search}`}
        of="entries"
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
    </>
  );
}
