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

/** The delays and the requests of a page that `wake()` cuts short. */
export interface Waiting {
  pause(ms: number): Promise<void>;
  /**
   * The result of `act`, or undefined when the network or the customer came back meanwhile: then a request from before may hang on
   * a connection that is dead, until its time limit. It is for the caller to ask again.
   */
  attempt<T>(act: () => Promise<T>): Promise<T | undefined>;
  wake(): void;
}

export function createWaiting(): Waiting {
  const wakers = new Set<() => void>();
  const attempt: Waiting['attempt'] = async (act) => {
    let wake = (): void => {};
    const woken = new Promise<undefined>((resolve) => (wake = () => resolve(undefined)));
    wakers.add(wake);
    try {
      return await Promise.race([woken, act()]);
    } finally {
      wakers.delete(wake);
    }
  };
  return {
    attempt,
    async pause(ms) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await attempt(() => new Promise((resolve) => (timer = setTimeout(resolve, ms))));
      clearTimeout(timer);
    },
    wake: () => wakers.forEach((wake) => wake()),
  };
}

/** The result of `awaited`; rejects when it takes longer than `ms`. */
export function within<T>(ms: number, awaited: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    setTimeout(reject, ms, new Error('timeout'));
    awaited.then(resolve, reject);
  });
}
