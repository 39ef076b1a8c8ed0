/** The value of a whole run, from which every form of report is printed. The JSON report is this value. */
import type { ClauseId } from '@duebridge/contract';
import type { CaseInfo } from '../check/check.ts';
import type { Profile, Verdict } from '../check/findings.ts';
import type { Exchange } from '../check/http.ts';
import type { KnownFailure } from '../check/known-failures.ts';
import type { PlannedMoney } from '../check/selection.ts';

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
export interface CheckResult extends CaseInfo {
  readonly verdict: Verdict;
  readonly findings: readonly ReportedFinding[];
  readonly notes: readonly string[];
  /** Why it was not judged. */
  readonly skipped?: string;
  /** What the target must declare so that it, or the rest of it, can be judged. */
  readonly wanting?: readonly string[];
  readonly duration_ms: number;
  /** How many requests it sent. */
  readonly requests: number;
  /** Number of an exchange that illustrates the check, set also when it passed. */
  readonly shown?: number;
  /** Set when its failure is expected, with owner and deadline. */
  readonly excused?: KnownFailure;
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
