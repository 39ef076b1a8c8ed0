/** What the parts of the SDK share: one instance, and one mount of it. */
import type { ToPage } from '../messages.ts';
import {
  DuebridgeError,
  type DuebridgeErrorCode,
  type DuebridgeEvents,
  type DuebridgeOptions,
  type DuebridgeState,
  type TokenReason,
} from './types.ts';

const SECURE = /^http(s:|:\/\/(.+\.)?(localhost|127\.0\.0\.1|\[::1\])(:|$))/;

export const failure = (
  code: DuebridgeErrorCode,
  message: string,
  recoverable = false,
): DuebridgeError => new DuebridgeError({ code, message, recoverable });

export const wrongConfig = (message: string): DuebridgeError => failure('config_invalid', message);

/** An instance: the site's options, checked, and what they became. */
export type Shared = ReturnType<typeof share>;

/** Throws DuebridgeError `config_invalid`. */
export function share(options: DuebridgeOptions) {
  const {
    partner,
    fetchToken,
    token,
    frameOrigin = '',
    display = 'inline',
    returnUrl = '',
  } = options;
  if (!partner || !(fetchToken || token)) throw wrongConfig('needs partner, fetchToken or token');
  if (!/^(inline|modal|redirect)$/.test(display))
    throw wrongConfig('display must be inline, modal or redirect');
  if (display === 'redirect' && !URL.canParse(returnUrl))
    throw wrongConfig(`returnUrl "${returnUrl}" is no address of your site`);
  const origin = URL.canParse(frameOrigin) ? new URL(frameOrigin).origin : '';
  if (!SECURE.test(origin)) throw wrongConfig(`frameOrigin "${frameOrigin}" is no https address`);
  const shared = {
    ...options,
    returnUrl,
    display,
    origin,
    /** The page of the partner. */
    url: `${origin}/flow/v1/${encodeURIComponent(partner)}`,
    state: 'idle' as DuebridgeState,
    // An exception in a listener of the site is reported to the site and does not stop anything.
    bus: new EventTarget(),
    emit: <K extends keyof DuebridgeEvents>(event: K, value: DuebridgeEvents[K]): void =>
      void shared.bus.dispatchEvent(new CustomEvent(event, { detail: value })),
    /** What the backend threw when it was last asked for a token. */
    tokenError: undefined as unknown,
    /** Null when the site has none. */
    async getToken(why: TokenReason): Promise<string | null> {
      shared.tokenError = undefined;
      try {
        return (fetchToken ? await fetchToken(why) : why === 'initial' && token) || null;
      } catch (error) {
        shared.tokenError = error;
        return null;
      }
    },
    /** The port to the page, while connected. */
    post: undefined as ((message: ToPage) => void) | undefined,
    focus: undefined as (() => void) | undefined,
    /** Removes the page; a pending mount() rejects with the error. Set while something is mounted. */
    leave: undefined as ((why: DuebridgeState, error?: Error) => void) | undefined,
  };
  return shared;
}

/** One mount, from the call until what it shows is removed: its listeners and timers, all of which `leave` of the instance ends. */
export type Mounting = ReturnType<typeof beginMount>;

export function beginMount(shared: Shared, place: HTMLElement) {
  const listen = new AbortController();
  const timers: ReturnType<typeof setTimeout>[] = [];
  let settle: (error?: Error) => void = () => {};
  const done = new Promise<void>((resolve, reject) => {
    settle = (error) => {
      timers.forEach(clearTimeout);
      if (error) reject(error);
      else resolve();
    };
  });
  // Once a promise is settled this says nothing more: only a pending mount() sees it.
  shared.leave = (why, error = failure('destroyed', 'removed', true)) => {
    shared.leave = undefined;
    shared.state = why;
    shared.post = shared.focus = undefined;
    listen.abort();
    settle(error);
  };
  const by = {
    /** Where: an element of the site, or its body under a dialog. */
    place,
    /** The promise of mount(). */
    done,
    /** For addEventListener: aborts when the mount ends. */
    listen,
    /** Runs later, unless the mount ends or the first screen is shown before. */
    after: (ms: number, act: () => void): void => void timers.push(setTimeout(act, ms)),
    /** The first screen is shown. */
    ready: (): void => settle(),
    /** The page did not come: with this error the mount ends. */
    silent: (code: DuebridgeErrorCode): void =>
      shared.leave?.('error', failure(code, `${shared.url} does not answer`, true)),
    /** The platform is reachable but does not show its page here. */
    refused: (): void =>
      shared.leave?.(
        'error',
        failure(
          'frame_refused',
          `${shared.url}: register ${location.origin}, allow frame-src (redirect: form-action)`,
        ),
      ),
  };
  addEventListener(
    'securitypolicyviolation',
    // A policy that only reports keeps nothing out, and other things of this origin than the page may be kept out.
    ({ disposition, effectiveDirective, blockedURI }) =>
      disposition !== 'report' &&
      /^(frame|form)-/.test(effectiveDirective) &&
      `${blockedURI}/`.startsWith(`${shared.origin}/`) &&
      by.refused(),
    listen,
  );
  // The frame usually answers well within a second, and on a slow phone within this time.
  by.after(shared.loadTimeoutMs ?? 15_000, () => by.silent('load_timeout'));
  return by;
}

/** The element of the site. Throws DuebridgeError `config_invalid`. */
export function findPlace(target: string | HTMLElement | undefined): HTMLElement {
  let found: HTMLElement | null | undefined;
  try {
    found = typeof target === 'string' ? document.querySelector<HTMLElement>(target) : target;
  } catch {
    // An invalid selector counts as one that matches nothing.
  }
  if (found?.isConnected) return found;
  throw wrongConfig('no element');
}
