/** Batches, their reconciliation, and the open differences. */
import type {
  BatchView,
  DifferenceAge,
  DifferencePage,
  DifferenceSummary,
  ListedBatch,
  OpenDifference,
  Reconciliation,
} from '@duebridge/contract';
import type { ComponentChildren, TargetedEvent } from 'preact';
import { useState } from 'preact/hooks';
import { get, post, wordsOf } from './api.ts';
import {
  Act,
  age,
  announcement,
  counted,
  Facts,
  isViewer,
  List,
  moment,
  money,
  options,
  Table,
  Trouble,
  useRead,
} from './parts.tsx';
import { link, query, withQuery } from './route.ts';

export function BatchesPage() {
  return (
    <>
      <h1>Batches</h1>
      <List<ListedBatch>
        caption="Batches, latest first"
        command={['batch']}
        path="/batches"
        of="batches"
        keyOf={(one) => one.platform_batch_id}
        empty="No payments yet."
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
          {
            head: 'Compared with the partner',
            cell: ({ differences }) =>
              differences === null ? 'not compared yet' : counted(differences, 'difference'),
          },
        ]}
      />
    </>
  );
}

/** The partner's figures when the batch was last compared. */
function comparisonFacts({
  comparison,
  statement,
}: BatchView): (readonly [string, ComponentChildren])[] {
  if (comparison === null) return [['Compared with the partner', 'not compared yet']];
  const { compared_at, actor, method, differences, partner_statement: theirs } = comparison;
  return [
    [
      'Compared with the partner',
      `${moment(compared_at)}${actor === '' ? '' : ` by ${actor}`}, by ${method}: ${counted(differences, 'difference')}`,
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
  const [progress, setProgress] = useState<string>();
  const [turn, setTurn] = useState(0);
  const run = async (reconcile: () => Promise<Reconciliation>): Promise<void> => {
    setTrouble(undefined);
    setProgress('Comparing…');
    try {
      let found = await reconcile();
      // Reading payment by payment answers with its progress until it has ended.
      while (found.running !== undefined) {
        announcement.value = `${found.compared} of ${found.running.of} payments compared`;
        setProgress(announcement.value);
        found = await reconcile();
      }
      setProgress(undefined);
      setResult(found);
      setTurn(turn + 1);
      again();
      announcement.value = `${counted(found.differences.length, 'difference')} in ${counted(found.compared, 'payment')}`;
    } catch (problem) {
      setProgress(undefined);
      setTrouble(wordsOf(problem));
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
          Compared {counted(result.compared, 'payment')} by {result.method}:{' '}
          {counted(result.differences.length, 'difference')}. {result.file_needed}
        </p>
      )}
      {progress === undefined ? null : (
        <p class="note">
          <progress /> {progress}
        </p>
      )}
      <h2>Differences</h2>
      <Summary key={`summary ${turn}`} search={{ platform_batch_id: id }} />
      <Differences
        key={turn}
        search={{ platform_batch_id: id }}
        none={data?.comparison ? 'No differences were found.' : 'Not compared yet.'}
      />
    </>
  );
}

export function ReconciliationPage() {
  const state = query.value.get('state') ?? 'open';
  const chosen = query.value.get('age');
  return (
    <>
      <h1>Reconciliation</h1>
      <nav class="views" aria-label="State">
        {['open', 'resolved'].map((one) => (
          <a
            key={one}
            href={withQuery({ state: one, age: '' })}
            aria-current={one === state ? 'page' : undefined}
          >
            {one}
          </a>
        ))}
      </nav>
      <Summary search={{}} />
      <Differences
        search={chosen === null ? { state } : { state, age: chosen }}
        none={`No ${state} differences in the batches that were compared.`}
      />
      <p>
        <a href={link('batches')}>Which batches were compared</a>
      </p>
    </>
  );
}

/** The ages as people read them. */
const AGES: Readonly<Record<DifferenceAge, string>> = {
  '1h': '0–1 h',
  '24h': '1–24 h',
  '3d': '1–3 d',
  older: '> 3 d',
};

/** The open differences by age, each age a link to its list, and what their payments amount to. */
function Summary({ search }: { search: Record<string, string> }) {
  const text = new URLSearchParams(search).toString();
  const { data, error } = useRead(`summary ${text}`, () =>
    get<DifferenceSummary>(`/differences/summary?${text}`),
  );
  if (data === undefined) return <Trouble error={error} />;
  if (data.open === 0) return null;
  const { oldest_found_at, unknown_values } = data;
  return (
    <>
      <ul class="cards" aria-label="Open differences by age">
        {data.ages.map((one) => (
          <li key={one.age} class={one.age === 'older' && one.open > 0 ? 'alarm' : ''}>
            <a
              href={`${link('reconciliation')}?${new URLSearchParams({ state: 'open', age: one.age })}`}
            >
              <strong>{one.open}</strong> {AGES[one.age]}, {money(one.value_at_risk_in_cents)}
            </a>
          </li>
        ))}
      </ul>
      <Facts
        facts={[
          [
            'Value at risk',
            `${money(data.value_at_risk_in_cents)}${unknown_values === 0 ? '' : `, and ${unknown_values} more whose amount only the partner knows`}`,
          ],
          ['Oldest', oldest_found_at === null ? '–' : `found ${age(oldest_found_at)} ago`],
        ]}
      />
    </>
  );
}

/** The age of a difference, in the ranges by which people sort their work. */
function ageing(found_at: string): string {
  const hours = (Date.now() - Date.parse(found_at)) / 3_600_000;
  return AGES[hours < 1 ? '1h' : hours < 24 ? '24h' : hours < 72 ? '3d' : 'older'];
}

function Differences({
  search,
  none,
}: {
  search: Record<string, string>;
  /** What is said when there are none: also where nothing was compared. */
  none: string;
}) {
  const text = new URLSearchParams(search).toString();
  const { data, error, again } = useRead(`differences ${text}`, () =>
    get<DifferencePage>(`/differences?${text}`),
  );
  return (
    <>
      <Trouble error={error} />
      <Table
        caption="Differences, newest first"
        command={[
          'differences',
          ...options({
            state: search['state'],
            age: search['age'],
            batch: search['platform_batch_id'],
          }),
        ]}
        rows={data?.differences ?? []}
        keyOf={(one) => one.difference_id}
        empty={data === undefined ? 'Loading…' : none}
        columns={[
          { head: 'Kind', cell: (one) => one.kind.replace('_', ' ') },
          {
            head: 'Payment',
            cell: (one) => (
              <a href={link('payments', one.platform_payment_id)}>{one.platform_payment_id}</a>
            ),
          },
          { head: 'Here', cell: (one) => sideOf(one, one.here) },
          { head: 'At the partner', cell: (one) => sideOf(one, one.there) },
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

/** What one side says: amounts in dollars, whichever kind the difference is of. */
function sideOf({ kind, amount_in_cents }: OpenDifference, said: string | null) {
  if (said === null) return 'does not have it';
  if (kind === 'amount') return money(Number(said));
  return amount_in_cents === null ? said : `${said}, ${money(amount_in_cents)}`;
}

function resolutionOf(one: OpenDifference, again: () => void) {
  if (one.resolved_at !== null) {
    // A partner's own people read neither.
    return one.resolution === null ? 'resolved' : `${one.resolution} (${one.resolved_by})`;
  }
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
