/**
 * The output of commands: one JSON value for programs, columns for people. Fields are printed under their own names, so that what a
 * person reads is what `--json` gives a program.
 */
import { formatCents } from '@duebridge/contract';
import { Option } from 'commander';
import type { Terminal } from './terminal.ts';

/** `--json`, an option of every command that prints data (decision 30). */
export function jsonOption(): Option {
  return new Option('--json', 'print one JSON value');
}

/**
 * With `--json` prints `value` as one JSON value, otherwise the result of `human`. The value is an object, so that fields can be
 * added later.
 */
export function print(
  terminal: Terminal,
  options: { readonly json?: true },
  value: object,
  human: () => string,
): void {
  terminal.write(`${options.json === true ? JSON.stringify(value, undefined, 2) : human()}\n`);
}

/** A column: the name of a field, or a heading with the value in a row. */
export type Column<Row> = (keyof Row & string) | readonly [head: string, of: (row: Row) => unknown];

/** A value as text; null, undefined and an empty text are a dash. Amounts are in dollars. */
function textOf(name: string, value: unknown): string {
  if (value === null || value === undefined || value === '') return '-';
  if (typeof value === 'number' && name.endsWith('_in_cents')) return formatCents(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (typeof value !== 'object') return JSON.stringify(value);
  const parts = Object.entries(value).map(([key, one]) =>
    Array.isArray(value) ? textOf('', one) : `${key}=${textOf(key, one)}`,
  );
  return parts.length === 0 ? '-' : parts.join(' ');
}

/** `platform_payment_id` and `created_at` as headings: PAYMENT and CREATED. */
function headOf(name: string): string {
  const words = name.replace(/^platform_/, '').replace(/_(?:id|at|in_cents)$/, '');
  return words.replaceAll('_', ' ').toUpperCase();
}

/** Rows in columns; a sentence when there are none. */
function inColumns<Row extends object>(
  shape: readonly Column<Row>[],
  rows: readonly Row[],
): string {
  const cells = shape.map((column) =>
    typeof column === 'string'
      ? { head: headOf(column), of: (row: Row) => textOf(column, row[column]) }
      : { head: column[0], of: (row: Row) => textOf('', column[1](row)) },
  );
  if (rows.length === 0) return 'Nothing found.';
  return columns([
    cells.map(({ head }) => head),
    ...rows.map((row) => cells.map(({ of }) => of(row))),
  ]);
}

/** Prints the one list that an answer or a page consists of, or any other answer as the one row; without a shape, every field. */
export function tableOf<Row extends object>(
  ...shape: readonly Column<Row>[]
): (answer: object) => string {
  return (answer) => {
    const { next_cursor, ...fields } = answer as { readonly next_cursor?: string | null };
    const [only, ...others] = Object.values(fields);
    const rows = Array.isArray(only) && others.length === 0 ? (only as Row[]) : [answer as Row];
    const more = typeof next_cursor === 'string' ? `\nMore: --cursor '${next_cursor}'` : '';
    const all = Object.keys(rows[0] ?? {}) as (keyof Row & string)[];
    return inColumns(shape.length === 0 ? all : shape, rows) + more;
  };
}

/** Every field of an answer: one a line, then its lists of records as tables. */
export function facts(answer: object): string {
  const entries = Object.entries(answer) as [string, unknown][];
  const isList = ([, value]: [string, unknown]): boolean =>
    Array.isArray(value) && typeof value[0] === 'object';
  const lines = entries
    .filter((entry) => !isList(entry))
    .map(([name, value]) => [name, textOf(name, value)]);
  const tables = entries.filter(isList).map(([name, value]) => {
    const rows = value as Record<string, unknown>[];
    return `${headOf(name)}\n${inColumns(Object.keys(rows[0] ?? {}), rows)}`;
  });
  return [columns(lines), ...tables].join('\n\n');
}

/**
 * Text in columns, two spaces apart. Control characters are removed, because partners supply some of the text and a terminal
 * would execute them.
 */
export function columns(rows: readonly (readonly string[])[]): string {
  const clean = rows.map((row) => row.map((cell) => cell.replaceAll(/\p{Cc}/gu, ' ')));
  const widths = (clean[0] ?? []).map((_, column) =>
    Math.max(...clean.map((row) => row[column]?.length ?? 0)),
  );
  return clean
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
