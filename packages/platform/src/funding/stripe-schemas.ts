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

interface Schemas {
  /** The revision of the description, and its licence. */
  readonly source: string;
  readonly operations: Readonly<
    Record<string, { readonly params: object; readonly answer: object }>
  >;
  readonly events: Readonly<Record<string, object>>;
  readonly error: object;
  readonly definitions: object;
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
