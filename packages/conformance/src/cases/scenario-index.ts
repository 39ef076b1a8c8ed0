/** One check per scenario of the sandbox partner: what a platform must do while a partner, its token endpoint or the network fails. */
import type { CallerCase, CallerStage } from '../check/check.ts';
import { SCENARIOS, type Scenario } from '../sandbox/partner.ts';
import { SCENARIO_RULES, type ScenarioRule } from './scenario-rules.ts';
import { judgePayments } from './scenario-payments.ts';
import { OWN_JUDGES, type OwnJudge, judgeTokens } from './scenario-tokens.ts';

/** Amounts of these checks begin here; no other check uses them. */
const FIRST_CENTS = 15_010;

/** Cents between the first amounts of two checks: up to twenty payments, ten cents apart. */
const CENTS_EACH = 200;

const CAUSES: Readonly<Record<ScenarioRule['by'], string>> = {
  payments: 'The platform records an inconclusive response as an outcome.',
  tokens: 'The platform records a problem with the access token as a failed payment.',
  own: 'The platform records a payment as failed when it cannot reach the partner or get a token.',
};

function checkOf(scenario: Scenario, place: number): CallerCase[] {
  const rule = SCENARIO_RULES[scenario.name];
  if (rule === undefined) return [];
  const judge = judgeOf(scenario, rule);
  const cents = FIRST_CENTS + place * CENTS_EACH;
  const strict = rule.by === 'payments' && rule.strict === true;
  return [
    {
      id: idOf(scenario),
      title: scenario.title,
      clauses: rule.clauses,
      severity: strict ? 'should' : 'must',
      profile: strict ? 'strict' : 'contract',
      stage: stageOf(rule),
      likely_cause: `${CAUSES[rule.by]} A right one: ${scenario.caller}`,
      run: (t) => judge(t, cents),
    },
  ];
}

/** What judges a scenario. Throws when a scenario with its own judge has none, because its check would always pass. */
function judgeOf(scenario: Scenario, rule: ScenarioRule): OwnJudge {
  switch (rule.by) {
    case 'own': {
      const judge = OWN_JUDGES[scenario.name];
      if (judge === undefined) throw new Error(`${scenario.name} has no judge of its own`);
      return judge;
    }
    case 'payments':
      return (t, cents) => judgePayments(t, scenario, rule, cents);
    case 'tokens':
      return (t, cents) => judgeTokens(t, scenario, rule, cents);
  }
}

/** F01 for F01-timeout-before-commit; the second scenario of F47 is F47B. */
function idOf({ name }: Scenario): string {
  const number = name.slice(0, 3);
  const first = SCENARIOS.find((one) => one.name.startsWith(`${number}-`));
  return first?.name === name ? number : `${number}B`;
}

function stageOf(rule: ScenarioRule): CallerStage {
  if (rule.by !== 'own' && rule.last === true) return 'last';
  return rule.by === 'payments' ? 'main' : 'alone';
}

/** In the order of the scenarios; those that show nothing from outside have no check. */
export const SCENARIO_CASES: readonly CallerCase[] = SCENARIOS.flatMap(checkOf);
