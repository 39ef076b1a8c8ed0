/**
 * Runs the checks of a target: pre-flight, then each check in its own context, stage by stage; check/result-book.ts makes the report.
 * A run ends whatever the server does: each request has a deadline, a server that stops answering ends the run, and the run as a
 * whole has a deadline.
 */
import {
  CALLER_CASES,
  PARTNER_CASES,
  PLATFORM_CASES,
  SCENARIO_CASES,
  TOKEN_CASES,
} from './cases/index.ts';
import { BALANCE_CHECK, readBalancesBefore } from './cases/balance.ts';
import { CallerContext, CallerRun } from './check/caller-context.ts';
import type { CallerCase, CallerStage, PartnerCase, Stage } from './check/check.ts';
import type { MakeDriver } from './check/driver.ts';
import { Findings, Skipped, type Profile } from './check/findings.ts';
import { memoryHistory, type History } from './check/history.ts';
import { Wire } from './check/http.ts';
import { USUAL_PACE, type Pace } from './check/pace.ts';
import { PartnerContext } from './check/partner-context.ts';
import { PartnerRun } from './check/partner-run.ts';
import { partnerPreflight } from './check/preflight.ts';
import { ResultBook, Stopped, type ResultOptions } from './check/result-book.ts';
import { addUp, choose } from './check/selection.ts';
import {
  secretsOf,
  TargetProblem,
  type PartnerTarget,
  type PlatformTarget,
} from './check/target.ts';
import { platformPreflight, TokenContext, TokenRun } from './check/token-context.ts';
import { MACHINE_CLOCK, type Clock } from './clock.ts';
import type { RunReport } from './report/run-report.ts';

export type { CheckResult, Progress, RunReport } from './report/run-report.ts';

/** Maximum duration of a whole run in addition to the declared window; a typical run takes well under a minute. */
const RUN_DEADLINE_MS = 300_000;

/**
 * How many times the declared window can delay a run: once for all payments together, and once for each of the two that confirm
 * an excess (P62).
 */
const WINDOWS_IN_A_ROW = 3;

/** Options of either kind of run, besides its target. */
export interface RunOptions extends ResultOptions {
  readonly profile?: Profile;
  /** Ids of the checks to run; all of the profile unless given. */
  readonly only?: readonly string[];
  readonly history?: History;
  readonly pace?: Partial<Pace>;
  /** The machine's clock unless given. */
  readonly clock?: Clock;
  /** Ends the run early; the report covers what was judged until then. */
  readonly signal?: AbortSignal;
}

/** Options of a run against a partner. */
export interface PartnerRunOptions extends RunOptions {
  /** Only reads the payments of earlier runs again. */
  readonly recheck?: boolean;
  /** Restarts the server under test (P66). */
  readonly restart?: () => Promise<void>;
}

/** Options of a run against a platform. */
export interface PlatformRunOptions extends RunOptions {
  /** Makes the platform pay; by default the driver that the target file selects. */
  readonly driver?: MakeDriver;
  /** Restarts the platform under test (C14). */
  readonly restart?: () => Promise<void>;
}

/** The checks that look at payments of earlier runs. */
export const RECHECKS: readonly string[] = ['P35', 'P50', 'P54'];

/** Judges a partner's server. Never throws because of the server; throws UsageProblem for an unknown check. */
export async function judgePartner(
  target: PartnerTarget,
  options: PartnerRunOptions = {},
): Promise<RunReport> {
  const profile = options.profile ?? 'contract';
  const clock = options.clock ?? MACHINE_CLOCK;
  const cases = choose(PARTNER_CASES, profile, options.recheck === true ? RECHECKS : options.only);
  const pace = { ...USUAL_PACE, ...options.pace };
  const window_ms = Math.min((target.terminal_window_seconds ?? 60) * 1_000, pace.longest_wait_ms);
  const stop = stopper(RUN_DEADLINE_MS + WINDOWS_IN_A_ROW * window_ms, options.signal, clock);
  const wire = openWire(target.ca_file, clock, stop.signal);
  for (const secret of secretsOf(target.authentication)) wire.hide(secret);
  for (const [name, value] of Object.entries(target.cancel?.headers ?? {})) {
    if (/auth|key|token|secret|cookie/i.test(name)) {
      wire.hide({ value, name: 'CANCEL_CREDENTIAL' });
    }
  }
  const history = options.history ?? memoryHistory();
  const run = new PartnerRun({
    target,
    profile,
    wire,
    history,
    pace,
    clock,
    stop: stop.signal,
    recheck: options.recheck ?? false,
    restart: options.restart,
  });
  const book = new ResultBook(options, wire, cases.length, clock);
  try {
    book.problem = await partnerPreflight(run).catch((error: unknown) => book.ended(error));
    if (book.problem === undefined) await runPartnerCases(run, cases, book);
    history.add(
      run.intents.flatMap(({ intent, at }) => {
        const record = run.records.get(intent.platform_payment_id);
        return record === undefined
          ? []
          : {
              base_url: target.base_url,
              biller_id: target.biller_id,
              intent,
              made_at: new Date(at).toISOString(),
              record,
            };
      }),
    );
  } finally {
    stop.end();
    await wire.close();
  }
  const { spending_cap_in_cents: cap } = target;
  const report = book.report({
    subject: 'partner',
    target: {
      base_url: target.base_url,
      authentication:
        target.authentication.method === 'key'
          ? `static key in the header ${target.authentication.header}`
          : 'OAuth 2.0 client credentials',
      biller_id: target.biller_id,
      account_id: target.accounts.payable,
    },
    profile,
    order: cases,
    money: {
      ...addUp(cases, target),
      ...(cap === undefined ? {} : { cap_in_cents: cap }),
      asked_in_cents: run.asked_in_cents,
    },
  });
  keepFailed(history, target.base_url, report, options.only);
  return report;
}

/**
 * Judges a platform: its token endpoint (T) and, when the target has a `caller`, how it calls a partner (C). `driver` makes it
 * pay; the flow of decision 31 unless given.
 */
export async function judgePlatform(
  target: PlatformTarget,
  options: PlatformRunOptions = {},
): Promise<RunReport> {
  const profile = options.profile ?? 'contract';
  const clock = options.clock ?? MACHINE_CLOCK;
  const cases = choose(PLATFORM_CASES, profile, options.only);
  const stop = stopper(RUN_DEADLINE_MS * 2, options.signal, clock);
  const wire = openWire(target.ca_file, clock, stop.signal);
  wire.hide({ value: target.api_key, name: 'API_KEY' });
  if (target.other_client !== undefined) {
    wire.hide({ value: target.other_client.api_key, name: 'OTHER_API_KEY' });
  }
  const book = new ResultBook(options, wire, cases.length, clock);
  const pace = { ...USUAL_PACE, ...options.pace };
  const run = new TokenRun({
    target,
    profile,
    wire,
    pace,
    clock,
    stop: stop.signal,
  });
  const history = options.history ?? memoryHistory();
  let caller: CallerRun | undefined;
  try {
    if (target.has_token_endpoint) {
      book.problem = await platformPreflight(run).catch((error: unknown) => book.ended(error));
    }
    if (book.problem === undefined) {
      for (const one of TOKEN_CASES.filter((one) => cases.includes(one))) {
        const context = new TokenContext(run, one.id);
        await book.judge(one, context, async () => {
          if (!target.has_token_endpoint) {
            throw new Skipped('the target declares no token endpoint (base_url, client_id)');
          }
          await one.run(context);
        });
      }
      const calls = [...CALLER_CASES, ...SCENARIO_CASES].filter((one) => cases.includes(one));
      if (calls.length > 0 && target.caller !== undefined) {
        const opened = await CallerRun.open(run, target.caller, options.driver).catch(
          (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
        );
        if (opened instanceof Error) {
          const { host, port } = target.caller;
          const isNamed = opened instanceof TargetProblem;
          book.problem ??= {
            sentence: isNamed
              ? opened.message
              : `The scripted partner cannot listen on ${host}:${port} (${opened.message}): free the port, or fix caller.host, caller.port or caller.tls.`,
          };
        } else caller = opened;
      }
      if (caller !== undefined) caller.restart = options.restart;
      await (caller === undefined
        ? judgeNoCaller(calls, profile, book)
        : runCallerCases(caller, calls, book));
    }
  } finally {
    stop.end();
    await caller?.close();
    await wire.close();
  }
  const report = book.report({
    subject: 'platform',
    target: {
      base_url: target.base_url,
      authentication: `client ${target.client_id}`,
      ...(target.biller_id === undefined ? {} : { biller_id: target.biller_id }),
      ...(target.account_id === undefined ? {} : { account_id: target.account_id }),
    },
    profile,
    order: cases,
  });
  keepFailed(history, target.base_url, report, options.only);
  return report;
}

/** Records that the target does not let the judge see how the platform calls. */
async function judgeNoCaller(
  cases: readonly CallerCase[],
  profile: Profile,
  book: ResultBook,
): Promise<void> {
  for (const one of cases) {
    await book.judge(one, new Findings(profile), async () => {
      throw new Skipped(
        'the target declares no "caller", which describes how the scripted partner is registered with the platform',
      );
    });
  }
}

/** Checks whose faults affect only their own payments run in parallel. */
async function runCallerCases(
  run: CallerRun,
  cases: readonly CallerCase[],
  book: ResultBook,
): Promise<void> {
  let finish = (): void => undefined;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const verdicts: Promise<void>[] = [];
  /** Resolves when the check has made its payments; one with `atEnd` gets its verdict after all others. */
  const judge = (one: CallerCase): Promise<void> => {
    const context = new CallerContext(run, one.id);
    return new Promise((resolve, reject) => {
      const verdict = book.judge(one, context, async () => {
        await one.run(context);
        if (one.atEnd === undefined) return;
        resolve();
        await finished;
        await one.atEnd(context);
      });
      verdicts.push(verdict);
      verdict.then(resolve, reject);
    });
  };
  for (const stage of ['first', 'main', 'alone', 'last'] satisfies CallerStage[]) {
    const some = cases.filter((one) => (one.stage ?? 'main') === stage);
    run.begin();
    if (stage === 'main') {
      await Promise.all(some.map(judge));
      continue;
    }
    for (const one of some) {
      run.begin();
      await judge(one);
    }
  }
  finish();
  await Promise.all(verdicts);
}

async function runPartnerCases(
  run: PartnerRun,
  cases: readonly PartnerCase[],
  book: ResultBook,
): Promise<void> {
  const stage = (name: Stage): readonly PartnerCase[] =>
    cases.filter(({ stage }) => (stage ?? 'main') === name);
  const side = async (checks: readonly PartnerCase[]): Promise<void> => {
    const sent = new Barrier(checks.length);
    await Promise.all(
      checks.map(async (check) => {
        const context = new PartnerContext(run, check.id);
        const once = sent.turn();
        await book.judge(check, context, async () => {
          try {
            const unfit = check.unfit?.(run.target);
            if (unfit !== undefined) throw new Skipped(unfit);
            if (run.recheck && !RECHECKS.includes(check.id)) throw new Skipped('nothing is paid');
            await check.run(context);
          } finally {
            once();
          }
          if (check.atEnd === undefined) return;
          await sent.all;
          await check.atEnd(context);
        });
        once();
      }),
    );
  };
  await side(stage('first'));
  const measured = cases.some(({ id, atEnd }) => atEnd !== undefined || id === BALANCE_CHECK);
  if (measured && book.problem === undefined) {
    await readBalancesBefore(new PartnerContext(run, BALANCE_CHECK)).catch((error: unknown) => {
      book.problem = book.ended(error);
    });
  }
  await side(stage('main'));
  await side(stage('last'));
  await side(stage('restart'));
  await side(stage('final'));
}

/** Resolves when each of this many participants has taken its turn. */
class Barrier {
  readonly all: Promise<void>;
  #open: number;
  #done: () => void = () => undefined;

  constructor(count: number) {
    this.#open = count;
    this.all = new Promise((resolve) => {
      this.#done = resolve;
    });
  }

  /** One turn; a second call has no effect. */
  turn(): () => void {
    let taken = false;
    return () => {
      if (taken) return;
      taken = true;
      this.#open -= 1;
      if (this.#open === 0) this.#done();
    };
  }
}

/** Records which checks failed, for `--failed`; a run of some checks only updates those. */
function keepFailed(
  history: History,
  base_url: string,
  report: RunReport,
  only: readonly string[] | undefined,
): void {
  const ran = new Set(report.results.map(({ id }) => id));
  const kept = only === undefined ? [] : history.lastFailed(base_url).filter((id) => !ran.has(id));
  const failed = report.results
    .filter(({ verdict }) => verdict === 'FAIL' || verdict === 'WARN')
    .map(({ id }) => id);
  if (report.results.length > 0) history.keepFailed(base_url, [...kept, ...failed].sort());
}

const DEADLINE = 'the run reached its deadline: the server answers too slowly';

/** A signal that aborts after this time, or when the caller's own signal does. */
function stopper(
  ms: number,
  signal: AbortSignal | undefined,
  clock: Clock,
): { readonly signal: AbortSignal; readonly end: () => void } {
  const controller = new AbortController();
  const interrupt = (): void => controller.abort(new Stopped('the run was interrupted'));
  const cancel = clock.after(ms, () => controller.abort(new Stopped(DEADLINE)));
  if (signal?.aborted === true) interrupt();
  signal?.addEventListener('abort', interrupt, { once: true });
  return {
    signal: controller.signal,
    end() {
      cancel();
      signal?.removeEventListener('abort', interrupt);
    },
  };
}

function openWire(ca_file: string | undefined, clock: Clock, stop: AbortSignal): Wire {
  return new Wire({ ...(ca_file === undefined ? {} : { ca_file }), clock, stop });
}
