/** What a run will do, computed before it starts: which checks, which payments, how many cents. */
import type { CaseInfo, PartnerCase } from './check.ts';
import type { Profile } from './findings.ts';
import type { Planned } from './planned-payments.ts';
import type { PartnerTarget } from './target.ts';

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
    return cases.filter((one) => profile === 'strict' || one.profile === 'contract');
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
