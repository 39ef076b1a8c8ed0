/**
 * Calls that must be answered: asked again, with growing delays, until they are. The network or the customer coming back cuts a delay
 * short, and gives up a request that may hang on a connection that is dead.
 */
import { callError, type CallError } from './api.ts';

/** The first delay; each later one is longer by the factor, up to the last. */
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 15_000;
const WAIT_GROWTH = 1.6;
/** Number of answers of passing trouble before a call is given up; a lost network never ends one. */
const MAX_FAULTS = 3;

export type Waiting = ReturnType<typeof createWaiting>;

/** `connection` is told of each request that got no answer (true), and of each that got one. */
export function createWaiting(connection: (lost: boolean) => void) {
  const wakers = new Set<() => void>();
  /** What `act` gives, or undefined when the page is woken before. */
  const attempt = async <T>(act: () => Promise<T>): Promise<{ readonly value: T } | undefined> => {
    let wake = (): void => {};
    const woken = new Promise<undefined>((resolve) => (wake = () => resolve(undefined)));
    wakers.add(wake);
    try {
      return await Promise.race([woken, act().then((value) => ({ value }))]);
    } finally {
      wakers.delete(wake);
    }
  };
  const pause = async (ms: number): Promise<void> => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    await attempt(() => new Promise<void>((resolve) => (timer = setTimeout(resolve, ms))));
    clearTimeout(timer);
  };
  return {
    pause,
    /**
     * The answer to `act`, which may be asked any number of times: also while an earlier request is open. Throws CallError for an answer
     * that another try does not change (`isFinal`), by default any that is not passing trouble, and passing trouble only so often.
     */
    async persist<T>(act: () => Promise<T>, isFinal?: (failed: CallError) => boolean): Promise<T> {
      let faults = 0;
      for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * WAIT_GROWTH, MAX_WAIT_MS)) {
        try {
          const answer = await attempt(act);
          // Woken: asked again at once.
          if (!answer) continue;
          connection(false);
          return answer.value;
        } catch (error) {
          const failed = callError(error);
          if (failed.wire === 'network') connection(true);
          else if (isFinal?.(failed) ?? (!isPassing(failed) || ++faults >= MAX_FAULTS))
            throw failed;
          await pause(Math.min(Math.max(failed.retryAfterMs ?? 0, wait), MAX_WAIT_MS));
        }
      }
    },
    wake: (): void => wakers.forEach((wake) => wake()),
  };
}

/** Trouble of the platform or the biller that may be over in a moment. */
const isPassing = ({ code, status }: CallError): boolean =>
  (code === 'internal' || code === 'partner_unreachable') && status >= 429;
