/** Inputs for an operation of an OpenAPI document: valid, nearly valid and hostile ones, all from one seed. */

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
  readonly description?: string;
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
}

/** What breaks readers, serialisers, patterns and databases. Written into JSON unchanged, so numbers keep their text. */
const hostileJson: readonly string[] = [
  ['null', 'true', '-0', '0', '-1', '1e400', '1e2', '1.0', '100.000000000000001'],
  ['9007199254740993', '99999999999999999999999999', '[]', '[[]]', '{}', '{"a":1,"a":2}'],
  ['"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udfff\\ud800"', '"\\u202e\\u2066"', '""', '" "'],
  ['"../../etc/passwd"', `"' OR 1=1 --"`, '"<script>alert(1)</script>"', '"a\\r\\nX-Y: yes"'],
  ['"2026-02-30"', '"2026-12-31T23:59:60Z"', '"0000-00-00"', '"infinity"'],
  ['"+999999-01-01T00:00:00Z"', `"${'x'.repeat(257)}"`, `"${'\\u20ac'.repeat(20_000)}"`],
  ['{"__proto__":{"role":"admin"}}', '{"constructor":{"prototype":{}}}'],
  [`${'['.repeat(2_000)}${']'.repeat(2_000)}`],
].flat();

/** The same for a place in an address. */
const hostileText: readonly string[] = [
  ['', '.', '..', '%00', '%ff', '%c0%ae', '%2f..%2f', '%0d%0aX-Y:%20yes', '%ed%a0%80', '%zz'],
  ["'", '%27%20OR%201=1', '*', '%', '0', '-1', '1e9', 'NaN', 'null', '__proto__'],
  ['x'.repeat(129), 'x'.repeat(3_000), '%F0%9F%92%B0', '18446744073709551616'],
  ['2026-02-30T00:00:00Z', '2026-01-01T00:00:00+99:99'],
].flat();

/** Words that our ids, times and numbers look like. */
const WORDS: readonly string[] = [
  ['a1', 'gas', 'A-1', 'ada', 'TX', 'true', '1', '50', '2026-03-01', '2026-03-01T09:30:00Z'],
  ['succeeded', 'ada@example.com', 'UTC', '00:00', 'x-api-key', '+15125550100', 'key_0'],
  ['018f0000-0000-7000-8000-000000000000', 'batch_closed', 'b'.repeat(20), 'b'.repeat(300)],
].flat();

/** Addresses lead to this machine or nowhere: a run calls nobody. */
const addresses = [
  'https://127.0.0.1:1/x',
  'http://127.0.0.1:1',
  'https://localhost:1',
  'not an address',
  'ftp://x',
];

/** Inputs from one stream of random numbers. `spoil` is the chance that a value is replaced by a hostile one. */
export interface Generate {
  chance(of: number): boolean;
  of<T>(items: readonly T[]): T;
  /** JSON text for a body; `name` is the field's. */
  json(schema: Schema, spoil: number, name?: string): string;
  /** A value for a place in a path or a query, encoded. */
  part(schema: Schema, spoil: number): string;
}

/** The same random numbers give the same inputs. */
export function generate(next: () => number): Generate {
  const below = (limit: number): number => Math.floor(next() * limit);
  const chance = (of: number): boolean => next() < of;
  const of = <T>(items: readonly T[]): T => {
    const item = items[below(items.length)];
    if (item === undefined) throw new Error('nothing to choose from');
    return item;
  };
  /** A text that is often right for the schema. */
  const text = ({ enum: values, pattern, minLength = 0, maxLength = 300 }: Schema): string => {
    if (values !== undefined) return String(of(values));
    const shape = new RegExp(pattern ?? '', 'u');
    const fits = (word: string): boolean =>
      shape.test(word) && word.length >= minLength && word.length <= maxLength;
    const fitting = WORDS.filter(fits);
    return of(fitting.length > 0 ? fitting : WORDS);
  };
  const object = ({ properties = {}, required = [] }: Schema, spoil: number): string => {
    const fields = Object.entries(properties)
      .filter(([key]) => chance(required.includes(key) ? 1 - spoil / 2 : 0.5))
      .map(([key, inner]) => `${JSON.stringify(key)}:${json(inner, spoil, key)}`);
    if (chance(spoil)) fields.push(`"unknown_${below(9)}":1`);
    return `{${fields.join(',')}}`;
  };
  const json = (schema: Schema, spoil: number, name = ''): string => {
    const { type, items = {}, minimum = 0, maximum = 1_000 } = schema;
    if (chance(spoil)) return of(hostileJson);
    if (/url$|origins?$/i.test(name) && type === 'string') return JSON.stringify(of(addresses));
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum !== undefined) return JSON.stringify(of(schema.enum));
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices !== undefined) return json(of(choices), spoil, name);
    switch (typeof type === 'object' ? of(type) : type) {
      case 'object':
        return object(schema, spoil);
      case 'array':
        return `[${Array.from({ length: below(4) }, () => json(items, spoil, name)).join(',')}]`;
      case 'integer':
      case 'number':
        return String(minimum + below(Math.min(1_000, maximum + 1)));
      case 'boolean':
        return String(chance(0.5));
      case 'null':
        return 'null';
      default:
        return JSON.stringify(text(schema));
    }
  };
  return {
    chance,
    of,
    json,
    part: (schema, spoil) => (chance(spoil) ? of(hostileText) : encodeURIComponent(text(schema))),
  };
}
