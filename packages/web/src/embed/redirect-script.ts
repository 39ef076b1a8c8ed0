/**
 * The script-tag build of redirect.ts: `window.duebridge.redirectToPayment(...)`. The platform's address is the script's origin.
 */
import { DuebridgeError, redirectToPayment, type RedirectOptions } from './redirect.ts';

const src = (document.currentScript as HTMLScriptElement | null)?.src;
const frameOrigin = src ? new URL(src).origin : undefined;

Object.assign(window, {
  duebridge: {
    ...(window as { duebridge?: object }).duebridge,
    redirectToPayment: (options: RedirectOptions) =>
      redirectToPayment({ ...options, frameOrigin: options.frameOrigin ?? frameOrigin }),
    DuebridgeError,
  },
});
