/** Every check, in report order. */
import type { CallerCase, CaseInfo, Draft, PartnerCase, TokenCase } from '../check/check.ts';
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
export const PARTNER_CASES: readonly PartnerCase[] = complete([
  ...ACCESS,
  ...ACCOUNTS,
  ...PUTS,
  ...PUT_REPEATS,
  ...PUT_RACES,
  ...POLLING,
  ...WHOLE_RUN,
]);

/** Checks of a platform's token endpoint. */
export const TOKEN_CASES: readonly TokenCase[] = complete([...TOKEN_REQUESTS, ...TOKEN_ACCESS]);

/** Checks of a platform's calls to a partner; each has its stage. */
export const CALLER_CASES: readonly CallerCase[] = complete([...CALLER_REQUESTS, ...CALLER_POLLS]);

/** Every check of a platform. */
export const PLATFORM_CASES: readonly CaseInfo[] = [
  ...TOKEN_CASES,
  ...CALLER_CASES,
  ...SCENARIO_CASES,
];

/** The checks of several chapters by id, with what they left out. */
function complete<C extends CaseInfo>(drafts: readonly Draft<C>[]): readonly C[] {
  return drafts
    .map((draft) => ({ severity: 'must', profile: 'contract', ...draft }) as C)
    .toSorted((one, other) => (one.id < other.id ? -1 : 1));
}
