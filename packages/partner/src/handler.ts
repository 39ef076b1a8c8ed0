/**
 * The kit as one function, for whatever serves HTTP in the partner's program: `(request, response)` for Express, NestJS, Koa, plain
 * node:http, and plugin.ts for a Fastify app; from a `Request` to a `Response` for Next.js, Hono, Bun and Deno.
 *
 * Behind it stands a server of `createServer` that listens nowhere: requests are handed to it as Node gave them, so that duplicate
 * headers, bodies and paths are read by the same code wherever the kit runs. That is why the body must arrive unread: once
 * JSON.parse has made 9900 of 9.9e3, or kept the last of two equal keys, nobody can tell any more (decision 11).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { createLogger, createServer } from '@duebridge/runtime';
import { mountKit, servedPaths, type PartnerKit, type PartnerKitOptions } from './kit.ts';

/** A request from Express or NestJS: with the bytes of a body that they have already read, when configured to keep them. */
export type KitRequest = IncomingMessage & { readonly rawBody?: unknown };

/** The kit, callable. */
export interface PartnerHandler {
  /**
   * Answers a request for one of the operations. Any other request is passed to `next` if there is one (Express, NestJS), else
   * answered with 404.
   */
  (request: KitRequest, response: ServerResponse, next?: (error?: unknown) => void): void;
  readonly kit: PartnerKit;
  /**
   * Ends waiting reads, finishes what is in hand and stops. Call it when the program begins to stop, before it closes its own
   * server. Calling it again is harmless.
   */
  close(): Promise<void>;
}

/** Printed once to standard error and logged for each such request; the caller gets 500 and may retry. */
const bodyWasRead =
  'duebridge: the body of a payment was parsed before the partner kit got it, so the request is refused. Mount partnerHandler ' +
  'before express.json(), or keep the bytes as request.rawBody (NestJS: rawBody: true; Express: the verify option of express.json); ' +
  'give partnerFetch a request whose body nobody has read';

/**
 * Makes the kit; resolves when it takes requests and applies payments.
 *
 *     const payments = await partnerHandler({ database, auth, accounts });
 *     app.use(payments);                          // Express, NestJS: before any body parser
 *     http.createServer(payments);                // plain Node
 *
 * Throws ConfigurationError when the options or the database would put money at risk.
 */
export async function partnerHandler(options: PartnerKitOptions): Promise<PartnerHandler> {
  const { app, isOurs, running } = await openBehind(options);
  const handle = (
    request: KitRequest,
    response: ServerResponse,
    next?: (error?: unknown) => void,
  ): void => {
    if (next && !isOurs(request.url ?? '/')) {
      next();
      return;
    }
    // Koa begins every response as a 404, and Fastify keeps the status that it finds.
    response.statusCode = 200;
    app.routing(request, response);
  };
  return Object.assign(handle, running);
}

/**
 * The kit as a function from a web `Request` to its `Response`: Next.js, Hono, Bun.serve, Deno.serve. Like `PartnerHandler`, it must
 * get the body unread.
 */
export interface PartnerFetch {
  /** Answers a request for one of the operations, and any other with 404. Rejects when the request's signal was aborted. */
  (request: Request): Promise<Response>;
  readonly kit: PartnerKit;
  /** As that of `PartnerHandler`. */
  close(): Promise<void>;
}

/** Headers about one connection: the host that sends the answer writes its own. */
const CONNECTION_HEADERS = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
]);

/**
 * Makes the kit; resolves when it takes requests and applies payments. It applies them in the background, so the program must keep
 * running between requests (`next start`, not a function that is frozen).
 *
 *     const payments = await partnerFetch({ database, auth, accounts, prefix: '/pay' });
 *     export { payments as GET, payments as PUT, payments as POST };      // Next.js: app/pay/[...path]/route.js
 *     app.all('/pay/*', (c) => payments(c.req.raw));                      // Hono
 *
 * Throws ConfigurationError when the options or the database would put money at risk.
 */
export async function partnerFetch(options: PartnerKitOptions): Promise<PartnerFetch> {
  const { app, running } = await openBehind(options);
  const answer = async (request: Request): Promise<Response> => {
    if (request.bodyUsed) throw bodyWasReadBefore();
    const { pathname, search, host } = new URL(request.url);
    const headers: Record<string, string> = { host, ...Object.fromEntries(request.headers) };
    // A signal of our own, because Deno aborts the request's after each answer, too.
    const leaving = new AbortController();
    const leave = (): void => leaving.abort(request.signal.reason);
    request.signal.addEventListener('abort', leave);
    if (request.signal.aborted) leave();
    const reply = await app
      .inject({
        method: request.method as 'GET',
        url: `${pathname}${search}`,
        headers,
        signal: leaving.signal,
        ...(request.body ? { payload: Readable.from(request.body) } : {}),
      })
      .finally(() => request.signal.removeEventListener('abort', leave));
    const sent = Object.entries(reply.headers)
      .filter(([name]) => !CONNECTION_HEADERS.has(name))
      .flatMap(([name, value]) => [value ?? []].flat().map((one) => [name, String(one)] as const));
    return new Response(new Uint8Array(reply.rawPayload), {
      status: reply.statusCode,
      headers: sent.map(([name, value]) => [name, value]),
    });
  };
  return Object.assign(answer, running);
}

/** The server behind both: it listens nowhere. */
async function openBehind(options: PartnerKitOptions) {
  const { auth, clock, metrics } = options;
  const singleHeaders = auth.method === 'key' ? [auth.header] : [];
  const log =
    options.log ??
    createLogger({ name: 'duebridge partner kit', level: 'warn', privateKeys: singleHeaders });
  const app = createServer({ log, clock, metrics, singleHeaders });
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const raw: KitRequest = request.raw;
    if (!raw.readableDidRead) done(null, payload);
    else if (raw.rawBody instanceof Uint8Array) done(null, Readable.from([raw.rawBody]));
    else if (typeof raw.rawBody === 'string') done(null, Readable.from([Buffer.from(raw.rawBody)]));
    else done(bodyWasReadBefore());
  });
  await mountKit(app, { ...options, log });
  await app.ready();

  const ours = servedPaths(options).map(({ path }) => patternOf(path));
  let closing: Promise<void> | undefined;
  return {
    app,
    isOurs: (url: string): boolean => {
      const path = url.split('?', 1)[0] ?? '';
      return ours.some((pattern) => pattern.test(path));
    },
    running: { kit: app.partnerKit, close: (): Promise<void> => (closing ??= app.close()) },
  };
}

function bodyWasReadBefore(): Error {
  process.emitWarning(bodyWasRead, { code: 'BODY_WAS_READ' });
  return new Error(bodyWasRead);
}

function patternOf(path: string): RegExp {
  const source = path
    .split(/\{[a-z_]+\}/)
    .map((text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
    .join('[^/]+');
  return new RegExp(`^${source}$`);
}
