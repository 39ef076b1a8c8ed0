/**
 * The report of a run: one value that every form of it prints. A run never passes when it checked nothing, or when it left out checks
 * that the target file could have enabled; what was found in an outage counts for nothing.
 */
import { createRequire } from 'node:module';
import { CLAUSES, type ClauseId } from '@duebridge/contract';
import type { PlannedMoney } from './check.ts';
import { verdictOf, type CaseInfo, type Finding, type Profile, type Verdict } from './findings.ts';
import { curl, isOut, type Exchange } from './http.ts';
import type { KnownFailure } from './known-failures.ts';
import type { Judged, Run } from './run.ts';

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
  readonly money?: PlannedMoney & { readonly asked_in_cents: number };
  readonly broken: readonly BrokenClause[];
  readonly results: readonly CheckResult[];
  /** The exchanges that findings point to. */
  readonly exchanges: readonly Exchange[];
  /** Checks in which the judge itself failed; please report these. */
  readonly judge_failed: readonly string[];
}

/** What a report says of the target. */
export type About = Pick<RunReport, 'subject' | 'target' | 'money'>;

/** The report of a run, in the order of its checks. */
export function reportOf(run: Run, about: About): RunReport {
  const { wire, options, stopped, judgeFailed } = run;
  const { away } = wire;
  if (away !== undefined) run.problem ??= { sentence: away };
  const cited = new Map<number, Exchange>();
  /** Puts an exchange into the report. Returns its number, and the command that repeats it. */
  const cite = (exchange: Exchange | undefined) => {
    if (exchange === undefined) return {};
    cited.set(exchange.number, exchange);
    return { exchange: exchange.number, curl: curl(exchange) };
  };
  const reported = (check: CaseInfo, finding: Finding): ReportedFinding => {
    const { severity, exchange, clause = check.clauses[0] } = finding;
    return {
      severity,
      expected: wire.mask(finding.expected),
      got: wire.mask(finding.got),
      clause,
      rule: CLAUSES[clause].rule,
      likely_cause: finding.cause ?? causeOf(exchange) ?? check.likely_cause,
      ...cite(exchange),
    };
  };
  const resultOf = ({ check, context, skipped, duration_ms }: Judged): CheckResult => {
    const { all, wanting, notes } = context;
    // What a check found in an outage proves nothing.
    const found = all.filter(
      ({ exchange }) => run.problem === undefined || exchange === undefined || !isOut(exchange),
    );
    const verdict = verdictOf(
      found,
      skipped ?? (found.length < all.length ? 'an outage' : undefined),
    );
    const reason = skipped ?? wanting.at(-1);
    const today = new Date(run.now()).toISOString().slice(0, 10);
    const excused = options.expected?.find(
      (known) => known.check === check.id && verdict === 'FAIL' && known.until >= today,
    );
    return {
      ...describe(check),
      verdict,
      findings: alike(found).map((finding) => reported(check, finding)),
      notes: [...notes, ...(excused === undefined ? [] : [excuse(excused)])],
      ...(excused && { excused }),
      ...(reason !== undefined && verdict === 'SKIP' && { skipped: wire.mask(reason) }),
      ...(wanting.length > 0 && { wanting: wanting.map((one) => wire.mask(one)) }),
      duration_ms,
    };
  };
  const results = run.cases.flatMap(({ id }) => {
    const judged = run.judged.get(id);
    return judged === undefined ? [] : [resultOf(judged)];
  });
  const config = run.problem && {
    sentence: wire.mask(run.problem.sentence),
    ...cite(run.problem.exchange),
  };
  const counts: Record<Verdict, number> = { PASS: 0, FAIL: 0, WARN: 0, SKIP: 0, CONFIG: 0 };
  for (const { verdict } of results) counts[verdict] += 1;
  if (config !== undefined) counts.CONFIG = 1;
  const isFailed =
    results.some((one) => one.verdict === 'FAIL' && one.excused === undefined) ||
    judgeFailed.length > 0;
  const isWanting = results.some((one) => one.wanting !== undefined);
  const verdict = isFailed
    ? 'failed'
    : config !== undefined
      ? 'config'
      : counts.PASS + counts.FAIL + counts.WARN === 0
        ? 'nothing'
        : (isWanting && options.allowPartial !== true) || stopped !== undefined
          ? 'partial'
          : 'passed';
  return {
    tool: 'duebridge conform',
    version: 2,
    kit_version: KIT_VERSION,
    ...about,
    profile: run.profile,
    started_at: new Date(run.startedAt).toISOString(),
    duration_ms: Math.round(run.clock.elapsed() - run.started),
    ...(stopped !== undefined && { stopped }),
    verdict,
    exit_code: EXIT_CODES[verdict],
    ...(config && { config }),
    counts,
    broken: brokenClauses(results),
    results,
    exchanges: [...cited.values()].sort((one, other) => one.number - other.number),
    judge_failed: judgeFailed,
  };
}

/** The exit code of each outcome (decision 30). */
const EXIT_CODES = { passed: 0, failed: 1, config: 2, partial: 2, nothing: 3 } as const;

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
