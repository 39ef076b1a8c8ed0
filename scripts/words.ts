/** The words after `npm run NAME --`, for scripts that have no commands of their own. */
import { parseArgs, type ParseArgsConfig } from 'node:util';

type Options = NonNullable<ParseArgsConfig['options']>;
type Values<T extends Options> = ReturnType<typeof parseArgs<{ options: T }>>['values'];

/**
 * Reads the options of a script. `--help` prints `help` and ends with 0; an unknown or incomplete option prints one sentence that
 * names it and `--help`, and ends with 3.
 */
export function readOptions<const T extends Options>(
  script: string,
  help: string,
  options: T,
): Values<T> {
  const words = process.argv.slice(2);
  if (words.includes('--help') || words.includes('-h')) {
    console.log(help.trim());
    process.exit(0);
  }
  try {
    return parseArgs({ args: words, options }).values;
  } catch (error) {
    const [what = ''] = (error instanceof Error ? error.message : String(error)).split('. ');
    console.error(`${script}: ${what}; --help lists what it takes`);
    process.exit(3);
  }
}
