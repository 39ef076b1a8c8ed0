/**
 * A check: one rule of the interface, with what it sends, what must hold, and what usually causes a breach. A check
 * tests its own precondition first; when that is not met, the result is SKIP with the reason, never a pass.
 */
import type { CallerContext } from './caller-context.ts';
import type { CaseInfo, Profile } from './findings.ts';
import type { PartnerContext } from './partner-context.ts';
import type { Planned } from './payment-fields.ts';
import type { PartnerTarget } from './target.ts';
import type { TokenContext } from './token-context.ts';

/**
 * When a check runs. `first`: before any payment, and before the checks that depend on it. `alone`: without others, because its requests or
 * its fault would affect them. `main`: in parallel with all others. Of a partner, `last`: after the run has waited for every payment;
 * `final`: when nothing is in progress any more. Of a caller, `last`: like alone, but the platform may pause the partner afterwards.
 */
export type Stage = 'first' | 'main' | 'alone' | 'last' | 'final';

/** A check, and the context that it gets. */
export interface Case<C> extends CaseInfo {
  /** `main` unless given. */
  readonly stage?: Stage;
  readonly run: (t: C) => Promise<void>;
  /** What it checks after the others: those of its stage, or of a caller all of the run. For example the balance, at rest again. */
  readonly atEnd?: (t: C) => Promise<void>;
}

/** A check of a partner's server (P). */
export interface PartnerCase extends Case<PartnerContext> {
  /** Why this check does not apply to the target; undefined when it does. Decided before anything is sent. */
  readonly unfit?: (target: PartnerTarget) => string | undefined;
  /** The payments that it may ask for; the plan adds them up. */
  readonly creates?: (target: PartnerTarget) => readonly Planned[];
}

/** A check of a platform's token endpoint (T). */
export type TokenCase = Case<TokenContext>;

/** A check of a platform's calls to a partner (C, F). */
export type CallerCase = Case<CallerContext>;

/** The command was wrong: exit code 3. */
export class UsageProblem extends Error {
  override readonly name = 'UsageProblem';
}

/** Selects the checks of a profile, all or those named. Throws UsageProblem for an unknown name. */
export function choose<C extends CaseInfo>(
  cases: readonly C[],
  profile: Profile = 'contract',
  only?: readonly string[],
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

/** What the checks of a run may request. */
export type PlannedMoney = Readonly<ReturnType<typeof addUp>>;

/** Adds up what the chosen checks may request, beside the cap of the target; a payment shared by several counts once. */
export function addUp(cases: readonly PartnerCase[], target: PartnerTarget) {
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
  const { spending_cap_in_cents: cap } = target;
  return {
    payments: amounts.length,
    total_in_cents: amounts.reduce((sum, amount) => sum + amount, 0),
    largest_in_cents: Math.max(0, ...amounts),
    ...(cap !== undefined && { cap_in_cents: cap }),
  };
}
