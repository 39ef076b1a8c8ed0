/**
 * Runs the checks and builds the report: pre-flight, then each check in its own context, then one report value from which every
 * report form is printed.
 * A run ends whatever the server does: each request has a deadline, a server that stops answering ends the run, and the run as a
 * whole has a deadline. A run never passes when it checked nothing, or when it left out checks that the target file could have
 * enabled.
 * One file because the stages of a run share its report, its deadlines and its reasons to stop early.
 */
import { CLAUSES, type ClauseId } from '@duebridge/contract';
import { MACHINE_CLOCK, type Clock } from './clock.ts';
import { Findings, Skipped, type Finding, type Profile, type Verdict } from './check/findings.ts';
import { Silent } from './check/http.ts';
import type { CallerCase, CallerStage, CaseInfo, PartnerCase, Stage } from './check/check.ts';
import {
  CALLER_CASES,
  PARTNER_CASES,
  PLATFORM_CASES,
  SCENARIO_CASES,
  TOKEN_CASES,
} from './cases/index.ts';
import { CallerContext, CallerRun } from './check/caller-context.ts';
import type { MakeDriver } from './check/driver.ts';
import { isByHand } from './check/drivers.ts';
import { curl } from './report/curl.ts';
import { Wire, type Exchange } from './check/http.ts';
import { BALANCE_CHECK, readBalancesBefore } from './cases/balance.ts';
import { KIT_VERSION } from './version.ts';
import { excuse, type KnownFailure } from './check/known-failures.ts';
import { memoryHistory, type History } from './check/history.ts';
import { PartnerContext, PartnerRun } from './check/partner-context.ts';
import { USUAL_PACE, type Pace } from './check/pace.ts';
import { addUp, choose, type PlannedMoney } from './check/selection.ts';
import { partnerPreflight, type ConfigProblem } from './check/preflight.ts';
import { secretsOf, type PartnerTarget, type PlatformTarget } from './check/target.ts';
import { platformPreflight, TokenContext, TokenRun } from './check/token-context.ts';

/** Maximum duration of a whole run in addition to the declared window; a typical run takes well under a minute. */
const RUN_DEADLINE_MS = 300_000;

/** Maximum time that a person may take to make all payments of a run. */
const BY_HAND_DEADLINE_MS = 3 * 60 * 60_000;

/**
 * How many times the declared window can delay a run: once for all payments together, and once for each of the two that confirm
 * an excess (P62).
 */
const WINDOWS_IN_A_ROW = 3;

/** Maximum duration of a quick run, reports included. */
const QUICK_DEADLINE_MS = 55_000;

/** How long a quick run waits for payments to end. */
const QUICK_WAIT_MS = 20_000;

/** The checks of a quick run: access control, exact amounts that move once, and how a payment ends. */
export const QUICK_CHECKS: readonly string[] = (
  'P01 P02 P03 P04 P05 P10 P13 P20 P21 P22 P23 P24 P25 P27 P28 P30 P32 P33 P34 P36 P40 P41 ' +
  'P50 P51 P52 P55 P56 P59 P60 P64'
).split(' ');

/** A finding as reports show it. */
export interface ReportedFinding {
  readonly severity: 'must' | 'should';
  readonly expected: string;
  readonly got: string;
  /** The rule that it breaks, with its text. */
  readonly clause: ClauseId;
  readonly rule: string;
  readonly likely_cause: string;
  /** Number of the exchange that shows it. */
  readonly exchange?: number;
  /** The command that reproduces it, secrets masked. */
  readonly curl?: string;
}

/** The result of one check. */
export interface CheckResult {
  readonly id: string;
  readonly title: string;
  readonly clauses: readonly ClauseId[];
  readonly decisions: readonly number[];
  readonly severity: 'must' | 'should';
  readonly verdict: Verdict;
  readonly sends: string;
  readonly expects: string;
  readonly likely_cause: string;
  readonly findings: readonly ReportedFinding[];
  readonly notes: readonly string[];
  /** Why it was not judged. */
  readonly skipped?: string;
  /** What the target must declare so that it, or the rest of it, can be judged. */
  readonly wanting?: readonly string[];
  /** How much was tried, where that depends on the server. */
  readonly tried?: string;
  readonly duration_ms: number;
  /** How many requests it sent. */
  readonly requests: number;
  /** Number of an exchange that illustrates the check, set also when it passed. */
  readonly shown?: number;
  /** Set when its failure is expected, with owner and deadline. */
  readonly excused?: KnownFailure;
}

/** A broken rule of the interface, listed once for all checks that found it. */
export interface BrokenClause {
  readonly clause: ClauseId;
  readonly rule: string;
  readonly severity: 'must' | 'should';
  readonly checks: readonly string[];
  readonly expected: string;
  readonly got: string;
  readonly curl?: string;
}

/** A whole run. The JSON report is this value. */
export interface RunReport {
  readonly tool: 'duebridge conform';
  readonly version: 2;
  /** The version of this kit. */
  readonly kit_version: string;
  readonly subject: 'partner' | 'platform';
  readonly target: {
    readonly base_url: string;
    readonly authentication: string;
    readonly biller_id?: string;
    readonly account_id?: string;
  };
  readonly profile: Profile;
  readonly started_at: string;
  readonly duration_ms: number;
  /** Set for a quick run: the checks that it left out. */
  readonly left_out?: readonly string[];
  /** Set when the run was ended early: the reason. */
  readonly stopped?: string;
  /**
   * passed; failed: a must was broken; partial: what was judged holds, but some could not be judged for want of
   * something that the target file can declare, or the run was stopped; config: nothing could be judged;
   * nothing: zero checks ran.
   */
  readonly verdict: 'passed' | 'failed' | 'partial' | 'config' | 'nothing';
  /** 0, 1, 2 or 3 (decision 30). */
  readonly exit_code: 0 | 1 | 2 | 3;
  /** Set when the verdict is config: the one sentence that fixes it. */
  readonly config?: {
    readonly sentence: string;
    readonly exchange?: number;
    readonly curl?: string;
  };
  readonly counts: Readonly<Record<Verdict, number>>;
  readonly money?: PlannedMoney & {
    readonly cap_in_cents?: number;
    readonly asked_in_cents: number;
  };
  readonly broken: readonly BrokenClause[];
  readonly results: readonly CheckResult[];
  /** The exchanges that findings and checks point to. */
  readonly exchanges: readonly Exchange[];
  /** Checks in which the judge itself failed; please report these. */
  readonly judge_failed: readonly string[];
}

/** Progress of a run. */
export interface Progress {
  readonly done: number;
  readonly total: number;
  readonly check: string;
  readonly verdict: Verdict;
}

/** Options of either kind of run, besides its target. */
export interface RunOptions {
  readonly profile?: Profile;
  /** Ids of the checks to run; all of the profile unless given. */
  readonly only?: readonly string[];
  readonly expected?: readonly KnownFailure[];
  readonly history?: History;
  readonly pace?: Partial<Pace>;
  /** The machine's clock unless given. */
  readonly clock?: Clock;
  readonly onProgress?: (progress: Progress) => void;
  /** Ends the run early; the report covers what was judged until then. */
  readonly signal?: AbortSignal;
  /** True to pass a run that was judged in part. */
  readonly allowPartial?: boolean;
}

/** Options of a run against a partner. */
export interface PartnerRunOptions extends RunOptions {
  /** A result within a minute: fewer checks and shorter waits; the report lists what was left out. */
  readonly quick?: boolean;
  /** Only reads the payments of earlier runs again. */
  readonly recheck?: boolean;
  /** Restarts the server under test (P66). */
  readonly restart?: () => Promise<void>;
}

/** Options of a run against a platform. */
export interface PlatformRunOptions extends RunOptions {
  /** Makes the platform pay; by default the driver that the target file selects. */
  readonly driver?: MakeDriver;
  /** Called with the payment that a person should make at the platform now. */
  readonly onPrompt?: (sentence: string) => void;
  /** Restarts the platform under test (C14). */
  readonly restart?: () => Promise<void>;
  /** Asks that person a question and returns the line typed. */
  readonly onQuestion?: (question: string, signal: AbortSignal) => Promise<string>;
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
  const quick = options.quick === true;
  const all = choose(PARTNER_CASES, profile, options.recheck === true ? RECHECKS : options.only);
  const cases =
    quick && options.only === undefined ? all.filter(({ id }) => QUICK_CHECKS.includes(id)) : all;
  const usual = { ...USUAL_PACE, ...options.pace };
  const pace = quick
    ? { ...usual, longest_wait_ms: Math.min(usual.longest_wait_ms, QUICK_WAIT_MS) }
    : usual;
  const window_ms = Math.min((target.terminal_window_seconds ?? 60) * 1_000, pace.longest_wait_ms);
  const stop = stopper(
    quick ? QUICK_DEADLINE_MS : RUN_DEADLINE_MS + WINDOWS_IN_A_ROW * window_ms,
    quick ? 'the time limit of a quick run was reached' : DEADLINE,
    options.signal,
    clock,
  );
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
    left_out: all.filter((one) => !cases.includes(one)).map(({ id }) => id),
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
  const by_hand = options.driver === undefined && isByHand(target);
  const deadline = by_hand ? BY_HAND_DEADLINE_MS : RUN_DEADLINE_MS * 2;
  const stop = stopper(deadline, DEADLINE, options.signal, clock);
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
        const opened = await CallerRun.open(run, target.caller, options.driver, {
          say: options.onPrompt ?? (() => undefined),
          ...(options.onQuestion === undefined ? {} : { asked: options.onQuestion }),
        }).catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
        if (opened instanceof Error) {
          const { host, port } = target.caller;
          book.problem ??= {
            sentence: `The scripted partner or its page cannot listen on ${host}:${port} (${opened.message}): free the port, or fix caller.host, caller.port, caller.page_port or caller.tls.`,
          };
        } else caller = opened;
      }
      if (caller !== undefined) {
        caller.restart = options.restart;
        caller.named = new Set(options.only);
      }
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

/** Checks whose faults affect only their own payments run in parallel if the platform can make payments in parallel. */
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
    if (stage === 'main' && run.driver.at_once > 1) {
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

/** Collects the results of the checks. */
class ResultBook {
  problem: ConfigProblem | undefined;
  readonly #results = new Map<string, CheckResult>();
  readonly #judgeFailed: string[] = [];
  #stopped: string | undefined;
  readonly #cited = new Map<number, Exchange>();
  readonly #options: RunOptions;
  readonly #wire: Wire;
  readonly #total: number;
  readonly #clock: Clock;
  readonly #startedAt: number;
  readonly #started: number;

  constructor(options: RunOptions, wire: Wire, total: number, clock: Clock) {
    this.#options = options;
    this.#wire = wire;
    this.#total = total;
    this.#clock = clock;
    this.#startedAt = clock.now();
    this.#started = clock.elapsed();
  }

  /** Handles an error that ended the run: a problem to report, or merely an early end. */
  ended(error: unknown): ConfigProblem | undefined {
    if (error instanceof Silent) return { sentence: error.message };
    if (!(error instanceof Stopped)) throw error;
    this.#stopped ??= error.message;
    return undefined;
  }

  /** Runs one check and records its result, whatever happens in it. */
  async judge(check: CaseInfo, context: Findings, run: () => Promise<void>): Promise<void> {
    const started = this.#clock.elapsed();
    let skipped: string | undefined;
    try {
      if (this.problem === undefined && this.#stopped === undefined) await run();
      else skipped = this.#stopped ?? 'the run had stopped';
    } catch (error) {
      if (error instanceof Skipped) {
        skipped = error.reason;
        if (error.kind === 'wanting') context.wanting.push(error.reason);
      } else if (error instanceof Silent) {
        this.problem ??= { sentence: error.message };
        skipped = 'the server stopped answering';
      } else if (error instanceof Stopped) {
        this.ended(error);
        skipped = error.message;
      } else {
        this.#judgeFailed.push(
          `${check.id}: ${error instanceof Error ? error.message : String(error)}`,
        );
        skipped = 'the judge failed with an internal error';
      }
    }
    const verdict = verdictOf(context.all, skipped);
    const own = this.#wire.exchanges.filter((exchange) => exchange.check === check.id);
    const shown = context.all[0]?.exchange ?? own.at(0);
    if (shown !== undefined) this.#cited.set(shown.number, shown);
    const excused =
      verdict === 'FAIL' || verdict === 'WARN'
        ? excuse(this.#options.expected ?? [], check.id, this.#clock.now())
        : undefined;
    this.#results.set(check.id, {
      id: check.id,
      title: check.title,
      clauses: check.clauses,
      decisions: check.decisions ?? [],
      severity: check.severity,
      verdict,
      sends: check.sends,
      expects: check.expects,
      likely_cause: check.likely_cause,
      findings: context.all.map((finding) => this.#reported(check, finding)),
      notes: context.notes,
      ...(skipped === undefined || verdict !== 'SKIP' ? {} : { skipped }),
      ...(context.wanting.length === 0 ? {} : { wanting: context.wanting }),
      ...(context.tried === undefined ? {} : { tried: context.tried }),
      duration_ms: Math.round(this.#clock.elapsed() - started),
      requests: own.length,
      ...(shown === undefined ? {} : { shown: shown.number }),
      ...(excused === undefined ? {} : { excused }),
    });
    this.#options.onProgress?.({
      done: this.#results.size,
      total: this.#total,
      check: check.id,
      verdict,
    });
  }

  report(about: {
    subject: 'partner' | 'platform';
    target: RunReport['target'];
    profile: Profile;
    order: readonly CaseInfo[];
    left_out?: readonly string[];
    money?: RunReport['money'];
  }): RunReport {
    const results = about.order.flatMap(({ id }) => this.#results.get(id) ?? []);
    const counts: Record<Verdict, number> = { PASS: 0, FAIL: 0, WARN: 0, SKIP: 0, CONFIG: 0 };
    for (const { verdict } of results) counts[verdict] += 1;
    const config = this.#config();
    if (config !== undefined) counts.CONFIG = 1;
    const ran = counts.PASS + counts.FAIL + counts.WARN;
    const red = results.some((one) => one.verdict === 'FAIL' && one.excused === undefined);
    const wanting = results.some((one) => one.wanting !== undefined);
    const partial = (wanting && this.#options.allowPartial !== true) || this.#stopped !== undefined;
    const [verdict, exit_code] =
      red || this.#judgeFailed.length > 0
        ? (['failed', 1] as const)
        : config !== undefined
          ? (['config', 2] as const)
          : ran === 0
            ? (['nothing', 3] as const)
            : partial
              ? (['partial', 2] as const)
              : (['passed', 0] as const);
    const left_out = about.left_out ?? [];
    return {
      tool: 'duebridge conform',
      version: 2,
      kit_version: KIT_VERSION,
      subject: about.subject,
      target: about.target,
      profile: about.profile,
      started_at: new Date(this.#startedAt).toISOString(),
      duration_ms: Math.round(this.#clock.elapsed() - this.#started),
      ...(left_out.length === 0 ? {} : { left_out }),
      ...(this.#stopped === undefined ? {} : { stopped: this.#stopped }),
      verdict,
      exit_code,
      ...(config === undefined ? {} : { config }),
      counts,
      ...(about.money === undefined ? {} : { money: about.money }),
      broken: brokenClauses(results),
      results,
      exchanges: [...this.#cited.values()].sort((one, other) => one.number - other.number),
      judge_failed: this.#judgeFailed,
    };
  }

  #config(): RunReport['config'] {
    if (this.problem === undefined) return undefined;
    const { sentence, exchange } = this.problem;
    if (exchange === undefined) return { sentence: this.#wire.mask(sentence) };
    this.#cited.set(exchange.number, exchange);
    return { sentence: this.#wire.mask(sentence), exchange: exchange.number, curl: curl(exchange) };
  }

  #reported(check: CaseInfo, finding: Finding): ReportedFinding {
    const { severity, exchange } = finding;
    const clause = finding.clause ?? check.clauses[0];
    if (exchange !== undefined) this.#cited.set(exchange.number, exchange);
    return {
      severity,
      expected: this.#wire.mask(finding.expected),
      got: this.#wire.mask(finding.got),
      clause,
      rule: CLAUSES[clause].rule,
      likely_cause: finding.cause ?? check.likely_cause,
      ...(exchange === undefined ? {} : { exchange: exchange.number, curl: curl(exchange) }),
    };
  }
}

/** The broken rules, musts first, each with the checks that found it. */
function brokenClauses(results: readonly CheckResult[]): BrokenClause[] {
  const found = results.flatMap((result) =>
    result.findings.map((finding) => ({ result, finding })),
  );
  found.sort((one, other) => rank(one.finding) - rank(other.finding));
  const broken = new Map<ClauseId, BrokenClause>();
  for (const { result, finding } of found) {
    const { clause, rule, severity, expected, got, curl } = finding;
    const known = broken.get(clause);
    if (known === undefined) {
      broken.set(clause, {
        clause,
        rule,
        severity,
        checks: [result.id],
        expected,
        got,
        ...(curl === undefined ? {} : { curl }),
      });
    } else if (!known.checks.includes(result.id)) {
      broken.set(clause, { ...known, checks: [...known.checks, result.id] });
    }
  }
  return [...broken.values()];
}

function rank({ severity }: ReportedFinding): number {
  return severity === 'must' ? 0 : 1;
}

function verdictOf(findings: readonly Finding[], skipped: string | undefined): Verdict {
  if (findings.some(({ severity }) => severity === 'must')) return 'FAIL';
  if (findings.length > 0) return 'WARN';
  return skipped === undefined ? 'PASS' : 'SKIP';
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

/** The run was ended from outside: by its deadline or by the caller. */
class Stopped extends Error {
  override readonly name = 'Stopped';
}

/** A signal that aborts after this time, or when the caller's own signal does. */
function stopper(
  ms: number,
  why: string,
  signal: AbortSignal | undefined,
  clock: Clock,
): { readonly signal: AbortSignal; readonly end: () => void } {
  const controller = new AbortController();
  const interrupt = (): void => controller.abort(new Stopped('the run was interrupted'));
  const cancel = clock.after(ms, () => controller.abort(new Stopped(why)));
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
