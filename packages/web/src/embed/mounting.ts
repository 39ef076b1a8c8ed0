/** What the parts of the SDK share: one instance, and one mount of it. */
import type { ToPage } from '../messages.ts';
import type {
  Appearance,
  DisplayMode,
  DuebridgeErrorCode,
  DuebridgeEvents,
  DuebridgeOptions,
  DuebridgeState,
  TokenReason,
} from './types.ts';

/** A token, or null with what the site's backend threw. */
export interface Given {
  readonly token: string | null;
  readonly error?: unknown;
}

/** An instance. */
export interface Shared {
  readonly options: DuebridgeOptions & { readonly display: DisplayMode };
  readonly origin: string;
  /** The page of the partner. */
  readonly url: string;
  state: DuebridgeState;
  locale: string | undefined;
  appearance: Appearance | undefined;
  /** To the page, while there is one. */
  post: (message: ToPage) => void;
  focus: () => void;
  /** Takes the page away; there while something is mounted. */
  leave?: ((why: DuebridgeState) => void) | undefined;
  readonly language: () => string;
  readonly emit: <K extends keyof DuebridgeEvents>(event: K, value: DuebridgeEvents[K]) => void;
  readonly getToken: (why: TokenReason) => Promise<Given>;
}

/** One mount, from the call to the end of what it shows. */
export interface Mounting {
  /** For addEventListener: ends with the mount. */
  readonly listen: { readonly signal: AbortSignal };
  /** Runs later, unless the mount ends or the first screen is there. */
  readonly after: (ms: number, act: () => void) => void;
  /** The first screen is there. */
  readonly ready: () => void;
  readonly fail: (code: DuebridgeErrorCode, message: string, recoverable?: boolean) => void;
  /** The platform is there and does not show its page here. */
  readonly refused: () => void;
}
