/**
 * A check: one rule of the interface, with what it sends, what must hold, and what usually causes a breach. A check
 * tests its own precondition first; when that is not met, the result is SKIP with the reason, never a pass.
 */
import type { ClauseId } from '@duebridge/contract';
import type { CallerContext } from './caller-context.ts';
import type { Profile, Severity } from './findings.ts';
import type { PartnerContext } from './partner-context.ts';
import type { Planned } from './payment-fields.ts';
import type { PartnerTarget } from './target.ts';
import type { TokenContext } from './token-context.ts';

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

/**
 * When a check runs. `first`: before any payment. `main`: in parallel with all others. `last`: after the run has waited for every
 * payment. `restart`: without other checks. `final`: when nothing is in progress any more.
 */
export type Stage = 'first' | 'main' | 'last' | 'restart' | 'final';

/** A check of a partner's server (P). */
export interface PartnerCase extends CaseInfo {
  readonly stage?: Stage;
  /** Why this check does not apply to the target; undefined when it does. Decided before anything is sent. */
  readonly unfit?: (target: PartnerTarget) => string | undefined;
  /** The payments that it may ask for; the plan adds them up. */
  readonly creates?: (target: PartnerTarget) => readonly Planned[];
  readonly run: (t: PartnerContext) => Promise<void>;
  /** What it checks after every check of its stage has sent its requests: for example the balance, at rest again. */
  readonly atEnd?: (t: PartnerContext) => Promise<void>;
}

/** A check of a platform's token endpoint (T). */
export interface TokenCase extends CaseInfo {
  readonly run: (t: TokenContext) => Promise<void>;
}

/**
 * When a check of a caller runs. `first`: before all others, which depend on it. `main`: in parallel with others, because its faults affect only
 * its own payments. `alone`: its fault affects every call. `last`: like alone, but the platform may pause the partner afterwards.
 */
export type CallerStage = 'first' | 'main' | 'alone' | 'last';

/** A check of a platform's calls to a partner (C, F). */
export interface CallerCase extends CaseInfo {
  /** `main` unless given. */
  readonly stage?: CallerStage;
  readonly run: (t: CallerContext) => Promise<void>;
  /** What it checks after all other checks of the run. */
  readonly atEnd?: (t: CallerContext) => Promise<void>;
}

/** The command was wrong: exit code 3. */
export class UsageProblem extends Error {
  constructor(sentence: string) {
    super(sentence);
    this.name = 'UsageProblem';
  }
}

/** The part of the budget that one check may request. */
export interface PlannedMoney {
  readonly payments: number;
  readonly total_in_cents: number;
  readonly largest_in_cents: number;
}

/** Selects the checks of a profile, all or those named. Throws UsageProblem for an unknown name. */
export function choose<C extends CaseInfo>(
  cases: readonly C[],
  profile: Profile,
  only: readonly string[] | undefined,
): readonly C[] {
  if (only === undefined) {
    return cases.filter((one) => profile === 'strict' || one.profile !== 'strict');
  }
  const wanted = only.map((id) => id.trim().toUpperCase()).filter((id) => id !== '');
  const unknown = wanted.find((id) => !cases.some((one) => one.id === id));
  if (unknown !== undefined) {
    throw new UsageProblem(
      `There is no check ${unknown}: the checks are ${cases[0]?.id ?? ''} to ${cases.at(-1)?.id ?? ''}, see --list.`,
    );
  }
  return cases.filter((one) => wanted.includes(one.id));
}

/** Adds up what the chosen checks may request; a payment shared by several counts once. */
export function addUp(cases: readonly PartnerCase[], target: PartnerTarget): PlannedMoney {
  const planned: Planned[] = [];
  for (const one of cases) {
    if (one.unfit?.(target) !== undefined) continue;
    for (const payment of one.creates?.(target) ?? []) {
      if (payment.shared === undefined || !planned.some((p) => p.shared === payment.shared)) {
        planned.push(payment);
      }
    }
  }
  const amounts = planned.map((payment) => payment.amount_in_cents);
  return {
    payments: amounts.length,
    total_in_cents: amounts.reduce((sum, amount) => sum + amount, 0),
    largest_in_cents: Math.max(0, ...amounts),
  };
}
