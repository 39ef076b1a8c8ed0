/** Waiting, as the engine does it: one alarm that is set again and again, and work that is waited for no longer than a limit. */
import type { Clock } from '@duebridge/runtime';

/** One alarm, which rings once at the earliest of the times that it was set to since it last rang. */
export type Alarm = ReturnType<typeof alarmOf>;

/** An alarm that calls `ring`; it is off. */
export function alarmOf(clock: Clock, ring: () => void) {
  let set: { readonly at: number; readonly cancel: AbortController } | undefined;
  const off = (): void => {
    set?.cancel.abort();
    set = undefined;
  };
  return {
    off,
    /** Rings at this monotonic time at the latest. */
    by(at: number): void {
      if (set !== undefined && set.at <= at) return;
      off();
      const cancel = new AbortController();
      set = { at, cancel };
      void (async () => {
        await clock.sleep(at - clock.monotonic(), cancel.signal);
        if (cancel.signal.aborted) return;
        set = undefined;
        ring();
      })();
    },
  };
}

/** Resolves when all the work is done, or after `ms`, whichever comes first. */
export async function within(clock: Clock, ms: number, work: readonly unknown[]): Promise<void> {
  const late = new AbortController();
  await Promise.race([Promise.all(work), clock.sleep(ms, late.signal)]);
  late.abort();
}
