import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, tell } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { oauthOnly } from '../shared.ts';

export const p06: PartnerCase = {
  id: 'P06',
  title: 'A token with scope write cannot read',
  clauses: ['SC1'],
  severity: 'should',
  profile: 'contract',
  sends: 'every read with a token that has scope write',
  expects: 'a refusal (403)',
  likely_cause:
    'The server treats write as including read; in the interface they are separate scopes.',
  unfit: oauthOnly,
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    const granted = await t.run.fetchToken(t.check, { scope: 'write' });
    const token = accessToken(granted);
    t.given(
      token !== undefined,
      `the token endpoint issues no token for scope write: ${tell(granted)}`,
    );
    const proof = { authorization: `Bearer ${token}` };
    const replies = [await t.readAccount(undefined, { proof })];
    if (t.target.paths.get_balance !== null)
      replies.push(await t.readBalance(undefined, { proof }));
    if (t.target.paths.get_payment !== null) {
      const { subject } = await t.accepted();
      replies.push(await t.readById(subject.intent, { proof }));
    }
    for (const reply of replies) {
      t.should(isRefusal(reply), {
        expected: 'a refusal, such as 403',
        got: tell(reply),
        at: reply,
      });
    }
  },
};
