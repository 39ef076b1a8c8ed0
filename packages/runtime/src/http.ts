/**
 * HTTP for both servers: a Fastify server whose every answer, even to bytes that are no HTTP, has the catalogue's form and an
 * X-Request-Id; strict in what it reads (decisions 5, 11 and 16); limited in size, time and number (reliability 4.4); and
 * `mount`, which puts an operation of the contract's route table on it.
 *
 * A request's way: duplicate headers and bodies where none belong are refused, the caller is authenticated (`onRequest`, before
 * its body is read), the body is read strictly, path, query and body are checked against the table, the handler runs, and the
 * answer is written by a serialiser made from the schema. Nothing is coerced, defaulted or dropped on the way in.
 */
import {
  compileCheck,
  ERRORS,
  JsonProblem,
  parseJson,
  pathFields,
  Refusal,
  type Detail,
  type ErrorCode,
  type OAuthErrorCode,
  type Route,
  type RouteBody,
  type RouteParams,
  type RouteQuery,
  type RouteReply,
} from '@duebridge/contract';
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { systemClock, type Clock } from './clock.ts';
import { docsPage } from './docs-page.ts';
import { DatabaseUnavailable, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';
import type { Metrics } from './service.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Media type of the body the route takes; undefined: JSON. */
    bodyType?: string;
    /** Errors in the form of RFC 6749. */
    oauthErrors?: boolean;
  }
}

/** Limits of a server; each can be set, so that a test need not wait for the real ones. */
export interface HttpLimits {
  /** Bytes of a body; 64 KiB (decision 16): the largest request of the interface is under 2 KiB. */
  bodyBytes: number;
  /** Bytes of all headers; 16 KiB, Node's own. */
  headerBytes: number;
  /** Time for a whole request to arrive; 30,000 ms: a slow body ends here. */
  requestTimeoutMs: number;
  /** Time for the headers to arrive; 10,000 ms. It must be below the former or that is not kept in time. */
  headersTimeoutMs: number;
  /** How often Node looks for requests that are late; 5,000 ms, so a limit is kept to that much. */
  checkIntervalMs: number;
  /** Connections at once; 10,000, well under the usual limit of file descriptors. */
  connections: number;
  /** How long a close waits for requests under way before it cuts them; 8,000 ms, within the 10 s of a stop. */
  closeTimeoutMs: number;
}

const defaultLimits: HttpLimits = {
  bodyBytes: 64 * 1024,
  headerBytes: 16 * 1024,
  requestTimeoutMs: 30_000,
  headersTimeoutMs: 10_000,
  checkIntervalMs: 5_000,
  connections: 10_000,
  closeTimeoutMs: 8_000,
};

/** What a server is made of. */
export interface ServerOptions {
  log?: Log;
  clock?: Clock;
  metrics?: Metrics;
  limits?: Partial<HttpLimits>;
  /** More headers that may stand once only: the one a partner chose for its key. */
  singleHeaders?: readonly string[];
}

/** Headers that decide who calls or how the body is read. Two of one are an attempt to be read in two ways (reliability F100). */
const singleHeaders = [
  'authorization',
  'x-client-id',
  'x-api-key',
  'content-type',
  'content-length',
  'host',
  'transfer-encoding',
  'content-encoding',
  'x-request-id',
  'prefer',
  'origin',
  'cookie',
];

/** Longest path field taken before the operation's own pattern decides: 128 characters, each encoded in up to 12 bytes. */
const maxParamLength = 2_048;
/** Seconds after which a caller may come back when the database is away: a restart takes about that long. */
const retryAfterSeconds = '2';

const jsonType = 'application/json';
const formType = 'application/x-www-form-urlencoded';
const csvType = 'text/csv';

/** An error of the OAuth token endpoint, in the form of RFC 6749: invalid_client is 401, the others are 400. */
export class OAuthRefusal extends Error {
  override readonly name = 'OAuthRefusal';
  readonly error: OAuthErrorCode;
  readonly headers: Readonly<Record<string, string>>;
  constructor(
    error: OAuthErrorCode,
    description: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    super(description);
    this.error = error;
    this.headers = headers;
  }
}

/** Makes a server. The caller mounts operations, listens and closes; `close` answers what is under way, then ends. */
export function createServer(options: ServerOptions = {}): FastifyInstance {
  const log = options.log ?? silentLog;
  const clock = options.clock ?? systemClock;
  const limits = { ...defaultLimits, ...options.limits };
  const single = new Set(
    [...singleHeaders, ...(options.singleHeaders ?? [])].map((name) => name.toLowerCase()),
  );

  const app = fastify({
    logger: false,
    bodyLimit: limits.bodyBytes,
    requestTimeout: limits.requestTimeoutMs,
    http: {
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: limits.checkIntervalMs,
      maxHeaderSize: limits.headerBytes,
      // Looked at in headerProblem: Node would answer by itself, with a bare 400.
      requireHostHeader: false,
    },
    exposeHeadRoutes: false,
    // A request that came in while we close is answered, on a connection that then ends.
    return503OnClosing: false,
    routerOptions: { maxParamLength },
    genReqId: (request) => requestId(request),
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      // Paths that cannot be decoded come here before any hook has run.
      setCommonHeaders(request, reply);
      void answerError(log, error, request, reply);
    },
  });
  app.server.maxConnections = limits.connections;
  // The same of an Expect that nobody can meet, which Node would answer with a bare 417.
  app.server.on('checkExpectation', (request, response) => app.routing(request, response));
  const requests = options.metrics?.histogram(
    'duebridge_http_request_duration_seconds',
    'Time from the arrival of a request to the end of its answer',
    ['method', 'route', 'status'],
  );

  readBodiesStrictly(app);
  followClosing(app, limits.closeTimeoutMs);

  app.addHook('onRequest', (request, reply, done) => {
    setCommonHeaders(request, reply);
    const problem = headerProblem(request.raw, single);
    if (problem === undefined) done();
    else {
      // What follows on this connection may be a body we did not read as one.
      reply.header('connection', 'close');
      done(new Refusal('INVALID_REQUEST', { details: [problem] }));
    }
  });
  app.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.url ?? 'none';
    const seconds = reply.elapsedTime / 1000;
    requests?.observe({ method: request.method, route, status: reply.statusCode }, seconds);
    // The pattern of the path, never the path: it holds account numbers. Nothing of body or headers.
    const line = {
      method: request.method,
      route,
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      request_id: request.id,
      at: new Date(clock.now()).toISOString(),
    };
    if (reply.statusCode >= 500) log.warn(line, 'request failed');
    else if (reply.statusCode >= 400) log.info(line, 'request refused');
    else log.debug(line, 'request answered');
    done();
  });
  app.setErrorHandler((error, request, reply) => answerError(log, error, request, reply));

  const paths = rememberPaths(app);
  app.setNotFoundHandler((request) => {
    const path = request.url.split('?', 1)[0] ?? '';
    const allowed = paths.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
    if (allowed.length === 0) throw new Refusal('NOT_FOUND');
    throw new Refusal('METHOD_NOT_ALLOWED', {
      headers: { Allow: [...new Set(allowed)].sort().join(', ') },
    });
  });
  return app;
}

/** An incoming id is kept when it is harmless in a header and a log line; else a new one is made. */
function requestId(request: Pick<IncomingMessage, 'headers'>): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : randomUUID();
}

function setCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  // no-store: a cached status of a payment is a wrong one (reliability F37).
  reply.headers({
    'x-request-id': request.id,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
}

function headerProblem(request: IncomingMessage, single: ReadonlySet<string>): Detail | undefined {
  const { rawHeaders, headers, method } = request;
  const seen = new Set<string>();
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] ?? '').toLowerCase();
    if (!single.has(name)) continue;
    if (seen.has(name)) return { path: `headers.${name}`, problem: 'stands more than once' };
    seen.add(name);
  }
  if (headers.host === undefined && request.httpVersion === '1.1') {
    return { path: 'headers.host', problem: 'is required' };
  }
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') {
    return { path: 'headers.expect', problem: 'cannot be met' };
  }
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked') {
    // Node undoes chunked alone: what else was done to the body would be read as the body.
    return { path: 'headers.transfer-encoding', problem: 'must be chunked or absent' };
  }
  const takesNoBody = method === 'GET' || method === 'HEAD';
  if (takesNoBody && hasBody(headers)) return { path: 'body', problem: 'does not belong here' };
  return undefined;
}

function hasBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

// Bodies -------------------------------------------------------------------------------------------------------------------

/** Refuses ill-formed UTF-8 instead of replacing it, and keeps a byte order mark for the JSON reader to refuse. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function readBodiesStrictly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  const parse = (type: string, read: (body: string) => unknown): void => {
    app.addContentTypeParser(type, { parseAs: 'buffer' }, (request, body, done) => {
      // A path or method that does not exist is answered as such, whatever was sent to it.
      if (request.is404) {
        done(null, undefined);
        return;
      }
      try {
        if ((request.routeOptions.config.bodyType ?? jsonType) !== type) throw unsupported();
        const { 'content-type': contentType = '', 'content-encoding': encoding } = request.headers;
        const charset = /;\s*charset="?([^";\s]*)/i.exec(contentType)?.[1];
        if (charset !== undefined && charset.toLowerCase() !== 'utf-8') throw unsupported();
        if (encoding !== undefined && encoding !== 'identity') throw unsupported();
        // Node gives a Buffer for parseAs 'buffer'; the type of Fastify leaves it open.
        done(null, read(typeof body === 'string' ? body : decode(body)));
      } catch (error) {
        done(error instanceof Error ? error : new Error(String(error)), undefined);
      }
    });
  };
  parse(jsonType, readJson);
  parse(formType, readForm);
  // A file is handed over as it arrives, for a handler that reads it line by line and holds it to a limit of its own.
  app.addContentTypeParser(csvType, (request, payload, done) => {
    const takes = request.is404 || request.routeOptions.config.bodyType === csvType;
    if (takes) done(null, payload);
    else done(unsupported(), undefined);
  });
}

function unsupported(): Refusal {
  return new Refusal('UNSUPPORTED_MEDIA_TYPE');
}

function badBody(problem: string): Refusal {
  return new Refusal('INVALID_REQUEST', { details: [{ path: 'body', problem }] });
}

function decode(body: Uint8Array): string {
  try {
    return utf8.decode(body);
  } catch {
    throw badBody('is not UTF-8');
  }
}

function readJson(body: string): unknown {
  try {
    return parseJson(body);
  } catch (error) {
    if (error instanceof JsonProblem) throw badBody(error.problem);
    throw error;
  }
}

function readForm(body: string): Readonly<Record<string, string>> {
  const fields = new Map<string, string>();
  for (const [name, value] of new URLSearchParams(body)) {
    if (fields.has(name)) throw badBody('holds a field twice');
    if (value.includes('\0') || name.includes('\0')) throw badBody('holds the character NUL');
    // URLSearchParams puts this character where the percent-encoded bytes are no UTF-8.
    if (`${name}${value}`.includes('\uFFFD')) throw badBody('is not UTF-8');
    if (value !== '') fields.set(name, value); // RFC 6749 section 3.2: an empty one counts as left out
  }
  return Object.fromEntries(fields);
}

// Errors -------------------------------------------------------------------------------------------------------------------

/** Codes for what Fastify and Node refuse by themselves, by status. */
const codeOfStatus: Readonly<Record<number, ErrorCode>> = {
  400: 'INVALID_REQUEST',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_ALLOWED',
  408: 'REQUEST_TIMEOUT',
  413: 'PAYLOAD_TOO_LARGE',
  414: 'URI_TOO_LONG',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  431: 'HEADERS_TOO_LARGE',
};

function answerError(
  log: Log,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const inOAuthForm = request.routeOptions.config?.oauthErrors === true;
  // An answer's own headers (a type, an expiry) do not belong to the error that took its place.
  reply.removeHeader('content-type');
  if (error instanceof OAuthRefusal) {
    return reply
      .code(error.error === 'invalid_client' ? 401 : 400)
      .headers(error.headers)
      .type(jsonType)
      .send(JSON.stringify({ error: error.error, error_description: error.message }));
  }
  const refusal = toRefusal(error);
  if (refusal.code === 'INTERNAL_ERROR') {
    log.error({ error, request_id: request.id, route: request.routeOptions.url }, 'a bug');
  } else if (error instanceof DatabaseUnavailable) {
    log.warn({ error: messageOf(error), request_id: request.id }, 'the database is away');
  }
  const oauth = inOAuthForm && refusal.status < 500 && refusal.status !== 429;
  const body = oauth
    ? {
        error: refusal.status === 401 ? 'invalid_client' : 'invalid_request',
        error_description: describeForOAuth(refusal),
      }
    : refusal.toBody();
  // Written here, so that no serialiser of the route's 200 answer is applied to it.
  return reply
    .code(refusal.status)
    .headers(refusal.headers)
    .type(jsonType)
    .send(JSON.stringify(body));
}

/** Message and details in one text, of the characters that RFC 6749 section 5.2 admits there. */
function describeForOAuth({ message, details = [] }: Refusal): string {
  const named = details.map(({ path, problem }) => `${path} ${problem}`);
  const text = named.length === 0 ? message : `${message}: ${named.join('; ')}`;
  return text.replaceAll(/[^\u0020-\u007e]|["\\]/g, "'");
}

function toRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseUnavailable) {
    return new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': retryAfterSeconds } });
  }
  const isOfFastify =
    error instanceof Error &&
    'statusCode' in error &&
    typeof error.statusCode === 'number' &&
    'code' in error;
  const code = isOfFastify ? codeOfStatus[Number(error.statusCode)] : undefined;
  return new Refusal(code ?? 'INTERNAL_ERROR');
}

/** Answers bytes that are no request, in the form of all other errors, and ends the connection. */
function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  const code: ErrorCode =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? 'HEADERS_TOO_LARGE'
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? 'REQUEST_TIMEOUT'
        : 'INVALID_REQUEST';
  if (error.code === 'ECONNRESET' || !socket.writable || hasBegunAnswer(socket)) {
    socket.destroy();
    return;
  }
  const refusal = new Refusal(code);
  const body = JSON.stringify(refusal.toBody());
  socket.end(
    [
      `HTTP/1.1 ${refusal.status} ${ERRORS[code].message}`,
      `X-Request-Id: ${randomUUID()}`,
      `Content-Type: ${jsonType}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Cache-Control: no-store',
      'X-Content-Type-Options: nosniff',
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
    () => socket.destroy(),
  );
}

/** Whether an answer is on its way on this connection: Node's own handler asks the same of the same field. */
function hasBegunAnswer(socket: Socket): boolean {
  const message: unknown = '_httpMessage' in socket ? socket._httpMessage : undefined;
  return (
    typeof message === 'object' &&
    message !== null &&
    'headersSent' in message &&
    message.headersSent === true
  );
}

// Routes -------------------------------------------------------------------------------------------------------------------

/** Every path that is mounted, as a pattern: to tell an unknown path (404) from a wrong method (405). */
function rememberPaths(app: FastifyInstance): { method: string; pattern: RegExp }[] {
  const paths: { method: string; pattern: RegExp }[] = [];
  app.addHook('onRoute', (route) => {
    const source = route.url
      .split('/')
      .map((segment) => {
        if (segment.startsWith(':')) return '[^/]+';
        return segment === '*' ? '.*' : segment.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
      })
      .join('/');
    const pattern = new RegExp(`^${source}$`);
    for (const method of [route.method].flat()) paths.push({ method, pattern });
  });
  return paths;
}

/** What a handler is given: everything checked against the table. */
export interface Call<R extends Route> {
  readonly params: RouteParams<R>;
  readonly query: RouteQuery<R>;
  readonly body: RouteBody<R>;
  readonly headers: IncomingHttpHeaders;
  readonly request: FastifyRequest;
  /** For headers of the answer, or to write it itself (`hijack`) when it is a stream. */
  readonly reply: FastifyReply;
  /** Aborts when the client has gone or the server begins to stop: for waiting reads and event streams. */
  readonly signal: AbortSignal;
}

/** Answers an operation. What it gives is the 200 answer; what it throws is answered as an error. */
export type Handler<R extends Route> = (call: Call<R>) => Promise<RouteReply<R>> | RouteReply<R>;

/** Settings of one mounting. */
export interface MountOptions {
  /** Another path template than the table's, with the same fields (decision 1). */
  path?: string;
  /** Runs before the body is read: authentication and rate limits. Throws a Refusal to refuse. */
  onRequest?: (request: FastifyRequest, reply: FastifyReply) => Promise<void> | void;
}

/** Mounts one operation of the route table. The handler's types are the table's. */
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
    throw new Error(`the path ${path} must hold each of {${fields.join('}, {')}} once`);
  }
  const checks = {
    path: route.params && compileCheck(route.params),
    query: route.query && compileCheck(route.query),
    // A CSV body is a stream: its handler judges the lines.
    body: route.body && (route.bodyType === csvType ? anyStream : compileCheck(route.body)),
  };
  const isJson = (route.replyType ?? jsonType) === jsonType;
  const before = options.onRequest;

  app.route({
    method: route.method,
    url: path.replaceAll(/\{([a-z_]+)\}/g, ':$1'),
    config: {
      ...(route.bodyType === undefined ? undefined : { bodyType: route.bodyType }),
      oauthErrors: route.oauthErrors ?? false,
    },
    ...(isJson ? { schema: { response: { 200: serialisable(route.reply) } } } : undefined),
    ...(before === undefined
      ? undefined
      : { onRequest: async (request, reply) => before(request, reply) }),
    async handler(request, reply) {
      const details = [
        ...(checks.path?.problems(request.params, 'path') ?? []),
        ...(checks.query?.problems(request.query, 'query') ?? unwanted(request.query)),
        ...bodyProblems(request, checks.body),
      ];
      if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
      const answer = await handler({
        // Each was checked against the schema its type comes from.
        params: request.params as RouteParams<R>,
        query: request.query as RouteQuery<R>,
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

/** The check of a body that is handed over unread. */
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

/** Query fields of an operation that takes none are refused: a misspelt filter must not answer with everything. */
function unwanted(query: unknown): Detail[] {
  return Object.keys(query ?? {}).map((name) => ({
    path: `query.${name}`,
    problem: 'is not known here',
  }));
}

function bodyProblems(
  request: FastifyRequest,
  check: ReturnType<typeof compileCheck> | undefined,
): readonly Detail[] {
  if (check) {
    // Without a body and without a type nothing has looked at the type yet.
    if (request.body === undefined && request.headers['content-type'] === undefined) {
      throw unsupported();
    }
    return check.problems(request.body, 'body');
  }
  return hasBody(request.headers) ? [{ path: 'body', problem: 'does not belong here' }] : [];
}

// Closing ------------------------------------------------------------------------------------------------------------------

/** Controllers of the requests that asked for a signal, per server; aborted when it begins to close. */
const waiting = new WeakMap<object, { closing: boolean; controllers: Set<AbortController> }>();

function followClosing(app: FastifyInstance, closeTimeoutMs: number): void {
  const state = { closing: false, controllers: new Set<AbortController>() };
  waiting.set(app.server, state);
  app.addHook('preClose', (done) => {
    state.closing = true;
    for (const controller of state.controllers) controller.abort();
    // Requests that do not end by themselves are cut: the stop is bounded.
    setTimeout(() => app.server.closeAllConnections(), closeTimeoutMs).unref();
    done();
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (state.closing) reply.header('connection', 'close');
    done(null, payload);
  });
}

function signalOf(app: FastifyInstance, request: FastifyRequest, reply: FastifyReply): AbortSignal {
  const state = waiting.get(app.server);
  const controller = new AbortController();
  if (!state || state.closing || (request.raw.destroyed && !request.raw.complete)) {
    controller.abort();
    return controller.signal;
  }
  state.controllers.add(controller);
  reply.raw.once('close', () => {
    state.controllers.delete(controller);
    // After a finished answer nobody waits any more; before, the client has gone.
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

// Operations ---------------------------------------------------------------------------------------------------------------

/** What an operator's tools read (decision 33). */
export interface OperationsOptions {
  /** Answers whether the service can do its work: one entry per thing it needs. */
  ready?: () => Promise<Readonly<Record<string, boolean>>>;
  metrics?: Metrics;
  /** The OpenAPI document, served at /openapi.json and shown at /docs. */
  openapi?: object;
}

/** The page has no script, no form and no place in another's frame; default-src says nothing of the latter three directives. */
const docsHeaders = {
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
};

/** Longest a readiness question may take: the balancer asks again soon. */
const readyTimeoutMs = 3_000;

/**
 * Mounts /healthz (the process runs), /readyz (it can do its work; 503 when not, or when it is closing), /metrics, /openapi.json
 * and /docs; the last three only where they were given. None needs credentials: mount them where only the right people can reach.
 */
export function mountOperations(app: FastifyInstance, options: OperationsOptions = {}): void {
  const { ready, metrics, openapi } = options;
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/readyz', async (_request, reply) => {
    const checks = ready ? await readyInTime(ready) : {};
    const closing = waiting.get(app.server)?.closing === true;
    const isReady = !closing && Object.values(checks).every(Boolean);
    return reply.code(isReady ? 200 : 503).send({ ready: isReady, checks });
  });
  if (metrics) {
    app.get('/metrics', async (_request, reply) =>
      reply.type(metrics.contentType).send(await metrics.text()),
    );
  }
  if (openapi) {
    const json = JSON.stringify(openapi);
    const page = docsPage(openapi);
    app.get('/openapi.json', (_request, reply) => reply.type(jsonType).send(json));
    app.get('/docs', (_request, reply) =>
      reply.headers(docsHeaders).type('text/html; charset=utf-8').send(page),
    );
  }
}

async function readyInTime(
  ready: () => Promise<Readonly<Record<string, boolean>>>,
): Promise<Readonly<Record<string, boolean>>> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Readonly<Record<string, boolean>>>((resolve) => {
    timer = setTimeout(() => resolve({ answered_in_time: false }), readyTimeoutMs);
  });
  try {
    return await Promise.race([ready(), late]);
  } catch {
    return { answered: false };
  } finally {
    clearTimeout(timer);
  }
}

// Rates --------------------------------------------------------------------------------------------------------------------

/** May the caller go on, and if not, after how many whole seconds. */
export type Permit =
  { readonly ok: true } | { readonly ok: false; readonly retryAfterSeconds: number };

/** A token bucket per key. */
export interface RateLimiter {
  /** Takes one from the key's bucket. */
  take(key: string): Permit;
  /** Buckets kept now. */
  readonly size: number;
}

/**
 * Limits calls per key to `perSecond` with bursts of `burst` (decision 16). Keeps at most `maxKeys` buckets and forgets the one
 * that was used longest ago, which then starts full again: memory stays bounded whoever calls. Per process: with several of them
 * the limits add up.
 */
export function rateLimiter(options: {
  perSecond: number;
  burst: number;
  maxKeys: number;
  clock?: Clock;
}): RateLimiter {
  const { perSecond, burst, maxKeys, clock = systemClock } = options;
  const buckets = new Map<string, { left: number; at: number }>();
  return {
    take(key) {
      const now = clock.monotonic();
      const before = buckets.get(key) ?? { left: burst, at: now };
      const left = Math.min(burst, before.left + ((now - before.at) / 1000) * perSecond);
      const ok = left >= 1;
      // Deleted and set again: a Map keeps the order of insertion, so the first key is the one used longest ago.
      buckets.delete(key);
      buckets.set(key, { left: ok ? left - 1 : left, at: now });
      if (buckets.size > maxKeys) {
        const oldest = buckets.keys().next();
        if (oldest.done !== true) buckets.delete(oldest.value);
      }
      if (ok) return { ok: true };
      return { ok: false, retryAfterSeconds: Math.max(1, Math.ceil((1 - left) / perSecond)) };
    },
    get size() {
      return buckets.size;
    },
  };
}
