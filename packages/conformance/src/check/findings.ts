/**
 * What a check can report: findings, or a reason why it could not judge, and the resulting verdict. A must-finding makes a check
 * FAIL, a should-finding WARN.
 */
import type { ClauseId } from '@duebridge/contract';
import type { Exchange } from './http.ts';

/** must: the interface or money is broken. should: a warning. */
export type Severity = 'must' | 'should';

/** contract: only what the interface states. strict: also the decisions where the interface is silent. */
export type Profile = 'contract' | 'strict';

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
  readonly reason: string;
  readonly kind: SkipKind;
  constructor(reason: string, kind: SkipKind = 'nothing to judge') {
    super(reason);
    this.name = 'Skipped';
    this.reason = reason;
    this.kind = kind;
  }
}

/** The findings of one check: the part shared by all contexts. */
export class Findings {
  readonly all: Finding[] = [];
  /** Remarks that are not breaches, such as a value that could not be measured. */
  readonly notes: string[] = [];
  /** What the target must declare so that the rest of the check can be judged. */
  readonly wanting: string[] = [];
  /** How much was tried, when that depends on the server; reports claim no more than this. */
  tried: string | undefined;
  readonly profile: Profile;

  constructor(profile: Profile) {
    this.profile = profile;
  }

  /** Raises a must-finding unless `holds`. Returns `holds`, so that a check can continue or stop. */
  must(holds: boolean, finding: FindingText): boolean {
    return this.#raise('must', holds, finding);
  }

  /** Raises a should-finding unless `holds`. */
  should(holds: boolean, finding: FindingText): boolean {
    return this.#raise('should', holds, finding);
  }

  /** Raises a should-finding unless `holds`, in the strict profile only: a rule that a decision adds. */
  strict(holds: boolean, finding: FindingText): boolean {
    return this.profile === 'strict' ? this.#raise('should', holds, finding) : true;
  }

  /** Ends the check as SKIP unless `holds`: its precondition. */
  given(holds: boolean, reason: string): asserts holds {
    if (!holds) throw new Skipped(reason);
  }

  #raise(severity: Severity, holds: boolean, finding: FindingText): boolean {
    if (!holds) {
      const { at, ...words } = finding;
      const exchange = at === undefined ? undefined : 'exchange' in at ? at.exchange : at;
      this.all.push({ severity, ...words, ...(exchange === undefined ? {} : { exchange }) });
    }
    return holds;
  }
}

/** The text of a finding, and the exchange (or the reply that carries it) that shows it. */
export interface FindingText {
  readonly expected: string;
  readonly got: string;
  readonly clause?: ClauseId;
  readonly cause?: string;
  readonly at?: Exchange | { readonly exchange: Exchange };
}
