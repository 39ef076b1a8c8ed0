/**
 * The third display mode: the whole tab goes to the payment page and returns to `returnUrl` with a signed result. It is a module
 * of its own because it needs none of the frame's code. The token is sent in the body of a form, so that it appears in no
 * address, history or log (decision 115). A site's policy needs `form-action <platform>`.
 */
import { failure, platformOrigin, wrongConfig } from './config.ts';
import { DuebridgeError, type DuebridgeOptions } from './types.ts';

export { DuebridgeError };
export type * from './types.ts';

/** If the browser has not left for the platform within this time, or the site's backend has not answered, it will not. */
const LEAVE_TIMEOUT_MS = 15_000;

export interface RedirectOptions extends Pick<
  DuebridgeOptions,
  'partner' | 'fetchToken' | 'token' | 'frameOrigin' | 'locale' | 'appearance' | 'signal'
> {
  /** The return address, on a registered origin; the result is in its query, as `duebridge_result`. */
  readonly returnUrl: string;
}

/**
 * Leaves for the payment page. The promise only ever rejects, with a DuebridgeError: `config_invalid`, `token_invalid` (no token within 15 s, or the
 * backend's error as `cause`), `frame_refused` (the site's policy lacks form-action), `load_timeout`, and `destroyed` when `signal`
 * aborts or the customer comes back with the browser's Back, so that the button can be used again.
 */
export async function redirectToPayment(options: RedirectOptions): Promise<never> {
  const { partner, fetchToken, returnUrl, signal } = options;
  if (!partner || !(fetchToken || options.token))
    throw wrongConfig('partner and fetchToken or token are required');
  if (!URL.canParse(returnUrl)) throw wrongConfig(`returnUrl "${returnUrl}" is not an address`);
  const origin = platformOrigin(options.frameOrigin);
  if (origin === location.origin) throw wrongConfig('frameOrigin is your own origin');
  let token: string | undefined;
  let error: unknown;
  try {
    // A backend that takes too long gave none: the customer is still on the site, and can press again.
    token = fetchToken
      ? await Promise.race([fetchToken('initial'), later<undefined>(LEAVE_TIMEOUT_MS)])
      : options.token;
  } catch (thrown) {
    error = thrown;
  }
  if (!token) {
    const message = 'your backend gave no token';
    throw new DuebridgeError({ code: 'token_invalid', message, recoverable: true }, error);
  }
  if (signal?.aborted) throw failure('destroyed', 'aborted', true);
  const url = `${origin}/flow/v1/${encodeURIComponent(partner)}`;
  return new Promise((_, reject) => {
    const stop = new AbortController();
    const listen = { signal: stop.signal };
    const end = (error: DuebridgeError): void => {
      stop.abort();
      clearTimeout(timer);
      reject(error);
    };
    const timer = setTimeout(
      () => end(failure('load_timeout', `${url} does not answer: try again`, true)),
      LEAVE_TIMEOUT_MS,
    );
    // The browser's Back shows this page as it was when the customer left.
    const back = (event: PageTransitionEvent): void => {
      if (event.persisted) end(failure('destroyed', 'the customer came back', true));
    };
    addEventListener('pageshow', back, listen);
    signal?.addEventListener('abort', () => end(failure('destroyed', 'aborted', true)), listen);
    document.addEventListener(
      'securitypolicyviolation',
      ({ blockedURI, disposition }) => {
        // A policy that only reports does not keep the customer here.
        if (disposition === 'report') return;
        if (blockedURI.startsWith(origin)) end(failure('frame_refused', 'allow form-action'));
      },
      listen,
    );
    post(url, {
      token,
      return_url: returnUrl,
      locale: options.locale || document.documentElement.lang || navigator.language,
      appearance: JSON.stringify(options.appearance ?? {}),
    });
  });
}

const later = <T>(ms: number): Promise<T> => new Promise((resolve) => setTimeout(resolve, ms));

function post(url: string, fields: Readonly<Record<string, string>>): void {
  const form = document.createElement('form');
  form.method = 'post';
  form.action = url;
  // In a framed site, the payment page would be refused.
  form.target = '_top';
  form.hidden = true;
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement('input');
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
  form.remove();
}
