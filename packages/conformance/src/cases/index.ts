/** Every check, in report order. */
import type { CallerCase, PartnerCase, TokenCase } from '../check/check.ts';
import type { CaseInfo } from '../check/findings.ts';
import { SCENARIOS } from '../scripted/partner.ts';
import { ACCESS } from './access.ts';
import { CALLER } from './caller.ts';
import { POLLING } from './poll.ts';
import { PUTS } from './put.ts';
import { REPEATED_PUTS } from './repeats.ts';
import { WHOLE_RUN } from './run.ts';
import { judgeScenario, OWN_JUDGES } from './scenarios.ts';
import { TOKEN_ACCESS } from './token-access.ts';
import { TOKEN_REQUESTS } from './token.ts';

/** Checks of a partner's server. */
export const PARTNER_CASES: readonly PartnerCase[] = inOrder([
  ...ACCESS,
  ...PUTS,
  ...REPEATED_PUTS,
  ...POLLING,
  ...WHOLE_RUN,
]);

/** Checks of a platform's token endpoint. */
export const TOKEN_CASES: readonly TokenCase[] = inOrder([...TOKEN_REQUESTS, ...TOKEN_ACCESS]);

/** Checks of a platform's calls to a partner; each has its stage. */
export const CALLER_CASES: readonly CallerCase[] = CALLER;

/** Amounts of these checks begin here; no other check uses them. */
const FIRST_CENTS = 15_010;

/** Cents between the first amounts of two checks: up to twenty payments, ten cents apart. */
const CENTS_EACH = 200;

/** What usually goes wrong at a fault of the token endpoint, and at one of a payment. */
const CAUSES = {
  tokens: 'The platform records a problem with the access token as a failed payment.',
  payments: 'The platform records an inconclusive response as an outcome.',
};

/** What a platform must do while a partner, its token endpoint or the network fails: one check a scenario, in their order. */
export const SCENARIO_CASES: readonly CallerCase[] = SCENARIOS.map((scenario, place) => {
  const { name, title, caller, clauses, ofTokens, strict, last } = scenario;
  const own = OWN_JUDGES[name];
  const cents = FIRST_CENTS + place * CENTS_EACH;
  return {
    id: name.slice(0, 3),
    title,
    clauses,
    ...(strict === true && { severity: 'should', profile: 'strict' }),
    stage: last === true ? 'last' : own === undefined && ofTokens !== true ? 'main' : 'alone',
    likely_cause: `${CAUSES[ofTokens === true ? 'tokens' : 'payments']} A right one: ${caller}`,
    run: (t) => (own === undefined ? judgeScenario(t, scenario, cents) : own(t, cents)),
  };
});

/** Every check of a platform. */
export const PLATFORM_CASES: readonly CaseInfo[] = [
  ...TOKEN_CASES,
  ...CALLER_CASES,
  ...SCENARIO_CASES,
];

/** Checks that judge what the others made a server do: alone they see none of it. */
export const OF_THE_WHOLE_RUN: readonly string[] = [
  'P54',
  ...WHOLE_RUN.map(({ id }) => id),
  'T20',
  'T21',
];

/** The checks of several chapters by id. */
function inOrder<C extends CaseInfo>(cases: readonly C[]): readonly C[] {
  return cases.toSorted((one, other) => (one.id < other.id ? -1 : 1));
}
