/** Cookies: of a console session, of a sign-in under way, and of a visit to a payment page. No script reads them. */
import { isSecure } from '@duebridge/runtime';
import type { FastifyRequest } from 'fastify';

/** The cookies of a request, by name. */
export function cookiesOf({ headers }: FastifyRequest): ReadonlyMap<string, string> {
  const pairs = (headers.cookie ?? '').split(/;\s*/).map((pair) => /^([^=]+)=(.*)$/.exec(pair));
  return new Map(pairs.flatMap((pair) => (pair === null ? [] : [[pair[1] ?? '', pair[2] ?? '']])));
}

/** The value of Set-Cookie; 0 seconds end the cookie. */
export function setCookie(
  request: FastifyRequest,
  cookie: { readonly name: string; readonly path: string; readonly sameSite: 'Strict' | 'Lax' },
  value: string,
  seconds: number,
): string {
  const secure = isSecure(request) ? '; Secure' : '';
  return `${cookie.name}=${value}; Path=${cookie.path}; Max-Age=${seconds}; HttpOnly; SameSite=${cookie.sameSite}${secure}`;
}
