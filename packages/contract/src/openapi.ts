/**
 * Renders a route table as an OpenAPI 3.1 document. Nothing in it is written by hand, so the document matches what the servers
 * check.
 */
import { Type, type TSchema } from 'typebox';
import * as account from './account.ts';
import * as admin from './admin.ts';
import * as customer from './customer.ts';
import { ERRORS, type ErrorCode } from './errors.ts';
import * as flow from './flow.ts';
import * as oauth from './oauth.ts';
import * as operate from './operate.ts';
import * as payment from './payment.ts';
import { COMMON_ERRORS, type Route } from './routes.ts';

/** What a document is about. */
export interface OpenApiInfo {
  readonly title: string;
  readonly description: string;
  /** Header name of the static key, for a partner that uses one instead of OAuth (KY1). */
  readonly keyHeader?: string | undefined;
}

type Node = { [key: string]: unknown };

const SCHEMAS = '#/components/schemas/';

/** The resources, under their export names. */
const RESOURCES: Readonly<Record<string, TSchema>> = Object.fromEntries(
  Object.entries({
    ...account,
    ...admin,
    ...customer,
    ...flow,
    ...oauth,
    ...operate,
    ...payment,
  }).flatMap(([name, value]) =>
    typeof value === 'object' && 'properties' in value ? [[name, value]] : [],
  ),
);

/**
 * The name of each resource by its `properties`, which an optional copy of a schema shares. A client
 * generated from the document then has one type `PaymentRecord`, instead of a nameless shape at each
 * operation.
 */
const NAMES: ReadonlyMap<unknown, string> = new Map(
  Object.entries(RESOURCES).map(([name, schema]) => [propertiesOf(schema), name]),
);

/** Takes a table of routes; returns the document as a plain JSON value. */
export function renderOpenApi(routes: Readonly<Record<string, Route>>, info: OpenApiInfo): Node {
  const paths: Record<string, Node> = {};
  const securitySchemes: Node = {};
  const tokenUrl = routes['access_token']?.path ?? '/oauth/token';
  for (const route of Object.values(routes)) {
    const schemes = schemesOf(route, info, tokenUrl);
    Object.assign(securitySchemes, schemes);
    const names = Object.keys(schemes);
    const scopes = names.map((name) => [name, name === 'oauth' ? [route.scope ?? 'read'] : []]);
    const item = (paths[route.path] ??= {});
    item[route.method.toLowerCase()] = {
      ...operation(route),
      security: names.length === 0 ? [] : [Object.fromEntries(scopes)],
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: info.title,
      description: info.description,
      // Of the wire: decision 17.
      version: '1',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    // Its host differs per environment.
    servers: [{ url: '/', description: 'This server.' }],
    paths,
    components: {
      schemas: { Error: plain(ERROR), ...resources(paths) },
      securitySchemes,
    },
  };
}

function operation(route: Route): Node {
  return {
    operationId: route.id,
    summary: route.summary,
    description: `Source: ${route.source}.`,
    ...parameters(route),
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { [route.bodyType ?? 'application/json']: { schema: plain(route.body) } },
          },
        }),
    responses: responses(route),
  };
}

function parameters({ params, query }: Route): Node {
  const listed = (fields: Route['params'], place: 'path' | 'query'): Node[] =>
    Object.entries(fields?.properties ?? {}).map(([name, schema]) => {
      const required = (fields?.required as readonly string[] | undefined)?.includes(name) ?? false;
      return { name, in: place, required, schema: plain(schema) };
    });
  const list = [...listed(params, 'path'), ...listed(query, 'query')];
  return list.length === 0 ? {} : { parameters: list };
}

function responses(route: Route): Node {
  const ok: Node = {
    description: 'Done.',
    headers: {
      'X-Request-Id': { description: 'Names this answer in our logs.', schema: { type: 'string' } },
      ...Object.fromEntries(
        Object.entries(route.replyHeaders ?? {}).map(([name, description]) => [
          name,
          { description, schema: { type: 'string' } },
        ]),
      ),
    },
    content: { [route.replyType ?? 'application/json']: { schema: plain(route.reply) } },
  };
  const all: Node = { '200': ok };
  // Every admin listener limits its callers.
  const limits: ErrorCode[] = route.auth === 'admin' ? ['TOO_MANY_REQUESTS'] : [];
  const codes = [...new Set<ErrorCode>([...COMMON_ERRORS, ...route.errors, ...limits])];
  for (const [status, group] of Map.groupBy(codes, (code) => ERRORS[code].status)) {
    all[String(status)] = {
      description: group
        .map((code) => `${code}: ${ERRORS[code].message}. ${ERRORS[code].remedy}`)
        .join(' '),
      ...retryAfter(status),
      content: { 'application/json': { schema: { $ref: `${SCHEMAS}Error` } } },
    };
  }
  if (route.oauthErrors === true) {
    all['400'] = {
      description: 'The request was refused (RFC 6749 section 5.2).',
      content: { 'application/json': { schema: plain(oauth.OAuthErrorBody) } },
    };
  }
  return all;
}

function retryAfter(status: number): Node {
  if (status !== 429 && status !== 503) return {};
  return {
    headers: { 'Retry-After': { description: 'Seconds to wait.', schema: { type: 'integer' } } },
  };
}

/** The schemes that a caller of the operation uses together, by name. */
function schemesOf(route: Route, info: OpenApiInfo, tokenUrl: string): Node {
  switch (route.auth) {
    case 'none':
      return {};
    case 'client_key':
      return { client_id: header('X-Client-Id'), api_key: header('X-Api-Key') };
    case 'partner': {
      if (info.keyHeader !== undefined) return { key: header(info.keyHeader) };
      const scopes = { read: 'The queries (SC1).', write: 'Put Account Payment (SC1).' };
      return { oauth: { type: 'oauth2', flows: { clientCredentials: { tokenUrl, scopes } } } };
    }
    case 'token':
      return { token: bearer('The token of Create Token.') };
    case 'session':
      return { session: bearer('The session that the token was exchanged for.') };
    case 'admin':
      return { admin: bearer('The admin key of this deployment.') };
    case 'signature':
      return {
        signature: header(
          'Duebridge-Signature',
          '`t=UNIX SECONDS,v1=HEX`: HMAC-SHA-256 with the shared secret over `t.METHOD.PATH.BODY`, the path as it was sent. ' +
            'Refuse a t that is more than five minutes away.',
        ),
      };
  }
}

function header(name: string, description?: string): Node {
  return { type: 'apiKey', in: 'header', name, ...(description && { description }) };
}

function bearer(description: string): Node {
  return { type: 'http', scheme: 'bearer', description };
}

/** The body of an error (errors.ts). */
const ERROR = Type.Object({
  code: Type.String({ enum: Object.keys(ERRORS) }),
  message: Type.String(),
  details: Type.Optional(Type.Array(Type.Object({ path: Type.String(), problem: Type.String() }))),
});

/** A schema as plain JSON, with formats that other tools know; resources in it become references. */
function plain(schema: TSchema, definitionOf?: string): Node {
  return JSON.parse(
    JSON.stringify(schema, (key, value: unknown) => {
      if (key === 'format' && value === 'iso-date-time') return undefined;
      if (key === 'format' && value === 'iso-instant') return 'date-time';
      const name = NAMES.get(propertiesOf(value));
      return name === undefined || (key === '' && name === definitionOf)
        ? value
        : { $ref: `${SCHEMAS}${name}` };
    }),
  ) as Node;
}

function propertiesOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null && 'properties' in value
    ? value.properties
    : undefined;
}

/** The resources that the paths refer to, and those that these refer to in turn. */
function resources(paths: Node): Node {
  const found: Node = {};
  const follow = (node: Node): void => {
    const text = JSON.stringify(node);
    for (const [name, schema] of Object.entries(RESOURCES)) {
      if (name in found || !text.includes(`"${SCHEMAS}${name}"`)) continue;
      const definition = plain(schema, name);
      found[name] = definition;
      follow(definition);
    }
  };
  follow(paths);
  return found;
}
