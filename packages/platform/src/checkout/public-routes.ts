/**
 * The routes of the public listener: Create Token, and the flow API. Who a request comes from is decided before its body is read.
 */
import { platformRoutes, type Route } from '@duebridge/contract';
import {
  addressKey,
  bearerOf,
  mount,
  rateLimiter,
  refusalOf,
  shutOut,
  systemClock,
  type Call,
  type Handler,
} from '@duebridge/runtime';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { PlatformSettings } from '../config.ts';
import type { Answers } from './answers.ts';
import { withAction, type Payments } from './confirm.ts';
import type { Session } from './flow.ts';
import type { Client, ClientKeys } from './keys.ts';
import type { Services } from '../services.ts';
import type { Sessions } from './session.ts';
import type { Tokens } from './token.ts';
import type { Visits } from './visit.ts';

/** Clients and addresses whose rate is remembered at most; one more forgets the one unheard of for longest. */
const MAX_RATE_KEYS = 100_000;
/** Reads of one session, each of which asks the partner: a page reads when it opens, after a confirm, and every few seconds in trouble. */
const SESSION_READS = { perSecond: 1, burst: 20 };

/** What the routes need. */
interface PublicStages extends Pick<Services, 'funding'> {
  readonly config: PlatformSettings;
  readonly keys: ClientKeys;
  readonly answers: Answers;
  readonly tokens: Tokens;
  readonly sessions: Sessions;
  readonly payments: Payments;
  readonly visits: Visits;
}

/** Who a request was found to come from: put there before its body is read, taken by its handler. */
export function callers<T extends object>() {
  const found = new WeakMap<FastifyRequest, T>();
  return {
    set: (request: FastifyRequest, caller: T) => void found.set(request, caller),
    get(request: FastifyRequest): T {
      const caller = found.get(request);
      if (caller === undefined) throw new Error('a handler ran for a caller nobody knows');
      return caller;
    },
  };
}

/** Routes that are not counted. */
const UNCOUNTED = new Set(['/healthz', '/readyz', '/v1/funding/:adapter/events']);

/**
 * Requests of one address that are begun in one turn of the event loop. Fifty connections may all have one: what a payment waits for,
 * an answer of its database or partner, then comes in between and not after them.
 */
const IN_ONE_TURN = 2;

/**
 * Limits the requests of each address before anything is looked at: guessing and flooding end here, pages and files included. An
 * address that is refused more often than it may ask loses its connections for ten seconds. Probes and a processor's signed events,
 * which come in bulk from few addresses, are not counted.
 */
export function limitAddresses(app: FastifyInstance, config: PlatformSettings): void {
  const { ipRate: rate } = config;
  if (rate === undefined) return;
  const clock = config.clock ?? systemClock;
  const perAddress = rateLimiter({ ...rate, maxKeys: MAX_RATE_KEYS, clock });
  // Thousands of refusals a second would still delay the payments of this process.
  const refusals = rateLimiter({ ...rate, maxKeys: MAX_RATE_KEYS, clock });
  const inTurn = inTurns();
  app.addHook('onRequest', (request, _reply, done) => {
    const route = request.routeOptions.url;
    if (route !== undefined && UNCOUNTED.has(route)) {
      done();
      return;
    }
    const key = addressKey(request.ip);
    const refusal = perAddress.take(key);
    if (refusal && refusals.take(key)) shutOut(app.server, request.socket);
    inTurn(key, () => done(refusal));
  });
}

/** Runs what it is given at once, or in a later turn of the event loop where IN_ONE_TURN of the same key ran in this one. */
function inTurns(): (key: string, work: () => void) => void {
  const begun = new Map<string, number>();
  let late: [key: string, work: () => void][] = [];
  const begin = (key: string, work: () => void): void => {
    if (begun.size === 0) setImmediate(next);
    const before = begun.get(key) ?? 0;
    begun.set(key, before + 1);
    if (before < IN_ONE_TURN) work();
    else late.push([key, work]);
  };
  const next = (): void => {
    const waiting = late;
    late = [];
    begun.clear();
    for (const [key, work] of waiting) begin(key, work);
  };
  return begin;
}

export function mountPublic(app: FastifyInstance, stages: PublicStages): void {
  const { config, keys, answers, tokens, sessions, payments, funding, visits } = stages;
  const clock = config.clock ?? systemClock;
  const perClient = rateLimiter({ ...config.clientRate, maxKeys: MAX_RATE_KEYS, clock });

  const clients = callers<Client>();
  mount(
    app,
    platformRoutes.create_token,
    async ({ body, request, reply }) => {
      const { token, expires_at } = await tokens.create(clients.get(request), body);
      reply.header('Token-Expires-At', expires_at);
      return { token };
    },
    {
      async onRequest(request, reply) {
        const client_id = oneHeader(request, 'x-client-id');
        let isVerified = false;
        if (client_id !== undefined) {
          reply.raw.once('close', () => {
            // A client that gave up got no answer.
            if (!reply.raw.writableFinished) return;
            answers.note({
              client_id,
              isVerified,
              status: reply.statusCode,
              request_id: request.id,
              refusal: refusalOf(reply),
            });
          });
        }
        const caller = await keys.verify(client_id, oneHeader(request, 'x-api-key'));
        isVerified = true;
        const refusal = perClient.take(caller.client_id);
        if (refusal) throw refusal;
        clients.set(request, caller);
      },
    },
  );

  mount(app, platformRoutes.create_flow_session, ({ body, request }) =>
    sessions.open(bearerOf(request), body),
  );

  const sessionOf = callers<Session>();
  const onRequest = async (request: FastifyRequest): Promise<void> =>
    sessionOf.set(request, await sessions.authenticate(bearerOf(request)));
  /** An operation of a session, which is known before the body is read. */
  const inSession = <const R extends Route>(
    route: R,
    handler: (session: Session, call: Call<R>) => ReturnType<Handler<R>>,
  ): void => mount(app, route, (call) => handler(sessionOf.get(call.request), call), { onRequest });
  const perSession = rateLimiter({ ...SESSION_READS, maxKeys: MAX_RATE_KEYS, clock });
  /** The session, unless it reads too often. */
  const reading = (session: Session): Session => {
    const refusal = perSession.take(session.session_id);
    if (refusal) throw refusal;
    return session;
  };
  inSession(platformRoutes.get_flow_session, (session) => sessions.read(reading(session)));
  inSession(platformRoutes.create_flow_payment, async (session, { body }) =>
    withAction(await payments.confirm(session, body), funding),
  );
  inSession(platformRoutes.open_flow_saved_methods, (session, { body }) =>
    funding.openSaved(reading(session), body.funding_method),
  );
  inSession(platformRoutes.create_flow_return, (session, { body }) => visits.leave(session, body));
  inSession(platformRoutes.get_flow_payment, async (session, { params }) =>
    withAction(await payments.read(session, params.platform_payment_id), funding),
  );
}

function oneHeader(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
