/** The public types of the embedded SDK. They import nothing, so that a partner needs no other package of ours. */

/** How the payment page is shown: in the page, over it, or in the whole tab, which then returns to `returnUrl`. */
export type DisplayMode = 'inline' | 'modal' | 'redirect';

/** Colours as `#rgb` or `#rrggbb`; `radius` in px; `fontFamily` as in CSS. */
export type ThemeVar = 'accent' | 'background' | 'text' | 'radius' | 'fontFamily';

/**
 * The appearance of the frame. Values that are unknown, malformed or hard to read (contrast under 4.5:1) are ignored and reported
 * by an `error` event with the code `appearance_invalid`.
 */
export interface Appearance {
  /** Default `auto`: the `color-scheme` of the page around it, or the system's where that page follows it. */
  readonly theme?: 'light' | 'dark' | 'auto' | undefined;
  /** The text direction of the page; default `ltr`, which all supported languages use. */
  readonly direction?: 'ltr' | 'rtl' | undefined;
  readonly variables?: Partial<Record<ThemeVar, string>> | undefined;
}

/** Why the frame requests a token: for the first time, or because its session has ended. */
export type TokenReason = 'initial' | 'expired';

export interface DuebridgeOptions {
  /** The partner id that the platform issued; safe to show. */
  readonly partner: string;
  /** Gets a fresh token from your own backend. The result is passed on and never stored. */
  readonly fetchToken?: ((why: TokenReason) => Promise<string>) | undefined;
  /** One token, for tests and simple pages; it cannot be renewed. Prefer `fetchToken`. */
  readonly token?: string | undefined;
  /** The platform's origin: https (http on localhost). The script-tag build knows it already. */
  readonly frameOrigin?: string | undefined;
  /** Default `inline`. */
  readonly display?: DisplayMode | undefined;
  /** For `redirect`: the return address, on a registered origin; the result is in its query, as `duebridge_result`. */
  readonly returnUrl?: string | undefined;
  /** BCP 47; default `<html lang>`, then the browser's language. Supported: English, Spanish, French and Portuguese. */
  readonly locale?: string | undefined;
  readonly appearance?: Appearance | undefined;
  /** The accessible name of the frame; default "Bill payment". */
  readonly title?: string | undefined;
  /** How long mount() waits for the first screen, or for the token of a redirect and the page; default 15000. */
  readonly loadTimeoutMs?: number | undefined;
  /** Destroys the instance when aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Only for tests: the frame that the test kit's `createFakeFrame` returned. */
  readonly frame?: FrameDouble | undefined;
}

/** Replaces the real frame in a partner's own tests. */
export interface FrameDouble {
  readonly element: HTMLElement;
  /** Called once per mount, with the port that the real frame would receive. */
  connect(port: MessagePort): void;
}

export type DuebridgeState =
  | 'idle'
  | 'loading'
  | 'connected'
  | 'ready'
  | 'exited'
  | 'destroyed'
  | 'error';

/** The names are stable: safe to use in analytics. */
export type ScreenName = 'review' | 'amount' | 'status' | 'receipt' | 'problem';

/** What the page shows about a payment. Use it as a hint for your interface; your server's record is authoritative. */
export interface PaymentUpdate {
  readonly platformPaymentId: string;
  readonly status: 'processing' | 'succeeded' | 'failed' | 'canceled';
  /** Whole US cents. */
  readonly amountInCents: number;
  /** Plain text from the biller. Show it as text, never as HTML. */
  readonly failureReason?: string | undefined;
  /** ISO 8601; null until the biller has accepted the payment. */
  readonly initiatedAt: string | null;
  /** ISO 8601; null until the payment is posted. */
  readonly postedAt: string | null;
}

export interface DuebridgeEvents {
  /** The first screen is shown. */
  readonly ready: { readonly version: string };
  readonly screen: { readonly name: ScreenName };
  readonly payment: PaymentUpdate;
  /** The customer has left; in `modal` the page is gone. */
  readonly exit: {
    readonly reason: 'completed' | 'user' | 'error';
    /** The last screen before leaving; `loading` before the first. */
    readonly at: ScreenName | 'loading';
    /** Safe to log; empty before there was a session, and when the browser closed the page. */
    readonly sessionId: string;
    readonly payment?: PaymentUpdate | undefined;
  };
  /** A problem that the frame already shows to the customer. */
  readonly error: DuebridgeError;
  /** In CSS px; the SDK has already applied it. */
  readonly resize: { readonly height: number };
}

export type DuebridgeErrorCode =
  | 'config_invalid'
  | 'appearance_invalid'
  | 'destroyed'
  | 'load_timeout'
  | 'frame_refused'
  | 'platform_unreachable'
  | 'origin_not_allowed'
  | 'mode_mismatch'
  | 'token_invalid'
  | 'token_expired'
  | 'account_not_found'
  | 'partner_unreachable'
  | 'amount_out_of_range'
  | 'duplicate_payment'
  | 'network_lost'
  | 'internal';

/** The fields of an error. */
export interface DuebridgeErrorParts {
  readonly code: DuebridgeErrorCode;
  /** For the engineer: what happened, and what to do. */
  readonly message: string;
  /** True when a retry may work a little later. */
  readonly recoverable: boolean;
  /** The message shown to the customer, in their language. */
  readonly displayMessage?: string | undefined;
  /** Identifies the answer in the platform's logs. */
  readonly requestId?: string | undefined;
}

/** Every error of the SDK. `cause` is what your own `fetchToken` threw, if it did. */
export class DuebridgeError extends Error implements DuebridgeErrorParts {
  declare readonly code: DuebridgeErrorCode;
  declare readonly recoverable: boolean;
  declare readonly displayMessage: string | undefined;
  declare readonly requestId: string | undefined;

  constructor(parts: DuebridgeErrorParts, cause?: unknown) {
    super(parts.message, { cause });
    Object.assign(this, parts, { name: 'DuebridgeError' });
  }
}

/** One payment page of a site. Make a new one for each bill. */
export interface Duebridge {
  /**
   * Shows the page; resolves when its first screen is shown. On failure it rejects with a DuebridgeError and removes everything
   * it added; it never hangs. `inline` needs the container element (or its selector). With `redirect` it only ever rejects: with
   * `destroyed` when the customer comes back with the browser's Back, so that the button can be used again.
   */
  mount(target?: string | HTMLElement): Promise<void>;
  /** Changes the language or appearance of a mounted page and keeps what the customer typed. */
  update(change: Pick<DuebridgeOptions, 'locale' | 'appearance'>): void;
  /** Moves the keyboard focus into the page. */
  focus(): void;
  /** Removes the page; it can be mounted again. A confirmed payment continues. */
  unmount(): void;
  /** unmount(), and removes every listener. May be called twice. */
  destroy(): void;
  /** Adds a listener; returns a function that removes it. */
  on<K extends keyof DuebridgeEvents>(
    event: K,
    listener: (value: DuebridgeEvents[K]) => void,
  ): () => void;
  readonly state: DuebridgeState;
}
