/** How many requests of a run are under way at once, and how a 429 slows all of them. */
import type { Reply } from './http.ts';

/** Answers of 429 in a row, over all checks, after which a server counts as one that refuses always. */
const MAX_REFUSALS_IN_A_ROW = 60;

/** Lets so many requests go at once, and fewer after each 429, which also holds back all others. */
export class Throttle {
  readonly #most: number;
  #allowed: number;
  #under_way = 0;
  #refusals = 0;
  #until = 0;
  #closed = false;
  #alone: Promise<void> = Promise.resolve();
  readonly #waiting: (() => void)[] = [];
  readonly #idle: (() => void)[] = [];

  constructor(most: number) {
    this.#most = most;
    this.#allowed = most;
  }

  /** Runs something alone: once nothing else is under way, and while nothing else begins. */
  async alone<T>(run: () => Promise<T>): Promise<T> {
    const before = this.#alone;
    let end: () => void = () => undefined;
    this.#alone = new Promise((resolve) => {
      end = resolve;
    });
    await before;
    this.#closed = true;
    try {
      while (this.#under_way > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
      return await run();
    } finally {
      this.#closed = false;
      end();
      for (const next of this.#waiting.splice(0)) next();
    }
  }

  /** True once the server has answered nothing but 429 for so long that repeating is of no use. */
  get refusesAlways(): boolean {
    return this.#refusals >= MAX_REFUSALS_IN_A_ROW;
  }

  /** Sends when there is room; `hold` keeps time as the run does. */
  async send(
    run: () => Promise<Reply>,
    now: () => number,
    hold: (ms: number) => Promise<void>,
  ): Promise<Reply> {
    while (this.#closed || this.#under_way >= this.#allowed) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    this.#under_way += 1;
    try {
      while (this.#until > now()) await hold(this.#until - now());
      return await run();
    } finally {
      this.#under_way -= 1;
      this.#waiting.shift()?.();
      if (this.#under_way === 0) for (const next of this.#idle.splice(0)) next();
    }
  }

  /** Told of every answer. */
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
