/**
 * Injected time and randomness: nothing else in the project reads the system's clock, waits, or draws a random number, so a test
 * controls all three. `manualClock` of the testing entry point is the other implementation.
 */
import { randomInt } from 'node:crypto';

/** A source of time and randomness. */
export interface Clock {
  /** Wall time in milliseconds since 1970; it may step either way (F87), so never subtract two of them. */
  now(): number;
  /** Milliseconds from an arbitrary start that never step back: for intervals and deadlines. */
  monotonic(): number;
  /**
   * Resolves after `ms` milliseconds, or at once when `signal` aborts (it never rejects; look at the signal). Any length works,
   * including those beyond a timer's 2^31 ms, which setTimeout would fire after 1 ms (F58). Zero, negative and NaN
   * resolve in the next turn of the event loop. A waiting sleep keeps the process alive.
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** A number in [0, 1): for jitter and sampling, never for secrets. */
  random(): number;
}

/** The longest delay a timer takes: beyond it setTimeout fires after 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The real clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep,
  random: () => randomInt(2 ** 32) / 2 ** 32,
};

/** A clock whose wall time is read once and carried on by the monotonic one: a step of the system's clock does not show in it (F87). */
export function steadyClock(clock: Clock): Clock {
  const aheadMs = clock.now() - clock.monotonic();
  return {
    now: () => clock.monotonic() + aheadMs,
    monotonic: () => clock.monotonic(),
    sleep: (ms, signal) => clock.sleep(ms, signal),
    random: () => clock.random(),
  };
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const until = performance.now() + (Number.isNaN(ms) ? 0 : ms);
    let timer: NodeJS.Timeout;
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const arm = (): void => {
      const left = until - performance.now();
      // A timer counts from the start of the event loop's turn, so it may fire early; then wait for the rest.
      if (left <= 0) done();
      else timer = setTimeout(arm, Math.min(Math.ceil(left), MAX_TIMER_MS));
    };
    signal?.addEventListener('abort', done);
    timer = setTimeout(arm, 0);
  });
}
