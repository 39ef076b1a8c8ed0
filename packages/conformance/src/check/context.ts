/**
 * What every run and every check has: the target and the means of the run, facts that are found out once, and requests that wait out
 * a 429, and a 503 that says when to come again. Checks run in parallel, so that a server that takes two seconds a call costs that
 * time only once; at most `Pace.at_once` requests are in progress, and all of them wait.
 */
import { sleep, type Clock } from '../clock.ts';
import { Findings, type Profile } from './findings.ts';
import {
  asksToWait,
  type Exchange,
  type Outgoing,
  type Reply,
  type Wire,
  REQUEST_TIMEOUT_MS,
} from './http.ts';

/** The pace of the judge. Tests shorten it; a real run uses USUAL_PACE. */
export interface Pace {
  /** First and longest wait between two polls of one payment. */
  readonly poll_first_ms: number;
  readonly poll_longest_ms: number;
  /** P57: polls per second, and for how long. */
  readonly burst_per_second: number;
  readonly burst_seconds: number;
  /** P54: delay between two of the ten polls after the end. */
  readonly after_end_ms: number;
  /** How long a balance may lag behind a status that says succeeded. */
  readonly balance_lag_ms: number;
  /** Maximum wait for one answer. */
  readonly request_timeout_ms: number;
  /** How long a platform must send no call for a payment that has ended (C03, F28). */
  readonly quiet_ms: number;
  /** Maximum concurrent requests, bursts excluded. */
  readonly at_once: number;
  /** Maximum time that a run waits for payments to end; --recheck covers those that take longer. */
  readonly longest_wait_ms: number;
  /** How long a check may keep repeating one request sequentially (P25). */
  readonly repeat_ms: number;
}

export const USUAL_PACE: Pace = {
  poll_first_ms: 150,
  poll_longest_ms: 2_000,
  burst_per_second: 10,
  burst_seconds: 10,
  after_end_ms: 100,
  balance_lag_ms: 2_000,
  request_timeout_ms: REQUEST_TIMEOUT_MS,
  quiet_ms: 3_000,
  at_once: 24,
  longest_wait_ms: 300_000,
  repeat_ms: 15_000,
};

/** Longest Retry-After that the judge waits out; a longer one counts as a refusal. */
const LONGEST_RETRY_AFTER_MS = 10_000;

/** Delay after a refusal that does not say in seconds how long to wait. */
const UNSAID_WAIT_MS = 1_000;

/** How often one request is sent again after a 503 in a row: whoever is too busy for it each time refuses it. */
const MOST_BUSY = 5;

/** How many times longer an answer may take when many were requested in parallel. */
const BURST_PATIENCE = 4;

export type Headers = Readonly<Record<string, string>>;

/** What a run is made with. */
export interface Means {
  readonly profile: Profile;
  readonly wire: Wire;
  readonly pace: Pace;
  readonly clock: Clock;
  /** Aborts when the run ends early. */
  readonly stop: AbortSignal;
}

/** Shared by all checks of one run. */
export class Run<T> {
  readonly target: T;
  readonly profile: Profile;
  readonly wire: Wire;
  readonly pace: Pace;
  readonly clock: Clock;
  readonly stop: AbortSignal;
  readonly throttle: Throttle;
  /** Restarts the server under test; undefined when the target declares no way to do so. */
  restart: (() => Promise<void>) | undefined;
  readonly #once = new Map<string, Promise<unknown>>();

  constructor(target: T, { profile, wire, pace, clock, stop }: Means) {
    this.target = target;
    this.profile = profile;
    this.wire = wire;
    this.pace = pace;
    this.clock = clock;
    this.stop = stop;
    this.throttle = new Throttle(pace.at_once);
  }

  now(): number {
    return this.clock.now();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms, this.stop);
  }

  /** Facts that several checks need and one run determines once. */
  once<F>(name: string, find: () => Promise<F>): Promise<F> {
    const known = this.known<F>(name) ?? find();
    this.#once.set(name, known);
    return known;
  }

  /** Such a fact, if somebody has asked for it. */
  known<F>(name: string): Promise<F> | undefined {
    return this.#once.get(name) as Promise<F> | undefined;
  }
}

/** The context of one check: its findings, and its requests. */
export class Context<
  R extends Run<unknown>,
  At extends object = Reply | Exchange,
> extends Findings<At> {
  readonly run: R;
  readonly check: string;

  constructor(run: R, check: string) {
    super(run.profile);
    this.run = run;
    this.check = check;
  }

  get target(): R['target'] {
    return this.run.target;
  }

  /**
   * Sends a request unchanged, with no credential but `headers`, which are computed when it is sent, because it may be queued for
   * long. Waits out a 429, or a 503 with Retry-After, unless it is one of a burst: that is sent at once, regardless of others.
   */
  async send(out: Outgoing, headers: () => Promise<Headers> = async () => ({})): Promise<Reply> {
    const { run, check } = this;
    const patience = out.burst === true ? BURST_PATIENCE : 1;
    const send = async (): Promise<Reply> =>
      run.wire.send(check, {
        timeout_ms: run.pace.request_timeout_ms * patience,
        ...out,
        headers: { ...(await headers()), ...out.headers },
      });
    if (out.burst === true) return send();
    for (let busy = 0; ;) {
      const reply = await run.throttle.send(send, run);
      const wait_ms = retryAfterMs(reply) ?? UNSAID_WAIT_MS;
      const isBusy = reply.status === 429 || asksToWait(reply);
      if (reply.status !== undefined) {
        run.throttle.saw(isBusy, Math.min(wait_ms, LONGEST_RETRY_AFTER_MS), run.now());
      }
      const isOver = wait_ms > LONGEST_RETRY_AFTER_MS || run.throttle.refusesAlways;
      if (reply.status === 503) busy += 1;
      if (!isBusy || isOver || busy > MOST_BUSY) return reply;
    }
  }

  /**
   * Sends many requests in parallel while no other check sends. A server that processes them one by one may take long for the
   * last, and no other check should have to wait behind them.
   */
  burst(sends: readonly (() => Promise<Reply>)[]): Promise<readonly Reply[]> {
    return this.run.throttle.alone(() => Promise.all(sends.map((send) => send())));
  }

  /** Starts this many requests, one every `gap_ms`, without waiting for the previous answer. */
  async paced(
    count: number,
    gap_ms: number,
    send: () => Promise<Reply>,
  ): Promise<readonly Reply[]> {
    const sent: Promise<Reply>[] = [];
    for (let place = 0; place < count; place += 1) {
      if (place > 0) await this.run.sleep(gap_ms);
      const reply = send();
      // When the run ends during a pause, nobody awaits the pending requests; avoid an unhandled rejection.
      reply.catch(() => undefined);
      sent.push(reply);
    }
    return Promise.all(sent);
  }
}

/** The wait that a Retry-After asks for; undefined when it is not in seconds. */
function retryAfterMs(reply: Reply): number | undefined {
  const text = reply.headers['retry-after'];
  return text !== undefined && /^\d{1,6}$/.test(text) ? Number(text) * 1_000 : undefined;
}

/** Consecutive refusals to answer now, over all checks, after which they count as answers: five rounds of all jobs. */
const MAX_REFUSALS_IN_A_ROW = 120;

/** Allows this many concurrent jobs; a refusal to answer now delays all of them. */
export class Throttle {
  readonly #most: number;
  #under_way = 0;
  #refusals = 0;
  #until = 0;
  #alone: Promise<void> | undefined;
  readonly #waiting: (() => void)[] = [];
  readonly #idle: (() => void)[] = [];

  constructor(most: number) {
    this.#most = most;
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

  /** True once the server has refused to answer now for so long that a retry is pointless. */
  get refusesAlways(): boolean {
    return this.#refusals >= MAX_REFUSALS_IN_A_ROW;
  }

  /** Runs a job as soon as a place is free. */
  async send<T>(
    run: () => Promise<T>,
    time: { now(): number; sleep(ms: number): Promise<void> },
  ): Promise<T> {
    while (this.#alone !== undefined || this.#under_way >= this.#most) {
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
  saw(isBusy: boolean, wait_ms: number, now: number): void {
    if (isBusy) {
      this.#refusals += 1;
      this.#until = Math.max(this.#until, now + wait_ms);
    } else this.#refusals = 0;
  }
}
