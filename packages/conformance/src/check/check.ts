/**
 * What a check is, and what it can say.
 *
 * A check is one rule of the interface in one file: what it sends, what must hold, and what usually
 * causes a breach. While it runs it raises findings; a must-finding makes it FAIL, a should-finding
 * WARN. It asserts its own precondition first: unmet is SKIP with the reason, never a pass.
 */
import type { ClauseId } from '@duebridge/contract';
import type { CallerContext } from './caller-context.ts';
import type { Exchange } from './http.ts';
import type { PartnerContext } from './partner-context.ts';
import type { Planned } from './planned-payments.ts';
import type { PartnerTarget } from './target.ts';
import type { TokenContext } from './token-context.ts';

/** must: the interface or money is broken. should: a warning. */
export type Severity = 'must' | 'should';

/** contract: only what the interface says. strict: also the decisions where it is silent. */
export type Profile = 'contract' | 'strict';

/** What every check tells about itself. */
export interface CaseInfo {
  /** P01..P59 partner endpoints, T01..T16 token endpoint, C01..C08 the platform as caller. */
  readonly id: string;
  /** One line, in the world's words. */
  readonly title: string;
  readonly clauses: readonly ClauseId[];
  /** The decisions it rests on where the interface is silent. */
  readonly decisions?: readonly number[];
  /** The worst that it can raise. */
  readonly severity: Severity;
  /** The first profile that runs it. */
  readonly profile: Profile;
  /** What is sent, for a reader who has not read the interface. */
  readonly sends: string;
  /** What must hold, for the same reader. */
  readonly expects: string;
  /** What usually causes the breach, for the engineer who mends it. */
  readonly likely_cause: string;
}

/** When a check runs: `quiet` one at a time on an account at rest, because it reads the balance;
 * `main` with waits overlapping; `last` after all others. */
export type Stage = 'quiet' | 'main' | 'last';

/** A check of a partner's server (P). */
export interface PartnerCase extends CaseInfo {
  readonly stage?: Stage;
  /** Why this target cannot be judged by it; undefined when it can. Known before anything is sent. */
  readonly unfit?: (target: PartnerTarget) => string | undefined;
  /** The payments that it may ask for: the plan adds them up. */
  readonly creates?: (target: PartnerTarget) => readonly Planned[];
  readonly run: (t: PartnerContext) => Promise<void>;
}

/** A check of a platform's token endpoint (T). */
export interface TokenCase extends CaseInfo {
  readonly run: (t: TokenContext) => Promise<void>;
}

/** A check of a platform's calls to a partner (C). */
export interface CallerCase extends CaseInfo {
  readonly run: (t: CallerContext) => Promise<void>;
}

/** One thing found wrong. */
export interface Finding {
  readonly severity: Severity;
  /** What should have come. */
  readonly expected: string;
  /** What came. */
  readonly got: string;
  /** The exchange that shows it; absent when no single one does. */
  readonly exchange?: Exchange;
}

/** PASS all held; FAIL a must was broken; WARN a should was; SKIP not judged; CONFIG the target is not reachable as declared. */
export type Verdict = 'PASS' | 'FAIL' | 'WARN' | 'SKIP' | 'CONFIG';

/** Thrown by a context when the precondition of a check is not met; the runner turns it into SKIP. */
export class Skipped extends Error {
  readonly reason: string;
  constructor(reason: string) {
    super(reason);
    this.name = 'Skipped';
    this.reason = reason;
  }
}

/** Thrown by a context when the server no longer answers; the runner stops the run. */
export class Silent extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'Silent';
  }
}

/** The findings of one check: the part that all contexts share. */
export class Findings {
  readonly all: Finding[] = [];
  /** Remarks that are not breaches, such as what could not be measured. */
  readonly notes: string[] = [];
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

  #raise(severity: Severity, holds: boolean, { expected, got, at }: FindingText): boolean {
    if (!holds) {
      const exchange = at === undefined ? undefined : 'exchange' in at ? at.exchange : at;
      this.all.push({ severity, expected, got, ...(exchange === undefined ? {} : { exchange }) });
    }
    return holds;
  }
}

/** The words of a finding, and the exchange (or the reply that carries it) that shows it. */
export interface FindingText {
  readonly expected: string;
  readonly got: string;
  readonly at?: Exchange | { readonly exchange: Exchange };
}
