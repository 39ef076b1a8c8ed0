/**
 * The messages between the SDK and the page. Both ends are built from this file.
 *
 * 1. page -> site   `Hello` by postMessage, to registered origins only, never to `*`
 * 2. site -> page   `Init` by postMessage to the platform's origin, with the nonce and a MessagePort
 * 3. all the rest on that port, which nobody else can hear or reach
 */
import type {
  Appearance,
  DisplayMode,
  DuebridgeErrorParts,
  DuebridgeEvents,
  PaymentUpdate,
  ScreenName,
  TokenReason,
} from './embed/types.ts';

/** The version of the protocol; a page of another version is not answered. */
export const PROTOCOL = 'duebridge/1';

/**
 * Sent instead by the page's inline script when a file of the page did not load (flow/first.ts).
 */
export const FAILED = 'duebridge/1 failed';

export interface Hello {
  readonly duebridge: typeof PROTOCOL;
  /** Random for each page load: an answer without it is not for this page. */
  readonly nonce: string;
}

export interface Init extends Hello {
  readonly display: DisplayMode;
  /** Empty: the browser's. */
  readonly locale: string;
  readonly appearance: Appearance;
  /** Whether the site can supply a new token when the first has expired. */
  readonly renews: boolean;
}

/** From the page to the site. */
export type ToSite =
  | { readonly type: 'token'; readonly why: TokenReason }
  | { readonly type: 'ready'; readonly version: string }
  | { readonly type: 'screen'; readonly name: ScreenName }
  | { readonly type: 'payment'; readonly payment: PaymentUpdate }
  | { readonly type: 'error'; readonly error: DuebridgeErrorParts }
  | { readonly type: 'resize'; readonly height: number }
  | { readonly type: 'exit'; readonly exit: DuebridgeEvents['exit'] };

/** From the site to the page. `token: null` means that the site could not get one. */
export type ToPage =
  | { readonly type: 'token'; readonly token: string | null }
  | {
      readonly type: 'update';
      readonly locale?: string | undefined;
      readonly appearance?: Appearance | undefined;
    }
  | { readonly type: 'focus' }
  | { readonly type: 'close' };
