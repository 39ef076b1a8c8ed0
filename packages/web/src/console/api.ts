/** Calls of the admin API from the console. The browser sends the session's cookie; every change also carries the CSRF value. */
import type { ErrorBody, OperatorSelf } from '@duebridge/contract';
import { signal } from '@preact/signals';

/** Who is signed in; undefined while that is unknown, null when nobody is. */
export const self = signal<OperatorSelf | null | undefined>(undefined);

/** A refusal by the admin API, with its message. */
export class ApiError extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** One call. Throws ApiError; when the session has ended, the sign-in page is shown. */
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
  try {
    response = await fetch(path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: isFile ? body : JSON.stringify(body) }),
    });
  } catch {
    throw new ApiError('NETWORK', 'The platform does not answer. Retrying.');
  }
  const text = await response.text();
  if (response.ok) return (text === '' ? undefined : JSON.parse(text)) as Reply;
  const error = errorOf(text);
  if (response.status === 401 && path !== '/console/sign-in') self.value = null;
  const details = error.details?.map((one) => `${one.path} ${one.problem}`).join('; ');
  throw new ApiError(
    error.code,
    details === undefined ? error.message : `${error.message}: ${details}`,
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
    if (error instanceof ApiError && error.code !== 'NETWORK') self.value = null;
    else setTimeout(() => void whoAmI(), 2_000);
  }
}

function errorOf(text: string): ErrorBody | { code: string; message: string; details?: undefined } {
  try {
    return JSON.parse(text) as ErrorBody;
  } catch {
    return { code: 'UNKNOWN', message: 'The answer is not the platform’s own: check the address.' };
  }
}
