/**
 * `inline` and `modal`: creates the frame, proves the site's identity to the page in it, passes tokens to it, and emits events.
 */
import { FAILED, PROTOCOL, type Hello, type Init, type ToSite } from '../messages.ts';
import { openDialog } from './dialog.ts';
import type { Mounting, Shared } from './mounting.ts';
import { DuebridgeError, type DuebridgeEvents, type PaymentUpdate } from './types.ts';

/** Most pages say hello within this time, even on a slow connection; what keeps a later one is looked into. */
const HELLO_TIMEOUT_MS = 3_000;
/** Frames that have come are heard of within this time after the event that says so. */
const HEARD_MS = 500;

/** Loads the page in its place, or in a dialog over the site, until the mount ends. */
export function loadFrame(shared: Shared, by: Mounting): void {
  const { display, frame: double, emit } = shared;
  const before = document.activeElement as HTMLElement | null;
  const theme = shared.appearance?.theme ?? 'auto';
  // What `auto` is here: the site's own colour scheme, and the system's where the site follows it.
  const { colorScheme } = getComputedStyle(by.place);
  const isDark =
    /dark/.test(colorScheme) &&
    (!/light/.test(colorScheme) || matchMedia('(prefers-color-scheme:dark)').matches);
  /** On a narrow screen a dialog is a sheet at the bottom. */
  const isModal = display === 'modal';
  const isSheet = isModal && matchMedia('(max-width:600px)').matches;
  // The theme is passed in the fragment: the page can read it from the first byte, and no server sees it.
  const element = double?.element ?? makeFrame(`${shared.url}#${theme}${isDark ? '-dark' : ''}`);
  let at: DuebridgeEvents['exit']['at'] = 'loading';
  let payment: PaymentUpdate | undefined;
  /** The token is requested while the frame loads; false once it is used, or when the page asked first. */
  let early: Promise<string | null> | false | undefined;

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
    const { type } = message;
    switch (type) {
      case 'token': {
        const given = (message.why === 'initial' && early) || shared.getToken(message.why);
        early = false;
        shared.post?.({ type, token: await given });
        break;
      }
      case 'ready':
        if (shared.state !== 'exited') shared.state = type;
        if (isModal && document.activeElement === element.parentElement) element.focus();
        emit(type, { version: message.version });
        by.ready();
        break;
      case 'resize':
        if (!isSheet) style.height = `${message.height}px`;
        emit(type, { height: message.height });
        break;
      case 'exit':
        exit(message.exit);
        break;
      case 'error':
        emit(type, new DuebridgeError(message.error, shared.tokenError));
        break;
      case 'screen':
        at = message.name;
        emit(type, { name: at });
        break;
      case 'payment':
        payment = message.payment;
        emit(type, payment);
    }
  };

  shared.state = 'loading';
  const connect = meetPage(shared, by, element as HTMLIFrameElement, heard);
  const { style } = element;
  element.title = shared.title ?? 'Bill payment';
  const dark = theme === 'auto' ? isDark : theme === 'dark';
  style.cssText = `border:0;width:100%;height:420px;display:block;background:${dark ? '#14181f' : '#fff'}`;
  shared.focus = () => {
    element.focus();
    shared.post?.({ type: 'focus' });
  };
  by.listen.signal.addEventListener('abort', () => {
    const held = document.activeElement === element || isModal;
    element.remove();
    // Runs after the dialog has closed, too.
    if (held) queueMicrotask(() => before?.focus());
  });
  if (isModal) openDialog(element, by, isSheet, close, waits);
  else by.place.append(element);
  // In a later turn, so that an immediate unmount (React's StrictMode) uses no token.
  by.after(0, () => {
    early ??= shared.getToken('initial');
  });
  double?.connect(connect());
}

/**
 * Waits for the page's hello and answers it with a port. Returns a function that creates the port for a page that sends no hello.
 */
function meetPage(
  shared: Shared,
  { listen, after, silent, refused }: Mounting,
  element: HTMLIFrameElement,
  heard: (message: ToSite) => Promise<void>,
): () => MessagePort {
  const { origin, url } = shared;
  let port: MessagePort | undefined;
  const connect = (): MessagePort => {
    leave();
    const { port1, port2 } = new MessageChannel();
    port = port1;
    port1.addEventListener('message', (event: MessageEvent<ToSite>) => void heard(event.data));
    port1.start();
    shared.post = (message) => port1.postMessage(message);
    if (shared.state === 'loading') shared.state = 'connected';
    return port2;
  };
  addEventListener(
    'message',
    ({
      data,
      source,
      origin: from,
    }: MessageEvent<Hello | { readonly duebridge: typeof FAILED } | null>) => {
      if (from !== origin || source !== element.contentWindow) return;
      if (data?.duebridge === FAILED) silent('platform_unreachable');
      if (data?.duebridge === PROTOCOL) {
        const init: Init = {
          ...data,
          display: shared.display,
          locale: shared.locale || document.documentElement.lang,
          appearance: shared.appearance ?? {},
          renews: !!shared.fetchToken,
        };
        (source as Window).postMessage(init, origin, [connect()]);
      }
    },
    listen,
  );
  const leave = (): void => {
    port?.close();
    element.replaceChildren();
  };
  listen.signal.addEventListener('abort', leave);
  // No engine tells a site all of how a frame failed, and Firefox and WebKit nothing of a connection that failed. But a frame of the
  // site's own has its `load` event, in each of them, when every frame in it has come or failed. So the page is loaded there once more,
  // beside another page of the platform, which any site may frame. Frames within the element of a frame are shown nowhere.
  if (!shared.frame)
    after(HELLO_TIMEOUT_MS, () => {
      if (port || !element.isConnected) return;
      const room = makeFrame('');
      element.append(room);
      // By another address: a browser may let a second request for the same one wait for the first.
      const again = makeFrame(`${url}?`);
      again.append(makeFrame(`${origin}/flow/ping`));
      const inside = room.contentDocument as Document;
      inside.open();
      inside.append(again);
      inside.close();
      let heard = 0;
      (room.contentWindow as Window).addEventListener('message', () => (heard += 1));
      room.addEventListener(
        'load',
        () =>
          after(HEARD_MS, () => {
            if (port) return;
            // It comes now: moving a frame loads it again.
            if (heard > 1) (element.parentElement as HTMLElement).append(element);
            // The platform is reachable but its page is not shown: the cause is the site's address or policy.
            else if (heard) refused();
            else silent('platform_unreachable');
          }),
        listen,
      );
    });
  return connect;
}

function makeFrame(src: string): HTMLIFrameElement {
  return Object.assign(document.createElement('iframe'), {
    src,
    referrerPolicy: 'no-referrer',
    // For the buttons of wallets: the page's own header decides whether they are used.
    allow: 'payment',
    // Each token is needed; print() needs modals. Top navigation is not allowed.
    sandbox: 'allow-scripts allow-same-origin allow-forms allow-modals allow-popups',
  });
}
