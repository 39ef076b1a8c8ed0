/**
 * Runs the checks and tells how it went: pre-flight, then each check under its own context, then one
 * report value from which every form of report is printed.
 *
 * Whatever the server does, a run ends: each request has a deadline, a server that falls silent ends
 * the run, and the run as a whole has a deadline. It never ends green with nothing checked.
 */
import { CLAUSES, type ClauseId } from '@duebridge/contract';
import { type CaseInfo, type PartnerCase } from './check/check.ts';
import { Findings, Skipped, type Finding, type Profile, type Verdict } from './check/findings.ts';
import { Silent } from './check/http.ts';
import { CALLER_CASES, PARTNER_CASES, TOKEN_CASES } from './cases/index.ts';
import { CallerContext, CallerRun, type MakeDriver } from './check/caller-context.ts';
import { curl } from './report/curl.ts';
import { Wire, type Exchange } from './check/http.ts';
import { excuse, type KnownFailure } from './check/known-failures.ts';
import { memoryHistory, type History } from './check/history.ts';
import { PartnerContext, PartnerRun, USUAL_PACE, type Pace } from './check/partner-context.ts';
import { addUp, choose, type PlannedMoney } from './check/selection.ts';
import { partnerPreflight, type ConfigProblem } from './check/preflight.ts';
import { secretsOf, type PartnerTarget, type PlatformTarget } from './check/target.ts';
import { platformPreflight, TokenContext, TokenRun } from './check/token-context.ts';

/** How long a whole run may take beside the declared windows; a usual one takes well under a minute. */
const RUN_DEADLINE_MS = 300_000;

/** How often a declared window can lie in the way of a run: once for each payment that is waited for alone. */
const WINDOWS_IN_A_ROW = 8;

/** A finding as reports show it. */
export interface ReportedFinding {
  readonly severity: 'must' | 'should';
  readonly expected: string;
  readonly got: string;
  /** Number of the exchange that shows it. */
  readonly exchange?: number;
  /** The command that shows it again, secrets masked. */
  readonly curl?: string;
}

/** How one check went. */
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
  readonly duration_ms: number;
  /** How many requests it sent. */
  readonly requests: number;
  /** Number of an exchange that shows what it does, also when it passed. */
  readonly shown?: number;
  /** Set when its failure is expected, with owner and day. */
  readonly excused?: KnownFailure;
}

/** A rule of the interface that was broken, once, however many checks found it. */
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
  readonly version: 1;
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
  /** passed; failed: a must was broken; config: nothing could be judged; nothing: zero checks ran. */
  readonly verdict: 'passed' | 'failed' | 'config' | 'nothing';
  /** 0, 1, 2 or 3 (decision 30). */
  readonly exit_code: 0 | 1 | 2 | 3;
  /** Set when the verdict is config: the one sentence that mends it. */
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
  /** Checks in which the judge itself failed; a report of them is welcome. */
  readonly judge_failed: readonly string[];
}

/** What is told while a run goes on. */
export interface Progress {
  readonly done: number;
  readonly total: number;
  readonly check: string;
  readonly verdict: Verdict;
}

/** What a run of either kind takes beside its target. */
export interface RunOptions {
  readonly profile?: Profile;
  /** Ids of the checks to run; all of the profile unless given. */
  readonly only?: readonly string[];
  readonly expected?: readonly KnownFailure[];
  readonly history?: History;
  readonly pace?: Pace;
  readonly now?: () => number;
  readonly onProgress?: (progress: Progress) => void;
}

/** Judges a partner's server. Never throws for what the server does; throws UsageProblem for an unknown check. */
export async function judgePartner(
  target: PartnerTarget,
  options: RunOptions = {},
): Promise<RunReport> {
  const profile = options.profile ?? 'contract';
  const now = options.now ?? Date.now;
  const cases = choose(PARTNER_CASES, profile, options.only);
  const stop = AbortSignal.timeout(
    RUN_DEADLINE_MS + WINDOWS_IN_A_ROW * target.terminal_window_seconds * 1_000,
  );
  const wire = openWire(target.ca_file, now, stop);
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
    pace: options.pace ?? USUAL_PACE,
    now,
    sleep: (ms) => sleep(ms, stop),
  });
  const book = new ResultBook(options, wire, cases.length, now);
  try {
    book.problem = await partnerPreflight(run).catch(silentProblem);
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
 * Judges a platform: its token endpoint (T), and, where the target has a `caller`, how it calls a
 * partner (C). `driver` makes it pay; the flow of decision 31 unless given.
 */
export async function judgePlatform(
  target: PlatformTarget,
  options: RunOptions & { readonly driver?: MakeDriver } = {},
): Promise<RunReport> {
  const profile = options.profile ?? 'contract';
  const now = options.now ?? Date.now;
  const cases = choose([...TOKEN_CASES, ...CALLER_CASES], profile, options.only);
  const stop = AbortSignal.timeout(RUN_DEADLINE_MS * 2);
  const wire = openWire(target.ca_file, now, stop);
  wire.hide({ value: target.api_key, name: 'API_KEY' });
  const book = new ResultBook(options, wire, cases.length, now);
  const pace = options.pace ?? USUAL_PACE;
  const run = new TokenRun({ target, profile, wire, pace, now, sleep: (ms) => sleep(ms, stop) });
  const history = options.history ?? memoryHistory();
  let caller: CallerRun | undefined;
  try {
    book.problem = await platformPreflight(run).catch(silentProblem);
    if (book.problem === undefined) {
      for (const one of TOKEN_CASES.filter((one) => cases.includes(one))) {
        const context = new TokenContext(run, one.id);
        await book.judge(one, context, () => one.run(context));
      }
      const calls = CALLER_CASES.filter((one) => cases.includes(one));
      if (calls.length > 0 && target.caller !== undefined) {
        caller = await CallerRun.open(run, target.caller, options.driver).catch(() => undefined);
        if (caller === undefined) {
          book.problem ??= {
            sentence: `The scripted partner cannot listen on port ${target.caller.port}: free it, or mend caller.port.`,
          };
        }
      }
      for (const one of calls) {
        if (caller === undefined) {
          await book.judge(one, new Findings(profile), async () => {
            throw new Skipped(
              'the target declares no "caller": how the platform is registered with the scripted partner',
            );
          });
          continue;
        }
        const context = new CallerContext(caller, one.id);
        await book.judge(one, context, () => one.run(context));
      }
    }
  } finally {
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

async function runPartnerCases(
  run: PartnerRun,
  cases: readonly PartnerCase[],
  book: ResultBook,
): Promise<void> {
  const one = async (check: PartnerCase): Promise<void> => {
    const context = new PartnerContext(run, check.id);
    await context.enter();
    try {
      await book.judge(check, context, async () => {
        const unfit = check.unfit?.(run.target);
        if (unfit !== undefined) throw new Skipped(unfit);
        await check.run(context);
      });
      if (check.stage === 'quiet' && context.all.some(({ severity }) => severity === 'must')) {
        run.unsettled = true;
      }
    } finally {
      context.leave();
    }
  };
  for (const check of cases.filter(({ stage }) => stage === 'quiet')) await one(check);
  await Promise.all(cases.filter(({ stage }) => (stage ?? 'main') === 'main').map(one));
  for (const check of cases.filter(({ stage }) => stage === 'last')) await one(check);
}

/** Collects how each check went. */
class ResultBook {
  problem: ConfigProblem | undefined;
  readonly #results = new Map<string, CheckResult>();
  readonly #judgeFailed: string[] = [];
  readonly #cited = new Map<number, Exchange>();
  readonly #options: RunOptions;
  readonly #wire: Wire;
  readonly #total: number;
  readonly #now: () => number;
  readonly #startedAt: number;
  readonly #started = performance.now();

  constructor(options: RunOptions, wire: Wire, total: number, now: () => number) {
    this.#options = options;
    this.#wire = wire;
    this.#total = total;
    this.#now = now;
    this.#startedAt = now();
  }

  /** Runs one check and files its result, whatever happens in it. */
  async judge(check: CaseInfo, context: Findings, run: () => Promise<void>): Promise<void> {
    const started = performance.now();
    let skipped: string | undefined;
    try {
      if (this.problem === undefined) await run();
      else skipped = 'the run had stopped';
    } catch (error) {
      if (error instanceof Skipped) skipped = error.reason;
      else if (error instanceof Silent) {
        this.problem ??= { sentence: error.message };
        skipped = 'the server stopped answering';
      } else if (isDeadline(error)) {
        this.problem ??= {
          sentence:
            'The run took longer than its deadline: the server answers too slowly to be judged.',
        };
        skipped = 'the deadline of the run was over';
      } else {
        this.#judgeFailed.push(
          `${check.id}: ${error instanceof Error ? error.message : String(error)}`,
        );
        skipped = 'the judge itself failed here';
      }
    }
    const verdict = verdictOf(context.all, skipped);
    const own = this.#wire.exchanges.filter((exchange) => exchange.check === check.id);
    const shown = context.all[0]?.exchange ?? own.at(0);
    if (shown !== undefined) this.#cited.set(shown.number, shown);
    const excused =
      verdict === 'FAIL' || verdict === 'WARN'
        ? excuse(this.#options.expected ?? [], check.id, this.#now())
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
      findings: context.all.map((finding) => this.#reported(finding)),
      notes: context.notes,
      ...(skipped === undefined || verdict !== 'SKIP' ? {} : { skipped }),
      duration_ms: Math.round(performance.now() - started),
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
    money?: RunReport['money'];
  }): RunReport {
    const results = about.order.flatMap(({ id }) => this.#results.get(id) ?? []);
    const counts: Record<Verdict, number> = { PASS: 0, FAIL: 0, WARN: 0, SKIP: 0, CONFIG: 0 };
    for (const { verdict } of results) counts[verdict] += 1;
    const config = this.#config();
    if (config !== undefined) counts.CONFIG = 1;
    const ran = counts.PASS + counts.FAIL + counts.WARN;
    const red = results.some((one) => one.verdict === 'FAIL' && one.excused === undefined);
    const [verdict, exit_code] =
      red || this.#judgeFailed.length > 0
        ? (['failed', 1] as const)
        : config !== undefined
          ? (['config', 2] as const)
          : ran === 0
            ? (['nothing', 3] as const)
            : (['passed', 0] as const);
    return {
      tool: 'duebridge conform',
      version: 1,
      subject: about.subject,
      target: about.target,
      profile: about.profile,
      started_at: new Date(this.#startedAt).toISOString(),
      duration_ms: Math.round(performance.now() - this.#started),
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

  #reported(finding: Finding): ReportedFinding {
    const { severity, exchange } = finding;
    if (exchange !== undefined) this.#cited.set(exchange.number, exchange);
    return {
      severity,
      expected: this.#wire.mask(finding.expected),
      got: this.#wire.mask(finding.got),
      ...(exchange === undefined ? {} : { exchange: exchange.number, curl: curl(exchange) }),
    };
  }
}

/** The broken rules, musts first; a check stands under the first clause that it names. */
function brokenClauses(results: readonly CheckResult[]): BrokenClause[] {
  const broken = new Map<ClauseId, BrokenClause>();
  const worst = (one: CheckResult): number => (one.verdict === 'FAIL' ? 0 : 1);
  const found = results.filter(({ findings }) => findings.length > 0);
  found.sort((one, other) => worst(one) - worst(other));
  for (const result of found) {
    const clause = result.clauses[0];
    const finding =
      result.findings.find(({ severity }) => severity === 'must') ?? result.findings[0];
    if (clause === undefined || finding === undefined) continue;
    const known = broken.get(clause);
    broken.set(
      clause,
      known === undefined
        ? {
            clause,
            rule: CLAUSES[clause].rule,
            severity: finding.severity,
            checks: [result.id],
            expected: finding.expected,
            got: finding.got,
            ...(finding.curl === undefined ? {} : { curl: finding.curl }),
          }
        : { ...known, checks: [...known.checks, result.id] },
    );
  }
  return [...broken.values()];
}

function verdictOf(findings: readonly Finding[], skipped: string | undefined): Verdict {
  if (findings.some(({ severity }) => severity === 'must')) return 'FAIL';
  if (findings.length > 0) return 'WARN';
  return skipped === undefined ? 'PASS' : 'SKIP';
}

/** What failed is remembered for `--failed`; a run of some checks only changes what it ran. */
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

function silentProblem(error: unknown): ConfigProblem {
  if (error instanceof Silent) return { sentence: error.message };
  throw error;
}

function isDeadline(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'TimeoutError';
}

function openWire(ca_file: string | undefined, now: () => number, stop: AbortSignal): Wire {
  return new Wire({ ...(ca_file === undefined ? {} : { ca_file }), now, stop });
}

function sleep(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(stop.reason);
    };
    const timer = setTimeout(() => {
      stop.removeEventListener('abort', abort);
      resolve();
    }, ms);
    if (stop.aborted) abort();
    else stop.addEventListener('abort', abort, { once: true });
  });
}
