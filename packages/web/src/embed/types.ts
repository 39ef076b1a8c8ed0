/**
 * The public types of the embedded SDK. They stand alone: a partner needs no other package of ours.
 */

/** How the payment page is shown: in the page or over it. For a page in place of the site's own, see `embed/redirect`. */
export type DisplayMode = 'inline' | 'modal';

/** Colours as `#rgb` or `#rrggbb`; `radius` and `buttonRadius` in px; `fontFamily` as in CSS. */
export type ThemeVar =
  | 'accent'
  | 'accentText'
  | 'background'
  | 'surface'
  | 'text'
  | 'mutedText'
  | 'danger'
  | 'success'
  | 'border'
  | 'radius'
  | 'buttonRadius'
  | 'fontFamily';

/** What a rule is about: the headings, the buttons, the labels of facts and fields. */
export type RulePart = 'title' | 'button' | 'label';
/** `fontWeight` 100 to 900; `textTransform` none, uppercase, capitalize; `letterSpacing` normal or a part of an em. */
export type RuleProperty = 'fontWeight' | 'textTransform' | 'letterSpacing';

/**
 * The look of the frame. What is not known, has another form or is hard to read (colours under 4.5:1) is not applied, and told as an
 * `error` event with the code `appearance_invalid`.
 */
export interface Appearance {
  readonly theme?: 'light' | 'dark' | 'auto' | undefined;
  /** The direction that the page is laid out in; default `ltr`, that of the languages there are. */
  readonly direction?: 'ltr' | 'rtl' | undefined;
  readonly variables?: Partial<Record<ThemeVar, string>> | undefined;
  readonly rules?: Partial<Record<RulePart, Partial<Record<RuleProperty, string>>>> | undefined;
}

/** Why the frame asks for a token: for the first time, or because what it had has ended. */
export type TokenReason = 'initial' | 'expired';

export interface DuebridgeOptions {
  /** The partner id that the platform issued; safe to show. */
  readonly partner: string;
  /** Gets a fresh token from your own backend. The result is passed on and never kept. */
  readonly fetchToken?: ((why: TokenReason) => Promise<string>) | undefined;
  /** One token, for tests and simple pages; it cannot be renewed. Prefer `fetchToken`. */
  readonly token?: string | undefined;
  /** Where the platform is: its origin, https (http on localhost). A script tag knows it already. */
  readonly frameOrigin?: string | undefined;
  /** Default `inline`. */
  readonly display?: DisplayMode | undefined;
  /** BCP 47; default `<html lang>`, then the browser's. English, Spanish, French and Portuguese are there. */
  readonly locale?: string | undefined;
  readonly appearance?: Appearance | undefined;
  /** The accessible name of the frame; default "Bill payment". */
  readonly title?: string | undefined;
  /** How long mount() waits for the first screen; default 15000. */
  readonly loadTimeoutMs?: number | undefined;
  /** Destroys the instance when aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Only for tests: what `createFakeFrame` of the test kit gave. */
  readonly frame?: FrameDouble | undefined;
}

/** What stands in for the real frame in a partner's own tests. */
export interface FrameDouble {
  readonly element: HTMLElement;
  /** Called once a mount, with the port that the real frame would be given. */
  connect(port: MessagePort): void;
}

export type DuebridgeState =
  'idle' | 'loading' | 'connected' | 'ready' | 'exited' | 'destroyed' | 'error';

/** The names are stable: safe to use in analytics. */
export type ScreenName = 'review' | 'amount' | 'confirm' | 'status' | 'receipt' | 'problem';

/** What the page shows about a payment. A hint for your interface; your server's record is the truth. */
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
  /** The first screen is there. */
  readonly ready: { readonly version: string };
  readonly screen: { readonly name: ScreenName };
  readonly payment: PaymentUpdate;
  /** The customer has left; in `modal` the page is gone. */
  readonly exit: {
    readonly reason: 'completed' | 'user' | 'error';
    /** The screen that was left; `loading` before the first. */
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
  | 'token_invalid'
  | 'token_slow'
  | 'token_expired'
  | 'account_not_found'
  | 'partner_unreachable'
  | 'amount_out_of_range'
  | 'duplicate_payment'
  | 'network_lost'
  | 'internal';

/** What an error is made of. */
export interface DuebridgeErrorParts {
  readonly code: DuebridgeErrorCode;
  /** For the engineer: what happened, and what to do. */
  readonly message: string;
  /** True when the same thing may work a little later. */
  readonly recoverable: boolean;
  /** What the customer was told, in their language. */
  readonly displayMessage?: string | undefined;
  /** Names the answer in the platform's logs. */
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
   * Shows the page; resolves when its first screen is there. Rejects with a DuebridgeError and leaves
   * nothing behind; it never hangs. `inline` needs the element (or its selector) to stand in.
   */
  mount(target?: string | HTMLElement): Promise<void>;
  /**
   * Loads the files of the payment page before they are needed: call it when a customer is likely to pay (the bill is on the
   * screen, the pointer is over the button). Costs no token.
   */
  preload(): void;
  /** Changes language or look of a mounted page; what the customer typed stays. */
  update(change: Pick<DuebridgeOptions, 'locale' | 'appearance'>): void;
  /** Moves the keyboard into the page. */
  focus(): void;
  /** Takes the page away; it can be mounted again. A payment that was confirmed goes on. */
  unmount(): void;
  /** unmount(), and drops every listener. May be called twice. */
  destroy(): void;
  /** Listens; gives back how to stop. */
  on<K extends keyof DuebridgeEvents>(
    event: K,
    listener: (value: DuebridgeEvents[K]) => void,
  ): () => void;
  readonly state: DuebridgeState;
}
