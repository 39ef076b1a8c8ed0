/** The other pages: overview, partners, batches and differences, audit, people, operators, settings. */
import type {
  AuditPage,
  BatchView,
  DifferencePage,
  FailureReasons,
  Figures,
  ListedBatch,
  OpenDifference,
  OperatorKeyGrant,
  OperatorView,
  Overview,
  PartnerTest,
  PartnerView,
  Person,
  PersonErasure,
  Reconciliation,
} from '@duebridge/contract';
import type { ComponentChildren, TargetedEvent, TargetedSubmitEvent } from 'preact';
import { useState } from 'preact/hooks';
import { call, get, post, self } from './api.ts';
import { OutcomesChart, TimesChart } from './chart.tsx';
import {
  Act,
  age,
  announcement,
  Facts,
  fieldsOf,
  moment,
  money,
  setting,
  settings,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { paymentColumns } from './payments.tsx';
import { go, link, query, withQuery } from './route.ts';

const isViewer = (): string | undefined =>
  self.value?.role === 'viewer' ? 'Your role only reads.' : undefined;
const needsAdmin = (): string | undefined =>
  self.value?.role === 'admin' ? undefined : 'Needs the role admin.';

const ranges = ['1h', '24h', '7d'] as const;

function Ranges() {
  const range = query.value.get('range') ?? '24h';
  return (
    <nav class="views" aria-label="Time">
      {ranges.map((one) => (
        <a
          key={one}
          href={withQuery({ range: one })}
          aria-current={one === range ? 'page' : undefined}
        >
          {one}
        </a>
      ))}
    </nav>
  );
}

function useFigures(partner_id?: string) {
  const range = query.value.get('range') ?? '24h';
  const search = new URLSearchParams({
    range,
    ...(partner_id === undefined ? {} : { partner_id }),
  });
  return useRead(`figures ${search}`, () => get<Figures>(`/figures?${search}`));
}

// Overview -------------------------------------------------------------------------------------------------------------------

export function OverviewPage() {
  const { data, error } = useRead('overview', () => get<Overview>('/overview'));
  const figures = useFigures();
  const range = query.value.get('range') ?? '24h';
  const failures = useRead(`failures ${range}`, () =>
    get<FailureReasons>(`/failures?range=${range}`),
  );
  return (
    <>
      <h1>Overview</h1>
      <Trouble error={error ?? figures.error ?? failures.error} />
      {data === undefined ? (
        <p>Loading…</p>
      ) : (
        <>
          <ul class="cards">
            <Card name="In flight" value={data.in_flight} to="?status=processing" />
            <Card
              name="Needs a human"
              value={data.reviews.reduce((sum, one) => sum + one.count, 0)}
              to="?stage=review"
              alarm
            />
            <Card name="Overdue" value={data.overdue} to="?overdue=true" alarm />
            <Card name="Unsettled" value={data.unsettled} to="?unsettled=true" />
            <li class={data.open_differences > 0 ? 'alarm' : ''}>
              <a href={link('reconciliation')}>
                <strong>{data.open_differences}</strong> Open differences
              </a>
            </li>
          </ul>
          <h2>Waiting for a person</h2>
          <Table
            caption="Reviews by reason"
            rows={data.reviews}
            keyOf={(one) => one.reason}
            empty="Nothing waits for a person."
            columns={[
              {
                head: 'Reason',
                cell: (one) => <a href={`${link('payments')}?stage=review`}>{one.reason}</a>,
              },
              { head: 'Payments', number: true, cell: (one) => one.count },
              { head: 'Oldest waits', cell: (one) => age(one.oldest_at) },
            ]}
          />
          <h2>Why payments failed</h2>
          <Table
            caption="Reasons of failures in this time, the commonest first"
            rows={failures.data?.reasons ?? []}
            keyOf={(one) => one.reason}
            empty="No payment failed."
            columns={[
              { head: 'Reason', cell: (one) => one.reason },
              { head: 'Payments', number: true, cell: (one) => one.count },
              { head: 'The period before', number: true, cell: (one) => one.before },
            ]}
          />
          {data.partners_held.length === 0 ? null : (
            <>
              <h2>Partners that are held</h2>
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

function Card(props: { name: string; value: number; to: string; alarm?: boolean }) {
  return (
    <li class={props.alarm === true && props.value > 0 ? 'alarm' : ''}>
      <a href={link('payments') + props.to}>
        <strong>{props.value}</strong> {props.name}
      </a>
    </li>
  );
}

// Partners -------------------------------------------------------------------------------------------------------------------

export function PartnersPage() {
  const { data, error } = useRead('partners', () => get<{ partners: PartnerView[] }>('/partners'));
  return (
    <>
      <h1>Partners</h1>
      <Trouble error={error} />
      <Table
        caption="Partners"
        rows={data?.partners ?? []}
        keyOf={(one) => one.partner_id}
        empty={
          data === undefined
            ? 'Loading…'
            : 'No partner is registered yet: duebridge platform partner add.'
        }
        columns={[
          {
            head: 'Partner',
            cell: (one) => <a href={link('partners', one.partner_id)}>{one.partner_id}</a>,
          },
          { head: 'Name', cell: (one) => one.name },
          { head: 'Kind', cell: (one) => one.kind },
          { head: 'State', cell: (one) => one.pause_reason ?? 'active' },
          { head: 'Address', cell: (one) => one.base_url },
        ]}
      />
    </>
  );
}

export function PartnerPage({ id }: { id: string }) {
  const path = `/partners/${encodeURIComponent(id)}`;
  const { data, error, again } = useRead(`partner ${id}`, () => get<PartnerView>(path));
  const breaker = useRead(`breaker ${id}`, () => readGauge('duebridge_breaker_open', id));
  const figures = useFigures(id);
  const [test, setTest] = useState<string>();
  if (data === undefined) {
    return (
      <>
        <h1>{id}</h1>
        {error === undefined ? <p>Loading…</p> : <Trouble error={error} />}
      </>
    );
  }
  const { budget = {} } = data;
  const last = figures.data?.points.findLast((point) => point.samples > 0);
  const set = (paused: boolean) => async (reason: string) => {
    await call('PATCH', `/admin/v1${path}`, { paused, reason });
    again();
    return paused ? `${id} is paused.` : `${id} is resumed.`;
  };
  return (
    <>
      <p>
        <a href={link('partners')}>Partners</a>
      </p>
      <h1>{data.name}</h1>
      <Trouble error={error} />
      <Facts
        facts={[
          ['Partner', <code>{id}</code>],
          ['State', data.pause_reason ?? 'active'],
          ['Breaker here', breaker.data === 1 ? 'open: calls are held back' : 'closed'],
          ['Address', data.base_url],
          [
            'Credentials',
            data.auth.method === 'key'
              ? `key in ${data.auth.header}`
              : `OAuth at ${data.auth.token_url}`,
          ],
          ['Calls at once', String(budget.max_concurrent_calls ?? '64 (default)')],
          ['Calls a second', String(budget.max_calls_per_second ?? '1000 (default)')],
          [
            'Usual time to posted',
            last?.p50_ms === undefined || last.p50_ms === null
              ? 'not known yet'
              : `${Math.round(last.p50_ms)} ms; 95 of 100 within ${Math.round(last.p95_ms ?? 0)} ms`,
          ],
          ['Payments', <a href={`${link('payments')}?partner_id=${id}`}>of this partner</a>],
        ]}
      />
      <div class="buttons">
        {data.paused ? (
          <Act
            label="Resume"
            blocked={needsAdmin()}
            about={`Sends to ${id} again.`}
            act={set(false)}
          />
        ) : (
          <Act
            label="Pause"
            danger
            blocked={needsAdmin()}
            about={`Sends nothing to ${id} until it is resumed. Payments wait; none fails by it.`}
            act={set(true)}
          />
        )}
        <button
          type="button"
          disabled={isViewer() !== undefined}
          onClick={() => {
            setTest('Trying…');
            post<PartnerTest>(`${path}/test`).then(
              (found) => setTest(`${found.finding} (${found.took_ms} ms)`),
              (trouble: unknown) => setTest(String(trouble)),
            );
          }}
        >
          Test the connection
        </button>
      </div>
      <p role="status">{test}</p>
      <Ranges />
      {figures.data === undefined ? null : (
        <>
          <TimesChart figures={figures.data} />
          <OutcomesChart figures={figures.data} />
        </>
      )}
    </>
  );
}

/** One gauge of this process, for one partner. */
async function readGauge(name: string, partner_id: string): Promise<number> {
  const text = await (await fetch('/metrics')).text();
  const line = text
    .split('\n')
    .find((one) => one.startsWith(`${name}{partner_id="${partner_id}"}`));
  return Number(line?.split(' ').at(-1) ?? 0);
}

// Batches and differences ------------------------------------------------------------------------------------------------------

export function BatchesPage() {
  const { data, error } = useRead('batches', () => get<{ batches: ListedBatch[] }>('/batches'));
  return (
    <>
      <h1>Batches</h1>
      <Trouble error={error} />
      <Table
        caption="Batches, latest first"
        rows={data?.batches ?? []}
        keyOf={(one) => one.platform_batch_id}
        empty={data === undefined ? 'Loading…' : 'No payment was made yet.'}
        columns={[
          {
            head: 'Batch',
            cell: (one) => (
              <a href={link('batches', one.platform_batch_id)}>{one.platform_batch_id}</a>
            ),
          },
          { head: 'Partner', cell: (one) => one.partner_id },
          { head: 'Payments', number: true, cell: (one) => one.statement?.count ?? '–' },
          {
            head: 'Sum',
            number: true,
            cell: (one) =>
              one.statement === null
                ? '–'
                : money(
                    one.statement.totals.reduce(
                      (sum, { amount_in_cents }) => sum + amount_in_cents,
                      0,
                    ),
                  ),
          },
          { head: 'Window ends', cell: (one) => moment(one.cutoff_at) },
          { head: 'Closed', cell: (one) => moment(one.closed_at) },
        ]}
      />
    </>
  );
}

/** What the partner said when the batch was last compared. */
function comparisonFacts({
  comparison,
  statement,
}: BatchView): (readonly [string, ComponentChildren])[] {
  if (comparison === null) return [['Compared with the partner', 'never']];
  const { compared_at, actor, method, differences, partner_statement: theirs } = comparison;
  return [
    [
      'Compared with the partner',
      `${moment(compared_at)} by ${actor}, by ${method}: ${differences} differences`,
    ],
    [
      'Statement of the partner',
      theirs === null ? (
        'It has none.'
      ) : (
        <>
          {theirs.count} payments, <code>{theirs.sha256}</code>{' '}
          {theirs.sha256 === statement.sha256 ? '(the same)' : '(another)'}
        </>
      ),
    ],
  ];
}

export function BatchPageOf({ id }: { id: string }) {
  const path = `/batches/${encodeURIComponent(id)}`;
  const { data, error, again } = useRead(`batch ${id}`, () => get<BatchView>(path));
  const [result, setResult] = useState<Reconciliation>();
  const [trouble, setTrouble] = useState<string>();
  const [turn, setTurn] = useState(0);
  const run = async (reconcile: () => Promise<Reconciliation>): Promise<void> => {
    setTrouble(undefined);
    try {
      const found = await reconcile();
      setResult(found);
      setTurn(turn + 1);
      again();
      announcement.value = `${found.differences.length} differences in ${found.compared} payments`;
    } catch (problem) {
      setTrouble(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const upload = (event: TargetedEvent<HTMLInputElement>): void => {
    const file = event.currentTarget.files?.[0];
    if (file !== undefined) void run(() => post<Reconciliation>(`${path}/reconcile-file`, file));
    event.currentTarget.value = '';
  };
  return (
    <>
      <p>
        <a href={link('batches')}>Batches</a>
      </p>
      <h1>Batch {id}</h1>
      <Trouble error={error ?? trouble} />
      {data === undefined ? null : (
        <>
          <Facts
            facts={[
              ['Partner', <a href={link('partners', data.partner_id)}>{data.partner_id}</a>],
              ['Opened', moment(data.opened_at)],
              ['Window ends', moment(data.cutoff_at)],
              ['Closed', moment(data.closed_at)],
              [
                'Payments',
                <a href={`${link('payments')}?platform_batch_id=${id}`}>{data.statement.count}</a>,
              ],
              ...data.statement.totals.map(
                (total) =>
                  [total.status, `${total.count}, ${money(total.amount_in_cents)}`] as const,
              ),
              ['SHA-256 of the statement', <code>{data.statement.sha256}</code>],
              ...comparisonFacts(data),
            ]}
          />
          <div class="buttons">
            <button
              type="button"
              class="primary"
              disabled={isViewer() !== undefined}
              onClick={() => void run(() => post<Reconciliation>(`${path}/reconcile`, {}))}
            >
              Compare with the partner
            </button>
            <label class="button">
              Compare with a file
              <input
                type="file"
                accept=".csv,text/csv"
                disabled={isViewer() !== undefined}
                onChange={upload}
              />
            </label>
            <Act
              label="Close the batch"
              blocked={isViewer() ?? (data.closed_at === null ? undefined : 'It is closed.')}
              about={`Writes the statement of ${id}, once.`}
              act={async (reason) => {
                await post(`${path}/close`, { reason });
                again();
                return 'The batch is closed.';
              }}
            />
          </div>
        </>
      )}
      {result === undefined ? null : (
        <p class="note">
          Compared {result.compared} payments by {result.method}: {result.differences.length}{' '}
          differences.
        </p>
      )}
      <h2>Differences</h2>
      <Differences key={turn} search={{ platform_batch_id: id }} />
    </>
  );
}

export function ReconciliationPage() {
  const state = query.value.get('state') ?? 'open';
  return (
    <>
      <h1>Reconciliation</h1>
      <nav class="views" aria-label="State">
        {['open', 'resolved'].map((one) => (
          <a
            key={one}
            href={withQuery({ state: one })}
            aria-current={one === state ? 'page' : undefined}
          >
            {one}
          </a>
        ))}
      </nav>
      <Differences search={{ state }} />
    </>
  );
}

/** How long a difference stands, as people who work through them sort it. */
function ageing(found_at: string): string {
  const hours = (Date.now() - Date.parse(found_at)) / 3_600_000;
  if (hours < 1) return '0–1 h';
  if (hours < 24) return '1–24 h';
  return hours < 72 ? '1–3 d' : '> 3 d';
}

function Differences({ search }: { search: Record<string, string> }) {
  const text = new URLSearchParams(search).toString();
  const { data, error, again } = useRead(`differences ${text}`, () =>
    get<DifferencePage>(`/differences?${text}`),
  );
  return (
    <>
      <Trouble error={error} />
      <Table
        caption="Differences, newest first"
        rows={data?.differences ?? []}
        keyOf={(one) => one.difference_id}
        empty={data === undefined ? 'Loading…' : 'There is no difference.'}
        columns={[
          { head: 'Kind', cell: (one) => one.kind.replace('_', ' ') },
          {
            head: 'Payment',
            cell: (one) => (
              <a href={link('payments', one.platform_payment_id)}>{one.platform_payment_id}</a>
            ),
          },
          { head: 'Here', cell: (one) => one.here ?? '–' },
          { head: 'There', cell: (one) => one.there ?? '–' },
          {
            head: 'Amount',
            number: true,
            cell: (one) => (one.amount_in_cents === null ? '–' : money(one.amount_in_cents)),
          },
          {
            head: 'Age',
            cell: (one) => (one.resolved_at === null ? ageing(one.found_at) : 'resolved'),
          },
          { head: 'Resolution', cell: (one) => resolutionOf(one, again) },
        ]}
      />
    </>
  );
}

function resolutionOf(one: OpenDifference, again: () => void) {
  if (one.resolved_at !== null) return `${one.resolution} (${one.resolved_by})`;
  return (
    <Act
      label="Resolve"
      blocked={isViewer()}
      about={`Resolves the difference ${one.kind} of payment ${one.platform_payment_id}. Nothing is changed on either side.`}
      reasonLabel="How it was resolved, kept in the audit"
      act={async (reason) => {
        await post(`/differences/${one.difference_id}/resolve`, { reason });
        again();
        return 'The difference is resolved.';
      }}
    />
  );
}

// Audit, people, operators, settings ---------------------------------------------------------------------------------------------

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
        empty={data === undefined ? 'Loading…' : 'Nothing is noted like this.'}
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
      setTrouble(problem instanceof Error ? problem.message : String(problem));
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
          <Table
            caption="Their payments"
            rows={person.payments}
            keyOf={(one) => one.platform_payment_id}
            empty="No payment."
            columns={paymentColumns}
          />
          <Act
            label="Erase this person"
            danger
            blocked={needsAdmin()}
            about={`Erases name, addresses and phone of ${asked} forever. The facts of payments stay.`}
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

export function OperatorsPage() {
  const { data, error, again } = useRead('operators', () =>
    get<{ operators: OperatorView[] }>('/operators'),
  );
  const [grant, setGrant] = useState<OperatorKeyGrant>();
  const [trouble, setTrouble] = useState<string>();
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    setTrouble(undefined);
    try {
      await work();
      again();
    } catch (problem) {
      setTrouble(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const add = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void attempt(() => post('/operators', Object.fromEntries(new FormData(event.currentTarget))));
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
        rows={data?.operators ?? []}
        keyOf={(one) => one.operator_id}
        empty={data === undefined ? 'Loading…' : 'Only the admin key of the deployment.'}
        columns={[
          { head: 'Operator', cell: (one) => one.operator_id },
          { head: 'Name', cell: (one) => one.name },
          { head: 'Role', cell: (one) => one.role },
          { head: 'State', cell: (one) => (one.disabled_at === null ? 'active' : 'disabled') },
          {
            head: 'Active keys',
            number: true,
            cell: (one) => one.keys.filter((key) => key.revoked_at === null).length,
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
                      setGrant(await post<OperatorKeyGrant>(`/operators/${one.operator_id}/keys`)),
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
      <h2>Add an operator</h2>
      <form class="filters" onSubmit={add}>
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
          </select>
        </label>
        <button type="submit" class="primary">
          Add
        </button>
      </form>
    </>
  );
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
          [
            'g o · g p · g t · g b · g r · g a',
            'overview, payments, partners, batches, reconciliation, audit',
          ],
          ['?', 'this page'],
        ]}
      />
    </>
  );
}
