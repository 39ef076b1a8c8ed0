/**
 * What a check can report: findings, or a reason why it could not judge, and the resulting verdict. A must-finding makes a check
 * FAIL, a should-finding WARN.
 */
import type { ClauseId, Json } from '@duebridge/contract';
import { asObject, isSuccess, show, tell, type Exchange, type Reply } from './http.ts';

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
  readonly profile: Profile;

  constructor(profile: Profile) {
    this.profile = profile;
  }

  /** Raises a must-finding unless `holds`. Returns `holds`, so that a check can continue or stop. */
  must(holds: boolean, expected: string, at: Shown, more?: FindingMore): boolean {
    return this.#raise('must', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`. */
  should(holds: boolean, expected: string, at: Shown, more?: FindingMore): boolean {
    return this.#raise('should', holds, expected, at, more);
  }

  /** Raises a should-finding unless `holds`, in the strict profile only: a rule that a decision adds. */
  strict(holds: boolean, expected: string, at: Shown, more?: FindingMore): boolean {
    return this.profile === 'strict' ? this.should(holds, expected, at, more) : true;
  }

  /** Raises a finding unless one field of the answer's object is right; it says what the field is. */
  field(
    reply: Reply,
    name: string,
    expected: string,
    holds: (value: Json | undefined) => boolean,
    more: FindingMore & { readonly severity?: Severity } = {},
  ): boolean {
    const fields = isSuccess(reply) ? asObject(reply.json) : undefined;
    const got = fields === undefined ? tell(reply) : `${name} is ${show(fields[name])}`;
    const { severity = 'must', ...rest } = more;
    return this.#raise(severity, holds(fields?.[name]), expected, reply, { got, ...rest });
  }

  /** Ends the check as SKIP unless `holds`: its precondition. */
  given(holds: boolean, reason: string): asserts holds {
    if (!holds) throw new Skipped(reason);
  }

  #raise(
    severity: Severity,
    holds: boolean,
    expected: string,
    at: Shown,
    more: FindingMore = {},
  ): boolean {
    if (!holds) {
      const reply = at !== undefined && 'exchange' in at ? at : undefined;
      const exchange = reply?.exchange ?? (at as Exchange | undefined);
      const got = reply === undefined ? '' : tell(reply);
      this.all.push({
        severity,
        expected,
        got,
        ...more,
        ...(exchange === undefined ? {} : { exchange }),
      });
    }
    return holds;
  }
}

/** What shows a finding: the reply or the exchange; undefined when no single one does. */
export type Shown = Reply | Exchange | undefined;

/** The rest of a finding. `got`: what was received, when it is not simply the reply that shows it. */
export type FindingMore = Partial<Pick<Finding, 'got' | 'clause' | 'cause'>>;
