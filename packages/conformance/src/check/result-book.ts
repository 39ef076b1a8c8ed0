/**
 * The results of a run: each check's findings while it runs, and at its end one report value. A run never passes when it checked
 * nothing, or when it left out checks that the target file could have enabled; what was found in an outage counts for nothing.
 */
import { createRequire } from 'node:module';
import { CLAUSES, type ClauseId } from '@duebridge/contract';
import type { Clock } from '../clock.ts';
import type { CaseInfo, PlannedMoney } from './check.ts';
import { Skipped, type Finding, type Findings, type Profile, type Verdict } from './findings.ts';
import { curl, isOut, Silent, type Exchange, type Wire } from './http.ts';
import type { KnownFailure } from './known-failures.ts';
import type { ConfigProblem } from './preflight.ts';

/** Read from the package's manifest, in the repository and when installed. */
const { version: KIT_VERSION } = createRequire(import.meta.url)('../../package.json') as {
  readonly version: string;
};

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

/** The result of one check, with its description. */
export interface CheckResult extends Required<CaseInfo> {
  readonly verdict: Verdict;
  readonly findings: readonly ReportedFinding[];
  readonly notes: readonly string[];
  /** Set when it failed and may, until a day that has not passed. */
  readonly excused?: KnownFailure;
  /** Why it was not judged. */
  readonly skipped?: string;
  /** What the target must declare so that it, or the rest of it, can be judged. */
  readonly wanting?: readonly string[];
  readonly duration_ms: number;
  /** How many requests it sent. */
  readonly requests: number;
  /** Number of an exchange that illustrates the check, set also when it passed. */
  readonly shown?: number;
}

/** A broken rule of the interface, listed once for all checks that found it; the finding is that of the first. */
export interface BrokenClause extends Omit<ReportedFinding, 'likely_cause' | 'exchange'> {
  readonly checks: readonly string[];
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
  /** Set when the run was ended early: the reason. */
  readonly stopped?: string;
  /**
   * passed, known failures apart; failed: a must was broken; partial: what was judged holds, but some could not be judged for want of
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

/** The run was ended from outside: by its deadline or by the caller. */
export class Stopped extends Error {
  override readonly name = 'Stopped';
}

/** What a run may be told about its results. */
export interface ResultOptions {
  readonly onProgress?: (progress: Progress) => void;
  /** True to pass a run that was judged in part. */
  readonly allowPartial?: boolean;
  /** Checks that may fail until a day. */
  readonly expected?: readonly KnownFailure[];
}

/** What a report says of the target. */
export type About = Pick<RunReport, 'subject' | 'target' | 'money'>;

/** What a report reads of a check's context. */
type Reported = Pick<Findings, 'all' | 'notes' | 'wanting'>;

/** A check that has ended. */
interface Judged {
  readonly check: CaseInfo;
  readonly context: Reported;
  readonly skipped: string | undefined;
  readonly duration_ms: number;
}

/** Collects what the checks of a run found; `report` makes the report of it at the end. */
export class ResultBook {
  problem: ConfigProblem | undefined;
  readonly #judged = new Map<string, Judged>();
  readonly #judgeFailed: string[] = [];
  #stopped: string | undefined;
  readonly #cited = new Map<number, Exchange>();
  readonly #options: ResultOptions;
  readonly #wire: Wire;
  readonly #cases: readonly CaseInfo[];
  readonly #clock: Clock;
  readonly #startedAt: number;
  readonly #started: number;

  constructor(options: ResultOptions, wire: Wire, cases: readonly CaseInfo[], clock: Clock) {
    this.#options = options;
    this.#wire = wire;
    this.#cases = cases;
    this.#clock = clock;
    this.#startedAt = clock.now();
    this.#started = clock.elapsed();
  }

  /** Does what must work before anything is judged, and keeps the problem that it found. */
  async preflight(look: () => Promise<ConfigProblem | undefined>): Promise<void> {
    try {
      this.problem = await look();
    } catch (error) {
      this.#ended(error);
    }
  }

  /** Notes an error that ended the run. Returns it in words for a check; throws any other error. */
  #ended(error: unknown): string {
    if (error instanceof Silent) {
      this.problem ??= { sentence: error.message };
      return 'the server stopped answering';
    }
    if (!(error instanceof Stopped)) throw error;
    return (this.#stopped ??= error.message);
  }

  /** Runs one check and keeps what it found, whatever happens in it. */
  async judge(check: CaseInfo, context: Reported, run: () => Promise<void>): Promise<void> {
    const started = this.#clock.elapsed();
    const skipped = await this.#end(check, context, run);
    const duration_ms = Math.round(this.#clock.elapsed() - started);
    this.#judged.set(check.id, { check, context, skipped, duration_ms });
    this.#options.onProgress?.({
      done: this.#judged.size,
      total: this.#cases.length,
      check: check.id,
      verdict: verdictOf(context.all, skipped),
    });
  }

  /** Runs one check. Returns why it was not judged; undefined when it was. */
  async #end(
    check: CaseInfo,
    context: Reported,
    run: () => Promise<void>,
  ): Promise<string | undefined> {
    try {
      if (this.problem !== undefined || this.#stopped !== undefined) {
        return this.#stopped ?? 'the run had stopped';
      }
      await run();
      return undefined;
    } catch (error) {
      if (error instanceof Skipped) {
        if (error.kind === 'wanting') context.wanting.push(error.message);
        return error.message;
      }
      if (error instanceof Silent || error instanceof Stopped) return this.#ended(error);
      const message = error instanceof Error ? error.message : String(error);
      this.#judgeFailed.push(`${check.id}: ${message}`);
      return 'the judge failed with an internal error';
    }
  }

  /** The result of one check. What it found in an outage proves nothing. */
  #result({ check, context, skipped, duration_ms }: Judged): CheckResult {
    const { wanting } = context;
    const found = context.all.filter(
      ({ exchange }) => this.problem === undefined || exchange === undefined || !isOut(exchange),
    );
    const isLost = found.length < context.all.length;
    const verdict = verdictOf(found, skipped ?? (isLost ? 'an outage' : undefined));
    const own = this.#wire.exchanges.filter((exchange) => exchange.check === check.id);
    const shown = found[0]?.exchange ?? own.at(0);
    if (shown !== undefined) this.#cited.set(shown.number, shown);
    const reason = skipped ?? wanting.at(-1);
    const today = new Date(this.#clock.now()).toISOString().slice(0, 10);
    const excused = this.#options.expected?.find(
      (known) => known.check === check.id && verdict === 'FAIL' && known.until >= today,
    );
    return {
      ...describe(check),
      verdict,
      findings: alike(found).map((finding) => this.#reported(check, finding)),
      notes: [...context.notes, ...(excused === undefined ? [] : [excuse(excused)])],
      ...(excused === undefined ? {} : { excused }),
      ...(reason === undefined || verdict !== 'SKIP' ? {} : { skipped: this.#wire.mask(reason) }),
      ...(wanting.length === 0 ? {} : { wanting: wanting.map((one) => this.#wire.mask(one)) }),
      duration_ms,
      requests: own.length,
      ...(shown === undefined ? {} : { shown: shown.number }),
    };
  }

  /** The report of the run, in the order of its checks. */
  report(about: About, profile: Profile): RunReport {
    const { away } = this.#wire;
    if (away !== undefined) this.problem ??= { sentence: away };
    const results = this.#cases.flatMap(({ id }) => {
      const judged = this.#judged.get(id);
      return judged === undefined ? [] : [this.#result(judged)];
    });
    const counts: Record<Verdict, number> = { PASS: 0, FAIL: 0, WARN: 0, SKIP: 0, CONFIG: 0 };
    for (const { verdict } of results) counts[verdict] += 1;
    const config = this.#config();
    if (config !== undefined) counts.CONFIG = 1;
    const ran = counts.PASS + counts.FAIL + counts.WARN;
    const wanting = results.some((one) => one.wanting !== undefined);
    const partial = (wanting && this.#options.allowPartial !== true) || this.#stopped !== undefined;
    const [verdict, exit_code] =
      results.some((one) => one.verdict === 'FAIL' && one.excused === undefined) ||
      this.#judgeFailed.length > 0
        ? (['failed', 1] as const)
        : config !== undefined
          ? (['config', 2] as const)
          : ran === 0
            ? (['nothing', 3] as const)
            : partial
              ? (['partial', 2] as const)
              : (['passed', 0] as const);
    return {
      tool: 'duebridge conform',
      version: 2,
      kit_version: KIT_VERSION,
      ...about,
      profile,
      started_at: new Date(this.#startedAt).toISOString(),
      duration_ms: Math.round(this.#clock.elapsed() - this.#started),
      ...(this.#stopped === undefined ? {} : { stopped: this.#stopped }),
      verdict,
      exit_code,
      ...(config === undefined ? {} : { config }),
      counts,
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
      likely_cause: finding.cause ?? causeOf(exchange) ?? check.likely_cause,
      ...(exchange === undefined ? {} : { exchange: exchange.number, curl: curl(exchange) }),
    };
  }
}

/** A known failure in words. */
export function excuse({ until, owner, reason }: KnownFailure): string {
  return `expected to fail until ${until} (${owner}): ${reason}`;
}

/** The description of a check without what it does. */
export function describe(check: CaseInfo): Required<CaseInfo> {
  const { id, title, clauses, severity = 'must', profile = 'contract', likely_cause } = check;
  return { id, title, clauses, severity, profile, likely_cause };
}

/** The broken rules, musts first, each with the checks that found it. */
function brokenClauses(results: readonly CheckResult[]): BrokenClause[] {
  const found = results.flatMap(({ id, findings }) => findings.map((finding) => ({ id, finding })));
  found.sort((one, other) => rank(one.finding) - rank(other.finding));
  const byClause = Map.groupBy(found, ({ finding }) => finding.clause);
  return [...byClause.values()].flatMap((those) => {
    const [first] = those;
    if (first === undefined) return [];
    const { likely_cause: _cause, exchange: _exchange, ...finding } = first.finding;
    return { ...finding, checks: [...new Set(those.map(({ id }) => id))] };
  });
}

function rank({ severity }: ReportedFinding): number {
  return severity === 'must' ? 0 : 1;
}

function verdictOf(findings: readonly Finding[], skipped: string | undefined): Verdict {
  if (findings.some(({ severity }) => severity === 'must')) return 'FAIL';
  if (findings.length > 0) return 'WARN';
  return skipped === undefined ? 'PASS' : 'SKIP';
}

/** How many findings of one kind a check reports: the others say the same of other payments. */
const MOST_ALIKE = 3;

/** The findings without more of one kind than anybody reads; the last one says how many follow. */
function alike(findings: readonly Finding[]): Finding[] {
  const kinds = Map.groupBy(
    findings,
    ({ severity, clause, cause }) => `${severity} ${clause} ${cause}`,
  );
  return [...kinds.values()].flatMap((same) => {
    const shown = same.slice(0, MOST_ALIKE);
    const more = same.length - shown.length;
    const last = shown.at(-1);
    if (more === 0 || last === undefined) return shown;
    return [...shown.slice(0, -1), { ...last, got: `${last.got} (and ${more} more like this)` }];
  });
}

/** The cause that an answer itself tells of, whatever the check usually finds; undefined when it tells of none. */
function causeOf(exchange: Exchange | undefined): string | undefined {
  if (exchange === undefined || exchange.received === true) return undefined;
  const { status } = exchange;
  if (status === undefined) {
    return 'No complete response arrived: the server, or a proxy in front of it, closed the connection or took too long.';
  }
  if (status === 429) return 'A rate limit refuses the request before it is read.';
  return status >= 500 ? 'The request fails inside the server: see the server’s log.' : undefined;
}
