/**
 * Time that a test moves, in any engine: limits of minutes and hours are met in no time. Only Chromium's driver has a clock to move, so
 * a script in the page replaces it, before the page's own scripts (`World.before`): in the site and in the payment page, each its own.
 */
import { join } from 'node:path';
import { bundled } from './bundled.ts';
import type { Tab, Where } from './engines.ts';

let script: Promise<string> | undefined;

/** What `World.before` has to be for a page whose time can be moved. */
export const movableClock = (): Promise<string> =>
  (script ??= bundled(join(import.meta.dirname, 'site/clock.ts')));

interface ClockWindow {
  testClock: { tickAsync(ms: number): Promise<number>; jump(ms: number): number };
}

/** Lets `ms` milliseconds pass in a page, with everything that is due meanwhile. */
export async function pass(tab: Tab, where: Where, ms: number): Promise<void> {
  await tab.run(
    where,
    async (moved) => {
      await (window as unknown as ClockWindow).testClock.tickAsync(moved);
    },
    ms,
  );
}

/** A device that slept for `ms` milliseconds wakes: what was due meanwhile runs now, once. */
export async function wakeAfter(tab: Tab, where: Where, ms: number): Promise<void> {
  await tab.run(
    where,
    (slept) => {
      (window as unknown as ClockWindow).testClock.jump(slept);
    },
    ms,
  );
}
