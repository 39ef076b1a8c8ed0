/**
 * The embedded SDK: creates the frame, proves the site's identity to it, passes tokens to it, and reports events.
 *
 * A life: idle -> loading (frame made) -> connected (the page is genuine, and has its port) -> ready
 * (first screen shown) -> exited. Importing does nothing, on a server as well; the first touch of the
 * document is mount(). It sets styles only through the object model and makes no script, so a site's
 * Content-Security-Policy needs `frame-src <platform>` and nothing else, Trusted Types included.
 */
import {
  FAILED,
  PROTOCOL,
  type Failed,
  type Hello,
  type Init,
  type ToPage,
  type ToSite,
} from '../messages.ts';
import {
  DuebridgeError,
  type Duebridge,
  type DuebridgeErrorCode,
  type DuebridgeEvents,
  type DuebridgeOptions,
  type DuebridgeState,
  type PaymentUpdate,
  type TokenReason,
} from './types.ts';

export { DuebridgeError };
export type * from './types.ts';

/** The frame answers well within a second; a phone on a poor line within this (mount() rejects then). */
const LOAD_TIMEOUT_MS = 15_000;
/** After `load` the page's script has run; only an error page stays silent for longer. */
const HELLO_TIMEOUT_MS = 2_000;
/** A platform that is there answers a ping within this, on a poor line too. */
const PING_TIMEOUT_MS = 3_000;
/** How often a page of its own is looked at, to notice that the customer closed it. */
const CLOSED_CHECK_MS = 500;
/** Narrower than this the page over the site is a sheet from the bottom, of one height on all screens. */
const SHEET = '(max-width:600px)';

const LOOPBACK = /^http:\/\/(localhost|[\w.-]+\.localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

const failure = (code: DuebridgeErrorCode, message: string, recoverable = false): DuebridgeError =>
  new DuebridgeError({ code, message, recoverable });

const wrongConfig = (message: string): DuebridgeError => failure('config_invalid', message);

/**
 * Makes an instance; shows nothing yet. Throws DuebridgeError `config_invalid` for options that
 * cannot work, on the server as in the browser.
 */
export function createDuebridge(options: DuebridgeOptions): Duebridge {
  const { partner, fetchToken, signal, display = 'inline', frame: double } = options;
  if (!partner) throw wrongConfig('partner is missing: pass your partner id');
  if (!fetchToken && !options.token) throw wrongConfig('pass fetchToken, which asks your backend');
  const origin = platformOrigin(options.frameOrigin);
  const url = `${origin}/flow/v1/${encodeURIComponent(partner)}`;

  let { locale, appearance } = options;
  let state: DuebridgeState = 'idle';
  let post: (message: ToPage) => void = () => {};
  let focus = (): void => {};
  /** Takes the page away; there while something is mounted. */
  let leave: ((why: DuebridgeState) => void) | undefined;
  const listeners = new Map<keyof DuebridgeEvents, Set<(value: never) => void>>();

  function emit<K extends keyof DuebridgeEvents>(event: K, value: DuebridgeEvents[K]): void {
    for (const listener of listeners.get(event) ?? []) {
      try {
        (listener as (value: DuebridgeEvents[K]) => void)(value);
      } catch (error) {
        // An error in the site's listener is reported to the site and must not stop the payment page.
        reportError(error);
      }
    }
  }

  const language = (): string => locale || document.documentElement.lang || navigator.language;

  const theme = appearance?.theme ?? 'auto';
  /** The theme stands in the fragment, where the first bytes of the page can see it (and no server). */
  const address = theme === 'auto' ? url : `${url}#${theme}`;

  async function getToken(why: TokenReason): Promise<{ token: string | null; error?: unknown }> {
    try {
      const token = fetchToken ? await fetchToken(why) : why === 'initial' && options.token;
      return { token: token || null };
    } catch (error) {
      return { token: null, error };
    }
  }

  function mount(target?: string | HTMLElement): Promise<void> {
    return new Promise((resolve, reject) => {
      if (state === 'destroyed') throw failure('destroyed', 'destroyed: make a new instance');
      if (leave) throw wrongConfig('already mounted: call unmount() first');
      const place = display === 'inline' ? findPlace(target) : document.body;
      if (origin === location.origin && !double)
        throw wrongConfig('frameOrigin must not be your own origin');

      const before = document.activeElement;
      const { style: pageStyle } = document.documentElement;
      const { overflow } = pageStyle;
      const stop = new AbortController();
      const listen = { signal: stop.signal };
      const sheet = display === 'modal' && matchMedia(SHEET).matches;
      let port: MessagePort | undefined;
      let tokenError: unknown;
      let frame: HTMLElement | undefined;
      let dialog: HTMLDialogElement | undefined;
      let page: Window | null | undefined;
      let ping: HTMLIFrameElement | undefined;
      /** The token is asked for while the frame loads; `asked`: the page was quicker. */
      let early: ReturnType<typeof getToken> | undefined;
      let asked = false;
      let at: DuebridgeEvents['exit']['at'] = 'loading';
      let payment: PaymentUpdate | undefined;
      const timers: ReturnType<typeof setTimeout>[] = [];
      const after = (ms: number, act: () => void): void => void timers.push(setTimeout(act, ms));

      leave = (why) => {
        leave = undefined;
        state = why;
        post = () => {};
        focus = () => {};
        stop.abort();
        timers.forEach(clearTimeout);
        port?.close();
        page?.close();
        ping?.remove();
        const held = document.activeElement === frame || dialog;
        if (dialog) {
          dialog.close();
          pageStyle.overflow = overflow;
        }
        (dialog ?? frame)?.remove();
        if (held && before instanceof HTMLElement) before.focus();
        // Settled promises ignore this: it is heard only by a mount() that still waits.
        reject(failure('destroyed', 'taken away before it was ready', true));
      };
      const fail = (code: DuebridgeErrorCode, message: string, recoverable?: boolean): void => {
        reject(failure(code, message, recoverable));
        leave?.('error');
      };
      const unreachable = (): void =>
        fail('platform_unreachable', `${origin} does not answer: try again`, true);
      const refused = (): void =>
        fail('frame_refused', `${url}: register ${location.origin}, allow frame-src`);
      const exit = (value: DuebridgeEvents['exit']): void => {
        // With `inline` the last screen stays until the site removes it.
        if (display === 'inline') state = 'exited';
        else leave?.('exited');
        emit('exit', value);
      };
      /** The browser closed the page, which could not send a message. */
      const closed = (): void => {
        const reason = payment?.status === 'succeeded' ? 'completed' : 'user';
        exit({ reason, at, sessionId: '', payment });
      };
      /** The customer closes: the page decides, once there is one that can. */
      const close = (): void => {
        if (state === 'ready') post({ type: 'close' });
        else closed();
      };

      const heard = async (message: ToSite): Promise<void> => {
        switch (message.type) {
          case 'token': {
            const given = (message.why === 'initial' && early) || getToken(message.why);
            asked = true;
            early = undefined;
            const { token, error } = await given;
            tokenError = error;
            post({ type: 'token', token });
            break;
          }
          case 'ready':
            timers.forEach(clearTimeout);
            if (state !== 'exited') state = 'ready';
            if (dialog && document.activeElement === dialog) frame?.focus();
            emit('ready', { version: message.version });
            resolve();
            break;
          case 'resize':
            if (frame && !sheet) frame.style.height = `${message.height}px`;
            emit('resize', { height: message.height });
            break;
          case 'exit':
            exit(message.exit);
            break;
          case 'error':
            emit('error', new DuebridgeError(message.error, tokenError));
            break;
          case 'screen':
            at = message.name;
            emit('screen', { name: at });
            break;
          case 'payment':
            payment = message.payment;
            emit('payment', payment);
        }
      };
      const connect = (): MessagePort => {
        port?.close();
        const channel = new MessageChannel();
        port = channel.port1;
        port.addEventListener('message', (event: MessageEvent<ToSite>) => void heard(event.data));
        port.start();
        post = (message) => channel.port1.postMessage(message);
        if (state === 'loading') state = 'connected';
        return channel.port2;
      };

      addEventListener(
        'message',
        ({ data, source, origin: from }: MessageEvent<Hello | Failed | null>) => {
          if (!source || from !== origin) return;
          // The platform is there, and yet its page is not shown: that is the site's address, or its policy.
          if (source === ping?.contentWindow) return refused();
          const shown = page ?? (frame as HTMLIFrameElement | undefined)?.contentWindow;
          if (source !== shown) return;
          if (data?.duebridge === FAILED) return unreachable();
          if (data?.duebridge !== PROTOCOL) return;
          const init: Init = {
            ...data,
            display,
            locale: language(),
            appearance: appearance ?? {},
            renews: !!fetchToken,
          };
          shown.postMessage(init, origin, [connect()]);
        },
        listen,
      );

      state = 'loading';
      after(options.loadTimeoutMs ?? LOAD_TIMEOUT_MS, () =>
        fail('load_timeout', `${url} did not answer in time: try again`, true),
      );
      // A turn later, so that mounting and unmounting at once (React's StrictMode) costs no token.
      after(0, () => {
        if (!asked) early = getToken('initial');
      });
      if (double) {
        frame = double.element;
      } else if (display === 'redirect') {
        page = open(address, '_blank');
        if (!page) return fail('config_invalid', 'blocked by the browser: mount() in a click');
        const opened = page;
        focus = () => opened.focus();
        const watch = setInterval(() => opened.closed && closed(), CLOSED_CHECK_MS);
        stop.signal.addEventListener('abort', () => clearInterval(watch));
        return;
      } else {
        frame = makeFrame(address);
        document.addEventListener(
          'securitypolicyviolation',
          (event) => event.blockedURI.startsWith(origin) && refused(),
          listen,
        );
        frame.addEventListener('load', () =>
          after(HELLO_TIMEOUT_MS, () => {
            if (port) return;
            // Refused, or not there at all? Another page of the platform, for anybody to frame, says which.
            ping = makeFrame(`${origin}/flow/ping`);
            ping.hidden = true;
            document.body.append(ping);
            after(PING_TIMEOUT_MS, unreachable);
          }),
        );
      }
      const element = frame;
      element.title = options.title ?? 'Bill payment';
      element.style.cssText = 'border:0;width:100%;height:420px;display:block';
      const auto = matchMedia('(prefers-color-scheme:dark)').matches ? 'dark' : 'light';
      element.style.background = (theme === 'auto' ? auto : theme) === 'dark' ? '#14181f' : '#fff';
      focus = () => {
        element.focus();
        post({ type: 'focus' });
      };
      if (display === 'modal') {
        dialog = document.createElement('dialog');
        dialog.ariaLabel = element.title;
        dialog.style.cssText =
          'border:0;padding:0;margin:0;width:100%;height:100%;max-width:100%;max-height:100%;display:flex;background:rgb(0 0 0/.55);outline:0';
        element.style.cssText += sheet
          ? ';margin:auto 0 0;height:92%;border-radius:16px 16px 0 0'
          : ';margin:auto;max-width:30rem;max-height:100%;border-radius:16px';
        dialog.addEventListener('cancel', (event) => {
          event.preventDefault();
          close();
        });
        // Browsers close on a second Escape whatever we say; the payment, if confirmed, goes on.
        dialog.addEventListener('close', closed, listen);
        dialog.addEventListener('click', () => state !== 'ready' && close());
        dialog.append(element);
        place.append(dialog);
        pageStyle.overflow = 'hidden';
        dialog.showModal();
        // An empty frame would swallow Escape: the dialog itself has the focus until there is a page.
        dialog.tabIndex = -1;
        dialog.focus();
      } else {
        place.append(element);
      }
      double?.connect(connect());
    });
  }

  const instance: Duebridge = {
    mount,
    preload() {
      const warm = makeFrame(url);
      warm.hidden = true;
      warm.addEventListener('load', () => warm.remove());
      document.body.append(warm);
    },
    update(change) {
      locale = change.locale ?? locale;
      appearance = change.appearance ?? appearance;
      post({ type: 'update', ...change });
    },
    focus: () => focus(),
    unmount: () => leave?.('idle'),
    destroy() {
      leave?.('destroyed');
      state = 'destroyed';
      listeners.clear();
    },
    on(event, listener) {
      const set = listeners.get(event) ?? new Set();
      listeners.set(event, set.add(listener));
      return () => set.delete(listener);
    },
    get state() {
      return state;
    },
  };
  if (signal?.aborted) instance.destroy();
  signal?.addEventListener('abort', () => instance.destroy(), { once: true });
  return instance;
}

function makeFrame(src: string): HTMLIFrameElement {
  const frame = document.createElement('iframe');
  frame.src = src;
  frame.referrerPolicy = 'no-referrer';
  // Each token is needed: print() needs modals, the receipt needs downloads. No top navigation.
  frame.setAttribute(
    'sandbox',
    'allow-scripts allow-same-origin allow-forms allow-modals allow-downloads allow-popups',
  );
  return frame;
}

function platformOrigin(given: string | undefined): string {
  if (!given) throw wrongConfig('frameOrigin is missing: the platform’s address');
  const origin = URL.canParse(given) ? new URL(given).origin : '';
  if (origin.startsWith('https://') || LOOPBACK.test(origin)) return origin;
  throw wrongConfig(`frameOrigin "${given}" is not an https address`);
}

function findPlace(target: string | HTMLElement | undefined): HTMLElement {
  let found: HTMLElement | null | undefined;
  try {
    found = typeof target === 'string' ? document.querySelector<HTMLElement>(target) : target;
  } catch {
    // Not a selector: the same as finding nothing.
  }
  if (found?.isConnected) return found;
  throw wrongConfig(`no element for ${JSON.stringify(target)} in the page`);
}
