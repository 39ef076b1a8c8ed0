/**
 * `inline` and `modal`: creates the frame, proves the site's identity to the page in it, passes tokens to it, and emits events.
 */
import { FAILED, PROTOCOL, type Failed, type Hello, type Init, type ToSite } from '../messages.ts';
import { showDialog, type Dialog } from './dialog.ts';
import type { TokenResult, Mounting, Shared } from './mounting.ts';
import { DuebridgeError, type DuebridgeEvents, type PaymentUpdate } from './types.ts';

/** After `load` the page's script has run; only an error page stays silent for longer. */
const HELLO_TIMEOUT_MS = 2_000;
/** A reachable platform answers a ping within this time, even on a slow connection. */
const PING_TIMEOUT_MS = 3_000;

/** Shows the page in `place`, or in a dialog over it, until the mount ends. */
export function showFrame(shared: Shared, by: Mounting, place: HTMLElement): void {
  const { options, emit } = shared;
  const { display, frame: double } = options;
  const before = document.activeElement;
  const theme = shared.appearance?.theme ?? 'auto';
  // The theme is passed in the fragment: the page can read it from the first byte, and no server sees it.
  const element = double?.element ?? makeFrame(`${shared.url}#${theme}`);
  let dialog: Dialog | undefined;
  let at: DuebridgeEvents['exit']['at'] = 'loading';
  let payment: PaymentUpdate | undefined;
  let tokenError: unknown;
  /** The token is requested while the frame loads; null once it is used, or when the page asked first. */
  let early: Promise<TokenResult> | null | undefined;

  const exit = (value: DuebridgeEvents['exit']): void => {
    // With `inline` the last screen stays until the site removes it.
    if (display === 'inline') shared.state = 'exited';
    else shared.leave?.('exited');
    emit('exit', value);
  };
  /** The browser closed the page, so the page could not send a message. */
  const closed = (): void => {
    const reason = payment?.status === 'succeeded' ? 'completed' : 'user';
    exit({ reason, at, sessionId: '', payment });
  };
  const waits = (): boolean => shared.state !== 'ready';
  /** The customer closes the dialog: the page decides, once it is connected. */
  const close = (): void => (waits() ? closed() : shared.post({ type: 'close' }));

  const heard = async (message: ToSite): Promise<void> => {
    switch (message.type) {
      case 'token': {
        const given = (message.why === 'initial' && early) || shared.getToken(message.why);
        early = null;
        const { token, error } = await given;
        tokenError = error;
        shared.post({ type: 'token', token });
        break;
      }
      case 'ready':
        if (shared.state !== 'exited') shared.state = 'ready';
        if (dialog && document.activeElement === dialog.element) element.focus();
        emit('ready', { version: message.version });
        by.ready();
        break;
      case 'resize':
        if (!dialog?.isSheet) element.style.height = `${message.height}px`;
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

  // In a later turn, so that an immediate unmount (React's StrictMode) uses no token.
  by.after(0, () => {
    if (early === undefined) early = shared.getToken('initial');
  });
  const connect = meetPage(shared, by, element as HTMLIFrameElement, heard);
  const { style } = element;
  element.title = options.title ?? 'Bill payment';
  style.cssText = 'border:0;width:100%;height:420px;display:block';
  const dark =
    theme === 'dark' || (theme === 'auto' && matchMedia('(prefers-color-scheme:dark)').matches);
  style.background = dark ? '#14181f' : '#fff';
  shared.focus = () => {
    element.focus();
    shared.post({ type: 'focus' });
  };
  by.listen.signal.addEventListener('abort', () => {
    const held = document.activeElement === element || dialog;
    element.remove();
    // Runs after the dialog has closed, too.
    if (held && before instanceof HTMLElement) queueMicrotask(() => before.focus());
  });
  if (display === 'modal') dialog = showDialog(element, by.listen, { close, closed, waits });
  else place.append(element);
  double?.connect(connect());
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
  const unreachable = (): void =>
    fail('platform_unreachable', `${origin} does not answer: try again`, true);
  addEventListener(
    'message',
    ({ data, source, origin: from }: MessageEvent<Hello | Failed | null>) => {
      if (!source || from !== origin) return;
      // The platform is reachable but its page is not shown: the cause is the site's address or policy.
      if (source === ping?.contentWindow) return refused();
      if (source !== element.contentWindow) return;
      if (data?.duebridge === FAILED) return unreachable();
      if (data?.duebridge !== PROTOCOL) return;
      const init: Init = {
        ...data,
        display: shared.options.display,
        locale: shared.language(),
        appearance: shared.appearance ?? {},
        renews: !!shared.options.fetchToken,
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
        ping = makeHidden(`${origin}/flow/ping`);
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

/** A frame that is loaded and not shown. */
export function makeHidden(src: string): HTMLIFrameElement {
  const frame = makeFrame(src);
  frame.hidden = true;
  document.body.append(frame);
  return frame;
}

function makeFrame(src: string): HTMLIFrameElement {
  const frame = document.createElement('iframe');
  frame.src = src;
  frame.referrerPolicy = 'no-referrer';
  // Each token is needed: print() needs modals, the receipt needs downloads. Top navigation is not allowed.
  frame.setAttribute(
    'sandbox',
    'allow-scripts allow-same-origin allow-forms allow-modals allow-downloads allow-popups',
  );
  return frame;
}
