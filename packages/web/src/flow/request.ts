/** One request to the platform: no cookie, no cache, no referrer; the token or the session's secret in a header. */

/** Longer than the platform's own deadline for a live read, short enough for a waiting person. */
const REQUEST_TIMEOUT_MS = 20_000;
/** Where a token is exchanged for a session, from the platform's root. */
export const SESSION_PATH = 'v1/flow/session';

/** Sends it to a path below the platform's root; with a body it is a POST. Rejects when there is no answer. */
export function request(path: string, credential: string, body?: object): Promise<Response> {
  // The page itself is at `flow/v1/{partner}`.
  return fetch(new URL(`../../${path}`, location.href), {
    ...(body ? { method: 'POST', body: JSON.stringify(body) } : {}),
    headers: {
      authorization: `Bearer ${credential}`,
      ...(body ? { 'content-type': 'application/json' } : {}),
    },
    credentials: 'omit',
    cache: 'no-store',
    redirect: 'error',
    referrerPolicy: 'no-referrer',
    signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
  });
}
