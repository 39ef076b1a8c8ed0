/** Work that a server repeats beside its answers. */
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

/** What a repetition runs on; it ends when `signal` aborts. */
export interface Repetition {
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/**
 * Repeats `work` with a pause of `everyMs` until the signal aborts, then resolves; never rejects. There is no pause after work that gives
 * true: there is more. Work that throws is repeated like any other, and only the first failure of a row is logged, as `failure`: an
 * outage is one line.
 */
export async function repeatedly(
  { clock, log, signal }: Repetition,
  everyMs: number,
  failure: string,
  work: () => Promise<boolean | void>,
): Promise<void> {
  let isFailing = false;
  while (!signal.aborted) {
    try {
      const isMore = await work();
      isFailing = false;
      if (isMore === true) continue;
    } catch (error) {
      if (!isFailing) log.warn({ error }, failure);
      isFailing = true;
    }
    await clock.sleep(everyMs, signal);
  }
}
