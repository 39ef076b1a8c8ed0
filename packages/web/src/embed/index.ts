/**
 * The embedded SDK: creates an instance and mounts it as a frame in the page or in a dialog over it (redirect.ts is the third
 * display mode).
 * States: idle -> loading (frame created) -> connected (the page is verified and has its port) -> ready (first screen shown) ->
 * exited. Importing has no side effect, on a server too; mount() is the first access to the document. It sets styles through the
 * CSSOM only and creates no script, so a site's Content-Security-Policy needs `frame-src <platform>` and nothing else, even with
 * Trusted Types.
 */
import { makeHidden, showFrame } from './frame.ts';
import type { Mounting, Shared } from './mounting.ts';
import { failure, platformOrigin, wrongConfig } from './config.ts';
import { DuebridgeError, type Duebridge, type DuebridgeOptions } from './types.ts';

export { DuebridgeError };
export type * from './types.ts';

/** The frame usually answers well within a second, and on a slow phone within this time; mount() rejects after it. */
const LOAD_TIMEOUT_MS = 15_000;

/**
 * Creates an instance; shows nothing yet. Throws DuebridgeError `config_invalid` for options that cannot work, on the server as
 * in the browser.
 */
export function createDuebridge(options: DuebridgeOptions): Duebridge {
  const { partner, fetchToken, signal, display = 'inline', frame: double } = options;
  if (!partner || !(fetchToken || options.token))
    throw wrongConfig('partner, and fetchToken or token, required');
  if (display !== 'inline' && display !== 'modal')
    throw wrongConfig('display must be inline or modal');
  const origin = platformOrigin(options.frameOrigin);
  const url = `${origin}/flow/v1/${encodeURIComponent(partner)}`;
  // An exception in a listener of the site is reported to the site and does not stop anything.
  let bus = new EventTarget();

  const shared: Shared = {
    options: { ...options, display },
    origin,
    url,
    state: 'idle',
    locale: options.locale,
    appearance: options.appearance,
    post() {},
    focus() {},
    language: () => shared.locale || document.documentElement.lang || navigator.language,
    emit: (event, value) => void bus.dispatchEvent(new CustomEvent(event, { detail: value })),
    async getToken(why) {
      try {
        const token = fetchToken ? await fetchToken(why) : why === 'initial' && options.token;
        return { token: token || null };
      } catch (error) {
        return { token: null, error };
      }
    },
  };

  function mount(target?: string | HTMLElement): Promise<void> {
    return new Promise((resolve, reject) => {
      if (shared.state === 'destroyed') throw failure('destroyed', 'make a new instance');
      if (shared.leave) throw wrongConfig('already mounted: unmount()');
      const place = display === 'inline' ? findPlace(target) : document.body;
      if (origin === location.origin && !double) throw wrongConfig('frameOrigin is your own');
      const by = beginMount(shared, resolve, reject);
      by.after(options.loadTimeoutMs ?? LOAD_TIMEOUT_MS, () =>
        by.fail('load_timeout', `${url} does not answer: try again`, true),
      );
      showFrame(shared, by, place);
    });
  }

  const instance: Duebridge = {
    mount,
    preload() {
      const warm = makeHidden(url);
      warm.addEventListener('load', () => warm.remove());
    },
    update(change) {
      shared.locale = change.locale ?? shared.locale;
      shared.appearance = change.appearance ?? shared.appearance;
      shared.post({ type: 'update', ...change });
    },
    focus: () => shared.focus(),
    unmount: () => shared.leave?.('idle'),
    destroy() {
      shared.leave?.('destroyed');
      shared.state = 'destroyed';
      bus = new EventTarget();
    },
    on(event, listener) {
      const heard = (news: Event): void =>
        listener((news as CustomEvent<Parameters<typeof listener>[0]>).detail);
      bus.addEventListener(event, heard);
      return () => bus.removeEventListener(event, heard);
    },
    get state() {
      return shared.state;
    },
  };
  if (signal?.aborted) instance.destroy();
  signal?.addEventListener('abort', () => instance.destroy());
  return instance;
}

/** The listeners and timers of one mount; `leave` ends all of them. */
function beginMount(
  shared: Shared,
  resolve: () => void,
  reject: (error: DuebridgeError) => void,
): Mounting {
  const stop = new AbortController();
  const listen = { signal: stop.signal };
  const timers: ReturnType<typeof setTimeout>[] = [];
  const stopTimers = (): void => timers.forEach(clearTimeout);
  shared.state = 'loading';
  shared.leave = (why) => {
    shared.leave = undefined;
    shared.state = why;
    shared.post = () => {};
    shared.focus = () => {};
    stop.abort();
    stopTimers();
    // Settled promises ignore this: only a pending mount() sees it.
    reject(failure('destroyed', 'removed before ready', true));
  };
  const by: Mounting = {
    listen,
    after: (ms, act) => void timers.push(setTimeout(act, ms)),
    ready() {
      stopTimers();
      resolve();
    },
    fail(code, message, recoverable) {
      reject(failure(code, message, recoverable));
      shared.leave?.('error');
    },
    refused: () =>
      by.fail('frame_refused', `${shared.url}: register ${location.origin}, allow frame-src`),
  };
  document.addEventListener(
    'securitypolicyviolation',
    (event) => event.blockedURI.startsWith(shared.origin) && by.refused(),
    listen,
  );
  return by;
}

function findPlace(target: string | HTMLElement | undefined): HTMLElement {
  let found: HTMLElement | null | undefined;
  try {
    found = typeof target === 'string' ? document.querySelector<HTMLElement>(target) : target;
  } catch {
    // An invalid selector counts as one that matches nothing.
  }
  if (found?.isConnected) return found;
  throw wrongConfig(`no element ${JSON.stringify(target)} in the page`);
}
