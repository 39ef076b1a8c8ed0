/**
 * Strict JSON parser, for differences that `JSON.parse` hides and that change an amount (decision 11, F26, F96-F98).
 *
 * `JSON.parse` turns 1e2, 100.0 and 100.000000000000001 into 100 and 2^53+1 into 2^53, keeps the last of two equal keys, and lets
 * `__proto__` through. Here its reviver, which sees the source text of each number, refuses dangerous keys, lone surrogates and NUL;
 * equal keys and deep nesting are found by counting. Every number that is not a plain integer keeps its source text: it is an object to
 * every schema and therefore never an amount.
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

/** The text is not acceptable JSON; the message gives the reason without quoting the text. */
export class JsonProblem extends Error {
  override readonly name = 'JsonProblem';
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
  const written = countMembers(text);
  let value: Json;
  // The reviver is called for the whole text too, as for a member.
  let members = -1;
  try {
    value = parseWithSource(text, function revive(key, part, { source }) {
      if (!Array.isArray(this)) {
        members += 1;
        if (DANGEROUS_KEYS.has(key)) throw new JsonProblem(`the key ${key} is not allowed`);
        storable(key, false);
      }
      if (typeof part === 'string') return storable(part, options.unstorable === 'replace');
      if (typeof part !== 'number' || source === undefined) return part;
      return PLAIN_INTEGER.test(source) && Number.isSafeInteger(part)
        ? part
        : new OtherNumber(source);
    });
  } catch (error) {
    throw error instanceof JsonProblem ? error : new JsonProblem('the text is not JSON');
  }
  if (members !== written) {
    throw new JsonProblem('the same key appears twice in one object');
  }
  return value;
}

const PLAIN_INTEGER = /^(?:0|-?[1-9][0-9]*)$/;

/** `JSON.parse` with the source text that engines give to a reviver, and TypeScript does not know yet. */
const parseWithSource = JSON.parse as (
  text: string,
  revive: (
    this: unknown,
    key: string,
    value: Json,
    context: { readonly source?: string },
  ) => unknown,
) => Json;

/**
 * The members of all objects: outside of strings each has one colon. Refuses deep nesting. One pass over the text, because a pattern
 * for strings takes seconds to give up on 64 KiB of quotation marks.
 */
function countMembers(text: string): number {
  let [depth, colons, isInString] = [0, 0, false];
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') isInString = !isInString;
    else if (isInString) at += character === '\\' ? 1 : 0;
    else if (character === ':') colons += 1;
    else if (character === '{' || character === '[') depth += 1;
    else if (character === '}' || character === ']') depth -= 1;
    if (depth > MAX_JSON_DEPTH) {
      throw new JsonProblem(`the text is nested deeper than ${MAX_JSON_DEPTH} levels`);
    }
  }
  return colons;
}

/** The string, which an escape may have given NUL, or half a surrogate pair: as keys, two different halves become the same character. */
function storable(text: string, replaces: boolean): string {
  if (text.isWellFormed() && !text.includes('\0')) return text;
  if (replaces) return text.replaceAll('\0', '\uFFFD').toWellFormed();
  throw new JsonProblem('a string contains the character NUL or half a surrogate pair');
}
