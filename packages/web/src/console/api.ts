/** Calls of the admin API from the console. The browser sends the session's cookie; every change also carries the CSRF value. */
import type { ErrorBody, OperatorSelf } from '@duebridge/contract';
import { signal } from '@preact/signals';

/** Who is signed in; undefined while that is unknown, null when nobody is. */
export const self = signal<OperatorSelf | null | undefined>(undefined);

/**
 * Ends the session in this page: loads `to` anew, so that nothing that was read for one operator is there for the next one who signs in.
 */
export function leave(to: string): void {
  self.value = null;
  // Once the sign-in page is drawn: a page with a run in hand would ask whether to stay.
  setTimeout(() => location.assign(to));
}

/** A refusal by the admin API, with its message; or no answer of the platform's own. */
export class ApiError extends Error {
  readonly code: string;
  /** The call may be made again, and what became of it is not known: no answer, or one that asks for a later call. */
  readonly again: boolean;
  constructor(code: string, message: string, again: boolean) {
    super(message);
    this.code = code;
    this.again = again;
  }
}

/** What was thrown, in words. */
export const wordsOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

/** One call. Throws ApiError; when the session has ended, the sign-in page is loaded. */
export async function call<Reply>(
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: object | File,
): Promise<Reply> {
  const isFile = body instanceof File;
  const headers: Record<string, string> = {};
  if (body !== undefined) headers['content-type'] = isFile ? 'text/csv' : 'application/json';
  if (method !== 'GET') headers['x-csrf-token'] = self.value?.csrf ?? '';
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: isFile ? body : JSON.stringify(body) }),
    });
    text = await response.text();
  } catch {
    throw new ApiError('NETWORK', 'The platform does not answer. Retrying.', true);
  }
  const answer = parsed(text);
  if (response.ok && (answer !== undefined || text === '')) return answer as Reply;
  // Whoever signs in again comes back to this address.
  if (response.status === 401 && self.value) leave(location.pathname + location.search);
  if (answer === undefined) {
    throw new ApiError('UNKNOWN', 'The answer is not the platform’s own: check the address.', true);
  }
  const error = answer as ErrorBody;
  const details = error.details?.map((one) => `${one.path} ${one.problem}`).join('; ');
  throw new ApiError(
    error.code,
    details === undefined ? error.message : `${error.message}: ${details}`,
    response.headers.has('retry-after'),
  );
}

/** A read of the admin API. */
export const get = <Reply>(path: string): Promise<Reply> => call<Reply>('GET', `/admin/v1${path}`);

/** A change through the admin API. */
export const post = <Reply>(path: string, body?: object | File): Promise<Reply> =>
  call<Reply>('POST', `/admin/v1${path}`, body);

/** Determines who is signed in. */
export async function whoAmI(): Promise<void> {
  try {
    self.value = await get<OperatorSelf>('/me');
  } catch (error) {
    if (error instanceof ApiError && !error.again) self.value = null;
    else setTimeout(() => void whoAmI(), 2_000);
  }
}

/** The value of a JSON text; undefined when it is none. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
