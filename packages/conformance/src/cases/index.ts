/** Every check, in report order. */
import type { CallerCase, CaseInfo, PartnerCase, TokenCase } from '../check/check.ts';
import { ACCESS } from './access.ts';
import { ACCOUNTS } from './accounts.ts';
import { CALLER_POLLS } from './caller-polls.ts';
import { CALLER_REQUESTS } from './caller.ts';
import { POLLING } from './poll.ts';
import { PUT_RACES } from './put-races.ts';
import { PUT_REPEATS } from './put-repeats.ts';
import { PUTS } from './put.ts';
import { WHOLE_RUN } from './run.ts';
import { SCENARIO_CASES } from './scenario-index.ts';
import { TOKEN_ACCESS } from './token-access.ts';
import { TOKEN_REQUESTS } from './token.ts';

export { SCENARIO_CASES } from './scenario-index.ts';

/** Checks of a partner's server. */
export const PARTNER_CASES: readonly PartnerCase[] = inOrder([
  ...ACCESS,
  ...ACCOUNTS,
  ...PUTS,
  ...PUT_REPEATS,
  ...PUT_RACES,
  ...POLLING,
  ...WHOLE_RUN,
]);

/** Checks of a platform's token endpoint. */
export const TOKEN_CASES: readonly TokenCase[] = inOrder([...TOKEN_REQUESTS, ...TOKEN_ACCESS]);

/** Checks of a platform's calls to a partner; each has its stage. */
export const CALLER_CASES: readonly CallerCase[] = inOrder([...CALLER_REQUESTS, ...CALLER_POLLS]);

/** Every check of a platform. */
export const PLATFORM_CASES: readonly CaseInfo[] = [
  ...TOKEN_CASES,
  ...CALLER_CASES,
  ...SCENARIO_CASES,
];

/** Checks that judge what the others made a server do: alone they see none of it. */
export const OF_THE_WHOLE_RUN: readonly string[] = [
  ...WHOLE_RUN.map(({ id }) => id),
  'P66',
  'T20',
  'T21',
];

/** The checks of several chapters by id. */
function inOrder<C extends CaseInfo>(cases: readonly C[]): readonly C[] {
  return cases.toSorted((one, other) => (one.id < other.id ? -1 : 1));
}
