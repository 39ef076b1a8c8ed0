/**
 * The embedded SDK: creates an instance and mounts it as a frame in the page or in a dialog over it (redirect.ts is the third
 * display mode).
 * States: idle -> loading (frame created) -> connected (the page is verified and has its port) -> ready (first screen shown) ->
 * exited. Importing has no side effect, on a server too; mount() is the first access to the document. It sets styles through the
 * CSSOM only and creates no script, so a site's Content-Security-Policy needs `frame-src <platform>` and nothing else, even with
 * Trusted Types.
 */
import { loadFrame } from './frame.ts';
import type { Mounting, Shared } from './mounting.ts';
import { failure, platformOrigin, wrongConfig } from './config.ts';
import { DuebridgeError, type Duebridge, type DuebridgeOptions } from './types.ts';

export { DuebridgeError };
export type * from './types.ts';

/**
 * Creates an instance; shows nothing yet. Throws DuebridgeError `config_invalid` for options that cannot work, on the server as
 * in the browser.
 */
export function createDuebridge(options: DuebridgeOptions): Duebridge {
  const {
    partner,
    fetchToken,
    signal,
    display = 'inline',
    frame: double,
    // The frame usually answers well within a second, and on a slow phone within this time; mount() rejects after it.
    loadTimeoutMs = 15_000,
  } = options;
  if (!partner || !(fetchToken || options.token))
    throw wrongConfig('needs partner, fetchToken or token');
  if (!/^(inline|modal)$/.test(display)) throw wrongConfig('display must be inline or modal');
  const origin = platformOrigin(options.frameOrigin);
  const url = `${origin}/flow/v1/${encodeURIComponent(partner)}`;
  // An exception in a listener of the site is reported to the site and does not stop anything.
  let bus = new EventTarget();

  const shared: Shared = {
    ...options,
    display,
    origin,
    url,
    state: 'idle',
    emit(event, value) {
      bus.dispatchEvent(new CustomEvent(event, { detail: value }));
    },
  };

  const instance: Duebridge = {
    async mount(target) {
      if (shared.state === 'destroyed') throw failure('destroyed', 'make a new one');
      if (origin === location.origin && !double) throw wrongConfig('frameOrigin is yours');
      if (shared.leave) throw wrongConfig('is mounted');
      const place = display === 'inline' ? findPlace(target) : document.body;
      const by = beginMount(shared, place);
      by.after(loadTimeoutMs, () => by.silent('load_timeout'));
      loadFrame(shared, by);
      return by.done;
    },
    update(change) {
      shared.locale = change.locale ?? shared.locale;
      shared.appearance = change.appearance ?? shared.appearance;
      shared.post?.({ type: 'update', ...change });
    },
    focus: () => shared.focus?.(),
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
function beginMount(shared: Shared, place: HTMLElement): Mounting {
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
  const by: Mounting = {
    place,
    done,
    listen,
    after(ms, act) {
      timers.push(setTimeout(act, ms));
    },
    ready: () => settle(),
    silent: (code) => shared.leave?.('error', failure(code, `${shared.url} does not answer`, true)),
    refused: () =>
      shared.leave?.(
        'error',
        failure('frame_refused', `${shared.url}: register ${location.origin}, allow frame-src`),
      ),
  };
  addEventListener(
    'securitypolicyviolation',
    // A policy that only reports keeps nothing out.
    (event) =>
      event.disposition !== 'report' && event.blockedURI.startsWith(shared.origin) && by.refused(),
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
  throw wrongConfig('no element');
}
