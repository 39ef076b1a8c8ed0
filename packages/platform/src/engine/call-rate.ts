/**
 * How many calls a second one worker sends to a partner: what it registered for (shares.ts), less for a while after the partner has
 * answered 429 to many calls (decision 180). A token bucket spreads the calls evenly. Times are monotonic milliseconds.
 */

/** The token bucket holds this fraction of a second: enough for an even stream, too little for a burst that would strain the partner. */
const BURST_S = 0.1;
/** 429 answers within this time count once: calls in flight when the first arrived do not slow us down further. */
const ONE_SLOWDOWN_MS = 500;
/** A partner that answers this many calls normally for each 429 has no limit that we exceed: the 429 concerns that payment. */
const NORMAL_FOR_EACH_429 = 10;
/** While fewer calls a second are sent, a 429 slows down none but its payment: each payment's own delay is enough. */
const SLOWED_FROM = 10;

/** The calls per second of one worker to one partner. */
export class CallRate {
  readonly #registered: () => number;
  #tokens = 0;
  #filledAt = 0;
  /** Calls per second after the last 429 that counted, and when that was. */
  #slowed: { readonly rate: number; readonly at: number } | undefined;
  /** Calls started within the second that begins at `from`, and in the one before. */
  #started = { from: 0, count: 0, before: 0 };
  /** Normal answers and 429s since the second that begins at `from`. */
  #answers = { from: 0, normal: 0, tooMany: 0 };

  /** `registered` returns the calls per second that this worker may send at most. */
  constructor(registered: () => number) {
    this.#registered = registered;
  }

  /** Calls per second now. */
  at(now: number): number {
    if (this.#slowed === undefined) return this.#registered();
    const seconds = (now - this.#slowed.at) / 1_000;
    // Additive at first. After a while without another 429 the limit was temporary, and the rate recovers faster.
    const grown = this.#slowed.rate * (1 + seconds / 10) + seconds + seconds ** 2 / 10;
    return Math.min(this.#registered(), grown);
  }

  /** When the next call may start; `now` if it may at once. */
  nextAt(now: number): number {
    const rate = this.at(now);
    const most = Math.max(1, rate * BURST_S);
    this.#tokens = Math.min(most, this.#tokens + ((now - this.#filledAt) / 1_000) * rate);
    this.#filledAt = now;
    return this.#tokens >= 1 ? now : now + ((1 - this.#tokens) / rate) * 1_000;
  }

  /** Counts a call that starts. */
  took(now: number): void {
    this.#tokens -= 1;
    const started = this.#started;
    if (now - started.from >= 1_000) {
      const before = now - started.from < 2_000 ? started.count : 0;
      this.#started = { from: now, count: 1, before };
    } else {
      started.count += 1;
    }
  }

  /** Counts a normal answer. */
  answeredNormally(now: number): void {
    this.#answersAt(now).normal += 1;
  }

  /**
   * 429 without a Retry-After: halve the rate that was actually sent, then raise it slowly. Not where few calls are sent or hardly any
   * gets a 429: then only those payments wait, each for its own delay.
   */
  slowDown(now: number): void {
    const answers = this.#answersAt(now);
    answers.tooMany += 1;
    if (answers.normal >= answers.tooMany * NORMAL_FOR_EACH_429) return;
    if (this.#slowed !== undefined && now - this.#slowed.at < ONE_SLOWDOWN_MS) return;
    const { from, count, before } = this.#started;
    const sent = now - from >= 1_000 ? count : Math.max(count, before);
    if (sent < SLOWED_FROM) return;
    this.#slowed = { rate: Math.min(this.at(now), sent) / 2, at: now };
  }

  /** The answers of this second and the one before. */
  #answersAt(now: number): { normal: number; tooMany: number } {
    const { from, normal, tooMany } = this.#answers;
    if (now - from >= 2_000) this.#answers = { from: now, normal: 0, tooMany: 0 };
    else if (now - from >= 1_000)
      this.#answers = { from: now, normal: normal / 2, tooMany: tooMany / 2 };
    return this.#answers;
  }
}
