/** The audit, filtered by the query of the address. */
import type { AuditPage, AuditVerification } from '@duebridge/contract';
import type { TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get } from './api.ts';
import { announcement, fieldsOf, moment, options, Table, Trouble, useRead } from './parts.tsx';
import { go, query, withQuery } from './route.ts';

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
      <Verification />
      <form class="filters" key={search} onSubmit={submit}>
        {(['actor', 'event', 'partner_id'] as const).map((name) => (
          <label key={name}>
            {{ actor: 'Who', event: 'Event', partner_id: 'Partner' }[name]}
            <input name={name} defaultValue={query.value.get(name) ?? ''} />
          </label>
        ))}
        <button type="submit" class="primary">
          Filter
        </button>
      </form>
      <Trouble error={error} />
      <Table
        caption="Who did what, newest first"
        command={[
          'audit',
          ...options({
            actor: query.value.get('actor'),
            event: query.value.get('event'),
            partner: query.value.get('partner_id'),
            limit: query.value.get('limit'),
          }),
        ]}
        rows={(data?.entries ?? []).map((entry, index) => ({ ...entry, index }))}
        keyOf={(one) => `${one.at} ${one.index}`}
        empty={data === undefined ? 'Loading…' : 'No entries match.'}
        columns={[
          { head: 'When', cell: (one) => moment(one.at) },
          {
            head: 'Who',
            cell: (one) => one.actor,
            filter: (one) => ({ actor: one.actor }),
            copy: (one) => one.actor,
          },
          {
            head: 'Event',
            cell: (one) => one.event,
            filter: (one) => ({ event: one.event }),
            copy: (one) => one.event,
          },
          {
            head: 'Detail',
            cell: (one) =>
              Object.entries(one.detail)
                .map(([name, value]) => `${name}: ${value}`)
                .join(' · '),
          },
        ]}
      />
      <p class="buttons">
        {query.value.get('cursor') === null ? null : (
          <a class="button" data-newer href={withQuery({ cursor: '' })}>
            Newest
          </a>
        )}
        {data?.next_cursor === null || data === undefined ? null : (
          <a class="button" data-older href={withQuery({ cursor: data.next_cursor })}>
            Older
          </a>
        )}
      </p>
    </>
  );
}

/** How far a comparison of the audit with its seals is. */
interface Progress {
  readonly state: 'running' | 'stopped' | 'intact' | 'broken' | 'failed';
  /** The seal up to which it was compared. */
  readonly after: number;
  readonly newest: number;
  readonly lines: number;
  readonly unsealed: number;
  readonly text: string;
}

const notBegun: Progress = {
  state: 'running',
  after: 0,
  newest: 0,
  lines: 0,
  unsealed: 0,
  text: '',
};
/** At this number the server stops counting lines that are not sealed. */
const MOST_UNSEALED = 10_000;

const BROKEN: Readonly<Record<NonNullable<AuditVerification['broken']>['what'], string>> = {
  altered: 'a line does not match its seal',
  removed: 'a line was removed',
  inserted: 'a line was inserted after its time had been sealed',
  seal_missing: 'a seal before it was removed',
  seal_altered: 'the seal itself was changed',
};

/** Compares the audit with its seals, piece by piece; it can be stopped and continued (decision 135). */
function Verification() {
  const [progress, setProgress] = useState<Progress>();
  const wanted = useRef(false);
  useEffect(() => () => void (wanted.current = false), []);
  const run = async (from: Progress): Promise<void> => {
    wanted.current = true;
    let now: Progress = { ...from, state: 'running', text: '' };
    setProgress(now);
    try {
      while (now.state === 'running') {
        const page = await get<AuditVerification>(`/audit/verification?after=${now.after}`);
        now = withPiece(now, page, wanted.current);
        if (wanted.current || now.state === 'stopped') setProgress(now);
      }
    } catch (error) {
      const text = error instanceof ApiError ? error.message : String(error);
      now = { ...now, state: 'failed', text };
      setProgress(now);
    }
    if (now.state !== 'stopped') announcement.value = now.text;
  };
  const { state } = progress ?? {};
  return (
    <section class="note" aria-label="Verification of the audit">
      <p>
        Each line is under a seal: what was altered, removed or inserted later is found by
        comparing.
      </p>
      {progress === undefined ? null : (
        <p class={state === 'broken' || state === 'failed' ? 'trouble' : ''}>
          <progress
            aria-label="Seals compared"
            max={Math.max(1, progress.newest)}
            value={state === 'intact' ? Math.max(1, progress.newest) : progress.after}
          />{' '}
          {progress.text === ''
            ? `Up to seal ${progress.after} of ${progress.newest}: ${progress.lines} lines.`
            : progress.text}
        </p>
      )}
      <div class="buttons">
        {state === 'running' ? (
          <button type="button" onClick={() => (wanted.current = false)}>
            Stop
          </button>
        ) : (
          <button
            type="button"
            onClick={() =>
              void run(
                progress !== undefined && (state === 'stopped' || state === 'failed')
                  ? progress
                  : notBegun,
              )
            }
          >
            {state === 'stopped' || state === 'failed' ? 'Continue' : 'Verify the audit'}
          </button>
        )}
      </div>
    </section>
  );
}

/** The progress after one more piece. Pure. */
function withPiece(before: Progress, page: AuditVerification, isWanted: boolean): Progress {
  const lines = before.lines + page.lines;
  const now: Progress = {
    state: isWanted ? 'running' : 'stopped',
    after: page.through?.seal_no ?? before.after,
    newest: page.newest,
    lines,
    unsealed: page.unsealed,
    text: '',
  };
  if (page.broken !== null) {
    const { seal_no, what, at, audit_id } = page.broken;
    const where =
      at === null ? '' : ` (${audit_id === null ? 'after' : `line ${audit_id} of`} ${at})`;
    const text = `The audit is broken at seal ${seal_no}: ${BROKEN[what]}${where}.`;
    return { ...now, state: 'broken', text };
  }
  if (page.next !== null) return now;
  const open = `${page.unsealed}${page.unsealed >= MOST_UNSEALED ? ' or more' : ''}`;
  const through =
    page.through === null ? '' : ` Newest seal: ${page.through.seal_no}:${page.through.seal}.`;
  const text = `The audit is intact: ${lines} lines under seals, ${open} not sealed yet.${through}`;
  return { ...now, state: 'intact', text };
}
