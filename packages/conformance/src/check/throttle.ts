/** Limits how many jobs run at once: the requests of a run, and the faults that are judged side by side. */

/** Consecutive refusals to answer now, over all checks, after which they count as answers: five rounds of all jobs. */
const MAX_REFUSALS_IN_A_ROW = 120;

/** Allows this many concurrent jobs; a refusal to answer now delays all of them. */
export class Throttle {
  #free: number;
  #refusals = 0;
  #until = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most;
  }

  /** True once the server has refused to answer now for so long that a retry is pointless. */
  get refusesAlways(): boolean {
    return this.#refusals >= MAX_REFUSALS_IN_A_ROW;
  }

  /** Runs a job as soon as a place is free. */
  async send<T>(
    run: () => Promise<T>,
    time: { now(): number; sleep(ms: number): Promise<void> },
  ): Promise<T> {
    while (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#free -= 1;
    try {
      while (this.#until > time.now()) await time.sleep(this.#until - time.now());
      return await run();
    } finally {
      this.#free += 1;
      this.#waiting.shift()?.();
    }
  }

  /** Called with every answer. `wait_ms`: how long it asks to wait, if it does. */
  saw(wait_ms: number | undefined, now: number): void {
    this.#refusals = wait_ms === undefined ? 0 : this.#refusals + 1;
    this.#until = Math.max(this.#until, now + (wait_ms ?? 0));
  }
}
