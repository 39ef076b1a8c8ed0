/**
 * What every run and every check has: the target and the means of the run, facts that are found out once, and requests that wait out
 * a 429. Checks run in parallel, so that a server that takes two seconds a call costs that time only once; at most `Pace.at_once`
 * requests are in progress, and a server that answers 429 gets fewer requests and more time.
 */
import { sleep, type Clock } from '../clock.ts';
import { Findings, type Profile } from './findings.ts';
import type { Exchange, Outgoing, Reply, Wire } from './http.ts';
import type { Pace } from './pace.ts';
import { Throttle } from './throttle.ts';

/** Longest Retry-After that the judge waits out; a longer one counts as a refusal. */
const LONGEST_RETRY_AFTER_MS = 10_000;

/** Delay after a 429 that does not say in seconds how long to wait. */
const UNSAID_WAIT_MS = 1_000;

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
   * long. Waits out a 429, unless it is one of a burst: that is sent at once, regardless of others.
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
    for (;;) {
      const reply = await run.throttle.send(send, run);
      const wait_ms = retryAfterMs(reply) ?? UNSAID_WAIT_MS;
      run.throttle.saw(reply.status, Math.min(wait_ms, LONGEST_RETRY_AFTER_MS), run.now());
      const isOver = wait_ms > LONGEST_RETRY_AFTER_MS || run.throttle.refusesAlways;
      if (reply.status !== 429 || isOver) return reply;
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
