/**
 * An outage of the database: every caller that meets it waits here, a single probe checks whether it is over, and then all resume
 * at once (LV8). The log has one line when it begins and one when it ends, not one for each payment.
 */
import { messageOf, type Clock, type Database, type Log } from '@duebridge/runtime';

/** Interval between probes; bounds how late the end of an outage is noticed. */
const PROBE_MS = 250;

/** One database's outages. */
export class Outage {
  readonly #options: { readonly database: Database; readonly clock: Clock; readonly log: Log };
  #over: Promise<void> | undefined;

  constructor(options: { readonly database: Database; readonly clock: Clock; readonly log: Log }) {
    this.#options = options;
  }

  /**
   * Resolves when the database answers again, at the earliest after one pause, or when `signal` is aborted. `cause` is the error
   * that the caller met.
   */
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
    log.info({ ms: Math.round(clock.monotonic() - from) }, 'database available again');
  }
}
