/** Operators and their keys. */
import type { OperatorKeyGrant, OperatorView } from '@duebridge/contract';
import { useState } from 'preact/hooks';
import { call, get, post, wordsOf } from './api.ts';
import { Form, moment, Table, Trouble, useRead } from './parts.tsx';

export function OperatorsPage() {
  const { data, error, again } = useRead('operators', () =>
    get<{ operators: OperatorView[] }>('/operators'),
  );
  const [grant, setGrant] = useState<OperatorKeyGrant>();
  const [trouble, setTrouble] = useState<string>();
  const attempt = (work: Promise<unknown>): void => {
    setTrouble(undefined);
    work.then(again, (problem: unknown) => setTrouble(wordsOf(problem)));
  };
  const issue = async ({ operator_id: id, days = '' }: Readonly<Record<string, string>>) => {
    const body = days === '' ? {} : { valid_for_days: Number(days) };
    setGrant(await post<OperatorKeyGrant>(`/operators/${encodeURIComponent(id ?? '')}/keys`, body));
    again();
  };
  return (
    <>
      <h1>Operators</h1>
      <Trouble error={error ?? trouble} />
      {grant !== undefined && (
        <p class="note" role="status">
          The key of {grant.operator_id}, shown this once: <code>{grant.operator_key}</code>
        </p>
      )}
      <Table
        caption="Operators"
        rows={data?.operators ?? []}
        keyOf={(one) => one.operator_id}
        empty={data === undefined ? 'Loading…' : 'Only the admin key of the deployment.'}
        columns={[
          ['Operator', (one) => one.operator_id],
          ['Name', (one) => one.name],
          ['Role', (one) => [one.role, one.partner_id].filter(Boolean).join(' ')],
          ['State', (one) => (one.disabled_at === null ? 'active' : 'disabled')],
          ['Last key expires', (one) => lastEnd(activeKeys(one))],
          [
            'Active keys',
            (one) => (
              <span class="buttons">
                {activeKeys(one).map(({ key_id }) => (
                  <button
                    key={key_id}
                    type="button"
                    onClick={() =>
                      attempt(
                        call('DELETE', `/admin/v1/operators/${one.operator_id}/keys/${key_id}`),
                      )
                    }
                  >
                    Revoke {key_id.slice(0, 8)}
                  </button>
                ))}
              </span>
            ),
          ],
        ]}
      />
      <h2>Issue a key</h2>
      <Form
        fields={[
          { name: 'operator_id', label: 'To the operator', required: true },
          { name: 'days', label: 'Days until it expires', type: 'number', min: 1, max: 3_650 },
        ]}
        button="Issue a key"
        submit={issue}
      />
      <h2>Add an operator</h2>
      <Form
        fields={[
          {
            name: 'operator_id',
            label: 'Id',
            required: true,
            pattern: String.raw`[a-z0-9][a-z0-9._\-]*`,
          },
          { name: 'name', label: 'Name', required: true },
          { name: 'role', label: 'Role', options: ['viewer', 'operator', 'admin', 'partner'] },
          { name: 'partner_id', label: 'Partner (for that role)' },
        ]}
        button="Add"
        submit={async ({ partner_id, ...person }) => {
          await post('/operators', partner_id === '' ? person : { ...person, partner_id });
          again();
        }}
      />
    </>
  );
}

const activeKeys = ({ keys }: OperatorView): OperatorView['keys'] =>
  keys.filter((key) => key.revoked_at === null);

/** When the last of these keys expires, for people. */
function lastEnd(keys: OperatorView['keys']): string {
  const ends = keys.flatMap(({ expires_at }) => expires_at ?? []).sort();
  if (keys.length === 0) return '–';
  return ends.length < keys.length ? 'never' : moment(ends.at(-1) ?? null);
}
