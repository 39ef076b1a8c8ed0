/** State shared by the parts of the SDK: one instance, and one mount of it. */
import type { ToPage } from '../messages.ts';
import type {
  Appearance,
  DisplayMode,
  DuebridgeErrorCode,
  DuebridgeEvents,
  DuebridgeOptions,
  DuebridgeState,
} from './types.ts';

/** An instance: the site's options, and what they became. */
export interface Shared extends Omit<DuebridgeOptions, 'locale' | 'appearance'> {
  readonly display: DisplayMode;
  readonly origin: string;
  /** The page of the partner. */
  readonly url: string;
  state: DuebridgeState;
  locale?: string | undefined;
  appearance?: Appearance | undefined;
  /** The port to the page, while connected. */
  post?: ((message: ToPage) => void) | undefined;
  focus?: (() => void) | undefined;
  /** Removes the page; a pending mount() rejects with the error. Set while something is mounted. */
  leave?: ((why: DuebridgeState, error?: Error) => void) | undefined;
  readonly emit: <K extends keyof DuebridgeEvents>(event: K, value: DuebridgeEvents[K]) => void;
}

/** One mount, from the call until what it shows is removed. */
export interface Mounting {
  /** Where: an element of the site, or its body under a dialog. */
  readonly place: HTMLElement;
  /** The promise of mount(). */
  readonly done: Promise<void>;
  /** For addEventListener: aborts when the mount ends. */
  readonly listen: { readonly signal: AbortSignal };
  /** Runs later, unless the mount ends or the first screen is shown before. */
  readonly after: (ms: number, act: () => void) => void;
  /** The first screen is shown. */
  readonly ready: () => void;
  /** The page did not come: with this error the mount ends. */
  readonly silent: (code: DuebridgeErrorCode) => void;
  /** The platform is reachable but does not show its page here. */
  readonly refused: () => void;
}
