/**
 * Delays between retries: longer each time, and cut short when the network or the customer is back.
 */

/** The first delay; each later one is longer by the factor, up to the last. */
export const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 15_000;
const WAIT_GROWTH = 1.6;

export function longer(wait: number): number {
  return Math.min(wait * WAIT_GROWTH, MAX_WAIT_MS);
}

/** The delays of a page; `wake()` ends the current one, if any. */
export interface Waiting {
  pause(ms: number): Promise<void>;
  wake(): void;
  /** Runs while something else than a pause should be woken. */
  during<T>(wake: () => void, act: () => Promise<T>): Promise<T>;
}

export function createWaiting(): Waiting {
  let wake: (() => void) | undefined;
  return {
    pause: (ms) =>
      new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      }),
    wake: () => wake?.(),
    async during(instead, act) {
      wake = instead;
      try {
        return await act();
      } finally {
        wake = undefined;
      }
    },
  };
}

/** The result of `awaited`; rejects when it takes longer than `ms`. */
export function within<T>(ms: number, awaited: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    setTimeout(reject, ms, new Error('timeout'));
    awaited.then(resolve, reject);
  });
}
