/** The output of commands: one JSON value for programs, columns for people. */
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

/** A table with headings, or a sentence when there are no rows. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return rows.length === 0 ? 'Nothing found.' : columns([head, ...rows]);
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
