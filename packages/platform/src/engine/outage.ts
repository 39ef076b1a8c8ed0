/**
 * An outage of the database, for one engine: whatever meets it waits here, a single probe checks whether it is over, and then all
 * resume at once (LV8). The log has one line when it begins and one when it ends, not one for each payment and each loop.
 */
import {
  isDatabaseTrouble,
  messageOf,
  type Clock,
  type Database,
  type Log,
} from '@duebridge/runtime';

/** Interval between probes; bounds how late the end of an outage is noticed. */
const PROBE_MS = 250;

/** What an outage needs; `signal` ends the probing, when the engine stops. */
interface OutageOptions {
  readonly database: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** One database's outages. */
export class Outage {
  readonly #options: OutageOptions;
  #over: Promise<void> | undefined;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the database answers again, at the earliest after one pause, or when `signal` is aborted. `cause` is the error
   * that the caller met.
   */
  async over(signal: AbortSignal, cause: unknown): Promise<void> {
    this.#over ??= this.#probe(cause).finally(() => {
      this.#over = undefined;
    });
    if (signal.aborted) return;
    const aborted = Promise.withResolvers<void>();
    const abort = (): void => aborted.resolve();
    signal.addEventListener('abort', abort);
    await Promise.race([this.#over, aborted.promise]);
    signal.removeEventListener('abort', abort);
  }

  /** For a loop that failed: waits as `over` does if the database is the reason, and otherwise logs `message`. */
  async met(signal: AbortSignal, error: unknown, message: string): Promise<void> {
    if (isDatabaseTrouble(error)) await this.over(signal, error);
    else this.#options.log.warn({ error: messageOf(error) }, message);
  }

  async #probe(cause: unknown): Promise<void> {
    const { clock, database, log, signal } = this.#options;
    const from = clock.monotonic();
    log.error({ error: messageOf(cause) }, 'the database does not answer; payments wait');
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
