/** What commands print: one JSON value for programs, columns for people. */
import { Option } from 'commander';
import type { Terminal } from './terminal.ts';

/** `--json`, which every command that prints data takes (decision 30). */
export function jsonOption(): Option {
  return new Option('--json', 'print one JSON value');
}

/** Prints `value` as one JSON value with `--json`, or what `human` makes of it. The value is an object, so that fields can be added. */
export function print(
  terminal: Terminal,
  options: { readonly json?: true },
  value: object,
  human: () => string,
): void {
  terminal.write(`${options.json === true ? JSON.stringify(value, undefined, 2) : human()}\n`);
}

/** A table with its headings, or a sentence when there is no row. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return rows.length === 0 ? 'Nothing found.' : columns([head, ...rows]);
}

/** Texts in columns, two spaces apart. Controls are taken out: some texts come from partners, and a terminal obeys them. */
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
