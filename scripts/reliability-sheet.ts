/**
 * The measured part of docs/reliability.md: it stands between two marks, and is written by `npm run reliability -- --write`. What is
 * around it is written by people, and stays.
 */
import { cpus } from 'node:os';

/** Figures by their names; a record is a table of its own. */
export type Sheet = Readonly<Record<string, string | number | Readonly<Record<string, number>>>>;

const BEGIN = '<!-- measured: npm run reliability -- --write -->';
const END = '<!-- end of what was measured -->';

/** The page with a new sheet in the place of the old one. Throws when the page has not one place for it. */
export function withSheet(page: string, sheet: Sheet, notTested: readonly string[]): string {
  const [before, rest, ...more] = page.split(BEGIN);
  const [, after, ...others] = rest?.split(END) ?? [];
  if (before === undefined || after === undefined || more.length + others.length > 0) {
    throw new Error(`docs/reliability.md needs one "${BEGIN}" and after it one "${END}"`);
  }
  return `${before}${BEGIN}\n\n${sheetOf(sheet, notTested)}\n${END}${after}`;
}

function sheetOf(sheet: Sheet, notTested: readonly string[]): string {
  const entries = Object.entries(sheet);
  const figures = entries.flatMap(([name, value]) =>
    typeof value === 'object' ? [] : [{ name, value }],
  );
  const tables = entries.flatMap(([name, value]) =>
    typeof value === 'object' && Object.keys(value).length > 0 ? [{ name, value }] : [],
  );
  return `## Measured

On ${new Date().toISOString().slice(0, 10)}, on a machine with ${cpus().length} cores.

| figure | value |
| --- | --- |
${figures.map(({ name, value }) => `| ${name} | ${value} |`).join('\n')}

### Not tested

${notTested.map((what) => `- ${capital(what)}.`).join('\n')}
${tables
  .map(
    ({ name, value }) => `
### ${capital(name)}

| kind | times |
| --- | ---: |
${Object.entries(value)
  .map(([kind, times]) => `| ${kind} | ${times} |`)
  .join('\n')}
`,
  )
  .join('')}`;
}

function capital(text: string): string {
  return `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}`;
}
