/**
 * `redirect`: the whole tab goes to the payment page and returns to `returnUrl` with a signed result. The token is sent in the body of
 * a form, so that it appears in no address, history or log (decision 115).
 */
import type { Mounting, Shared } from './mounting.ts';
import { DuebridgeError } from './types.ts';

/** Leaves for the payment page with a token. The mount ends by an error, or when the customer comes back. */
export async function leaveSite(shared: Shared, { place, listen }: Mounting): Promise<void> {
  shared.state = 'loading';
  const token = await shared.getToken('initial');
  // A backend that took too long gave none: the customer is still on the site, and may have pressed again.
  if (listen.signal.aborted) return;
  if (!token) {
    const message = 'your backend gave no token';
    const parts = { code: 'token_invalid', message, recoverable: true } as const;
    return shared.leave?.('error', new DuebridgeError(parts, shared.tokenError));
  }
  // The browser's Back shows this page as it was when the customer left: its button works again.
  addEventListener('pageshow', (event) => event.persisted && shared.leave?.('idle'), listen);
  const form = document.createElement('form');
  form.method = 'post';
  form.action = shared.url;
  // In a framed site, the payment page would be refused.
  form.target = '_top';
  form.hidden = true;
  for (const [name, value] of Object.entries({
    token,
    return_url: shared.returnUrl,
    locale: shared.locale || document.documentElement.lang || navigator.language,
    appearance: JSON.stringify(shared.appearance ?? {}),
  })) {
    const field = document.createElement('input');
    field.name = name;
    field.value = value;
    form.append(field);
  }
  place.append(form);
  form.submit();
  form.remove();
}
