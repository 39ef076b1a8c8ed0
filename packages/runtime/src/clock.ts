/**
 * Injected time and randomness: nothing else in the project reads the system's clock, waits, or draws a random number, so a test
 * controls all three. `manualClock` of the testing entry point is the other implementation.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

/** A source of time and randomness. */
export interface Clock {
  /** Wall time in milliseconds since 1970; it may step either way (F87), so never subtract two of them. */
  now(): number;
  /** Milliseconds from an arbitrary start that never step back: for intervals and deadlines. */
  monotonic(): number;
  /**
   * Resolves after `ms` milliseconds, or at once when `signal` aborts (it never rejects; look at the signal). Any length works,
   * including those beyond a timer's 2^31 ms, which setTimeout would fire after 1 ms (F54). Zero, negative and NaN
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

async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  const until = performance.now() + (Number.isNaN(ms) ? 0 : ms);
  // A timer counts from the start of the event loop's turn, so it may fire early; then wait for the rest.
  for (;;) {
    const left = Math.max(0, Math.ceil(until - performance.now()));
    const timer = delay(Math.min(left, MAX_TIMER_MS), undefined, signal && { signal });
    await timer.catch(() => undefined);
    if (signal?.aborted || performance.now() >= until) return;
  }
}
