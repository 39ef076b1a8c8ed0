/**
 * Who sent a request to the admin listener: a bearer key for programs, a cookie for the console (decision 38).
 *
 * holds: the cookie is HttpOnly, SameSite=Strict and sent to this listener only; a change that comes with a cookie must also carry the
 *        session's CSRF value, which only the console's own page can read. A bearer key needs none: no browser adds it by itself.
 */
import { timingSafeEqual } from 'node:crypto';
import { invalidField, Refusal } from '@duebridge/contract';
import { limitCallers, type Clock } from '@duebridge/runtime';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { cookiesOf, setCookie } from '../cookies.ts';
import type { Operator, Operators } from './operators.ts';

/** The console's cookie. */
const SESSION = { name: 'duebridge_console', path: '/', sameSite: 'Strict' } as const;

/** Creates the check of every admin request. Throws Refusal UNAUTHORIZED, CSRF_TOKEN_REQUIRED or TOO_MANY_REQUESTS. */
export function adminAuthentication(
  operators: Operators,
  clock?: Clock,
): (request: FastifyRequest) => Promise<Operator> {
  const limit = limitCallers(clock);
  const authenticate = async (request: FastifyRequest): Promise<Operator> => {
    const cookie = sessionCookie(request);
    if (request.headers.authorization !== undefined || cookie === undefined) {
      return operators.verifyKey(bearer(request));
    }
    const operator = await operators.verifySession(cookie);
    if (request.method !== 'GET' && request.method !== 'HEAD') assertCsrf(request, operator);
    return operator;
  };
  return (request) =>
    limit(
      request,
      () => authenticate(request),
      ({ actor }) => actor,
    );
}

function assertCsrf(request: FastifyRequest, operator: Operator): void {
  const given = Buffer.from(String(request.headers['x-csrf-token'] ?? ''));
  const expected = Buffer.from(operator.csrf ?? '');
  const isOne = expected.length > 0 && given.length === expected.length;
  if (!isOne || !timingSafeEqual(given, expected)) throw new Refusal('CSRF_TOKEN_REQUIRED');
}

/** The key in a sign-in request. Throws Refusal INVALID_REQUEST for any other body. */
function keyOf(body: unknown): string {
  const key = typeof body === 'object' && body !== null && 'key' in body ? body.key : undefined;
  if (typeof key === 'string' && key !== '' && key.length <= 256) return key;
  throw invalidField('body.key', 'must be a key of an operator');
}

/**
 * Mounts the operations that open and end a console session by key: `POST /console/sign-in {key}` and `POST /console/sign-out`.
 */
export function mountSignIn(
  app: FastifyInstance,
  options: { readonly operators: Operators; readonly clock: Clock; readonly oidc?: boolean },
): void {
  const { operators, clock } = options;
  const limit = limitCallers(clock);
  // The available sign-in methods, which the page reads before anybody has signed in.
  app.get('/console/sign-in', () => ({ oidc: options.oidc ?? false }));
  app.post('/console/sign-in', async (request, reply) => {
    const key = keyOf(request.body);
    const operator = await limit(
      request,
      () => operators.verifyKey(key),
      ({ actor }) => actor,
    );
    await startSession(operators, operator, reply);
    return reply.code(204).send();
  });
  app.post('/console/sign-out', async (request, reply) => {
    const cookie = sessionCookie(request);
    if (cookie !== undefined) {
      assertCsrf(request, await operators.verifySession(cookie));
      await operators.closeSession(cookie);
    }
    return reply
      .header('Set-Cookie', setCookie(request, SESSION, '', 0))
      .code(204)
      .send();
  });
}

/** Opens a session and sets its cookie. */
export async function startSession(
  operators: Operators,
  of: Parameters<Operators['openSession']>[0],
  reply: FastifyReply,
): Promise<void> {
  const { cookie, seconds } = await operators.openSession(of);
  reply.header('Set-Cookie', setCookie(reply.request, SESSION, cookie, seconds));
}

const sessionCookie = (request: FastifyRequest): string | undefined =>
  cookiesOf(request).get(SESSION.name);

/** The credential of `Authorization: Bearer …`, or undefined. The scheme's case does not matter (RFC 9110). */
function bearer(request: FastifyRequest): string | undefined {
  return /^bearer +([\u0021-\u007e]+)$/i.exec(request.headers.authorization ?? '')?.[1];
}
