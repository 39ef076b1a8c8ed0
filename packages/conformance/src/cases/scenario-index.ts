/** One check per scenario of the scripted partner: what a platform must do while a partner, its token endpoint or the network fails. */
import type { CallerCase } from '../check/check.ts';
import { SCENARIOS } from '../scripted/partner.ts';
import { judgePayments } from './scenario-payments.ts';
import { OWN_JUDGES, judgeTokens } from './scenario-tokens.ts';

/** Amounts of these checks begin here; no other check uses them. */
const FIRST_CENTS = 15_010;

/** Cents between the first amounts of two checks: up to twenty payments, ten cents apart. */
const CENTS_EACH = 200;

const CAUSES = {
  payments: 'The platform records an inconclusive response as an outcome.',
  tokens: 'The platform records a problem with the access token as a failed payment.',
  own: 'The platform records a payment as failed when it cannot reach the partner or get a token.',
};

/** In the order of the scenarios. */
export const SCENARIO_CASES: readonly CallerCase[] = SCENARIOS.map((scenario, place) => {
  const { name, title, caller, clauses, ofTokens, strict, last } = scenario;
  const own = OWN_JUDGES[name];
  const by = own !== undefined ? 'own' : ofTokens === true ? 'tokens' : 'payments';
  const cents = FIRST_CENTS + place * CENTS_EACH;
  return {
    id: name.slice(0, 3),
    title,
    clauses,
    ...(strict === true && { severity: 'should', profile: 'strict' }),
    stage: last === true ? 'last' : by === 'payments' ? 'main' : 'alone',
    likely_cause: `${CAUSES[by]} A right one: ${caller}`,
    run(t) {
      if (own !== undefined) return own(t, cents);
      return ofTokens === true
        ? judgeTokens(t, scenario, cents)
        : judgePayments(t, scenario, cents);
    },
  };
});
