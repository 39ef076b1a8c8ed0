/** The data held about a person, and its erasure. */
import type { Person, PersonErasure } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import { post, wordsOf } from './api.ts';
import { Act, fieldsOf, isViewer, moment, needsAdmin, Table, Trouble } from './parts.tsx';
import { paymentColumns } from './payments.tsx';

export function PeoplePage() {
  const [person, setPerson] = useState<Person>();
  const [asked, setAsked] = useState('');
  const [trouble, setTrouble] = useState<string>();
  const submit = async (event: TargetedSubmitEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const field = fieldsOf(event.currentTarget);
    const email = field('email');
    setTrouble(undefined);
    setPerson(undefined);
    try {
      setPerson(await post<Person>('/people/show', { email, reason: field('reason') }));
      setAsked(email);
    } catch (problem) {
      setTrouble(wordsOf(problem));
    }
  };
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
      <form class="filters" onSubmit={(event) => void submit(event)}>
        <label>
          E-mail
          <input name="email" type="email" required autocomplete="off" />
        </label>
        <label>
          Reason, kept in the audit
          <input name="reason" required maxLength={256} />
        </label>
        <button type="submit" class="primary">
          Show
        </button>
      </form>
      <Trouble error={trouble} />
      {person === undefined ? null : (
        <>
          <Table
            caption="What is held"
            rows={person.records.map((one, index) => ({ ...one, index }))}
            keyOf={(one) => String(one.index)}
            empty="Nothing is held."
            columns={[
              { head: 'Name', cell: (one) => `${one.first_name} ${one.last_name}` },
              { head: 'E-mail', cell: (one) => one.email },
              { head: 'Phone', cell: (one) => one.phone_number },
              { head: 'Partner', cell: (one) => one.partner_id },
              { head: 'Erased after', cell: (one) => moment(one.erase_after) },
            ]}
          />
          {person.saved_methods > 0 && (
            <p>
              A payment processor keeps methods that they saved, for {person.saved_methods}{' '}
              accounts. Erasing deletes them.
            </p>
          )}
          <Table
            caption="Their payments"
            rows={person.payments}
            keyOf={(one) => one.platform_payment_id}
            empty="No payment."
            // What a cell filters by belongs to the list of payments.
            columns={paymentColumns.map(({ head, cell }) => ({ head, cell }))}
          />
          <Act
            label="Erase this person"
            danger
            blocked={needsAdmin()}
            about={`Permanently erases the name, addresses and phone number of ${asked}. Payment records stay.`}
            act={async (reason) => {
              const done = await post<PersonErasure>('/people/erase', { email: asked, reason });
              setPerson(undefined);
              return done.kept_for_payments === 0
                ? `Erased ${done.customers} records.`
                : `Erased ${done.customers} records; ${done.kept_for_payments} wait for a payment to end.`;
            }}
          />
        </>
      )}
    </>
  );
}
