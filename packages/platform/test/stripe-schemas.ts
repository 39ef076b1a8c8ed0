/**
 * Checks of requests, answers, errors and webhooks against Stripe's published description of its API.
 * The schemas in stripe-schemas.json were generated from the types of the package stripe 23.1.0 (ts-json-schema-generator), for the
 * operations, events and objects that the adapter uses; an object that is not listed has no valid value.
 *
 * enters: a message as it is on the wire.  leaves: what is wrong with it, a sentence each; nothing when it is as described.
 */
import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { parse } from 'qs';

/** As much of a JSON Schema as `blank` reads. */
interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

interface Schemas {
  /** The revision of the description, and its licence. */
  readonly source: string;
  readonly operations: Readonly<
    Record<string, { readonly params: object; readonly answer: object }>
  >;
  readonly events: Readonly<Record<string, object>>;
  readonly error: object;
  readonly definitions: Readonly<Record<string, Schema>>;
}

const schemas = JSON.parse(
  readFileSync(new URL('./stripe-schemas.json', import.meta.url), 'utf8').replaceAll(
    '"#/definitions/',
    '"stripe#/definitions/',
  ),
) as Schemas;
const error = {
  type: 'object',
  properties: { error: schemas.error },
  required: ['error'],
  additionalProperties: false,
};

/** In a form everything is text: `"12345"` and `"true"` are read as the schema's type. Bodies are read as they are. */
const form = new Ajv({ allErrors: true, coerceTypes: true, strict: false });
const body = new Ajv({ allErrors: true, strict: false });
for (const ajv of [form, body]) ajv.addSchema({ $id: 'stripe', definitions: schemas.definitions });

function problems(ajv: Ajv, schema: object | undefined, value: unknown, what: string): string[] {
  if (schema === undefined)
    return [`${what} is not in Stripe's description, or not in our part of it`];
  const check = ajv.compile(schema);
  if (check(value)) return [];
  return (check.errors ?? []).map(
    ({ instancePath, message, params }) =>
      `${what}${instancePath}: ${message} ${JSON.stringify(params)}`,
  );
}

/**
 * The parameters of a request: `encoded` is its body or query in the encoding that the description gives all of them
 * (`deepObject`, exploded).
 */
export function checkRequest(route: string, encoded: string): string[] {
  const value: unknown = parse(encoded);
  return problems(form, schemas.operations[route]?.params, value, route);
}

/** The answer to a request: `status` and the body as sent. */
export function checkAnswer(route: string, status: number, json: string): string[] {
  const value: unknown = JSON.parse(json);
  if (status === 200) return problems(body, schemas.operations[route]?.answer, value, route);
  return problems(body, error, value, `${route} ${status}`);
}

/** A webhook: its body as sent. */
export function checkEvent(json: string): string[] {
  const value = JSON.parse(json) as { type: string };
  return problems(body, schemas.events[value.type], value, value.type);
}

/** An object of Stripe's with every field that it must have: null where that is allowed, else the least value. */
export function blank(name: string): Record<string, unknown> {
  const { properties = {}, required = [] } = schemas.definitions[name] ?? {};
  return Object.fromEntries(required.map((field) => [field, leastOf(properties[field] ?? {})]));
}

const LEAST: Readonly<Record<string, unknown>> = {
  string: '',
  integer: 0,
  number: 0,
  boolean: false,
};

function leastOf({ $ref, type, const: constant, enum: values, anyOf, ...object }: Schema): unknown {
  if (anyOf?.some((one) => one.type === 'null') === true || type?.includes('null') === true) {
    return null;
  }
  if (constant !== undefined) return constant;
  if (values !== undefined) return values[0];
  if (type === 'array') return [];
  if ($ref !== undefined) {
    const name = decodeURIComponent($ref.slice($ref.lastIndexOf('/') + 1));
    const named = schemas.definitions[name];
    return named?.type === 'object' ? blank(name) : leastOf(named ?? {});
  }
  if (anyOf?.[0] !== undefined) return leastOf(anyOf[0]);
  if (object.properties !== undefined || type === 'object') return {};
  return LEAST[String(type)];
}
