/**
 * A run: what all its checks share, and the one memory of what was sent, seen and judged. Its target, clock and transport enter;
 * result.ts makes the report of it at its end.
 */
import { MACHINE_CLOCK, sleep, type Clock } from '../clock.ts';
import type { MakeDriver } from './drivers.ts';
import {
  Skipped,
  verdictOf,
  type CaseInfo,
  type ConfigProblem,
  type Found,
  type Profile,
  type Verdict,
} from './findings.ts';
import type { History } from './history.ts';
import { REQUEST_TIMEOUT_MS, Silent, Wire } from './http.ts';
import type { KnownFailure } from './known-failures.ts';
import type { Secret } from './target.ts';
import { Throttle } from './throttle.ts';

/** The pace of a real run; tests shorten it. */
const USUAL_PACE = {
  /** First and longest wait between two polls of one payment. */
  poll_first_ms: 150,
  poll_longest_ms: 2_000,
  /** P57: polls per second, and for how long. */
  burst_per_second: 10,
  burst_seconds: 10,
  /** P54: delay between two of the ten polls after the end. */
  after_end_ms: 100,
  /** How long a balance may lag behind a status that says succeeded. */
  balance_lag_ms: 2_000,
  /** Maximum wait for one answer. */
  request_timeout_ms: REQUEST_TIMEOUT_MS,
  /** How long a platform must send no call for a payment that has ended (C03, F27). */
  quiet_ms: 3_000,
  /** Maximum concurrent requests, bursts excluded. */
  at_once: 24,
};

/** The pace of the judge. */
export type Pace = Readonly<typeof USUAL_PACE>;

/** Progress of a run. */
export interface Progress {
  readonly done: number;
  readonly total: number;
  readonly check: string;
  readonly verdict: Verdict;
}

/** Options of a run, besides its target. */
export interface RunOptions {
  readonly profile?: Profile;
  /** Ids of the checks to run; all of the profile unless given. */
  readonly only?: readonly string[];
  readonly history?: History;
  readonly pace?: Partial<Pace>;
  /** The machine's clock unless given. */
  readonly clock?: Clock;
  /** Ends the run early; the report covers what was judged until then. */
  readonly signal?: AbortSignal;
  /** Of a partner: only puts and reads the payments of earlier runs again, whatever their age. */
  readonly recheck?: boolean;
  /** Makes a platform pay; by default the driver that the target file selects. */
  readonly driver?: MakeDriver;
  readonly onProgress?: (progress: Progress) => void;
  /** True to pass a run that was judged in part. */
  readonly allowPartial?: boolean;
  /** Checks that may fail until a day. */
  readonly expected?: readonly KnownFailure[];
}

/** The run was ended from outside: by its deadline or by the caller. */
class Stopped extends Error {
  override readonly name = 'Stopped';
}

/** A check that has ended. */
export interface Judged {
  readonly check: CaseInfo;
  readonly context: Found;
  /** Why it was not judged; undefined when it was. */
  readonly skipped: string | undefined;
  readonly duration_ms: number;
}

/** Maximum duration of a run in addition to the time that its payments may take; a typical run takes well under a minute. */
const RUN_DEADLINE_MS = 300_000;

/** What a run needs of any target. */
interface Target {
  /** PEM file of an additional trusted authority. */
  readonly ca_file?: string | undefined;
}

/** One run. Whoever makes it closes it. */
export class Run<T extends Target = Target> {
  readonly target: T;
  readonly cases: readonly CaseInfo[];
  readonly options: RunOptions;
  readonly profile: Profile;
  readonly pace: Pace;
  readonly clock: Clock;
  readonly wire: Wire;
  readonly throttle: Throttle;
  /** Why nothing more can be judged. */
  problem: ConfigProblem | undefined;
  /** Why the run was ended early. */
  stopped: string | undefined;
  readonly judged = new Map<string, Judged>();
  /** Checks in which the judge itself failed. */
  readonly judgeFailed: string[] = [];
  readonly startedAt: number;
  readonly started: number;
  readonly #stop = new AbortController();
  readonly #disarm: () => void;
  readonly #once = new Map<string, Promise<unknown>>();

  /** `payments_ms`: how long its payments may take. `secrets`: what no report may show. Throws TargetProblem for a bad ca_file or proxy. */
  constructor(
    target: T,
    cases: readonly CaseInfo[],
    options: RunOptions,
    { payments_ms, secrets }: { payments_ms: number; secrets: readonly Secret[] },
  ) {
    const { profile = 'contract', pace, clock = MACHINE_CLOCK, signal } = options;
    this.target = target;
    this.cases = cases;
    this.options = options;
    this.profile = profile;
    this.pace = { ...USUAL_PACE, ...pace };
    this.clock = clock;
    this.startedAt = clock.now();
    this.started = clock.elapsed();
    this.throttle = new Throttle(this.pace.at_once);
    this.wire = new Wire(target.ca_file, clock, this.#stop.signal);
    for (const secret of secrets) this.wire.hide(secret);
    const end = (why: string) => () => this.#stop.abort(new Stopped(why));
    const interrupt = end('the run was interrupted');
    const late = end('the run reached its deadline: the server answers too slowly');
    const cancel = clock.after(RUN_DEADLINE_MS + payments_ms, late);
    if (signal?.aborted === true) interrupt();
    signal?.addEventListener('abort', interrupt, { once: true });
    this.#disarm = () => {
      cancel();
      signal?.removeEventListener('abort', interrupt);
    };
  }

  now(): number {
    return this.clock.now();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms, this.#stop.signal);
  }

  /** Facts that several checks need and one run determines once. */
  once<F>(name: string, find: () => Promise<F>): Promise<F> {
    const known = (this.#once.get(name) as Promise<F> | undefined) ?? find();
    this.#once.set(name, known);
    return known;
  }

  /** Does what must work before anything is judged, and keeps the problem that it found. */
  async preflight(look: () => Promise<ConfigProblem | undefined>): Promise<void> {
    try {
      this.problem = await look();
    } catch (error) {
      this.#ended(error);
    }
  }

  /** Runs one check and keeps what it found, whatever happens in it. */
  async judge(check: CaseInfo, context: Found, job: () => Promise<void>): Promise<void> {
    const started = this.clock.elapsed();
    const skipped = await this.#skipped(check, context, job);
    const duration_ms = Math.round(this.clock.elapsed() - started);
    this.judged.set(check.id, { check, context, skipped, duration_ms });
    this.options.onProgress?.({
      done: this.judged.size,
      total: this.cases.length,
      check: check.id,
      verdict: verdictOf(context.all, skipped),
    });
  }

  /** Runs one check. Returns why it was not judged; undefined when it was. */
  async #skipped(
    check: CaseInfo,
    context: Found,
    job: () => Promise<void>,
  ): Promise<string | undefined> {
    try {
      if (this.problem !== undefined || this.stopped !== undefined) {
        return this.stopped ?? 'the run had stopped';
      }
      await job();
      return undefined;
    } catch (error) {
      if (error instanceof Skipped) {
        if (error.kind === 'wanting') context.wanting.push(error.message);
        return error.message;
      }
      if (error instanceof Silent || error instanceof Stopped) return this.#ended(error);
      const message = error instanceof Error ? error.message : String(error);
      this.judgeFailed.push(`${check.id}: ${message}`);
      return 'the judge failed with an internal error';
    }
  }

  /** Notes an error that ended the run. Returns it in words for a check; throws any other error. */
  #ended(error: unknown): string {
    if (error instanceof Silent) {
      this.problem ??= { sentence: error.message };
      return 'the server stopped answering';
    }
    if (!(error instanceof Stopped)) throw error;
    return (this.stopped ??= error.message);
  }

  async close(): Promise<void> {
    this.#disarm();
    await this.wire.close();
  }
}
