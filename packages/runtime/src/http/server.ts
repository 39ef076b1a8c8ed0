/**
 * HTTP for both servers: a Fastify server whose every answer, even to bytes that are no HTTP, has the catalogue's form and an
 * X-Request-Id; strict in what it reads (decisions 5, 11 and 16); limited in size, time and number; and
 * `mount`, which puts an operation of the contract's route table on it.
 *
 * A request's way: duplicate headers and bodies where none belong are refused, the caller is authenticated (`onRequest`, before
 * its body is read), the body is read strictly, path, query and body are checked against the table, the handler runs, and the
 * answer is written by a serialiser made from the schema. Nothing is coerced, defaulted or dropped on the way in.
 */
import { Refusal, type Detail } from '@duebridge/contract';
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { systemClock, type Clock } from '../clock.ts';
import { silentLog, type Log } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { discardRest, hasBody, readBodiesStrictly } from './body.ts';
import { followClosing } from './closing.ts';
import { answerBrokenRequest, answerError, refusalOf } from './errors.ts';
import { believing, FRONT_LIMITS, LOOPBACK, openFront } from './front.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Media type of the body the route takes; undefined: JSON. */
    bodyType?: string | undefined;
    /** Errors in the form of RFC 6749. */
    oauthErrors?: boolean;
  }
}

/** Limits of a server; each can be set, so that a test does not have to wait for the real ones. */
const defaultLimits = {
  ...FRONT_LIMITS,
  /** Bytes of a body (decision 16): the largest request of the interface is under 2 KiB. */
  bodyBytes: 64 * 1024,
  /** Bytes of all headers: Node's own. */
  headerBytes: 16 * 1024,
  /** Time for a whole request to arrive: a slow body ends here. */
  requestTimeoutMs: 30_000,
  /** Time for the headers to arrive. It must be below the former or that is not kept in time. */
  headersTimeoutMs: 10_000,
  /** How often Node checks for late requests, which is also the tolerance of these limits. */
  checkIntervalMs: 5_000,
  /** How long a close waits for requests in progress before it cuts them: within the 10 s of a stop. */
  closeTimeoutMs: 8_000,
};

/** The options of a server. */
export interface ServerOptions {
  log?: Log;
  clock?: Clock | undefined;
  metrics?: Metrics | undefined;
  limits?: Partial<typeof defaultLimits>;
  /**
   * Addresses and networks of proxies: `X-Forwarded-For` and `X-Forwarded-Proto` are read from these alone, `Forwarded` from nobody:
   * a proxy that writes the first two passes on a `Forwarded` of its client's own.
   * Default: this machine.
   */
  trustedProxies?: readonly string[] | undefined;
  /** Additional headers that may appear only once: the one that a partner chose for its key. */
  singleHeaders?: readonly string[];
  /**
   * Names under which the server may be asked, beside those of this machine; by default every name. A listener of this machine alone
   * is within reach of every page in a browser here, if a name of that page's owner is made to lead to 127.0.0.1.
   */
  hosts?: readonly string[] | undefined;
}

/**
 * Headers that determine the caller or how the body is read. A duplicate may be an attempt to be read in two ways (F100).
 */
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

/** How long a connection may rest between two requests: longer than the minute for which common proxies keep theirs. */
const KEEP_ALIVE_MS = 72_000;

/** Maximum length of a path field before the operation's own pattern applies: 128 characters, each encoded in up to 12 bytes. */
const MAX_PARAM_LENGTH = 2_048;

/** Creates a server. The caller mounts operations, listens and closes; `close` answers requests in progress, then ends. */
export function createServer(options: ServerOptions = {}): FastifyInstance {
  const log = options.log ?? silentLog;
  const clock = options.clock ?? systemClock;
  const limits = { ...defaultLimits, ...options.limits };
  const single = new Set(
    [...singleHeaders, ...(options.singleHeaders ?? [])].map((name) => name.toLowerCase()),
  );

  const believes = believing(options.trustedProxies ?? LOOPBACK);
  const http = {
    requestTimeout: limits.requestTimeoutMs,
    headersTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: limits.checkIntervalMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxHeaderSize: limits.headerBytes,
    // Checked in headerProblem: Node would answer by itself, with a bare 400.
    requireHostHeader: false,
  };
  const app = fastify({
    logger: false,
    bodyLimit: limits.bodyBytes,
    serverFactory: (handler) =>
      openFront(handler, { http, limits, believes, now: () => clock.monotonic() }),
    trustProxy: believes,
    exposeHeadRoutes: false,
    // A request received while we close is answered, on a connection that is then closed.
    return503OnClosing: false,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    genReqId: (request) => requestId(request),
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      // Paths that cannot be decoded come here before any hook has run.
      setCommonHeaders(request, reply);
      void answerError(log, error, request, reply);
    },
  });
  // Likewise for an Expect that cannot be met, which Node would answer with a bare 417.
  app.server.on('checkExpectation', (request, response) => app.routing(request, response));
  const requests = options.metrics?.histogram(
    'duebridge_http_request_duration_seconds',
    'Time from the arrival of a request to the end of its answer',
    ['method', 'route', 'status', 'code'],
  );

  readBodiesStrictly(app);
  followClosing(app, limits.closeTimeoutMs);

  let isProxyUnknown = false;
  app.addHook('onRequest', (request, reply, done) => {
    const { remoteAddress = '' } = request.socket;
    if (!isProxyUnknown && 'x-forwarded-for' in request.headers && !believes(remoteAddress)) {
      isProxyUnknown = true;
      log.warn(
        { address: remoteAddress },
        'an address sends X-Forwarded-For and is not in DUEBRIDGE_TRUSTED_PROXIES: if it is your proxy, name it there',
      );
    }
    setCommonHeaders(request, reply);
    const problem = headerProblem(request.raw, single) ?? hostProblem(request.raw, options.hosts);
    if (problem === undefined) done();
    else {
      // What follows on this connection may be a body that we did not read as one.
      reply.header('connection', 'close');
      done(new Refusal('INVALID_REQUEST', { details: [problem] }));
    }
  });
  app.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.url ?? 'none';
    const seconds = reply.elapsedTime / 1000;
    // Of a 503, for one: whether the biller or the database does not answer.
    const code = refusalOf(reply)?.code;
    const labels = { method: request.method, route, status: reply.statusCode, code: code ?? '' };
    requests?.observe(labels, seconds);
    // Log the pattern of the path, never the path: it contains account numbers. Log nothing of the body or headers.
    const line = {
      method: request.method,
      route,
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      code,
      request_id: request.id,
      at: new Date(clock.now()).toISOString(),
    };
    if (reply.statusCode >= 500) log.warn(line, 'request failed');
    else if (reply.statusCode >= 400) log.info(line, 'request refused');
    else log.debug(line, 'request answered');
    done();
  });
  app.setErrorHandler(async (error, request, reply) => {
    await discardRest(request, reply);
    return await answerError(log, error, request, reply);
  });

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

/** Whether the caller's browser used https, as the trusted proxy says; its cookies are then marked Secure. */
export function isSecure(request: FastifyRequest): boolean {
  return request.protocol.toLowerCase() === 'https';
}

/** An incoming id is kept when it is safe in a header and a log line; else a new one is generated. */
function requestId(request: Pick<IncomingMessage, 'headers'>): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : randomUUID();
}

function setCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  // no-store: a cached status of a payment is a wrong one (F37).
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
    if (seen.has(name)) return { path: `headers.${name}`, problem: 'appears more than once' };
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
    // Node only decodes chunked; another transfer coding would be read as part of the body.
    return { path: 'headers.transfer-encoding', problem: 'must be chunked or absent' };
  }
  const parts = (request.url ?? '').split('?');
  const withNull = parts.findIndex((part) => part.includes('%00'));
  if (withNull >= 0) {
    // No database compares it. Bodies are read by a parser that refuses it.
    return { path: withNull === 0 ? 'path' : 'query', problem: 'has the null character' };
  }
  const takesNoBody = method === 'GET' || method === 'HEAD';
  if (takesNoBody && hasBody(headers)) return { path: 'body', problem: 'does not belong here' };
  return undefined;
}

function hostProblem(
  { headers }: IncomingMessage,
  hosts: readonly string[] | undefined,
): Detail | undefined {
  if (hosts === undefined) return undefined;
  const name = (headers.host ?? '').replace(/:\d*$/, '').toLowerCase();
  // A page reaches us under a name that its owner made lead here. An address is no such name: probes and scrapers use it.
  const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) > 0;
  if (name === 'localhost' || isAddress || hosts.includes(name)) return undefined;
  return { path: 'headers.host', problem: 'is not a host name of this listener' };
}

/**
 * The value of `hosts` for a listener at `address`. A listener on this machine accepts the given names and its own. One that
 * other machines reach accepts only the given names if there are any, and otherwise every name, because only its network knows
 * its own names.
 */
export function hostsOf(
  address: string,
  names: readonly string[] | undefined,
): readonly string[] | undefined {
  const isOfThisMachine = /^(localhost|127(\.\d{1,3}){3}|::1)$/.test(address);
  return isOfThisMachine || (names ?? []).length > 0
    ? (names ?? []).map((name) => name.toLowerCase())
    : undefined;
}

/** Every mounted path, as a pattern: distinguishes an unknown path (404) from a wrong method (405). */
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
