/** Mounts an operation of the contract's route table on a server: its path, checks, errors and answer come from the table. */
import {
  compileCheck,
  instantText,
  pathFields,
  Refusal,
  type Detail,
  type Route,
  type RouteBody,
  type RouteParams,
  type RouteQuery,
  type RouteReply,
} from '@duebridge/contract';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { IncomingHttpHeaders } from 'node:http';
import { CSV_TYPE, hasBody, JSON_TYPE, unsupported } from './body.ts';
import { signalOf } from './closing.ts';

/** A handler's arguments: everything checked against the table. */
export interface Call<R extends Route> {
  readonly params: RouteParams<R>;
  readonly query: RouteQuery<R>;
  readonly body: RouteBody<R>;
  readonly headers: IncomingHttpHeaders;
  readonly request: FastifyRequest;
  /** To set headers of the answer, or to write it directly (`hijack`). */
  readonly reply: FastifyReply;
  /** Aborts when the client has disconnected or the server begins to stop: for waiting reads. */
  readonly signal: AbortSignal;
}

/** Answers an operation. Its return value is the 200 answer; what it throws is answered as an error. */
export type Handler<R extends Route> = (call: Call<R>) => Promise<RouteReply<R>> | RouteReply<R>;

/** Settings of one mounting. */
export interface MountOptions {
  /** Another path template than the table's, with the same fields (decision 1). */
  path?: string;
  /** Runs before the body is read: authentication and rate limits. Throws a Refusal to refuse. */
  onRequest?: (request: FastifyRequest, reply: FastifyReply) => Promise<void> | void;
}

/** Mounts one operation of the route table. The handler's types come from the table. */
export function mount<const R extends Route>(
  app: FastifyInstance,
  route: R,
  handler: Handler<R>,
  options: MountOptions = {},
): void {
  const path = options.path ?? route.path;
  const fields = route.params ? Object.keys(route.params.properties) : [];
  const named = pathFields(path);
  if (fields.some((field) => !named.includes(field)) || named.length !== fields.length) {
    throw new Error(`the path ${path} must contain each of {${fields.join('}, {')}} once`);
  }
  const checks = {
    path: route.params && compileCheck(route.params),
    query: route.query && compileCheck(route.query),
    // A CSV body is a stream: its handler validates the lines.
    body: route.body && (route.bodyType === CSV_TYPE ? anyStream : compileCheck(route.body)),
  };
  const instants = Object.entries(route.query?.properties ?? {})
    .filter(([, schema]) => 'format' in schema && schema.format === 'date-time')
    .map(([name]) => name);
  const isJson = (route.replyType ?? JSON_TYPE) === JSON_TYPE;
  const before = options.onRequest;

  app.route({
    method: route.method,
    url: path.replaceAll(/\{([a-z_]+)\}/g, ':$1'),
    config: { bodyType: route.bodyType, oauthErrors: route.oauthErrors ?? false },
    ...(isJson ? { schema: { response: { 200: serialisable(route.reply) } } } : undefined),
    ...(before === undefined
      ? undefined
      : { onRequest: async (request, reply) => before(request, reply) }),
    async handler(request, reply) {
      const details = [
        ...(checks.path?.problems(request.params, 'path') ?? []),
        // An operation without query fields ignores any that are sent: a proxy or a campaign link added them, not the caller.
        ...(checks.query?.problems(request.query, 'query') ?? []),
        ...bodyProblems(request, checks.body),
      ];
      if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
      const answer = await handler({
        // Each was checked against the schema its type comes from.
        params: request.params as RouteParams<R>,
        query: normalized(request.query, instants) as RouteQuery<R>,
        body: request.body as RouteBody<R>,
        headers: request.headers,
        request,
        reply,
        get signal() {
          return signalOf(app, request, reply);
        },
      });
      return reply.sent ? reply : answer;
    },
  });
}

/** The query with its instants in UTC with milliseconds: the one form in which they are compared and stored (decision 12). */
function normalized(query: unknown, instants: readonly string[]): unknown {
  const values: Record<string, unknown> = { ...(query as Record<string, unknown>) };
  for (const name of instants) {
    const value = values[name];
    if (typeof value === 'string') values[name] = instantText(value);
  }
  return values;
}

/** The check of a body that is passed on unread. */
const anyStream: ReturnType<typeof compileCheck> = {
  holds: (value): value is unknown => value !== undefined,
  problems: (value) => (value === undefined ? [{ path: 'body', problem: 'is required' }] : []),
};

/**
 * A schema without the marks of its maker: the serialiser reads plain JSON Schema. Without formats too: inside a union it checks them
 * with a reader of its own, which does not know ours and would answer 500 to a value that ours has let in.
 */
function serialisable(schema: object): unknown {
  return JSON.parse(
    JSON.stringify(schema, (key, value: unknown) =>
      key === 'format' && typeof value === 'string' ? undefined : value,
    ),
  );
}

function bodyProblems(
  request: FastifyRequest,
  check: ReturnType<typeof compileCheck> | undefined,
): readonly Detail[] {
  if (check) {
    // Without a body and without a type, nothing has checked the type yet.
    if (request.body === undefined && request.headers['content-type'] === undefined) {
      throw unsupported();
    }
    return check.problems(request.body, 'body');
  }
  return hasBody(request.headers) ? [{ path: 'body', problem: 'does not belong here' }] : [];
}
