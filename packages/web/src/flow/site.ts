/**
 * The page's end of the connection to the site that shows it. It announces itself only to registered origins, and accepts answers
 * only from its parent window and with the nonce that it sent. A customer who came with the whole tab (display `redirect`) has
 * left the site; the platform then supplies what the site asked for, and there is nobody to send messages to.
 */
import { PROTOCOL, type Hello, type Init, type ToPage, type ToSite } from '../messages.ts';
import type { Appearance, TokenReason } from '../embed/types.ts';

/**
 * A site's backend that has not supplied a token within this time is slow. The page says so while it waits; mount() waits longer.
 */
const TOKEN_SLOW_MS = 10_000;
/** A site that does not answer the hello within this time is not registered; its SDK waits longer than this. */
const INIT_TIMEOUT_MS = 8_000;

/** What the platform wrote into the page. */
export function metaOf(name: 'origins' | 'partner' | 'mode' | 'visit'): string {
  return document.querySelector<HTMLMetaElement>(`meta[name=duebridge-${name}]`)?.content ?? '';
}

/** The connection to the site. */
export interface Site {
  readonly origin: string;
  readonly init: Omit<Init, 'duebridge' | 'nonce' | 'display'>;
  /** How the page is shown; `tab`: it has the whole tab. */
  readonly display: Init['display'] | 'tab';
  /** Where the customer returns to when the page has the whole tab. */
  readonly returnUrl?: string | undefined;
  send(message: ToSite): void;
  /** A new token; null when the site has none. `slow` is called once when the site takes long. */
  token(why: TokenReason, slow: () => void): Promise<string | null>;
  /** Listens to the site's other messages. */
  listen(heard: (message: ToPage) => void): void;
}

/** What the platform returns for a customer who came with the whole tab: the visit, or why there is none. */
type Visit =
  | {
      readonly token: string;
      readonly origin: string;
      readonly return_url: string;
      readonly locale: string;
      readonly appearance: Appearance;
    }
  | { readonly problem: string; readonly request_id?: string };

/** Why no payment can be made in this visit. */
export interface NoVisit {
  readonly problem: string;
  readonly requestId: string | undefined;
}

/**
 * The visit embedded in the page; undefined in a frame. It is removed from the document, because its token is for this module
 * only.
 */
export function findVisit(): Site | NoVisit | undefined {
  const text = metaOf('visit');
  document.querySelector('meta[name=duebridge-visit]')?.remove();
  if (!text) return undefined;
  const visit = JSON.parse(text) as Visit;
  if ('problem' in visit) return { problem: visit.problem, requestId: visit.request_id };
  return {
    origin: visit.origin,
    init: {
      locale: visit.locale || navigator.language,
      appearance: visit.appearance,
      renews: false,
    },
    display: 'tab',
    returnUrl: visit.return_url,
    send: () => {},
    token: (why) => Promise.resolve(why === 'initial' ? visit.token : null),
    listen: () => {},
  };
}

/** Connects; undefined when the page is not embedded or the site may not show it. */
export function findSite(registered: readonly string[]): Promise<Site | undefined> {
  const above = window.parent;
  if (above === window) return Promise.resolve(undefined);
  const hello: Hello = { duebridge: PROTOCOL, nonce: crypto.randomUUID() };
  // When the browser reveals the parent's origin, try only that one: every other attempt logs an error in the console. Firefox,
  // and the HTML standard, report "null" to a frame created with `referrerpolicy="no-referrer"`, as every released SDK creates
  // it. Then all registered origins are tried, and the browser delivers to the right one only.
  const embedder = location.ancestorOrigins?.[0];
  const origins = registered.filter(
    (origin) => !embedder || embedder === 'null' || origin === embedder,
  );

  return new Promise((resolve) => {
    const stop = new AbortController();
    setTimeout(() => {
      stop.abort();
      resolve(undefined);
    }, INIT_TIMEOUT_MS);
    window.addEventListener(
      'message',
      (event: MessageEvent<Init | null>) => {
        const [port] = event.ports;
        if (event.source !== above || !registered.includes(event.origin) || !port) return;
        if (event.data?.duebridge !== PROTOCOL || event.data.nonce !== hello.nonce) return;
        // The first is the only one.
        stop.abort();
        resolve(connected(event.origin, event.data, port));
      },
      { signal: stop.signal },
    );
    for (const origin of origins) above.postMessage(hello, origin);
  });
}

function connected(origin: string, init: Init, port: MessagePort): Site {
  let answer: ((token: string | null) => void) | undefined;
  let heard: (message: ToPage) => void = () => {};
  port.addEventListener('message', (event: MessageEvent<ToPage>) => {
    if (event.data.type === 'token') answer?.(event.data.token);
    else heard(event.data);
  });
  port.start();
  return {
    origin,
    init,
    display: init.display,
    send: (message) => port.postMessage(message),
    token: (why, slow) =>
      new Promise((resolve) => {
        const timer = setTimeout(slow, TOKEN_SLOW_MS);
        answer = (token) => {
          clearTimeout(timer);
          resolve(token);
        };
        port.postMessage({ type: 'token', why } satisfies ToSite);
      }),
    listen: (listener) => {
      heard = listener;
    },
  };
}
