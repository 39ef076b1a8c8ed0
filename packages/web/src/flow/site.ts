/**
 * The page's end of the connection to the site that shows it. It announces itself only to registered origins, and accepts answers
 * only from its parent window and with the nonce that it sent. A customer who came with the whole tab (display `redirect`) has
 * left the site; the platform then supplies what the site asked for, and there is nobody to send messages to.
 */
import { PROTOCOL, type Hello, type Init, type ToPage, type ToSite } from '../messages.ts';
import type { Appearance, TokenReason } from '../embed/types.ts';
import { request, SESSION_PATH } from './request.ts';
import type { Problem } from './state.ts';
import { plainText } from './text.ts';

/**
 * A site's backend that has not supplied a token within this time is slow. The page says so while it waits; mount() waits longer.
 */
const TOKEN_SLOW_MS = 10_000;
/** A site that supplies no new token within this time has none: the customer must not wait forever in the middle of a payment. */
const RENEWAL_TIMEOUT_MS = 30_000;
/** A site that does not answer the hello within this time is not registered; its SDK waits longer than this. */
const INIT_TIMEOUT_MS = 8_000;

/** What the platform wrote into the page. */
export function metaOf(name: 'origins' | 'partner' | 'biller' | 'mode' | 'visit'): string {
  return document.querySelector<HTMLMetaElement>(`meta[name=duebridge-${name}]`)?.content ?? '';
}

/** The partner as it is registered, which the page knows before it has a session; empty for a page of an earlier platform. */
export function billerOf(): {
  readonly name?: string;
  readonly contact?: string;
  /** As #rrggbb. */
  readonly colour?: string;
  /** Name of a picture that the platform serves. */
  readonly logo?: string;
} {
  const biller = JSON.parse(metaOf('biller') || '{}') as ReturnType<typeof billerOf>;
  return { ...biller, ...(biller.name && { name: plainText(biller.name) }) };
}

/** What the theme `auto` is: the colour scheme of the site around the page, which its SDK wrote into the fragment; the system's in a tab. */
export const isDark = (): boolean =>
  location.hash
    ? location.hash.endsWith('-dark')
    : matchMedia('(prefers-color-scheme: dark)').matches;

/** The connection to the site. */
export interface Site {
  readonly origin: string;
  readonly init: Omit<Init, 'duebridge' | 'nonce' | 'display'>;
  /** How the page is shown; `tab`: it has the whole tab. */
  readonly display: Init['display'] | 'tab';
  /** Where the customer returns to when the page has the whole tab; undefined in a frame. */
  readonly returnUrl?: string | undefined;
  /** Why no payment can be made in this visit; nobody listens then. */
  readonly problem?: Problem;
  send(message: ToSite): void;
  /**
   * A new token; null when the site has none. `slow` is called once when the site takes long. Only the first is waited for however
   * long it takes.
   */
  token(why: TokenReason, slow: () => void): Promise<string | null>;
  /** The exchange of the first token, which began when the token came; undefined when asked again. */
  exchange(): Promise<Response> | undefined;
  /** Listens to the site's other messages, those that have come so far included. Call it once. */
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

/**
 * The site that shows the page, or the visit that the platform supplied; one with a problem when the page is not embedded or the site may
 * not show it. The first token is requested and exchanged at once: the page's own script may still be on its way. `met` learns first
 * what the site asks for.
 */
export async function connect(met: (init: Site['init']) => void): Promise<Site> {
  const found = findVisit() ?? (await findSite(registeredOrigins())) ?? noSite({ code: 'alone' });
  met(found.init);
  return found;
}

const noSite = (problem: Problem): Site => ({
  origin: '',
  init: { locale: navigator.language, appearance: {}, renews: false },
  display: 'inline',
  problem,
  send: () => {},
  token: () => Promise.resolve(null),
  exchange: () => undefined,
  listen: () => {},
});

/** The origins that may show this page. */
export const registeredOrigins = (): readonly string[] => JSON.parse(metaOf('origins')) as string[];

/**
 * The visit embedded in the page; undefined in a frame. It is removed from the document, because its token is for this module
 * only.
 */
function findVisit(): Site | undefined {
  const text = metaOf('visit');
  document.querySelector('meta[name=duebridge-visit]')?.remove();
  if (!text) return undefined;
  const visit = JSON.parse(text) as Visit;
  if ('problem' in visit) return noSite({ code: visit.problem, requestId: visit.request_id });
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
    exchange: exchangeOf(visit.origin, Promise.resolve(visit.token)),
    listen: () => {},
  };
}

/** Exchanges the first token as soon as it is there; gives the answer once. */
function exchangeOf(origin: string, first: Promise<string | null>): Site['exchange'] {
  let begun: Promise<Response> | undefined;
  const begin = async (): Promise<void> => {
    const token = await first;
    if (token === null) return;
    begun = whole(request(SESSION_PATH, token, { origin, partner_id: metaOf('partner') }));
    // A failure is for whoever takes the answer.
    begun.catch(() => {});
  };
  void begin();
  return () => {
    const taken = begun;
    begun = undefined;
    return taken;
  };
}

/** An answer that has come in full: the page's script may be later than the request's time limit, which would cut off the rest. */
async function whole(asked: Promise<Response>): Promise<Response> {
  const answer = await asked;
  return new Response(await answer.blob(), answer);
}

/** Connects; undefined when the page is not embedded or the site may not show it. */
function findSite(registered: readonly string[]): Promise<Site | undefined> {
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
  // The site may say something before the page's script has come to listen.
  const unheard: ToPage[] = [];
  let heard = (message: ToPage): unknown => unheard.push(message);
  port.addEventListener('message', (event: MessageEvent<ToPage>) => {
    if (event.data.type === 'token') answer?.(event.data.token);
    else heard(event.data);
  });
  port.start();
  const ask = (why: TokenReason): Promise<string | null> =>
    new Promise((resolve) => {
      answer = resolve;
      port.postMessage({ type: 'token', why } satisfies ToSite);
    });
  const first = ask('initial');
  let early: Promise<string | null> | undefined = first;
  return {
    origin,
    init: { ...init, locale: init.locale || navigator.language },
    display: init.display,
    send: (message) => port.postMessage(message),
    async token(why, slow) {
      const asked = (why === 'initial' && early) || ask(why);
      early = undefined;
      const timers = [setTimeout(slow, TOKEN_SLOW_MS)];
      const none = new Promise<null>((resolve) => {
        if (why === 'expired') timers.push(setTimeout(resolve, RENEWAL_TIMEOUT_MS, null));
      });
      try {
        return await Promise.race([asked, none]);
      } finally {
        timers.forEach(clearTimeout);
      }
    },
    exchange: exchangeOf(origin, first),
    listen: (listener) => {
      heard = listener;
      unheard.forEach(listener);
    },
  };
}
