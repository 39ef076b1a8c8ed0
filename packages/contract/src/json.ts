/**
 * Strict JSON parser, for differences that `JSON.parse` hides and that change an amount (decision 11, F26, F96-F98).
 *
 * `JSON.parse` turns 1e2, 100.0 and 100.000000000000001 into 100 and 2^53+1 into 2^53, keeps the last of two equal keys, and lets
 * `__proto__` through. This parser refuses duplicate and dangerous keys, lone surrogates, NUL and deep nesting. It keeps the
 * source text of every number that is not a plain integer; such a number is an object to every schema and therefore never an
 * amount.
 */

/** Maximum nesting depth. The wire needs 3; the limit keeps a hostile body from exhausting the stack. */
export const MAX_JSON_DEPTH = 32;

/** Keys that can change the prototype when a JavaScript program copies an object (F26). */
const DANGEROUS_KEYS = new Set(['__proto__', 'constructor', 'prototype']);

/** A number that is not a plain integer within ±(2^53-1), kept as its source text, unrounded. */
export class OtherNumber {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
  toJSON(): number {
    return Number(this.source);
  }
}

/** Result of `parseJson`: as from `JSON.parse`, but with `OtherNumber` for other numbers. */
export type Json =
  | null
  | boolean
  | number
  | string
  | OtherNumber
  | readonly Json[]
  | { readonly [key: string]: Json };

/** The text is not acceptable JSON; `problem` gives the reason and the position without quoting the text. */
export class JsonProblem extends Error {
  readonly problem: string;
  constructor(problem: string) {
    super(problem);
    this.name = 'JsonProblem';
    this.problem = problem;
  }
}

/**
 * Parses one JSON text. Throws JsonProblem and no other error, for any text.
 *
 * PostgreSQL cannot store a string whose escapes produce NUL or half a surrogate pair. `unstorable` says how to handle one:
 * `refuse` the text (for requests, whose sender gets the error), or `replace` the character with U+FFFD (for answers to our own
 * calls, so that a payment does not stay open because of one character in its reason). Such characters in keys are always
 * refused.
 */
export function parseJson(
  text: string,
  options: { readonly unstorable?: 'refuse' | 'replace' } = {},
): Json {
  if (!text.isWellFormed()) throw new JsonProblem('the text is not well-formed Unicode');
  const plain = parsePlainRecord(text);
  if (plain !== undefined) return plain;
  const reader = new Reader(text, options.unstorable === 'replace');
  return reader.whole();
}

/**
 * The shortcut for what nearly every text is: a flat object, written without white space and escapes, as JSON.stringify writes it.
 * Three times as fast. Undefined where the reader has to look: if writing the result gives the same text again, then nothing was
 * dropped, reordered or rounded by JSON.parse, which leaves numbers and keys to check.
 */
function parsePlainRecord(text: string): Json | undefined {
  if (!text.startsWith('{"') || text.includes('\\')) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined; // the reader says what is wrong
  }
  const fields = value as { readonly [key: string]: Json };
  for (const key of Object.keys(fields)) {
    const field = fields[key];
    const isPlain =
      field === null ||
      typeof field === 'string' ||
      typeof field === 'boolean' ||
      Number.isSafeInteger(field);
    if (!isPlain || DANGEROUS_KEYS.has(key)) return undefined;
  }
  return JSON.stringify(fields) === text ? fields : undefined;
}

const PLAIN_INTEGER = /^-?(?:0|[1-9][0-9]*)$/;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const SPACE = /[ \t\n\r]*/y;

class Reader {
  readonly #text: string;
  readonly #replaces: boolean;
  #at = 0;

  constructor(text: string, replaces: boolean) {
    this.#text = text;
    this.#replaces = replaces;
  }

  whole(): Json {
    this.#space();
    const value = this.#value(0);
    this.#space();
    if (this.#at !== this.#text.length) this.#fail('text after the end of the value');
    return value;
  }

  #value(depth: number): Json {
    if (depth > MAX_JSON_DEPTH) this.#fail(`nested deeper than ${MAX_JSON_DEPTH} levels`);
    switch (this.#text[this.#at]) {
      case '{':
        return this.#object(depth);
      case '[':
        return this.#array(depth);
      case '"':
        return this.#string(this.#replaces);
      case 't':
        return this.#word('true', true);
      case 'f':
        return this.#word('false', false);
      case 'n':
        return this.#word('null', null);
      default:
        return this.#number();
    }
  }

  #object(depth: number): Json {
    this.#at += 1;
    const entries = new Map<string, Json>();
    this.#space();
    if (this.#take('}')) return {};
    do {
      this.#space();
      if (this.#text[this.#at] !== '"') this.#fail('expected a key in double quotes');
      const key = this.#string(false);
      if (DANGEROUS_KEYS.has(key)) this.#fail(`the key ${key} is not allowed`);
      if (entries.has(key)) this.#fail('the same key appears twice in one object');
      this.#space();
      if (!this.#take(':')) this.#fail('expected a colon');
      this.#space();
      entries.set(key, this.#value(depth + 1));
      this.#space();
    } while (this.#take(','));
    if (!this.#take('}')) this.#fail('expected a comma or a closing brace');
    return Object.fromEntries(entries);
  }

  #array(depth: number): Json {
    this.#at += 1;
    const items: Json[] = [];
    this.#space();
    if (this.#take(']')) return items;
    do {
      this.#space();
      items.push(this.#value(depth + 1));
      this.#space();
    } while (this.#take(','));
    if (!this.#take(']')) this.#fail('expected a comma or a closing bracket');
    return items;
  }

  #string(replaces: boolean): string {
    STRING.lastIndex = this.#at;
    const source = this.#match(STRING) ?? this.#fail('a string is not closed or not escaped');
    this.#at += source.length;
    if (!source.includes('\\')) return source.slice(1, -1);
    const text = JSON.parse(source) as string;
    // An escape can still produce characters that raw text may not contain: PostgreSQL refuses NUL, and two different lone
    // surrogates become the same replacement character as keys.
    if (replaces) return text.replaceAll('\u0000', '\uFFFD').toWellFormed();
    if (text.includes('\u0000')) this.#fail('a string contains the character NUL');
    if (!text.isWellFormed()) this.#fail('a string contains half a surrogate pair');
    return text;
  }

  #number(): number | OtherNumber {
    NUMBER.lastIndex = this.#at;
    const source = this.#match(NUMBER) ?? this.#fail('expected a value');
    this.#at += source.length;
    if (PLAIN_INTEGER.test(source) && source !== '-0') {
      const value = Number(source);
      if (Number.isSafeInteger(value)) return value;
    }
    return new OtherNumber(source);
  }

  #word<T extends null | boolean>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) this.#fail('expected a value');
    this.#at += word.length;
    return value;
  }

  #match(pattern: RegExp): string | undefined {
    return pattern.exec(this.#text)?.[0];
  }

  #space(): void {
    SPACE.lastIndex = this.#at;
    this.#at += SPACE.exec(this.#text)?.[0].length ?? 0;
  }

  #take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }

  #fail(problem: string): never {
    throw new JsonProblem(`${problem}, at character ${this.#at + 1}`);
  }
}
