/** The configuration of a server: read once and completely from the environment, so that all problems are reported together. */
import { readFileSync } from 'node:fs';
import { ConfigurationError, messageOf } from './errors.ts';

/** Reads one variable's text; throws an Error whose message says what is wrong without quoting the text. */
export type Parser<T> = (text: string) => T;

/** One variable of the environment. Without `default` it is required; an empty text counts as unset. */
export interface Variable<T> {
  readonly name: string;
  readonly parse: Parser<T>;
  readonly description: string;
  readonly default?: T;
  /** What --help shows as the default, where the value itself says too little. */
  readonly otherwise?: string;
  /** May also be given as a file: NAME_FILE names a file that contains the value, as container hosts mount secrets. */
  readonly secret?: true;
}

/** A row of a table of variables. Without a default, the setting is undefined when the variable is unset. */
export function setting<T, const Default extends T | undefined = undefined>(
  name: string,
  parse: Parser<T>,
  description: string,
  more: Pick<Variable<T>, 'otherwise' | 'secret'> & { readonly default?: Default } = {},
): Variable<T | Default> {
  // Where there is no default, it is undefined.
  return { name, parse, description, default: undefined as Default, ...more };
}

/** The variables of a program, by the name of the setting. */
export type Variables = Readonly<Record<string, Variable<unknown>>>;

/** The environment, as Node gives it. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Any text. */
export const text: Parser<string> = String;

/** A secret: at least 16 characters, without spaces or control characters, which headers and shells drop. */
export const secret: Parser<string> = (value) => {
  if (value.length < 16) throw new Error('must be at least 16 characters long');
  if (!/^[\u0021-\u007e]+$/.test(value)) throw new Error('must be visible ASCII without spaces');
  return value;
};

/** One secret, or several with commas between them while one replaces another. */
export const secrets: Parser<readonly string[]> = (value) => value.split(',').map(secret);

/** Names with commas between them; one too many is forgiven. */
export const names: Parser<readonly string[]> = (value) => {
  const list = value
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (list.length === 0) throw new Error('must be names separated by commas');
  return list;
};

/** A whole number between two inclusive bounds. */
export function integer(min: number, max: number): Parser<number> {
  return (value) => {
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) {
      throw new Error(`must be a whole number from ${min} to ${max}`);
    }
    return number;
  };
}

/** An absolute URL with one of the given schemes (`https:`); returned as written. */
export function address(...schemes: string[]): Parser<string> {
  return (value) => {
    if (!URL.canParse(value) || !schemes.includes(new URL(value).protocol)) {
      throw new Error(
        `must be an address that begins with ${schemes.map((scheme) => `${scheme}//`).join(' or ')}`,
      );
    }
    return value;
  };
}

/** Yes or no: 1, true, yes, on; 0, false, no, off. */
export const flag: Parser<boolean> = (value) => {
  const word = value.toLowerCase();
  if (['1', 'true', 'yes', 'on'].includes(word)) return true;
  if (['0', 'false', 'no', 'off'].includes(word)) return false;
  throw new Error('must be 1 or 0');
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

/** Variables that are in no server's table: commands read them. */
const readElsewhere = ['DUEBRIDGE_ADMIN_URL'];

/** A name this close to a known one is probably a typo: two letters, or one swapped pair. */
const MAX_TYPO_DISTANCE = 2;

/**
 * Reads all variables of `spec` from `env`. Throws one ConfigurationError that names every variable that is missing, wrong or
 * misspelt, and never quotes a value.
 */
export function readConfig<const S extends Variables>(
  spec: S,
  env: Environment = process.env,
): Config<S> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [key, variable] of Object.entries(spec)) {
    try {
      const given = variable.secret ? secretText(env, variable.name) : env[variable.name];
      if (given !== undefined && given !== '') values[key] = variable.parse(given);
      else if ('default' in variable) values[key] = variable.default;
      else problems.push(`${variable.name} is not set (${variable.description})`);
    } catch (error) {
      problems.push(
        error instanceof ConfigurationError
          ? error.message
          : `${variable.name} ${messageOf(error)} (${variable.description})`,
      );
    }
  }
  const known = knownNames(spec);
  for (const name of unknownNames(known, env)) {
    const meant = [...known].find((other) => isSlip(name, other));
    if (meant !== undefined) problems.push(`${name} is not known: did you mean ${meant}?`);
  }
  if (problems.length > 0) {
    throw new ConfigurationError(`the configuration is not usable: ${problems.join('; ')}`);
  }
  // Each key was filled from its own variable above.
  return values as Config<S>;
}

/**
 * The DUEBRIDGE_ variables of `env` that this version does not know and that are not typos. They may belong to a newer version
 * whose deployment was rolled back to this one. A server logs them when it starts and continues. `others` matches names, without the
 * prefix, of other programs of the project, which may share the environment.
 */
export function unknownVariables(spec: Variables, env: Environment, others: RegExp): string[] {
  return unknownNames(knownNames(spec), env).filter(
    (name) => !others.test(name.slice(PREFIX.length)),
  );
}

const PREFIX = 'DUEBRIDGE_';

function knownNames(spec: Variables): Set<string> {
  return new Set([
    ...Object.values(spec).flatMap(({ name, secret: isSecret }) =>
      isSecret ? [name, `${name}_FILE`] : [name],
    ),
    ...readElsewhere,
  ]);
}

function unknownNames(known: ReadonlySet<string>, env: Environment): string[] {
  return Object.keys(env).filter((name) => name.startsWith(PREFIX) && !known.has(name));
}

/** Whether two names are at most `MAX_TYPO_DISTANCE` apart: letters added, left out or replaced. Two neighbours swapped are two replaced. */
function isSlip(one: string, other: string, left = MAX_TYPO_DISTANCE): boolean {
  if (one === other) return true;
  if (left === 0) return false;
  let at = 0;
  while (one[at] === other[at]) at += 1;
  const [here, there] = [one.slice(at), other.slice(at)];
  return (
    isSlip(here.slice(1), there.slice(1), left - 1) ||
    isSlip(here.slice(1), there, left - 1) ||
    isSlip(here, there.slice(1), left - 1)
  );
}

/**
 * A secret from the environment: the value of NAME, or the text of the file named by NAME_FILE without its trailing line break.
 * Undefined when neither is set. Throws ConfigurationError when both are, or when the file cannot be read.
 */
export function secretText(env: Environment, name: string): string | undefined {
  const given = env[name] || undefined;
  const file = env[`${name}_FILE`] || undefined;
  if (file === undefined) return given;
  if (given !== undefined) {
    throw new ConfigurationError(`${name} and ${name}_FILE are both set: give one of them`);
  }
  try {
    return readFileSync(file, 'utf8').trimEnd();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : messageOf(error);
    throw new ConfigurationError(
      `the file ${file} that ${name}_FILE names cannot be read (${code})`,
    );
  }
}

/** The table as `--help` shows it: name, description, default. */
export function environmentHelp(spec: Variables): string {
  const rows = Object.values(spec);
  const width = Math.max(...rows.map(({ name }) => name.length));
  const lines = rows.map((row) => {
    const { otherwise, default: plain } = row;
    const value = otherwise ?? (typeof plain === 'string' ? plain : JSON.stringify(plain));
    return `  ${row.name.padEnd(width)}  ${row.description}${value === undefined ? '' : `; ${value}`}`;
  });
  const secrets = rows.filter((row) => row.secret).map(({ name }) => name);
  return [
    '',
    'Environment (what it sets; what holds when it is unset or empty):',
    ...lines,
    '',
    `A secret may be in a file instead: NAME_FILE names it, for ${secrets.join(', ')}.`,
  ].join('\n');
}
