/** The words after `npm run NAME --`, for programs that have no commands of their own. */
import { parseArgs, type ParseArgsConfig } from 'node:util';

/** Ends the program with 3 and one sentence that says what is wrong with its words. */
export function refuse(program: string, what: string): never {
  console.error(`${program}: ${what}; --help lists what it takes`);
  process.exit(3);
}

/** Reads the words of a program. `--help` prints `help` and ends it with 0; words that `config` does not know are refused. */
export function readWords<const C extends ParseArgsConfig>(
  program: string,
  help: string,
  config: C,
): ReturnType<typeof parseArgs<C>> {
  const args = config.args ?? process.argv.slice(2);
  if (args.includes('--help') || args.includes('-h')) {
    console.log(help.trim());
    process.exit(0);
  }
  try {
    return parseArgs<C>({ ...config, args });
  } catch (error) {
    const [what = ''] = (error instanceof Error ? error.message : String(error)).split('. ');
    return refuse(program, what);
  }
}

/** The whole number that an option was given; anything else, or less than `least`, is refused. */
export function whole(program: string, option: string, text: string, least = 0): number {
  const number = /^\d{1,10}$/.test(text) ? Number(text) : -1;
  return number >= least
    ? number
    : refuse(program, `--${option} takes a whole number, at least ${least}`);
}
