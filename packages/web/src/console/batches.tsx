/** Batches, their reconciliation, and the open differences. */
import type { BatchView, ListedBatch, OpenDifference, Reconciliation } from '@duebridge/contract';
import type { ComponentChildren, TargetedEvent } from 'preact';
import { useState } from 'preact/hooks';
import { post, wordsOf } from './api.ts';
import {
  Act,
  age,
  announcement,
  Choices,
  chosen,
  counted,
  Facts,
  isViewer,
  List,
  moment,
  money,
  reread,
  Show,
  toBatch,
  toPartner,
  toPayment,
  Trouble,
  words,
} from './parts.tsx';
import { link } from './route.ts';

export function BatchesPage() {
  return (
    <>
      <h1>Batches</h1>
      <List<ListedBatch>
        caption="Batches, latest first"
        path="/batches"
        empty="No payments yet."
        columns={[
          ['Batch', (one) => toBatch(one.platform_batch_id)],
          ['Partner', (one) => one.partner_id],
          ['Payments', (one) => one.statement?.count ?? '–', 'number'],
          ['Sum', ({ statement }) => (statement === null ? '–' : sumOf(statement)), 'number'],
          ['Window ends', (one) => moment(one.cutoff_at)],
          ['Closed', (one) => moment(one.closed_at)],
          [
            'Compared with the partner',
            ({ differences }) =>
              differences === null ? 'not compared yet' : counted(differences, 'difference'),
          ],
        ]}
      />
    </>
  );
}

const sumOf = ({ totals }: NonNullable<ListedBatch['statement']>): string =>
  money(totals.reduce((sum, { amount_in_cents }) => sum + amount_in_cents, 0));

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
  return (
    <>
      <p>
        <a href={link('batches')}>Batches</a>
      </p>
      <h1>Batch {id}</h1>
      <Show<BatchView> path={path}>{(data) => <Batch {...{ data, path }} />}</Show>
    </>
  );
}

function Batch({ data, path }: { data: BatchView; path: string }) {
  const { platform_batch_id: id, statement } = data;
  const [trouble, setTrouble] = useState<string>();
  const [progress, setProgress] = useState<ComponentChildren>();
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
      reread();
      announcement.value = `${counted(found.differences.length, 'difference')} in ${counted(found.compared, 'payment')}. ${found.file_needed ?? ''}`;
    } catch (problem) {
      setTrouble(wordsOf(problem));
    }
    setProgress(undefined);
  };
  const upload = ({ currentTarget }: TargetedEvent<HTMLInputElement>): void => {
    const file = currentTarget.files?.[0];
    if (file !== undefined) void run(() => post<Reconciliation>(`${path}/reconcile-file`, file));
    currentTarget.value = '';
  };
  const isBlocked = isViewer() !== undefined || progress !== undefined;
  return (
    <>
      <Trouble error={trouble} />
      <Facts
        facts={[
          ['Partner', toPartner(data.partner_id)],
          ['Opened', moment(data.opened_at)],
          ['Window ends', moment(data.cutoff_at)],
          ['Closed', moment(data.closed_at)],
          ['Payments', <a href={`${link('payments')}?id=${id}`}>{statement.count}</a>],
          ...statement.totals.map(
            (one) => [one.status, `${one.count}, ${money(one.amount_in_cents)}`] as const,
          ),
          ['SHA-256 of the statement', <code>{statement.sha256}</code>],
          ...comparisonFacts(data),
        ]}
      />
      <div class="buttons">
        <button
          type="button"
          class="primary"
          disabled={isBlocked}
          onClick={() => void run(() => post<Reconciliation>(`${path}/reconcile`, {}))}
        >
          Compare with the partner
        </button>
        <label class="button">
          Compare with a file
          <input type="file" accept=".csv,text/csv" disabled={isBlocked} onChange={upload} />
        </label>
        <Act
          label="Close the batch"
          blocked={data.closed_at === null ? undefined : 'It is closed.'}
          about={`Writes the statement of ${id}, once.`}
          act={async (reason) => {
            await post(`${path}/close`, { reason });
            return 'The batch is closed.';
          }}
        />
      </div>
      {progress !== undefined && (
        <p class="note">
          <progress /> {progress}
        </p>
      )}
      <h2>Differences</h2>
      <Differences
        search={{ platform_batch_id: id }}
        none={data.comparison ? 'No differences were found.' : 'Not compared yet.'}
      />
    </>
  );
}

export function ReconciliationPage() {
  const state = chosen('state', 'open');
  return (
    <>
      <h1>Reconciliation</h1>
      <Choices label="State" name="state" all={['open', 'resolved']} chosen={state} />
      <Differences
        search={{ state }}
        none={`No ${state} differences in the batches that were compared.`}
      />
      <p>
        <a href={link('batches')}>Which batches were compared</a>
      </p>
    </>
  );
}

/** `none` is said when there are none: also where nothing was compared. */
function Differences({ search, none }: { search: Record<string, string>; none: string }) {
  return (
    <List<OpenDifference>
      caption="Differences, newest first"
      path={`/differences?${new URLSearchParams(search)}`}
      keyOf={(one) => one.difference_id}
      empty={none}
      columns={[
        ['Kind', (one) => words(one.kind)],
        ['Payment', (one) => toPayment(one.platform_payment_id)],
        ['Here', (one) => sideOf(one, one.here)],
        ['At the partner', (one) => sideOf(one, one.there)],
        ['Age', (one) => (one.resolved_at === null ? age(one.found_at) : 'resolved')],
        ['Resolution', resolutionOf],
      ]}
    />
  );
}

/** What one side says: amounts in dollars, whichever kind the difference is of. */
function sideOf({ kind, amount_in_cents }: OpenDifference, said: string | null) {
  if (said === null) return 'does not have it';
  if (kind === 'amount') return money(Number(said));
  return amount_in_cents === null ? said : `${said}, ${money(amount_in_cents)}`;
}

function resolutionOf(one: OpenDifference) {
  if (one.resolved_at !== null) {
    // A partner's own people read neither.
    return one.resolution === null ? 'resolved' : `${one.resolution} (${one.resolved_by})`;
  }
  return (
    <Act
      label="Resolve"
      about={`Resolves the difference ${one.kind} of payment ${one.platform_payment_id}. Nothing is changed on either side.`}
      reasonLabel="How it was resolved, kept in the audit"
      act={async (reason) => {
        await post(`/differences/${one.difference_id}/resolve`, { reason });
        return 'The difference is resolved.';
      }}
    />
  );
}
