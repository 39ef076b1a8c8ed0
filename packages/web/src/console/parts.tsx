/** Building blocks of every console page: formatting of money and time, tables, dialogs, reads that refresh themselves. */
import type { ComponentChildren, TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { ApiError, get, self, wordsOf } from './api.ts';
import { query, withQuery } from './route.ts';

// Settings -------------------------------------------------------------------------------------------------------------------

/** The settings of one person, kept in this browser. */
interface Settings {
  zone: 'local' | 'utc';
  shortcuts: boolean;
  everySeconds: number;
  /** Headings of the hidden columns of the payments list. */
  hidden: readonly string[];
}
const defaults: Settings = {
  zone: 'local',
  shortcuts: true,
  everySeconds: 5,
  hidden: ['At the partner', 'Biller', 'Batch', 'Posted', 'Last result', 'Attempts'],
};

function storedSettings(): Settings {
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem('settings') ?? '{}') as object) };
  } catch {
    return defaults;
  }
}
export const settings = signal<Settings>(storedSettings());
/** Changes a setting and saves it. */
export function setting(change: Partial<Settings>): void {
  settings.value = { ...settings.value, ...change };
  localStorage.setItem('settings', JSON.stringify(settings.value));
}

// Texts ----------------------------------------------------------------------------------------------------------------------

const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
export const money = (cents: number): string => dollars.format(cents / 100);

/** A number and what it counts: "no differences", "1 payment", "12 payments". */
export const counted = (count: number, what: string): string =>
  `${count === 0 ? 'no' : count} ${what}${count === 1 ? '' : 's'}`;

/** A time for people: to the second, without milliseconds, and never broken into two lines. */
export function moment(iso: string | null): string {
  if (iso === null) return '–';
  const zone = settings.value.zone === 'utc' ? { timeZone: 'UTC' } : {};
  return new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium', ...zone })
    .format(new Date(iso))
    .replaceAll(' ', '\u00a0');
}

/** A relative time in its largest unit. */
export function age(iso: string, now = Date.now()): string {
  return lasting(now - Date.parse(iso));
}
export function lasting(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  const units = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'min'],
    [1_000, 's'],
  ] as const;
  const [size, unit] = units.find(([size]) => ms >= size) ?? [1_000, 's'];
  return `${Math.round(ms / size)} ${unit}`;
}

const icons: Readonly<Record<string, string>> = {
  succeeded: '✓',
  failed: '✕',
  canceled: '⊘',
  processing: '…',
  review: '!',
  paused: '‖',
  waiting: '…',
  done: '✓',
  refused: '✕',
};

/** A status, shown by word and symbol, never by colour alone. */
export function Status(of: { status: string; stage?: string; paused?: boolean }) {
  const word = of.paused === true ? 'paused' : of.stage === 'review' ? 'review' : of.status;
  return (
    <span class={`status ${word}`}>
      <span aria-hidden="true">{icons[word]}</span> {word}
    </span>
  );
}

/** The fields of a form as trimmed text; an absent field is empty. */
export function fieldsOf(form: HTMLFormElement): (name: string) => string {
  const data = new FormData(form);
  return (name) => {
    const value = data.get(name);
    return typeof value === 'string' ? value.trim() : '';
  };
}

// Reads ----------------------------------------------------------------------------------------------------------------------

/** The state of a read. */
export interface Read<T> {
  readonly data: T | undefined;
  readonly error: string | undefined;
  /** Reads again immediately. */
  readonly again: () => void;
}

/** Counts how often the key r asked every read of the page to read again. */
export const refreshes = signal(0);

/** Reads when `key` changes, and every few seconds while the page is visible. `live: false` reads once. */
export function useRead<T>(key: string, read: () => Promise<T>, { live = true } = {}): Read<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: string }>({ key });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let gone = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const once = async (): Promise<void> => {
      try {
        const data = await read();
        if (!gone) setState({ key, data });
      } catch (error) {
        // Keep the previous data: a failed read must not empty the page.
        const text = error instanceof ApiError ? error.message : String(error);
        if (!gone)
          setState((before) => ({ ...(before.key === key ? before : {}), key, error: text }));
      }
      if (!gone && live) timer = setTimeout(later, settings.value.everySeconds * 1_000);
    };
    const later = (): void => {
      if (document.visibilityState === 'visible') void once();
      else timer = setTimeout(later, 1_000);
    };
    void once();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [key, turn, refreshes.value]);
  const mine = state.key === key;
  return {
    data: mine ? state.data : undefined,
    error: mine ? state.error : undefined,
    again: () => setTurn((count) => count + 1),
  };
}

/** The error of a read, announced once and politely. */
export function Trouble({ error }: { error: string | undefined }) {
  return (
    <p class="trouble" role="status">
      {error ?? ''}
    </p>
  );
}

/** The result of the last action, shown and announced to screen readers. */
export const announcement = signal('');

// Tables ---------------------------------------------------------------------------------------------------------------------

export interface Column<Row> {
  readonly head: string;
  readonly cell: (row: Row) => ComponentChildren;
  readonly number?: true;
  /** Orders that a click on the heading goes through, as the query's `sort` names them; the last one is ascending. */
  readonly sort?: readonly string[];
  /** What the cell's button copies. */
  readonly copy?: (row: Row) => string | null;
  /** The filter that the cell's link adds to the page's address. */
  readonly filter?: (row: Row) => Readonly<Record<string, string>> | undefined;
}

interface TableOf<Row> {
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  readonly empty: string;
  /** Words of the command that prints the same table: what follows `duebridge platform`. */
  readonly command?: readonly string[];
}

/** A table of what a path of the admin API lists under a name, read again as every page is. */
export function List<Row>({
  path,
  of,
  empty,
  ...table
}: Omit<TableOf<Row>, 'rows'> & { path: string; of: string }) {
  const { data, error } = useRead(path, () => get<Readonly<Record<string, readonly Row[]>>>(path));
  return (
    <>
      <Trouble error={error} />
      <Table {...table} rows={data?.[of] ?? []} empty={data === undefined ? 'Loading…' : empty} />
    </>
  );
}

/** A table whose rows are selected with j and k and opened with Enter or by their link. */
export function Table<Row>(props: TableOf<Row>) {
  const { caption, columns, rows, keyOf, empty, command } = props;
  const copied = command === undefined ? null : <CopyCommand words={command} />;
  if (rows.length === 0) {
    return (
      <>
        <p class="empty">{empty}</p>
        {copied}
      </>
    );
  }
  return (
    <>
      <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
        <table>
          <caption>{caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <Heading key={column.head} column={column} />
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={keyOf(row)} data-row={keyOf(row)}>
                {columns.map((column) => (
                  <td class={column.number ? 'number' : ''} key={column.head}>
                    {column.cell(row)}
                    <Tools column={column} row={row} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {copied}
    </>
  );
}

/** A heading; where rows can be sorted, a link to the next order. */
function Heading<Row>({ column }: { column: Column<Row> }) {
  const { head, number, sort } = column;
  const at = sort?.indexOf(query.value.get('sort') ?? 'newest') ?? -1;
  const way = at === -1 ? 'none' : at === 0 ? 'descending' : 'ascending';
  return (
    <th scope="col" class={number ? 'number' : ''} aria-sort={sort === undefined ? undefined : way}>
      {sort === undefined ? (
        head
      ) : (
        <a href={withQuery({ sort: sort[(at + 1) % sort.length], cursor: '' })}>
          {head}
          <span class={`way ${way}`} aria-hidden="true" />
        </a>
      )}
    </th>
  );
}

/** What can be done with a cell. Shown for the cell under the cursor and in the row that has the keyboard. */
function Tools<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  const text = column.copy?.(row) ?? undefined;
  const filter = column.filter?.(row);
  if (text === undefined && filter === undefined) return null;
  return (
    <span class="tools">
      {filter === undefined ? null : (
        <a
          href={withQuery({ ...filter, cursor: '' })}
          aria-label={`Filter by this: ${Object.values(filter).join(' ')}`}
          title="Filter by this"
        >
          filter
        </a>
      )}
      {text === undefined ? null : (
        <button
          type="button"
          aria-label={`Copy ${text}`}
          title="Copy"
          onClick={() => void copy(text, text)}
        >
          copy
        </button>
      )}
    </span>
  );
}

/** Puts a text on the clipboard, and says so. */
async function copy(text: string, name: string): Promise<void> {
  await navigator.clipboard.writeText(text);
  announcement.value = `On the clipboard: ${name}`;
}

/** Words as a shell reads them. */
function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/** Words of a command for a filter: each field has its option, and an absent or empty one none. */
export function options(
  filter: Readonly<Record<string, string | null | undefined>>,
): readonly string[] {
  return Object.entries(filter).flatMap(([name, value]) =>
    value === undefined || value === null || value === '' ? [] : [`--${name}`, value],
  );
}

/** Copies the command that prints the same table. */
function CopyCommand({ words }: { words: readonly string[] }) {
  return (
    <button
      type="button"
      class="copy-command"
      onClick={() =>
        void copy(['duebridge', 'platform', ...words].map(shellWord).join(' '), 'the command')
      }
    >
      Copy as command
    </button>
  );
}

/** Rows of one page: what the admin API gives at once. */
const PAGE_ROWS = 50;

/** The rows of the page's tables, and the place of the row that has the keyboard; -1 for none. */
function rowsAndPlace(): { rows: HTMLElement[]; at: number } {
  const rows = [...document.querySelectorAll<HTMLElement>('main tr[data-row]')];
  return { rows, at: rows.findIndex((row) => row.contains(document.activeElement)) };
}

/** Moves the keyboard to the row at this place, to its link. */
export function focusRow(at: number): void {
  rowsAndPlace().rows[at]?.querySelector<HTMLElement>(':is(a, button):not(.tools *)')?.focus();
}

/** Moves the keyboard's row by `step` and focuses its link. */
export function moveRow(step: number): void {
  const { rows, at } = rowsAndPlace();
  focusRow(at === -1 ? (step > 0 ? 0 : rows.length - 1) : at + step);
}

/** Moves a page down or up: within the rows that are shown, and then by the page's own link or button. */
export function movePage(step: 1 | -1): void {
  const { rows, at } = rowsAndPlace();
  const to = Math.max(at, 0) + step * PAGE_ROWS;
  if (rows[to] !== undefined) focusRow(to);
  else {
    const turn = document.querySelector<HTMLElement>(step > 0 ? '[data-older]' : '[data-newer]');
    if (turn !== null) turn.click();
    else focusRow(step > 0 ? rows.length - 1 : 0);
  }
}

// Acts -----------------------------------------------------------------------------------------------------------------------

/**
 * A button that asks for a reason before it acts. Its dialog names the target, shows any error, and returns the focus afterwards.
 */
export function Act(props: {
  label: string;
  /** What will happen, with ids and amounts. */
  about: string;
  act: (reason: string) => Promise<string>;
  /** Why it is not possible now; the button shows this text. */
  blocked?: string | undefined;
  danger?: boolean;
  reasonLabel?: string;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [trouble, setTrouble] = useState('');
  const [busy, setBusy] = useState(false);
  const submit = async (event: TargetedSubmitEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const reason = fieldsOf(event.currentTarget)('reason');
    setBusy(true);
    setTrouble('');
    try {
      announcement.value = await props.act(reason);
      dialog.current?.close();
    } catch (error) {
      setTrouble(wordsOf(error));
    }
    setBusy(false);
  };
  if (props.blocked !== undefined) {
    return (
      <span class="blocked">
        <button type="button" disabled>
          {props.label}
        </button>
        <small>{props.blocked}</small>
      </span>
    );
  }
  return (
    <>
      <button
        type="button"
        class={props.danger ? 'danger' : ''}
        onClick={() => {
          setTrouble('');
          dialog.current?.showModal();
        }}
      >
        {props.label}
      </button>
      <dialog ref={dialog} aria-label={props.label}>
        <form onSubmit={(event) => void submit(event)}>
          <h2>{props.label}</h2>
          <p>{props.about}</p>
          <label>
            {props.reasonLabel ?? 'Reason, kept in the audit'}
            <textarea name="reason" required maxLength={256} rows={2} />
          </label>
          <p class="trouble" role="alert">
            {trouble}
          </p>
          <div class="buttons">
            <button type="button" onClick={() => dialog.current?.close()}>
              Not now
            </button>
            <button type="submit" class={props.danger ? 'danger' : 'primary'} disabled={busy}>
              {props.label}
            </button>
          </div>
        </form>
      </dialog>
    </>
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

/** Why a viewer, or an operator of a partner, cannot act; undefined for others. */
export const isViewer = (): string | undefined =>
  self.value?.role === 'viewer' || self.value?.role === 'partner'
    ? 'Your role can only read.'
    : undefined;
/** Why the action needs an admin; undefined for an admin. */
export const needsAdmin = (): string | undefined =>
  self.value?.role === 'admin' ? undefined : 'Needs the role admin.';
