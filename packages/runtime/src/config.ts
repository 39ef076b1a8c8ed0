/** The configuration of a server: read from the environment once and whole, so that everything wrong is told at once. */
import { ConfigurationError, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';

/** Reads one variable's text; throws an Error whose message says what is wrong without quoting the text. */
export type Parser<T> = (text: string) => T;

/** One variable of the environment. Without `default` it is required; an empty text counts as unset. */
export interface Variable<T> {
  readonly name: string;
  readonly parse: Parser<T>;
  readonly description: string;
  readonly default?: T;
}

/** Any text. */
export const text: Parser<string> = (value) => value;

/** A secret: at least 16 characters, without spaces or control characters, which headers and shells lose. */
export const secret: Parser<string> = (value) => {
  if (value.length < 16) throw new Error('must be at least 16 characters long');
  if (!/^[\u0021-\u007e]+$/.test(value)) throw new Error('must be visible ASCII without spaces');
  return value;
};

/** A whole number between two bounds, both allowed. */
export function integer(min: number, max: number): Parser<number> {
  return (value) => {
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) {
      throw new Error(`must be a whole number from ${min} to ${max}`);
    }
    return number;
  };
}

/** An absolute address with one of the given schemes (`https:`); gives it as written. */
export function address(...schemes: string[]): Parser<string> {
  return (value) => {
    if (!URL.canParse(value) || !schemes.includes(new URL(value).protocol)) {
      throw new Error(`must be an address that begins with ${schemes.join(' or ')}//`);
    }
    return value;
  };
}

/** Yes or no: 1, true, yes, on; 0, false, no, off. */
export const flag: Parser<boolean> = (value) => {
  switch (value.toLowerCase()) {
    case '1':
    case 'true':
    case 'yes':
    case 'on':
      return true;
    case '0':
    case 'false':
    case 'no':
    case 'off':
      return false;
    default:
      throw new Error('must be 1 or 0');
  }
};

/** One of a closed set of words. */
export function oneOf<const T extends string>(...words: T[]): Parser<T> {
  return (value) => {
    const found = words.find((word) => word === value);
    if (found === undefined) throw new Error(`must be one of ${words.join(', ')}`);
    return found;
  };
}

/** The values of a specification. */
export type Config<S> = { readonly [K in keyof S]: S[K] extends Variable<infer T> ? T : never };

/** Variables of the project that are read elsewhere and so are never reported as unknown. */
const readElsewhere = new Set(['DUEBRIDGE_DATA_DIR', 'DUEBRIDGE_TEST_DATABASE_URL']);

/**
 * Reads all variables of `spec` from `env`. Throws one ConfigurationError that names every variable that is missing or wrong, and
 * never quotes a value. A DUEBRIDGE_ variable that nobody knows (a slip of the pen) is warned of; `alsoKnown` names those that
 * other parts of the program read.
 */
export function readConfig<const S extends Readonly<Record<string, Variable<unknown>>>>(
  spec: S,
  env: Readonly<Record<string, string | undefined>> = process.env,
  options: { log?: Log; alsoKnown?: readonly string[] } = {},
): Config<S> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [key, variable] of Object.entries(spec)) {
    const given = env[variable.name];
    if (given === undefined || given === '') {
      if ('default' in variable) values[key] = variable.default;
      else problems.push(`${variable.name} is not set (${variable.description})`);
      continue;
    }
    try {
      values[key] = variable.parse(given);
    } catch (error) {
      problems.push(`${variable.name} ${messageOf(error)} (${variable.description})`);
    }
  }
  const known = new Set(Object.values(spec).map((variable) => variable.name));
  for (const name of Object.keys(env)) {
    if (!name.startsWith('DUEBRIDGE_') || known.has(name) || readElsewhere.has(name)) continue;
    if (options.alsoKnown?.includes(name)) continue;
    (options.log ?? silentLog).warn(
      { variable: name },
      'this variable is not known; is it misspelt?',
    );
  }
  if (problems.length > 0) {
    throw new ConfigurationError(`the configuration is not usable: ${problems.join('; ')}`);
  }
  // Each key was filled from its own variable above.
  return values as Config<S>;
}
