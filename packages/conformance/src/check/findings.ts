/**
 * What a check can say: findings, a reason why it was not judged, and the verdict that follows. A
 * must-finding makes a check FAIL, a should-finding WARN.
 */
import type { ClauseId } from '@duebridge/contract';
import type { Exchange } from './http.ts';

/** must: the interface or money is broken. should: a warning. */
export type Severity = 'must' | 'should';

/** contract: only what the interface says. strict: also the decisions where it is silent. */
export type Profile = 'contract' | 'strict';

/** One thing found wrong. */
export interface Finding {
  readonly severity: Severity;
  /** What should have come. */
  readonly expected: string;
  /** What came. */
  readonly got: string;
  /** The rule that it breaks, where it is another than the first of its check. */
  readonly clause?: ClauseId;
  /** What usually causes it, where that differs from what the check says. */
  readonly cause?: string;
  /** The exchange that shows it; absent when no single one does. */
  readonly exchange?: Exchange;
}

/** PASS all held; FAIL a must was broken; WARN a should was; SKIP not judged; CONFIG the target is not reachable as declared. */
export type Verdict = 'PASS' | 'FAIL' | 'WARN' | 'SKIP' | 'CONFIG';

/** Why a check was not judged: `nothing to judge` says nothing against the run; `wanting` names what the target
 * file must declare first, and leaves the run judged in part. */
export type SkipKind = 'nothing to judge' | 'wanting';

/** Thrown by a context when the precondition of a check is not met; the runner turns it into SKIP. */
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

/** The findings of one check: the part that all contexts share. */
export class Findings {
  readonly all: Finding[] = [];
  /** Remarks that are not breaches, such as what could not be measured. */
  readonly notes: string[] = [];
  /** What the target must declare before the rest of the check can be judged. */
  readonly wanting: string[] = [];
  /** How much was tried, where that depends on the server: reports claim this and no more. */
  tried: string | undefined;
  readonly profile: Profile;

  constructor(profile: Profile) {
    this.profile = profile;
  }

  /** Raises a must-finding unless `holds`; gives `holds`, so that a check can go on or stop. */
  must(holds: boolean, finding: FindingText): boolean {
    return this.#raise('must', holds, finding);
  }

  /** Raises a should-finding unless `holds`. */
  should(holds: boolean, finding: FindingText): boolean {
    return this.#raise('should', holds, finding);
  }

  /** Raises a should-finding unless `holds`, in the strict profile only: what a decision adds. */
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

/** The words of a finding, and the exchange (or the reply that carries it) that shows it. */
export interface FindingText {
  readonly expected: string;
  readonly got: string;
  readonly clause?: ClauseId;
  readonly cause?: string;
  readonly at?: Exchange | { readonly exchange: Exchange };
}
