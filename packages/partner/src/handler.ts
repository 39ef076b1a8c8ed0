/**
 * The kit as one function `(request, response)`, for whatever serves HTTP in the partner's program: Express, NestJS, Connect, plain
 * node:http, and plugin.ts for a Fastify app.
 *
 * Behind it stands a server of `createServer` that listens nowhere: requests are handed to it as Node gave them, so that duplicate
 * headers, bodies and paths are read by the same code wherever the kit runs. That is why the body must arrive unread: once
 * JSON.parse has made 9900 of 9.9e3, or kept the last of two equal keys, nobody can tell any more (decision 11).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { createServer } from '@duebridge/runtime';
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
  'duebridge: the body of a payment was parsed before partnerHandler got it, so the request is refused. Mount partnerHandler ' +
  'before express.json(), or keep the bytes as request.rawBody (NestJS: rawBody: true; Express: the verify option of express.json)';

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
  const { auth, log, clock, metrics } = options;
  const app = createServer({
    ...(log === undefined ? undefined : { log }),
    ...(clock === undefined ? undefined : { clock }),
    ...(metrics === undefined ? undefined : { metrics }),
    singleHeaders: auth.method === 'key' ? [auth.header] : [],
  });
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const raw: KitRequest = request.raw;
    if (!raw.readableDidRead) done(null, payload);
    else if (raw.rawBody instanceof Uint8Array) done(null, Readable.from([raw.rawBody]));
    else if (typeof raw.rawBody === 'string') done(null, Readable.from([Buffer.from(raw.rawBody)]));
    else {
      process.emitWarning(bodyWasRead, { code: 'DUEBRIDGE_BODY_WAS_READ' });
      done(new Error(bodyWasRead));
    }
  });
  await mountKit(app, options);
  await app.ready();

  const ours = servedPaths(options).map(({ path }) => patternOf(path));
  const isOurs = (url: string): boolean => {
    const path = url.split('?', 1)[0] ?? '';
    return ours.some((pattern) => pattern.test(path));
  };
  let closing: Promise<void> | undefined;
  const handle = (
    request: KitRequest,
    response: ServerResponse,
    next?: (error?: unknown) => void,
  ): void => {
    if (next && !isOurs(request.url ?? '/')) next();
    else app.routing(request, response);
  };
  return Object.assign(handle, {
    kit: app.partnerKit,
    close: () => (closing ??= app.close()),
  });
}

function patternOf(path: string): RegExp {
  const source = path
    .split(/\{[a-z_]+\}/)
    .map((text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
    .join('[^/]+');
  return new RegExp(`^${source}$`);
}
