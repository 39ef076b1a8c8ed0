/** The options of one benchmark: a name and a text each. */
import { basename } from 'node:path';
import { parseArgs } from 'node:util';

/**
 * Reads the options of the benchmark that was started, with what holds when one is not given. `--help` prints them and ends with 0;
 * a wrong one is named in one sentence and ends with 3. A benchmark that another one imports (`isMain` false) ignores what it does not
 * know. Words without dashes, such as `serve` for a process of its own, are left to the benchmark.
 */
export function benchOptions<const T extends Readonly<Record<string, string | undefined>>>(
  isMain: boolean,
  defaults: T,
): { readonly [K in keyof T]: T[K] extends string ? string : string | undefined } {
  const name = basename(process.argv[1] ?? '', '.ts');
  const list = Object.entries(defaults).map(([option, value]) =>
    value === undefined ? `[--${option} …]` : `[--${option} ${value}]`,
  );
  const args = process.argv.slice(2).filter((word) => word !== '--');
  if (isMain && (args.includes('--help') || args.includes('-h'))) {
    console.log(`npm run bench -- ${[name, ...list].join(' ')}`);
    process.exit(0);
  }
  const options = Object.fromEntries(
    Object.entries(defaults).map(([option, value]) => [
      option,
      { type: 'string' as const, ...(value === undefined ? {} : { default: value }) },
    ]),
  );
  try {
    return parseArgs({ args, options, strict: isMain, allowPositionals: true }).values as never;
  } catch (error) {
    const [what = ''] = (error instanceof Error ? error.message : String(error)).split('. ');
    console.error(`bench ${name}: ${what}; it takes ${list.join(' ')}`);
    process.exit(3);
  }
}

/** The names chosen by `--only`, comma-separated; all when it is absent. Ends with 3 for a name that does not exist. */
export function chosenOf(only: string | undefined, names: readonly string[]): readonly string[] {
  if (only === undefined) return names;
  const chosen = only.split(',');
  const unknown = chosen.find((name) => !names.includes(name));
  if (unknown === undefined) return chosen;
  console.error(`bench: there is no "${unknown}"; there are ${names.join(', ')}`);
  process.exit(3);
}
