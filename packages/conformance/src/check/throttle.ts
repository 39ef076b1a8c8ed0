/** Limits the jobs of a run that are in progress at once, such as requests, and slows all of them down after a 429. */

/** Consecutive 429 answers, over all checks, after which the server counts as refusing everything. */
const MAX_REFUSALS_IN_A_ROW = 60;

/** Allows this many concurrent jobs, and fewer after each 429, which also delays all others. */
export class Throttle {
  readonly #most: number;
  #allowed: number;
  #under_way = 0;
  #refusals = 0;
  #until = 0;
  #alone: Promise<void> | undefined;
  readonly #waiting: (() => void)[] = [];
  readonly #idle: (() => void)[] = [];

  constructor(most: number) {
    this.#most = most;
    this.#allowed = most;
  }

  /** Runs something exclusively: after everything in progress has finished, and before anything else starts. */
  async alone<T>(run: () => Promise<T>): Promise<T> {
    while (this.#alone !== undefined) await this.#alone;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#alone = promise;
    try {
      while (this.#under_way > 0) await new Promise<void>((idle) => this.#idle.push(idle));
      return await run();
    } finally {
      this.#alone = undefined;
      resolve();
      for (const next of this.#waiting.splice(0)) next();
    }
  }

  /** True once the server has answered nothing but 429 for so long that a retry is pointless. */
  get refusesAlways(): boolean {
    return this.#refusals >= MAX_REFUSALS_IN_A_ROW;
  }

  /** Runs a job as soon as a place is free. */
  async send<T>(
    run: () => Promise<T>,
    time: { now(): number; sleep(ms: number): Promise<void> },
  ): Promise<T> {
    while (this.#alone !== undefined || this.#under_way >= this.#allowed) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#under_way += 1;
    try {
      while (this.#until > time.now()) await time.sleep(this.#until - time.now());
      return await run();
    } finally {
      this.#under_way -= 1;
      this.#waiting.shift()?.();
      if (this.#under_way === 0) for (const next of this.#idle.splice(0)) next();
    }
  }

  /** Called with every answer. */
  saw(status: number | undefined, wait_ms: number, now: number): void {
    if (status === 429) {
      this.#refusals += 1;
      this.#until = Math.max(this.#until, now + wait_ms);
      this.#allowed = Math.max(1, Math.floor(this.#allowed / 2));
    } else if (status !== undefined) {
      this.#refusals = 0;
      this.#allowed = Math.min(this.#most, this.#allowed + 0.2);
      this.#waiting.shift()?.();
    }
  }
}
