/** The data held about a person, and its erasure. */
import type { Person, PersonErasure } from '@duebridge/contract';
import { useState } from 'preact/hooks';
import { post } from './api.ts';
import { Act, Form, isViewer, moment, needsAdmin, Table } from './parts.tsx';
import { paymentColumns } from './payments.tsx';

export function PeoplePage() {
  const [found, setFound] = useState<{ readonly email: string; readonly person: Person }>();
  if (isViewer() !== undefined) {
    return (
      <>
        <h1>People</h1>
        <p>Your role does not show personal data.</p>
      </>
    );
  }
  return (
    <>
      <h1>People</h1>
      <Form
        fields={[
          { name: 'email', label: 'E-mail', type: 'email', required: true },
          { name: 'reason', label: 'Reason, kept in the audit', required: true, maxLength: 256 },
        ]}
        button="Show"
        submit={async ({ email = '', reason }) => {
          setFound(undefined);
          setFound({ email, person: await post<Person>('/people/show', { email, reason }) });
        }}
      />
      {found && <Found {...found} erased={() => setFound(undefined)} />}
    </>
  );
}

function Found(props: { email: string; person: Person; erased: () => void }) {
  const { email, person, erased } = props;
  return (
    <>
      <Table
        caption="What is held"
        rows={person.records}
        empty="Nothing is held."
        columns={[
          ['Name', (one) => `${one.first_name} ${one.last_name}`],
          ['E-mail', (one) => one.email],
          ['Phone', (one) => one.phone_number],
          ['Partner', (one) => one.partner_id],
          ['Erased after', (one) => moment(one.erase_after)],
        ]}
      />
      {person.saved_methods > 0 && (
        <p>
          A payment processor keeps methods that they saved, for {person.saved_methods} accounts.
          Erasing deletes them.
        </p>
      )}
      <Table
        caption="Their payments"
        rows={person.payments}
        empty="No payment."
        columns={paymentColumns}
      />
      <Act
        label="Erase this person"
        danger
        blocked={needsAdmin()}
        about={`Permanently erases the name, addresses and phone number of ${email}. Payment records stay.`}
        act={async (reason) => {
          const done = await post<PersonErasure>('/people/erase', { email, reason });
          erased();
          return done.kept_for_payments === 0
            ? `Erased ${done.customers} records.`
            : `Erased ${done.customers} records; ${done.kept_for_payments} wait for a payment to end.`;
        }}
      />
    </>
  );
}
