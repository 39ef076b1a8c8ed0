/** State shared by the parts of the SDK: one instance, and one mount of it. */
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

/** A token, or null with the error that the site's backend threw. */
export interface TokenResult {
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
  /** The port to the page, while connected. */
  post: (message: ToPage) => void;
  focus: () => void;
  /** Removes the page; set while something is mounted. */
  leave?: ((why: DuebridgeState) => void) | undefined;
  readonly language: () => string;
  readonly emit: <K extends keyof DuebridgeEvents>(event: K, value: DuebridgeEvents[K]) => void;
  readonly getToken: (why: TokenReason) => Promise<TokenResult>;
}

/** One mount, from the call until what it shows is removed. */
export interface Mounting {
  /** For addEventListener: aborts when the mount ends. */
  readonly listen: { readonly signal: AbortSignal };
  /** Runs later, unless the mount ends or the first screen is shown before. */
  readonly after: (ms: number, act: () => void) => void;
  /** The first screen is shown. */
  readonly ready: () => void;
  readonly fail: (code: DuebridgeErrorCode, message: string, recoverable?: boolean) => void;
  /** The platform is reachable but does not show its page here. */
  readonly refused: () => void;
}
