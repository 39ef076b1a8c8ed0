/** Tokens and sessions: what a partner's customers can open now, and the end of one. */
import type { AccessPage, AccessView, RevokedAccess } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { get, post } from './api.ts';
import {
  Act,
  age,
  fieldsOf,
  isViewer,
  moment,
  options,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { go, link, query, secret, withQuery } from './route.ts';

export function AccessPageOf() {
  const search = query.value.toString();
  const { email } = secret.value;
  const { data, error, again } = useRead(
    JSON.stringify(['access', search, email]),
    () =>
      email === undefined
        ? get<AccessPage>(`/access?${search}`)
        : post<AccessPage>('/access/search', { ...Object.fromEntries(query.value), email }),
    // The audit records each search for a person, so search only once.
    { live: email === undefined },
  );
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const field = fieldsOf(event.currentTarget);
    go(
      withQuery({ partner_id: field('partner_id'), client_id: field('client_id'), cursor: '' }),
      field('email') === '' ? {} : { email: field('email') },
    );
  };
  const opened = (one: AccessView): string => {
    const open = one.sessions.filter((session) => !session.ended);
    const last = open.at(-1);
    if (last === undefined)
      return one.opened === 0 ? 'not used' : `${one.opened} opened, none open`;
    return `${one.opened} opened, ${open.length} open until ${moment(last.expires_at)}`;
  };
  return (
    <>
      <h1>Access</h1>
      <p>The tokens that partners asked for, and the sessions that customers opened with them.</p>
      <search>
        {/* Default values: the page is drawn anew while somebody types, and must not take their text away. */}
        <form class="filters" key={search} onSubmit={submit}>
          <label>
            Partner
            <input name="partner_id" defaultValue={query.value.get('partner_id') ?? ''} />
          </label>
          <label>
            Client
            <input name="client_id" defaultValue={query.value.get('client_id') ?? ''} size={30} />
          </label>
          {isViewer() === undefined ? (
            <label>
              E-mail <small>(audited)</small>
              <input name="email" type="email" defaultValue={email ?? ''} autocomplete="off" />
            </label>
          ) : null}
          <button type="submit" class="primary">
            Find
          </button>
        </form>
      </search>
      <Trouble error={error} />
      <Table
        caption="Tokens, those that end last first"
        rows={data?.tokens ?? []}
        keyOf={(one) => one.token_id}
        empty={
          data === undefined ? 'Loading…' : 'No token: customers open the page with a new one.'
        }
        command={[
          'access',
          ...options({
            partner: query.value.get('partner_id'),
            client: query.value.get('client_id'),
          }),
        ]}
        columns={[
          {
            head: 'Token',
            cell: (one) => <code>{one.token_id.slice(0, 12)}…</code>,
            copy: (one) => one.token_id,
          },
          {
            head: 'Partner',
            cell: (one) => one.partner_id,
            filter: (one) => ({ partner_id: one.partner_id }),
          },
          {
            head: 'Client',
            cell: (one) => one.client_id,
            filter: (one) => ({ client_id: one.client_id }),
            copy: (one) => one.client_id,
          },
          { head: 'Account', cell: (one) => one.masked_account_id ?? '–' },
          { head: 'Age', cell: (one) => age(one.created_at) },
          { head: 'Ends', cell: (one) => (one.ended ? 'ended' : moment(one.expires_at)) },
          { head: 'Sessions', cell: opened },
          {
            head: 'Payments',
            cell: (one) =>
              one.payments.map((id) => (
                <>
                  <a href={link('payments', id)}>{id}</a>{' '}
                </>
              )),
          },
          {
            head: 'Act',
            cell: (one) =>
              one.ended && one.sessions.every((session) => session.ended) ? null : (
                <Act
                  label="End"
                  danger
                  blocked={isViewer()}
                  about={`Ends the token ${one.token_id.slice(0, 12)} of ${one.client_id} and its sessions. The customer has to start again from the partner's site; payments already made continue.`}
                  act={async (reason) => {
                    const { tokens, sessions } = await post<RevokedAccess>(
                      `/access/${one.token_id}/end`,
                      { reason },
                    );
                    again();
                    return `Ended ${tokens} tokens and ${sessions} sessions.`;
                  }}
                />
              ),
          },
        ]}
      />
      {(data?.next_cursor ?? null) === null ? null : (
        <p class="buttons">
          <a class="button" data-older href={withQuery({ cursor: data?.next_cursor ?? '' })}>
            Older
          </a>
        </p>
      )}
    </>
  );
}
