import type { PartnerCase } from '../../check/check.ts';
import { asObject, isSuccess, tell } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { oauthOnly } from '../shared.ts';

/** Longest token lifetime for which the judge waits until expiry. */
const LONGEST_WAIT_SECONDS = 10;

export const p07: PartnerCase = {
  id: 'P07',
  title: 'An expired access token is refused',
  clauses: ['OA3'],
  decisions: [14],
  severity: 'should',
  profile: 'contract',
  sends: `GET account with a token whose expires_in has passed (only if expires_in is ${LONGEST_WAIT_SECONDS} s or less)`,
  expects: '401, and a new token works',
  likely_cause:
    'The server announces expires_in but never enforces it, or its unit is not seconds.',
  unfit: oauthOnly,
  async run(t: PartnerContext) {
    const granted = await t.run.fetchToken(t.check);
    const token = accessToken(granted);
    const seconds = asObject(granted.json)?.['expires_in'];
    t.given(
      token !== undefined && typeof seconds === 'number' && seconds <= LONGEST_WAIT_SECONDS,
      `the token lives longer than ${LONGEST_WAIT_SECONDS} s`,
    );
    // Wait half a second longer than announced, because neither clock is exact.
    await t.run.sleep(seconds * 1_000 + 500);
    const late = await t.readAccount(undefined, { proof: { authorization: `Bearer ${token}` } });
    t.should(late.status === 401, { expected: '401', got: tell(late), at: late });
    const fresh = accessToken(await t.run.fetchToken(t.check));
    const again = await t.readAccount(undefined, {
      proof: { authorization: `Bearer ${fresh ?? ''}` },
    });
    t.should(isSuccess(again), {
      expected: '200 with a new token',
      got: tell(again),
      at: again,
    });
  },
};
