/**
 * What describes a check, and what it can report: findings, or a reason why it could not judge, and the resulting verdict. A
 * must-finding makes a check FAIL, a should-finding WARN.
 */
import type { ClauseId } from '@duebridge/contract';
import type { Exchange } from './http.ts';

/** must: the interface or money is broken. should: a warning. */
export type Severity = 'must' | 'should';

/** contract: only what the interface states. strict: also the decisions where the interface is silent. */
export type Profile = 'contract' | 'strict';

/** How a rule counts. strict: a should that only the strict profile has, because a decision adds it. */
export type Level = Severity | 'strict';

/** The description of a check. */
export interface CaseInfo {
  /** P: a partner's endpoints. T: a token endpoint. C: a platform's calls. F: a platform's calls under one scenario of the scripted partner. */
  readonly id: string;
  /** One line, in plain terms. */
  readonly title: string;
  /** The first clause is the one that its findings break, unless a finding names another. */
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
  /** The highest severity that it can raise; must unless given. */
  readonly severity?: Severity;
  /** The least strict profile that runs it; contract unless given. */
  readonly profile?: Profile;
  /** What usually causes the breach, for the engineer who fixes it. */
  readonly likely_cause: string;
}

/** One defect found. */
export interface Finding {
  readonly severity: Severity;
  /** What was expected. */
  readonly expected: string;
  /** What was received. */
  readonly got: string;
  /** The rule that it breaks, when not the first of its check. */
  readonly clause?: ClauseId;
  /** The usual cause, when it differs from the check's own. */
  readonly cause?: string;
  /** The exchange that shows it; absent when no single one does. */
  readonly exchange?: Exchange;
}

/** PASS all held; FAIL a must was broken; WARN a should was; SKIP not judged; CONFIG the target is not reachable as declared. */
export type Verdict = 'PASS' | 'FAIL' | 'WARN' | 'SKIP' | 'CONFIG';

/**
 * Why a check was not judged. `nothing to judge` does not count against the run. `wanting` names what the target file must
 * declare first; the run then counts as judged in part.
 */
export type SkipKind = 'nothing to judge' | 'wanting';

/** Thrown by a context when the precondition of a check is not met; the runner reports it as SKIP. */
export class Skipped extends Error {
  override readonly name = 'Skipped';
  readonly kind: SkipKind;
  constructor(reason: string, kind: SkipKind = 'nothing to judge') {
    super(reason);
    this.kind = kind;
  }
}

/** The rest of a finding. `got`: what was received, when it is not simply the reply that shows it. */
export type More = Partial<Pick<Finding, 'got' | 'clause' | 'cause'>>;

/** The same, with how the rule counts: a must unless given. */
export type MoreAt = More & { readonly level?: Level };

/** What a check found. */
export interface Found {
  readonly all: readonly Finding[];
  /** Remarks that are not breaches, such as a value that could not be measured. */
  readonly notes: readonly string[];
  /** What the target must declare so that the rest of the check can be judged. */
  readonly wanting: string[];
}

/** Why nothing could be judged, in one sentence that says what to fix. */
export interface ConfigProblem {
  readonly sentence: string;
  readonly exchange?: Exchange;
}

/** The verdict of a check that found this, or was not judged for a reason. */
export function verdictOf(findings: readonly Finding[], skipped: string | undefined): Verdict {
  if (findings.some(({ severity }) => severity === 'must')) return 'FAIL';
  if (findings.length > 0) return 'WARN';
  return skipped === undefined ? 'PASS' : 'SKIP';
}
