/** Operators with their keys, and the settings of this browser. */
import type { OperatorKeyGrant, OperatorView } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import { call, get, post, wordsOf } from './api.ts';
import { Facts, moment, setting, settings, Table, Trouble, useRead } from './parts.tsx';

export function OperatorsPage() {
  const { data, error, again } = useRead('operators', () =>
    get<{ operators: OperatorView[] }>('/operators'),
  );
  const [grant, setGrant] = useState<OperatorKeyGrant>();
  const [trouble, setTrouble] = useState<string>();
  const [days, setDays] = useState('');
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    setTrouble(undefined);
    try {
      await work();
      again();
    } catch (problem) {
      setTrouble(wordsOf(problem));
    }
  };
  return (
    <>
      <h1>Operators</h1>
      <Trouble error={error ?? trouble} />
      {grant === undefined ? null : (
        <p class="note" role="status">
          The key of {grant.operator_id}, shown this once: <code>{grant.operator_key}</code>
        </p>
      )}
      <Table
        caption="Operators"
        command={['operator', 'list']}
        rows={data?.operators ?? []}
        keyOf={(one) => one.operator_id}
        empty={data === undefined ? 'Loading…' : 'Only the admin key of the deployment.'}
        columns={[
          { head: 'Operator', cell: (one) => one.operator_id },
          { head: 'Name', cell: (one) => one.name },
          { head: 'Role', cell: (one) => [one.role, one.partner_id].filter(Boolean).join(' ') },
          { head: 'State', cell: (one) => (one.disabled_at === null ? 'active' : 'disabled') },
          {
            head: 'Active keys',
            number: true,
            cell: (one) => one.keys.filter((key) => key.revoked_at === null).length,
          },
          {
            head: 'Last key expires',
            cell: ({ keys }) => lastEnd(keys.filter((key) => key.revoked_at === null)),
          },
          {
            head: 'Act',
            cell: (one) => (
              <span class="buttons">
                <button
                  type="button"
                  aria-label={`Issue a key to ${one.operator_id}`}
                  onClick={() =>
                    void attempt(async () =>
                      setGrant(
                        await post<OperatorKeyGrant>(
                          `/operators/${one.operator_id}/keys`,
                          days === '' ? {} : { valid_for_days: Number(days) },
                        ),
                      ),
                    )
                  }
                >
                  Issue a key
                </button>
                {one.keys
                  .filter((key) => key.revoked_at === null)
                  .map((key) => (
                    <button
                      key={key.key_id}
                      type="button"
                      onClick={() =>
                        void attempt(() =>
                          call(
                            'DELETE',
                            `/admin/v1/operators/${one.operator_id}/keys/${key.key_id}`,
                          ),
                        )
                      }
                    >
                      Revoke {key.key_id.slice(0, 8)}
                    </button>
                  ))}
              </span>
            ),
          },
        ]}
      />
      <label>
        A new key expires after days <small>(empty: never)</small>
        <input
          type="number"
          min={1}
          max={3_650}
          value={days}
          onInput={({ currentTarget }) => setDays(currentTarget.value)}
        />
      </label>
      <AddOperator add={(body) => void attempt(() => post('/operators', body))} />
    </>
  );
}

function AddOperator({ add }: { add: (body: Record<string, unknown>) => void }) {
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const { partner_id, ...person } = Object.fromEntries(new FormData(event.currentTarget));
    add(partner_id === '' ? person : { ...person, partner_id });
  };
  return (
    <>
      <h2>Add an operator</h2>
      <form class="filters" onSubmit={submit}>
        <label>
          Id
          <input name="operator_id" required pattern="[a-z0-9][a-z0-9._\-]*" />
        </label>
        <label>
          Name
          <input name="name" required />
        </label>
        <label>
          Role
          <select name="role">
            <option>viewer</option>
            <option>operator</option>
            <option>admin</option>
            <option>partner</option>
          </select>
        </label>
        <label>
          Partner <small>(for that role)</small>
          <input name="partner_id" size={14} />
        </label>
        <button type="submit" class="primary">
          Add
        </button>
      </form>
    </>
  );
}

/** When the last of these keys expires, for people. */
function lastEnd(keys: OperatorView['keys']): string {
  const ends = keys.flatMap(({ expires_at }) => expires_at ?? []).sort();
  if (keys.length === 0) return '–';
  return ends.length < keys.length ? 'never' : moment(ends.at(-1) ?? null);
}

export function SettingsPage() {
  const { zone, shortcuts, everySeconds } = settings.value;
  return (
    <>
      <h1>Settings</h1>
      <form class="settings">
        <label>
          Times in
          <select
            value={zone}
            onChange={(event) =>
              setting({ zone: event.currentTarget.value === 'utc' ? 'utc' : 'local' })
            }
          >
            <option value="local">this computer’s zone</option>
            <option value="utc">UTC</option>
          </select>
        </label>
        <label>
          Refresh every
          <select
            value={String(everySeconds)}
            onChange={(event) => setting({ everySeconds: Number(event.currentTarget.value) })}
          >
            <option value="2">2 seconds</option>
            <option value="5">5 seconds</option>
            <option value="30">30 seconds</option>
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={shortcuts}
            onChange={(event) => setting({ shortcuts: event.currentTarget.checked })}
          />
          Shortcuts of one key
        </label>
      </form>
      <h2>Keys</h2>
      <Facts
        facts={[
          ['/', 'search'],
          ['j k', 'next and previous row'],
          ['Enter', 'open the row'],
          ['h l', 'page before and next page'],
          ['x', 'pick the row'],
          ['r', 'read again now'],
          ['Ctrl K', 'go to a page, or to an id'],
          [
            'g o · g p · g u · g t · g b · g r · g a · g e',
            'overview, payments, bulk, partners, batches, reconciliation, audit, people',
          ],
          ['?', 'this page'],
        ]}
      />
    </>
  );
}
