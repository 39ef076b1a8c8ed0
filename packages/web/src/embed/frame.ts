/**
 * `inline` and `modal`: creates the frame, proves the site's identity to the page in it, passes tokens to it, and emits events.
 */
import { FAILED, PROTOCOL, type Failed, type Hello, type Init, type ToSite } from '../messages.ts';
import { makeDialog } from './dialog.ts';
import type { Mounting, Shared } from './mounting.ts';
import {
  DuebridgeError,
  type DuebridgeEvents,
  type PaymentUpdate,
  type TokenReason,
} from './types.ts';

/** After `load` the page's script has run; only an error page stays silent for longer. */
const HELLO_TIMEOUT_MS = 2_000;
/** A reachable platform answers a ping within this time, even on a slow connection. */
const PING_TIMEOUT_MS = 3_000;

/** Below this width a dialog is a sheet at the bottom. */
const SHEET = '(max-width:600px)';

/** Loads the page in its place, or in a dialog over the site, until the mount ends. It is hidden until `by.show()`. */
export function loadFrame(shared: Shared, by: Mounting): void {
  const { display, frame: double, emit } = shared;
  let before: HTMLElement | null | undefined;
  const theme = shared.appearance?.theme ?? 'auto';
  const isSheet = display === 'modal' && matchMedia(SHEET).matches;
  // The theme is passed in the fragment: the page can read it from the first byte, and no server sees it.
  const element = double?.element ?? makeFrame(`${shared.url}#${theme}`);
  let showDialog: (() => void) | undefined;
  let at: DuebridgeEvents['exit']['at'] = 'loading';
  let payment: PaymentUpdate | undefined;
  let tokenError: unknown;
  /** The token is requested while the frame loads; null once it is used, or when the page asked first. */
  let early: Promise<string | null> | null | undefined;

  /** Null when the site has none; `tokenError` is what its backend threw. */
  const getToken = async (why: TokenReason): Promise<string | null> => {
    const { fetchToken, token } = shared;
    tokenError = undefined;
    try {
      return (fetchToken ? await fetchToken(why) : why === 'initial' && token) || null;
    } catch (error) {
      tokenError = error;
      return null;
    }
  };

  const exit = (value: DuebridgeEvents['exit']): void => {
    // With `inline` the last screen stays until the site removes it.
    if (display === 'inline') shared.state = 'exited';
    else shared.leave?.('exited');
    emit('exit', value);
  };
  const waits = (): boolean => shared.state !== 'ready';
  /** The customer closes the dialog: the page decides, once it is connected and unless the browser has closed it. */
  const close = (gone?: boolean): void => {
    const reason = payment?.status === 'succeeded' ? 'completed' : 'user';
    if (gone || waits()) exit({ reason, at, sessionId: '', payment });
    else shared.post?.({ type: 'close' });
  };

  const heard = async (message: ToSite): Promise<void> => {
    switch (message.type) {
      case 'token': {
        const given = (message.why === 'initial' && early) || getToken(message.why);
        early = null;
        shared.post?.({ type: 'token', token: await given });
        break;
      }
      case 'ready':
        if (shared.state !== 'exited') shared.state = 'ready';
        if (showDialog && document.activeElement === element.parentElement) element.focus();
        emit('ready', { version: message.version });
        by.ready();
        break;
      case 'resize':
        if (!isSheet) style.height = `${message.height}px`;
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

  const askForToken = (): void => {
    if (early === undefined) early = getToken('initial');
  };
  if (shared.waits) askForToken();
  const connect = meetPage(shared, by, element as HTMLIFrameElement, heard);
  const { style } = element;
  element.title = shared.title ?? 'Bill payment';
  style.cssText = 'border:0;width:100%;height:420px;display:none';
  const dark =
    theme === 'dark' || (theme === 'auto' && matchMedia('(prefers-color-scheme:dark)').matches);
  style.background = dark ? '#14181f' : '#fff';
  shared.focus = () => {
    element.focus();
    shared.post?.({ type: 'focus' });
  };
  by.listen.signal.addEventListener('abort', () => {
    const held = document.activeElement === element || showDialog;
    element.remove();
    // Runs after the dialog has closed, too.
    if (held) queueMicrotask(() => before?.focus());
  });
  if (display === 'modal') showDialog = makeDialog(element, by, isSheet, close, waits);
  else by.place.append(element);
  by.show = () => {
    before = document.activeElement as HTMLElement | null;
    shared.state = 'loading';
    shared.waits = undefined;
    shared.post?.({ type: 'show' });
    // In a later turn, so that an immediate unmount (React's StrictMode) uses no token.
    by.after(0, askForToken);
    style.display = 'block';
    showDialog?.();
    double?.connect(connect());
  };
}

/**
 * Waits for the page's hello and answers it with a port. Returns a function that creates the port for a page that sends no hello.
 */
function meetPage(
  shared: Shared,
  { listen, after, fail, refused }: Mounting,
  element: HTMLIFrameElement,
  heard: (message: ToSite) => Promise<void>,
): () => MessagePort {
  const { origin } = shared;
  let port: MessagePort | undefined;
  let ping: HTMLIFrameElement | undefined;
  const connect = (): MessagePort => {
    port?.close();
    const channel = new MessageChannel();
    port = channel.port1;
    port.addEventListener('message', (event: MessageEvent<ToSite>) => void heard(event.data));
    port.start();
    shared.post = (message) => channel.port1.postMessage(message);
    if (shared.state === 'loading') shared.state = 'connected';
    return channel.port2;
  };
  const unreachable = (): void => fail('platform_unreachable', `${origin} does not answer`, true);
  addEventListener(
    'message',
    ({ data, source, origin: from }: MessageEvent<Hello | Failed | null>) => {
      if (from !== origin || !source) return;
      // The platform is reachable but its page is not shown: the cause is the site's address or policy.
      if (source === ping?.contentWindow) return refused();
      if (source !== element.contentWindow) return;
      if (data?.duebridge === FAILED) return unreachable();
      if (data?.duebridge !== PROTOCOL) return;
      const init: Init = {
        ...data,
        display: shared.display,
        locale: shared.locale || document.documentElement.lang || navigator.language,
        appearance: shared.appearance ?? {},
        renews: !!shared.fetchToken,
        waits: shared.waits,
      };
      element.contentWindow?.postMessage(init, origin, [connect()]);
    },
    listen,
  );
  element.addEventListener(
    'load',
    () =>
      after(HELLO_TIMEOUT_MS, () => {
        if (port) return;
        // Refused or unreachable? Another page of the platform, which any site may frame, tells the two apart.
        ping = makeFrame(`${origin}/flow/ping`);
        ping.hidden = true;
        document.body.append(ping);
        after(PING_TIMEOUT_MS, unreachable);
      }),
    listen,
  );
  listen.signal.addEventListener('abort', () => {
    port?.close();
    ping?.remove();
  });
  return connect;
}

function makeFrame(src: string): HTMLIFrameElement {
  return Object.assign(document.createElement('iframe'), {
    src,
    referrerPolicy: 'no-referrer',
    // Each token is needed: print() needs modals, the receipt needs downloads. Top navigation is not allowed.
    sandbox:
      'allow-scripts allow-same-origin allow-forms allow-modals allow-downloads allow-popups',
  });
}
