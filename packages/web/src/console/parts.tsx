/** Building blocks of every console page: money and time in words, reads that refresh themselves, tables, forms and acts. */
import type { ComponentChildren, TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { get, self, wordsOf } from './api.ts';
import { keptHere, link, query, withQuery } from './route.ts';

// Texts ----------------------------------------------------------------------------------------------------------------------

const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
export const money = (cents: number): string => dollars.format(cents / 100);

/** A number and what it counts: "no differences", "1 payment", "12 payments". */
export const counted = (count: number, what: string): string =>
  `${count === 0 ? 'no' : count} ${what}${count === 1 ? '' : 's'}`;

/** A code of the platform as words. */
export const words = (code: string): string => code.replaceAll('_', ' ');

/** Whether this browser shows times in UTC instead of the computer's zone. */
export const inUtc = signal(localStorage.getItem('zone') === 'utc');
export function changeZone(): void {
  inUtc.value = !inUtc.value;
  localStorage.setItem('zone', inUtc.value ? 'utc' : 'local');
}

/** A time for people: to the second, without milliseconds, and never broken into two lines. */
export function moment(iso: string | null): string {
  if (iso === null) return '–';
  const zone = inUtc.value ? { timeZone: 'UTC' } : {};
  return new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium', ...zone })
    .format(new Date(iso))
    .replaceAll(' ', '\u00a0');
}

/** How long ago a time was. */
export const age = (iso: string): string => lasting(Date.now() - Date.parse(iso));

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

/** A duration in its largest unit. */
export function lasting(ms: number): string {
  const [size, unit] = UNITS.find(([least]) => ms >= least) ?? [1, 'ms'];
  return `${Math.round(Math.max(0, ms) / size)} ${unit}`;
}

const icons: Readonly<Record<string, string>> = {
  succeeded: '✓',
  failed: '✕',
  canceled: '⊘',
  processing: '…',
  review: '!',
  paused: '‖',
};

/** A status, shown by word and symbol, never by colour alone. */
export function Status(of: { status: string; stage?: string; paused?: boolean | undefined }) {
  const word = of.paused === true ? 'paused' : of.stage === 'review' ? 'review' : of.status;
  return (
    <span class={`status ${word}`}>
      <span aria-hidden="true">{icons[word]}</span> {word}
    </span>
  );
}

const page = (of: string) => (id: string) => <a href={link(of, id)}>{id}</a>;
/** Links to the page of what has this id. */
export const toPayment = page('payments');
export const toPartner = page('partners');
export const toBatch = page('batches');

// Reads ----------------------------------------------------------------------------------------------------------------------

/** Delay between two reads of what is shown. */
const REFRESH_MS = 5_000;

const acts = signal(0);
/** Reads again what is shown and refreshes itself: after a change. */
export function reread(): void {
  acts.value += 1;
}

/** An error. That of a read is announced once and politely; `alert` is for that of an act. */
export function Trouble({ error, role }: { error: string | undefined; role?: 'alert' }) {
  return (
    <p class="trouble" role={role ?? 'status'}>
      {error}
    </p>
  );
}

/**
 * What a path of the admin API answers; before the first answer, that it is awaited or why it does not come. Read again every few seconds
 * while the page is visible, and after an act. With a `read` of its own, which `path` tells from others, it is read once, and by `again`.
 */
export function Show<T>(props: {
  readonly path: string;
  readonly read?: (() => Promise<T>) | undefined;
  readonly children: (data: T, again: () => void) => ComponentChildren;
}) {
  const { path, read } = props;
  const [state, setState] = useState<{ path: string; data?: T; error?: string }>({ path });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let gone = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const once = async (): Promise<void> => {
      if (document.visibilityState === 'visible') {
        try {
          const data = await (read ? read() : get<T>(path));
          if (!gone) setState({ path, data });
        } catch (error) {
          // Keep the previous data: a failed read must not empty the page.
          const kept = (before: typeof state) => (before.path === path ? before : {});
          if (!gone) setState((before) => ({ ...kept(before), path, error: wordsOf(error) }));
        }
      }
      if (!gone && !read) timer = setTimeout(() => void once(), REFRESH_MS);
    };
    void once();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [path, turn, !read && acts.value]);
  const { data, error }: Partial<typeof state> = state.path === path ? state : {};
  return (
    <>
      <Trouble error={error} />
      {data !== undefined
        ? props.children(data, () => setTurn(turn + 1))
        : error === undefined && <p>Loading…</p>}
    </>
  );
}

/** Back shows a list where it was left. */
function ScrolledBack() {
  useEffect(() => scrollTo(0, Number(keptHere('scroll') ?? 0)), []);
  return null;
}

/** The result of the last action, shown and announced to screen readers. */
export const announcement = signal('');

// Tables ---------------------------------------------------------------------------------------------------------------------

/** A column: its heading, what stands in it, and whether that is a number. */
export type Column<Row> = readonly [
  head: string,
  cell: (row: Row) => ComponentChildren,
  kind?: 'number',
];

interface TableOf<Row> {
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  /** What tells rows apart where something may be pressed in them; otherwise their places do. */
  readonly keyOf?: (row: Row) => string;
  /** What is said when there are no rows. */
  readonly empty: string;
}

export function Table<Row>(props: TableOf<Row> & { readonly rows: readonly Row[] }) {
  const { caption, columns, rows, keyOf, empty } = props;
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map(([head, , kind]) => (
              <th scope="col" class={kind} key={head}>
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf?.(row) ?? index} data-row={keyOf?.(row)}>
              {columns.map(([head, cell, kind]) => (
                <td class={kind} key={head}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type PageOf<Row> = Readonly<Record<string, readonly Row[]>> & {
  readonly next_cursor?: string | null;
};

/**
 * A table of what a path of the admin API lists under its last word, or under the name `of`, page by page: leads to older ones. The address
 * keeps which page is shown, so that Back and a colleague's link find it. With `read` it is read once, and again by a button: no row moves
 * under the cursor.
 */
export function List<Row>(
  props: TableOf<Row> & {
    readonly path: string;
    readonly of?: string;
    readonly read?: (cursor: string) => Promise<object>;
    /** What stands under the rows. */
    readonly children?: (rows: readonly Row[]) => ComponentChildren;
  },
) {
  const { path, of: named, read, children, ...table } = props;
  const [list = '', search] = path.split('?');
  const of = named ?? list.split('/').at(-1) ?? '';
  const place = `${of}_after`;
  const cursor = chosen(place);
  const asked = new URLSearchParams(search);
  if (cursor !== '') asked.set('cursor', cursor);
  return (
    <Show<PageOf<Row>>
      path={asked.size === 0 ? list : `${list}?${asked}`}
      read={read && (() => read(cursor) as Promise<PageOf<Row>>)}
    >
      {({ [of]: rows = [], next_cursor }, again) => (
        <>
          <Table {...table} rows={rows} />
          {children?.(rows)}
          <p class="buttons">
            {read && (
              <button type="button" onClick={again}>
                Refresh
              </button>
            )}
            {cursor !== '' && (
              <a class="button" href={withQuery({ [place]: '' })}>
                First page
              </a>
            )}
            {next_cursor && (
              <a class="button" href={withQuery({ [place]: next_cursor })}>
                Next page
              </a>
            )}
          </p>
          <ScrolledBack />
        </>
      )}
    </Show>
  );
}

/** A list of names and values. */
export function Facts({ facts }: { facts: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Links of which one is chosen; the address keeps which. The page of a list goes. */
export function Choices(props: {
  label: string;
  name: string;
  all: readonly string[];
  chosen: string;
}) {
  return (
    <nav class="views" aria-label={props.label}>
      {props.all.map((one) => (
        <a
          key={one}
          href={`${location.pathname}?${new URLSearchParams({ [props.name]: one })}`}
          aria-current={one === props.chosen ? 'page' : undefined}
        >
          {one}
        </a>
      ))}
    </nav>
  );
}

/** What the address says of a choice. */
export const chosen = (name: string, otherwise = ''): string => query.value.get(name) ?? otherwise;

// Forms and acts -------------------------------------------------------------------------------------------------------------

/** What the submit of a form does with its values. */
type Submit = (values: Readonly<Record<string, string>>) => Promise<unknown> | void;

/** The submit of a form: what it does, why that was refused, and whether it is under way. */
function useSubmit(act: Submit) {
  const [trouble, setTrouble] = useState('');
  const [busy, setBusy] = useState(false);
  const run = async (form: HTMLFormElement): Promise<void> => {
    const values = [...new FormData(form)].map(([name, value]) => [name, (value as string).trim()]);
    setBusy(true);
    setTrouble('');
    try {
      await act(Object.fromEntries(values) as Record<string, string>);
    } catch (error) {
      setTrouble(wordsOf(error));
    }
    setBusy(false);
  };
  return {
    trouble,
    setTrouble,
    busy,
    onSubmit: (event: TargetedSubmitEvent<HTMLFormElement>): void => {
      event.preventDefault();
      void run(event.currentTarget);
    },
  };
}

/** A form in one line; says why it was refused. Its fields are inputs with a label. */
export function Form(props: {
  fields: readonly { readonly label: string; readonly [attribute: string]: unknown }[];
  button: string;
  submit: Submit;
}) {
  const { trouble, onSubmit } = useSubmit(props.submit);
  return (
    <form class="filters" onSubmit={onSubmit}>
      {props.fields.map(({ label, ...field }) => (
        <label key={label}>
          {label}
          <input autocomplete="off" {...field} />
        </label>
      ))}
      <button type="submit" class="primary">
        {props.button}
      </button>
      <Trouble error={trouble} role="alert" />
    </form>
  );
}

/** What a button does: see `Act`. */
export interface ActOf {
  readonly label: string;
  /** What will happen, with ids and amounts. */
  readonly about: string;
  /** Says what was done. */
  readonly act: (reason: string) => Promise<string>;
  /** Why it is not possible now; the button shows this text. */
  readonly blocked?: string | undefined;
  readonly danger?: boolean;
  /** Who may do it: an operator, unless it needs an admin. */
  readonly role?: 'admin';
  /** What is asked for; null: nothing. */
  readonly reasonLabel?: string | null;
}

/**
 * A button that asks for a reason before it acts. Its dialog names the target, shows any error, and returns the focus afterwards; what is
 * shown is then read again.
 */
export function Act(props: ActOf) {
  const { label, about, danger, role, reasonLabel = 'Reason, kept in the audit' } = props;
  const blocked = (role === 'admin' ? needsAdmin() : isViewer()) ?? props.blocked;
  const dialog = useRef<HTMLDialogElement>(null);
  const { trouble, setTrouble, busy, onSubmit } = useSubmit(async ({ reason = '' }) => {
    announcement.value = await props.act(reason);
    reread();
    dialog.current?.close();
  });
  if (blocked !== undefined) {
    return (
      <span class="blocked">
        <button type="button" disabled>
          {label}
        </button>
        <small>{blocked}</small>
      </span>
    );
  }
  return (
    <>
      <button
        type="button"
        class={danger ? 'danger' : ''}
        onClick={() => {
          setTrouble('');
          dialog.current?.showModal();
        }}
      >
        {label}
      </button>
      {/* What is under way is not stopped by closing its dialog. */}
      <dialog ref={dialog} aria-label={label} onCancel={(event) => busy && event.preventDefault()}>
        <form onSubmit={onSubmit}>
          <h2>{label}</h2>
          <p>{about}</p>
          {reasonLabel !== null && (
            <label>
              {reasonLabel}
              <textarea name="reason" required maxLength={256} rows={2} />
            </label>
          )}
          <Trouble error={trouble} role="alert" />
          <div class="buttons">
            <button type="button" disabled={busy} onClick={() => dialog.current?.close()}>
              Not now
            </button>
            <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy}>
              {label}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

/** Why a viewer, or an operator of a partner, cannot act; undefined for others. */
export const isViewer = (): string | undefined =>
  self.value?.role === 'viewer' || self.value?.role === 'partner'
    ? 'Your role can only read.'
    : undefined;
/** Why the action needs an admin; undefined for an admin. */
const needsAdmin = (): string | undefined =>
  self.value?.role === 'admin' ? undefined : 'Needs the role admin.';
