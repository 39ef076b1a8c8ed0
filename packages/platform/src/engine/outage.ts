/**
 * An outage of the database: whoever meets it waits here, one probe asks whether it is over, and all go on at once (LV8). It is logged
 * when it begins and when it ends, not once for each payment.
 */
import { messageOf, type Clock, type Database, type Log } from '@duebridge/runtime';

/** Between probes: how late the end of an outage is noticed at worst. */
const PROBE_MS = 250;

/** One database's outages. */
export class Outage {
  readonly #options: { readonly database: Database; readonly clock: Clock; readonly log: Log };
  #over: Promise<void> | undefined;

  constructor(options: { readonly database: Database; readonly clock: Clock; readonly log: Log }) {
    this.#options = options;
  }

  /** Resolves when the database answers again, at the earliest after one pause, or when `signal` is aborted. `cause` is what was met. */
  over(signal: AbortSignal, cause: unknown): Promise<void> {
    this.#over ??= this.#probe(signal, cause).finally(() => {
      this.#over = undefined;
    });
    return this.#over;
  }

  async #probe(signal: AbortSignal, cause: unknown): Promise<void> {
    const { clock, database, log } = this.#options;
    const from = clock.monotonic();
    log.error({ error: messageOf(cause) }, 'the database does not answer; payments wait for it');
    for (;;) {
      await clock.sleep(PROBE_MS * (0.8 + clock.random() * 0.4), signal);
      if (signal.aborted) return;
      try {
        await database.query('SELECT 1');
        break;
      } catch {
        // Still away.
      }
    }
    log.info({ ms: Math.round(clock.monotonic() - from) }, 'the database answers again');
  }
}
