/** The options of one benchmark: a name and a text each. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { readWords, refuse } from '../scripts/words.ts';

/**
 * Reads the options of the benchmark that was started, with what holds when one is not given. A benchmark that another one imports
 * (`isMain` false) ignores what it does not know. Words without dashes, such as `serve` for a process of its own, are left to the
 * benchmark. `--help` prints the options and the comment at the top of the file.
 */
export function benchOptions<const T extends Readonly<Record<string, string | undefined>>>(
  isMain: boolean,
  defaults: T,
): { readonly [K in keyof T]: T[K] extends string ? string : string | undefined } {
  const name = basename(process.argv[1] ?? '', '.ts');
  const list = Object.entries(defaults).map(([option, value]) => `[--${option} ${value ?? '…'}]`);
  const options = Object.fromEntries(
    Object.entries(defaults).map(([option, value]) => [
      option,
      { type: 'string' as const, ...(value === undefined ? {} : { default: value }) },
    ]),
  );
  const usage = `npm run bench -- ${[name, ...list].join(' ')}`;
  const words = process.argv.slice(2).filter((word) => word !== '--');
  const { values } = readWords(`bench ${name}`, isMain ? `${usage}\n\n${commentAtTop()}` : usage, {
    // The imported one must not answer for the one that was started.
    args: isMain ? words : words.filter((word) => word !== '--help' && word !== '-h'),
    options,
    strict: isMain,
    allowPositionals: true,
  });
  for (const [option, value] of Object.entries(values)) {
    // An option whose default is a number is one.
    if (!isNumber(defaults[option]) || isNumber(value)) continue;
    refuse(`bench ${name}`, `--${option} must be a number, not "${String(value)}"`);
  }
  return values as never;
}

function isNumber(value: unknown): boolean {
  return typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value);
}

/** The comment with which the started benchmark begins, without its stars. */
function commentAtTop(): string {
  const [comment = ''] = readFileSync(process.argv[1] ?? '', 'utf8').split('*/');
  return comment.replace(/^\/\*\*\n?/, '').replaceAll(/^ \* ?/gm, '');
}

/** The names chosen by `--only`, comma-separated; all when it is absent. A name that does not exist is refused. */
export function chosenOf(only: string | undefined, names: readonly string[]): readonly string[] {
  if (only === undefined) return names;
  const chosen = only.split(',');
  const unknown = chosen.find((name) => !names.includes(name));
  if (unknown === undefined) return chosen;
  return refuse('bench', `there is no "${unknown}"; there are ${names.join(', ')}`);
}
