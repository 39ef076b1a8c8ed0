/**
 * An outage of the database, for one engine: whatever meets it waits here, a single probe checks whether it is over, and then all
 * resume at once (LV8). The log has one line when it begins and one when it ends, not one for each payment and each loop.
 *
 * A database whose disk is full, or that has become a standby, answers the probe and refuses the next write. Its outage ends and
 * begins anew four times a second; for the log it is one.
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
/** How long nothing must meet trouble before the log says that the outage is over. */
const CALM_MS = 2_000;
/** How often the log repeats that the outage goes on. */
const REPEAT_MS = 60_000;

/** What an outage needs; `signal` ends all waiting, when a stop begins. */
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
  /** The outage that the log has told: when it began, when a line about it was written, and when the database last answered again. */
  #told: { readonly from: number; at: number; answeredAt: number } | undefined;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  /** Resolves when the database answers again, or a stop begins. `cause` is the error that the caller met. */
  over(cause: unknown): Promise<void> {
    this.#over ??= this.#probe(cause).finally(() => {
      this.#over = undefined;
    });
    return this.#over;
  }

  /** For a loop that failed: waits as `over` does if the database is the reason, and otherwise logs `message`. */
  async met(error: unknown, message: string): Promise<void> {
    if (isDatabaseTrouble(error)) await this.over(error);
    else this.#options.log.warn({ error: messageOf(error) }, message);
  }

  async #probe(cause: unknown): Promise<void> {
    const { clock, database, log, signal } = this.#options;
    const now = clock.monotonic();
    const told = (this.#told ??= { from: now, at: -Infinity, answeredAt: now });
    if (now - told.at >= REPEAT_MS) {
      told.at = now;
      log.error({ error: messageOf(cause) }, 'the database does not answer; payments wait');
    }
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
    told.answeredAt = clock.monotonic();
    void this.#tellEnd(told.answeredAt);
  }

  /** Writes that the outage is over, unless somebody has met it again meanwhile. */
  async #tellEnd(answeredAt: number): Promise<void> {
    const { clock, log, signal } = this.#options;
    await clock.sleep(CALM_MS, signal);
    const told = this.#told;
    if (signal.aborted || this.#over !== undefined || told?.answeredAt !== answeredAt) return;
    this.#told = undefined;
    log.info({ ms: Math.round(answeredAt - told.from) }, 'the database answers again');
  }
}
