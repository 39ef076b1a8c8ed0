/**
 * The page's end of the connection to the site that shows it. It announces itself only to registered origins, and accepts answers
 * only from its parent window and with the nonce that it sent. A customer who came with the whole tab (display `redirect`) has
 * left the site; the platform then supplies what the site asked for, and there is nobody to send messages to.
 */
import type { FlowSessionGrant } from '@duebridge/contract';
import { PROTOCOL, type Hello, type Init, type ToPage, type ToSite } from '../messages.ts';
import type { Appearance, DisplayMode, TokenReason } from '../embed/types.ts';
import { CallError, type Api } from './api.ts';
import type { Problem } from './state.ts';
import { plainText } from './text.ts';

/**
 * A site whose backend supplies no token within this time has none. The customer can try again, so it is less than mount() waits, and in
 * the middle of a payment nobody waits for ever.
 */
const TOKEN_TIMEOUT_MS = 12_000;
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
  readonly display: DisplayMode;
  /** Where the customer returns to when the page has the whole tab; undefined in a frame. */
  readonly returnUrl?: string | undefined;
  /** Why no payment can be made in this visit; nobody listens then. */
  readonly problem?: Problem;
  send(message: ToSite): void;
  /**
   * A session by a new token; null when the site has none. The first begins at once. Throws CallError.
   */
  open(why: TokenReason): Promise<FlowSessionGrant | null>;
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
export async function connect(api: Api, met: (init: Site['init']) => void): Promise<Site> {
  const found =
    findVisit(api) ?? (await findSite(api, registeredOrigins())) ?? noSite({ code: 'alone' });
  met(found.init);
  return found;
}

const noSite = (problem: Problem): Site => ({
  origin: '',
  init: { locale: navigator.language, appearance: {}, renews: false },
  display: 'inline',
  problem,
  send: () => {},
  open: () => Promise.resolve(null),
  listen: () => {},
});

/** The origins that may show this page. */
export const registeredOrigins = (): readonly string[] => JSON.parse(metaOf('origins')) as string[];

/**
 * The visit embedded in the page; undefined in a frame. It is removed from the document, because its token is for this module
 * only.
 */
function findVisit(api: Api): Site | undefined {
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
    display: 'redirect',
    returnUrl: visit.return_url,
    send: () => {},
    open: opening(api, visit.origin, async (why) => (why === 'initial' ? visit.token : null)),
    listen: () => {},
  };
}

/** Gets tokens and exchanges them; the first at once, for whoever asks first. */
function opening(
  api: Api,
  origin: string,
  tokenFor: (why: TokenReason) => Promise<string | null>,
): Site['open'] {
  const open: Site['open'] = async (why) => {
    const token = await tokenFor(why);
    if (token !== null) return api.open(token, origin);
    // Without a network the site could not ask its backend either, so its tokens are not at fault.
    if (!navigator.onLine) throw new CallError('network');
    return null;
  };
  let first: ReturnType<typeof open> | undefined = open('initial');
  // A failure is for whoever takes the answer.
  first.catch(() => {});
  return (why) => {
    const begun = first;
    first = undefined;
    return begun ?? open(why);
  };
}

/** Connects; undefined when the page is not embedded or the site may not show it. */
function findSite(api: Api, registered: readonly string[]): Promise<Site | undefined> {
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
        resolve(connected(api, event.origin, event.data, port));
      },
      { signal: stop.signal },
    );
    for (const origin of origins) above.postMessage(hello, origin);
  });
}

function connected(api: Api, origin: string, init: Init, port: MessagePort): Site {
  let answer: ((token: string | null) => void) | undefined;
  // The site may say something before the page's script has come to listen.
  const unheard: ToPage[] = [];
  let heard = (message: ToPage): unknown => unheard.push(message);
  port.addEventListener('message', (event: MessageEvent<ToPage>) => {
    if (event.data.type === 'token') answer?.(event.data.token);
    else heard(event.data);
  });
  port.start();
  const tokenFor = (why: TokenReason): Promise<string | null> =>
    new Promise((resolve) => {
      answer = resolve;
      setTimeout(resolve, TOKEN_TIMEOUT_MS, null);
      port.postMessage({ type: 'token', why } satisfies ToSite);
    });
  return {
    origin,
    init: { ...init, locale: init.locale || navigator.language },
    display: init.display,
    send: (message) => port.postMessage(message),
    open: opening(api, origin, tokenFor),
    listen: (listener) => {
      heard = listener;
      unheard.forEach(listener);
    },
  };
}
