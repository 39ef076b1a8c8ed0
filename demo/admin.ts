/** Calls to the admin APIs, as the command line makes them. */
import { setTimeout as delay } from 'node:timers/promises';
import type { ErrorBody } from '@duebridge/contract';
import { request } from 'undici';

/** Sends one JSON request. Returns the body of a 200 answer; throws Error with the message of any other. */
export async function call<T>(
  method: 'GET' | 'POST' | 'PATCH',
  url: string,
  headers: Readonly<Record<string, string>>,
  body?: unknown,
): Promise<T> {
  const answer = await request(url, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(20_000),
  });
  const value: unknown = await answer.body.json();
  if (answer.statusCode === 200) return value as T;
  const { code, message, details } = value as ErrorBody;
  const where = details?.map((detail) => `${detail.path} ${detail.problem}`).join('; ') ?? '';
  throw new Error(
    `${method} ${new URL(url).pathname}: ${answer.statusCode} ${code} ${message} ${where}`.trim(),
  );
}

/** The header of an admin key or of a flow session. */
export const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` });

/** Whatever the demo waits for takes a fraction of a second. */
const PATIENCE_MS = 30_000;

/** Asks again until there is an answer. Throws when there is none in time. */
export async function repeated<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until;) {
    const found = await ask();
    if (found !== undefined) return found;
    await delay(10);
  }
  throw new Error(`${what} did not come within ${PATIENCE_MS / 1000} s`);
}
