/** Inputs for an operation of an OpenAPI document: valid, nearly valid and hostile ones, all from one seed. */
import { randomBytes } from 'node:crypto';
import { seededRandom } from '@duebridge/runtime/testing';

/** JSON Schema as our documents use it. */
export interface Schema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
}

/** Chance from a seed: the same seed gives the same run. */
export class Chance {
  /** 0 to below 1. */
  readonly next: () => number;
  constructor(seed: number) {
    this.next = seededRandom(seed);
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  of<T>(items: readonly T[]): T {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error('nothing to choose from');
    return item;
  }
}

/** A seed of its own for a run that names none. */
export function newSeed(): number {
  return randomBytes(4).readUInt32BE();
}

/** What breaks readers, serialisers, patterns and databases. Written into JSON unchanged, so numbers keep their text. */
const hostileJson: readonly string[] = [
  'null',
  'true',
  '-0',
  '0',
  '-1',
  '1e400',
  '1e2',
  '1.0',
  '100.000000000000001',
  '9007199254740993',
  '99999999999999999999999999',
  '""',
  '" "',
  '"\\u0000"',
  '"a\\u0000b"',
  '"\\ud800"',
  '"\\udfff\\ud800"',
  '"\\u202e\\u2066"',
  '"../../etc/passwd"',
  `"' OR 1=1 --"`,
  '"${7*7}{{7*7}}"',
  '"<script>alert(1)</script>"',
  '"a\\r\\nX-Injected: yes"',
  '"2026-02-30"',
  '"2026-12-31T23:59:60Z"',
  '"0000-00-00"',
  '"+999999-01-01T00:00:00Z"',
  '"infinity"',
  `"${'x'.repeat(257)}"`,
  `"${'\\u20ac'.repeat(20_000)}"`,
  '[]',
  '[[]]',
  '{}',
  '{"__proto__":{"role":"admin"}}',
  '{"constructor":{"prototype":{}}}',
  '{"a":1,"a":2}',
  `${'['.repeat(2_000)}${']'.repeat(2_000)}`,
];

/** The same for a place in an address. */
const hostileText: readonly string[] = [
  '',
  '.',
  '..',
  '%00',
  '%ff',
  '%c0%ae',
  '%2f..%2f',
  '%0d%0aX-Injected:%20yes',
  '%ed%a0%80',
  "'",
  '%27%20OR%201=1',
  '*',
  '%',
  '%zz',
  '0',
  '-1',
  '1e9',
  'NaN',
  'null',
  'undefined',
  '__proto__',
  'x'.repeat(129),
  'x'.repeat(3_000),
  '%F0%9F%92%B0',
  '2026-02-30T00:00:00Z',
  '2026-01-01T00:00:00+99:99',
  '18446744073709551616',
];

/** Addresses lead to this machine or nowhere: a run calls nobody. */
const addresses = [
  'https://127.0.0.1:1/x',
  'http://127.0.0.1:1',
  'https://localhost:1',
  'not an address',
  'ftp://x',
];

/** JSON text for a body. Mostly valid; `spoil` is the chance that a value is replaced by a hostile one. */
export function json(schema: Schema, chance: Chance, spoil: number, name = ''): string {
  if (chance.next() < spoil) return chance.of(hostileJson);
  if (/url$|origins?$/i.test(name) && schema.type === 'string') {
    return JSON.stringify(chance.of(addresses));
  }
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return JSON.stringify(chance.of(schema.enum));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return json(chance.of(choices), chance, spoil, name);
  switch (Array.isArray(schema.type) ? chance.of(schema.type as string[]) : schema.type) {
    case 'object': {
      const wanted = Object.entries(schema.properties ?? {}).filter(
        ([key]) => chance.next() < (schema.required?.includes(key) ? 1 - spoil / 2 : 0.5),
      );
      const fields = wanted.map(
        ([key, inner]) => `${JSON.stringify(key)}:${json(inner, chance, spoil, key)}`,
      );
      if (chance.next() < spoil) fields.push(`"unknown_${chance.below(9)}":1`);
      return `{${fields.join(',')}}`;
    }
    case 'array':
      return `[${Array.from({ length: chance.below(4) }, () => json(schema.items ?? {}, chance, spoil, name)).join(',')}]`;
    case 'integer':
    case 'number':
      return String(
        (schema.minimum ?? 0) + chance.below(Math.min(1_000, (schema.maximum ?? 1_000) + 1)),
      );
    case 'boolean':
      return chance.of(['true', 'false']);
    case 'null':
      return 'null';
    default:
      return JSON.stringify(text(schema, chance));
  }
}

/** A text that is often right for the schema: patterns are tried with words that our ids, times and numbers look like. */
function text(schema: Schema, chance: Chance): string {
  if (schema.enum !== undefined) return String(chance.of(schema.enum));
  const words = [
    'a1',
    'gas',
    'A-1',
    'ada',
    'TX',
    'true',
    '1',
    '50',
    '2026-03-01',
    '2026-03-01T09:30:00Z',
    'succeeded',
    'ada@example.com',
    'UTC',
    '00:00',
    'x-api-key',
    '+15125550100',
    '018f0000-0000-7000-8000-000000000000',
    'key_0',
    'batch_closed',
    'b'.repeat(Math.min(schema.maxLength ?? 20, 300)),
  ];
  const fitting = words.filter(
    (word) =>
      (schema.pattern === undefined || new RegExp(schema.pattern, 'u').test(word)) &&
      word.length >= (schema.minLength ?? 0),
  );
  return chance.of(fitting.length > 0 ? fitting : words);
}

/** A value for a place in a path or a query, encoded. */
export function part(schema: Schema, chance: Chance, spoil: number): string {
  return chance.next() < spoil ? chance.of(hostileText) : encodeURIComponent(text(schema, chance));
}

/** Changes bytes as a broken proxy, a truncated send or an attacker does. */
export function mutate(bytes: Buffer, chance: Chance): Buffer {
  let out = bytes;
  for (let times = 1 + chance.below(4); times > 0; times -= 1) {
    const at = chance.below(out.length + 1);
    const length = 1 + chance.below(12);
    const [before, after] = [out.subarray(0, at), out.subarray(at)];
    const odd = Buffer.from(
      chance.of([
        '\r\n',
        '\n',
        '\0',
        ' ',
        '\t',
        ':',
        '\r',
        ';',
        ',',
        '\xff',
        '0',
        'chunked',
        '%',
        '{',
      ]),
      'latin1',
    );
    switch (chance.below(6)) {
      case 0:
        out = Buffer.concat([before, odd, after]);
        break;
      case 1:
        out = Buffer.concat([before, after.subarray(length)]);
        break;
      case 2:
        out = Buffer.concat([before, after.subarray(0, length), after]);
        break;
      case 3:
        out = before.length > 0 ? before : out;
        break;
      case 4:
        out = Buffer.concat([before, Buffer.from([chance.below(256)]), after.subarray(1)]);
        break;
      default:
        out = Buffer.concat([out, bytes.subarray(chance.below(bytes.length))]);
    }
  }
  return out;
}
