/**
 * The one source of time of the judge and of the scripted partner: every reading, wait and deadline goes through a clock that is handed in,
 * so that tests can run them in time of their own. The timeouts that remain real are those inside the HTTP client and the servers.
 */

/** Tells the time and waits. */
export interface Clock {
  /** The time of day, in milliseconds since 1970. */
  now(): number;
  /** Milliseconds since an arbitrary moment, for durations: unlike `now` it never jumps. */
  elapsed(): number;
  /** Calls `run` once, `ms` from now. Returns the function that cancels the call. */
  after(ms: number, run: () => void): () => void;
}

/** Longest timer: Node fires longer ones immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clock of this machine. */
export const MACHINE_CLOCK: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after(ms, run) {
    const timer = setTimeout(run, Math.min(ms, MAX_TIMER_MS));
    return () => clearTimeout(timer);
  },
};

/** Waits; rejects with the signal's reason as soon as it aborts. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const abort = (): void => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener('abort', abort);
      resolve();
    });
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** Waits, or returns early when the signal aborts. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return sleep(clock, ms, signal).catch(() => undefined);
}

/** A signal that aborts after `ms`; `cancel` releases its timer. */
export function deadline(clock: Clock, ms: number): { signal: AbortSignal; cancel: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, cancel: clock.after(ms, () => controller.abort()) };
}
