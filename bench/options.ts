/** The options of one benchmark: a name and a text each. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { readWords, refuse } from '../scripts/words.ts';

/**
 * Reads the options of the benchmark that was started, with what holds when one is not given. Words without dashes, such as `serve` for
 * a process of its own, are left to the benchmark. `--help` prints the options and the comment at the top of the file.
 */
export function benchOptions<const T extends Readonly<Record<string, string>>>(
  defaults: T,
): { readonly [K in keyof T]: T[K] extends `${number}` ? number : string } {
  const name = basename(process.argv[1] ?? '', '.ts');
  const list = Object.entries(defaults).map(([option, value]) => `[--${option} ${value}]`);
  const [comment = ''] = readFileSync(process.argv[1] ?? '', 'utf8').split('*/');
  const text = comment.replace(/^\/\*\*\n?/, '').replaceAll(/^ \* ?/gm, '');
  const { values } = readWords(
    `bench ${name}`,
    `npm run bench -- ${[name, ...list].join(' ')}\n\n${text}`,
    {
      args: process.argv.slice(2).filter((word) => word !== '--'),
      options: Object.fromEntries(
        Object.entries(defaults).map(([option, value]) => [
          option,
          { type: 'string' as const, default: value },
        ]),
      ),
      allowPositionals: true,
    },
  );
  const read = Object.entries(values).map(([option, value]) => {
    // An option whose default is a number is one.
    if (!isNumber(defaults[option])) return [option, value];
    if (isNumber(value)) return [option, Number(value)];
    return refuse(`bench ${name}`, `--${option} must be a number, not "${value}"`);
  });
  return Object.fromEntries(read) as never;
}

function isNumber(value: unknown): boolean {
  return typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value);
}

/** Those entries of a table that `--only` names, comma-separated; all for `all`. A name that does not exist is refused. */
export function chosenOf<T>(only: string, table: Readonly<Record<string, T>>): [string, T][] {
  const names = only === 'all' ? Object.keys(table) : only.split(',');
  const unknown = names.find((name) => !Object.hasOwn(table, name));
  if (unknown !== undefined) {
    refuse('bench', `there is no "${unknown}"; there are ${Object.keys(table).join(', ')}`);
  }
  return Object.entries(table).filter(([name]) => names.includes(name));
}
