/**
 * What a check is: one rule of the interface in one file, with what it sends, what must hold, and what
 * usually causes a breach. It asserts its own precondition first: unmet is SKIP with the reason, never
 * a pass.
 */
import type { ClauseId } from '@duebridge/contract';
import type { CallerContext } from './caller-context.ts';
import type { PartnerContext } from './partner-context.ts';
import type { Profile, Severity } from './findings.ts';
import type { Planned } from './planned-payments.ts';
import type { PartnerTarget } from './target.ts';
import type { TokenContext } from './token-context.ts';

/** What every check tells about itself. */
export interface CaseInfo {
  /** P01..P59 partner endpoints, T01..T16 token endpoint, C01..C08 the platform as caller. */
  readonly id: string;
  /** One line, in the world's words. */
  readonly title: string;
  /** The first is the one that its findings break, unless they say another. */
  readonly clauses: readonly [ClauseId, ...ClauseId[]];
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
  /** What usually causes the breach, for the engineer who fixes it. */
  readonly likely_cause: string;
}

/** When a check runs: `first` before anything is paid; `main` side by side with all others; `last`
 * when every payment of the run has been waited for; `restart` alone; `final` when nothing is under way any more. */
export type Stage = 'first' | 'main' | 'last' | 'restart' | 'final';

/** A check of a partner's server (P). */
export interface PartnerCase extends CaseInfo {
  readonly stage?: Stage;
  /** Why this target cannot be judged by it; undefined when it can. Known before anything is sent. */
  readonly unfit?: (target: PartnerTarget) => string | undefined;
  /** The payments that it may ask for: the plan adds them up. */
  readonly creates?: (target: PartnerTarget) => readonly Planned[];
  readonly run: (t: PartnerContext) => Promise<void>;
  /** What it looks at once every check of its stage has sent what it sends: the balance, at rest again. */
  readonly atEnd?: (t: PartnerContext) => Promise<void>;
}

/** A check of a platform's token endpoint (T). */
export interface TokenCase extends CaseInfo {
  readonly run: (t: TokenContext) => Promise<void>;
}

/** A check of a platform's calls to a partner (C). */
export interface CallerCase extends CaseInfo {
  readonly run: (t: CallerContext) => Promise<void>;
}
