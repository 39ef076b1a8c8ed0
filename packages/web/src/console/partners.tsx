/** Partners: the list, and one with its health, its budget and its payments. */
import type {
  ClientKeyView,
  KeptConformanceReport,
  PartnerCallAnswer,
  PartnerHealth,
  PartnerTest,
  PartnerView,
} from '@duebridge/contract';
import { call, post, self } from './api.ts';
import { FiguresOf } from './figures.tsx';
import { Act, Facts, List, moment, Show, Table, toPartner, toPayment, words } from './parts.tsx';
import { Remittances } from './money.tsx';
import { link } from './route.ts';

export function PartnersPage() {
  return (
    <>
      <h1>Partners</h1>
      <List<PartnerView>
        caption="Partners"
        path="/partners"
        empty="No partner is registered yet: duebridge platform partner add."
        columns={[
          ['Partner', (one) => toPartner(one.partner_id)],
          ['Mode', (one) => one.mode],
          ['Name', (one) => one.name],
          ['Kind', (one) => one.kind],
          ['State', (one) => one.pause_reason ?? 'active'],
          ['Address', (one) => one.base_url],
        ]}
      />
    </>
  );
}

export function PartnerPage({ id }: { id: string }) {
  const path = `/partners/${encodeURIComponent(id)}`;
  return (
    <>
      {self.value?.role !== 'partner' && (
        <p>
          <a href={link('partners')}>Partners</a>
        </p>
      )}
      <Show<PartnerView> path={path}>
        {(data) => (
          <>
            <h1>{data.name}</h1>
            <Facts facts={factsOf(data)} />
            {/* Its own people act on nothing. */}
            {self.value?.role !== 'partner' && <Acts {...{ data, path }} />}
          </>
        )}
      </Show>
      <h2>How its endpoint does</h2>
      <Show<PartnerHealth> path={`${path}/health`}>
        {({ summary, troubles }) => (
          <>
            {summary.map((sentence) => (
              <p key={sentence}>{sentence}</p>
            ))}
            <Table
              caption="Calls that failed, each kind with its latest payment"
              rows={troubles}
              empty="No call failed."
              columns={[
                ['Times', (one) => one.count, 'number'],
                ['What came', (one) => one.what],
                ['Latest', (one) => toPayment(one.platform_payment_id)],
              ]}
            />
          </>
        )}
      </Show>
      {/* The first thing that a partner asks about. */}
      <h2>What we answered its calls</h2>
      <List<PartnerCallAnswer>
        caption="Answers of Create Token in the last 30 days, by hour, latest first"
        path={`${path}/answers`}
        empty="It has not called in the last 30 days."
        columns={[
          ['Last', (one) => moment(one.last_at)],
          ['Times', (one) => one.count, 'number'],
          [
            'Answer',
            ({ status, code }) => (
              <span class={`nowrap ${status < 400 ? 'succeeded' : 'failed'}`}>
                {status} {code}
              </span>
            ),
          ],
          ['Why', (one) => one.cause],
          ['Client', (one) => <code class="id">{one.client_id}</code>],
          ['Last request', (one) => <code class="id">{one.request_id}</code>],
        ]}
      />
      <h2>Conformance report</h2>
      <Show<{ report: KeptConformanceReport | null }> path={`${path}/conformance-report`}>
        {({ report }) => (report === null ? <NoReport id={id} /> : <Report report={report} />)}
      </Show>
      <h2>Keys</h2>
      <List<ClientKeyView>
        caption="Keys of the API"
        path={`${path}/keys`}
        empty="No key was issued."
        columns={[
          ['Key', (one) => one.key_id],
          ['Client', (one) => one.client_id],
          ['Issued', (one) => moment(one.created_at)],
          ['Last used', (one) => moment(one.last_used_at)],
          ['State', stateOf],
        ]}
      />
      <h2>What it is paid</h2>
      <Remittances of={{ partner_id: id }} />
      <h2>Figures</h2>
      <FiguresOf partner_id={id} />
    </>
  );
}

function NoReport({ id }: { id: string }) {
  return (
    <p>
      No report yet: run{' '}
      <code>npx duebridge conform partner my-server.json --json &gt; report.json</code> and{' '}
      <code>duebridge platform partner report {id} --file report.json</code>.
    </p>
  );
}

const VERDICTS: Readonly<Record<KeptConformanceReport['verdict'], string>> = {
  passed: '✓ Conforms to the interface',
  failed: '✕ Breaks the interface',
  partial: '… Not everything could be judged',
};

/** As its uploader sent it: the platform did not run it. Every text is shown as text. */
function Report({ report }: { report: KeptConformanceReport }) {
  const { others, passed, verdict } = report;
  const count = (of: string): number => others.filter((one) => one.verdict === of).length;
  const failed = count('failed');
  return (
    <>
      <p class={verdict === 'passed' && failed === 0 ? 'succeeded' : 'failed'}>
        {/* Failures that the run was told of, such as known ones, leave it passed. */}
        {verdict === 'passed' && failed > 0
          ? '! Breaks the interface only where its owner knows it'
          : VERDICTS[verdict]}
      </p>
      <Facts
        facts={[
          ['Run', moment(report.started_at)],
          ['Uploaded', moment(report.uploaded_at)],
          ['Server', report.base_url],
          [
            'Profile',
            report.profile === 'contract'
              ? 'contract: only the interface'
              : 'strict: the interface, and our decisions where it is silent',
          ],
          [
            'Checks',
            `${passed} passed, ${failed} failed, ${count('warned')} with a warning, ${count('not_judged')} not judged`,
          ],
        ]}
      />
      <Table
        caption="Checks that did not pass"
        rows={others}
        empty="Every check passed."
        columns={[
          ['Check', (one) => one.check],
          ['Found', (one) => words(one.verdict)],
          ['What it checks', (one) => one.title],
          ['Why', (one) => one.why],
        ]}
      />
    </>
  );
}

function factsOf({ partner_id: id, mode, auth, budget = {}, ...data }: PartnerView) {
  return [
    ['Partner', <code>{id}</code>],
    ['Mode', mode === 'test' ? 'test: no money moves' : 'live'],
    ['State', data.pause_reason ?? 'active'],
    ['Address', data.base_url],
    ['Sites that may show the page', data.origins.join(', ') || 'none'],
    ['Credentials', auth.method === 'key' ? `key in ${auth.header}` : `OAuth at ${auth.token_url}`],
    ['Calls at once', budget.max_concurrent_calls ?? '64 (default)'],
    ['Calls a second', budget.max_calls_per_second ?? '1000 (default)'],
    ['Payments', <a href={`${link('payments')}?partner_id=${id}`}>of this partner</a>],
  ] as const;
}

function stateOf({ revoked_at, expires_at }: ClientKeyView): string {
  if (revoked_at !== null) return `revoked ${moment(revoked_at)}`;
  return expires_at === null ? 'active' : `until ${moment(expires_at)}`;
}

function Acts({ data, path }: { data: PartnerView; path: string }) {
  const { partner_id: id, paused } = data;
  return (
    <div class="buttons">
      <Act
        label={paused ? 'Resume' : 'Pause'}
        danger={!paused}
        role="admin"
        about={
          paused
            ? `Sends to ${id} again.`
            : `Sends nothing to ${id} until it is resumed. Payments wait; none fails because of it.`
        }
        act={async (reason) => {
          await call('PATCH', `/admin/v1${path}`, { paused: !paused, reason });
          return `${id} is ${paused ? 'resumed' : 'paused'}.`;
        }}
      />
      <Act
        label="Test the connection"
        about={`Asks ${id} for an account that it does not have, with its credentials.`}
        reasonLabel={null}
        act={async () => {
          const { finding, took_ms } = await post<PartnerTest>(`${path}/test`);
          return `${finding} (${took_ms} ms)`;
        }}
      />
    </div>
  );
}
