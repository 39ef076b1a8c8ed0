/** Partners: the list, and one with its health, its budget and its payments. */
import type {
  ClientKeyView,
  PartnerCallAnswer,
  PartnerHealth,
  PartnerTest,
  PartnerView,
} from '@duebridge/contract';
import { useState } from 'preact/hooks';
import { call, get, post, self } from './api.ts';
import { OutcomesChart, TimesChart } from './chart.tsx';
import { Ranges, useFigures } from './figures.tsx';
import {
  Act,
  Facts,
  isViewer,
  List,
  moment,
  needsAdmin,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { link } from './route.ts';

export function PartnersPage() {
  return (
    <>
      <h1>Partners</h1>
      <List<PartnerView>
        caption="Partners"
        command={['partner', 'list']}
        path="/partners"
        of="partners"
        keyOf={(one) => one.partner_id}
        empty="No partner is registered yet: duebridge platform partner add."
        columns={[
          {
            head: 'Partner',
            cell: (one) => <a href={link('partners', one.partner_id)}>{one.partner_id}</a>,
          },
          { head: 'Mode', cell: (one) => one.mode },
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
  // Its own people do not reach the figures of the process, and act on nothing.
  const isOwn = self.value?.role === 'partner';
  const breaker = useRead(`breaker ${id}`, () =>
    isOwn ? Promise.resolve(0) : readGauge('duebridge_breaker_open', id),
  );
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
  const set = (paused: boolean) => async (reason: string) => {
    await call('PATCH', `/admin/v1${path}`, { paused, reason });
    again();
    return paused ? `${id} is paused.` : `${id} is resumed.`;
  };
  return (
    <>
      {isOwn ? null : (
        <p>
          <a href={link('partners')}>Partners</a>
        </p>
      )}
      <h1>{data.name}</h1>
      <Trouble error={error} />
      <Facts
        facts={[
          ['Partner', <code>{id}</code>],
          ['Mode', data.mode === 'test' ? 'test: no money moves' : 'live'],
          ['State', data.pause_reason ?? 'active'],
          ...(isOwn
            ? []
            : ([
                ['Breaker here', breaker.data === 1 ? 'open: calls are held back' : 'closed'],
              ] as const)),
          ['Address', data.base_url],
          ['Sites that may show the page', data.origins.join(', ') || 'none'],
          [
            'Credentials',
            data.auth.method === 'key'
              ? `key in ${data.auth.header}`
              : `OAuth at ${data.auth.token_url}`,
          ],
          ['Calls at once', String(budget.max_concurrent_calls ?? '64 (default)')],
          ['Calls a second', String(budget.max_calls_per_second ?? '1000 (default)')],
          ['Payments', <a href={`${link('payments')}?partner_id=${id}`}>of this partner</a>],
        ]}
      />
      <div class="buttons" hidden={isOwn}>
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
            about={`Sends nothing to ${id} until it is resumed. Payments wait; none fails because of it.`}
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
      <Health path={path} id={id} />
      <AnswersTo path={path} id={id} />
      <Keys path={path} id={id} />
      <h2>Figures</h2>
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

/** The keys of its clients. */
function Keys({ path, id }: { path: string; id: string }) {
  return (
    <>
      <h2>Keys</h2>
      <List<ClientKeyView>
        caption="Keys of the API"
        command={['key', 'list', '--partner', id]}
        path={`${path}/keys`}
        of="keys"
        keyOf={(one) => one.key_id}
        empty="No key was issued."
        columns={[
          { head: 'Key', cell: (one) => one.key_id },
          { head: 'Client', cell: (one) => one.client_id },
          { head: 'Issued', cell: (one) => moment(one.created_at) },
          { head: 'Last used', cell: (one) => moment(one.last_used_at) },
          {
            head: 'State',
            cell: ({ revoked_at, expires_at }) =>
              revoked_at !== null
                ? `revoked ${moment(revoked_at)}`
                : expires_at === null
                  ? 'active'
                  : `until ${moment(expires_at)}`,
          },
        ]}
      />
    </>
  );
}

/** How its endpoint does, in plain words. */
function Health({ path, id }: { path: string; id: string }) {
  const { data, error } = useRead(`${path}/health`, () => get<PartnerHealth>(`${path}/health`));
  return (
    <>
      <h2>How its endpoint does</h2>
      <Trouble error={error} />
      {data?.summary.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      {data === undefined || data.troubles.length === 0 ? null : (
        <Table
          caption="Calls that failed, each kind with its latest payment"
          command={['partner', 'health', id]}
          rows={data.troubles}
          keyOf={(one) => one.what}
          empty=""
          columns={[
            { head: 'Times', number: true, cell: (one) => one.count },
            { head: 'What came', cell: (one) => one.what },
            {
              head: 'Latest',
              cell: ({ platform_payment_id: payment }) => (
                <a href={link('payments', payment)}>{payment}</a>
              ),
            },
          ]}
        />
      )}
    </>
  );
}

/** What Create Token answered the partner: the first thing it asks about. */
function AnswersTo({ path, id }: { path: string; id: string }) {
  return (
    <>
      <h2>What we answered its calls</h2>
      <List<PartnerCallAnswer>
        caption="Answers of Create Token in the last 30 days, by hour, latest first"
        command={['partner', 'answers', id]}
        path={`${path}/answers`}
        of="answers"
        keyOf={(one) => `${one.client_id} ${one.hour} ${one.status} ${one.cause}`}
        empty="It has not called in the last 30 days."
        columns={[
          { head: 'Last', cell: (one) => moment(one.last_at) },
          { head: 'Times', number: true, cell: (one) => one.count },
          {
            head: 'Answer',
            cell: ({ status, code }) => (
              <span class={`nowrap ${status < 400 ? 'succeeded' : 'failed'}`}>
                {status} {code}
              </span>
            ),
          },
          { head: 'Why', cell: (one) => one.cause },
          { head: 'Client', cell: (one) => <code class="id">{one.client_id}</code> },
          {
            head: 'Last request',
            cell: (one) => <code class="id">{one.request_id}</code>,
            copy: (one) => one.request_id,
          },
        ]}
      />
    </>
  );
}

/** One gauge of this process for one partner. */
async function readGauge(name: string, partner_id: string): Promise<number> {
  const text = await (await fetch('/metrics')).text();
  const line = text
    .split('\n')
    .find((one) => one.startsWith(`${name}{partner_id="${partner_id}"}`));
  return Number(line?.split(' ').at(-1) ?? 0);
}
