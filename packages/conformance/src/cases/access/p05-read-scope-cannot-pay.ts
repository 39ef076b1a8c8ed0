import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';
import { oauthOnly } from '../shared.ts';

export const p05: PartnerCase = {
  id: 'P05',
  title: 'A token for reading alone is used to pay',
  clauses: ['SC1'],
  severity: 'must',
  profile: 'contract',
  sends: 'a token with scope read, then PUT payment with it',
  expects: 'a refusal (403), and no payment under that id',
  likely_cause: 'Any valid token passes; the scope of the operation is never compared.',
  unfit: oauthOnly,
  creates: (target) => [own(target, 5)],
  async run(t: PartnerContext) {
    const granted = await t.run.fetchToken(t.check, { scope: 'read' });
    const token = accessToken(granted);
    t.given(
      token !== undefined,
      `the token endpoint gives no token for scope read: ${tell(granted)}`,
    );
    const intent = t.intend(own(t.target, 5));
    const reply = await t.put(intent, { proof: { authorization: `Bearer ${token}` } });
    const refused = t.must(isRefusal(reply), {
      expected: 'a refusal, such as 403',
      got: tell(reply),
      at: reply,
    });
    t.strict(!refused || reply.status === 403, { expected: '403', got: tell(reply), at: reply });
    if (!refused) return;
    const read = await t.read(intent);
    t.must(!isSuccess(read), {
      expected: 'no payment under the refused id',
      got: tell(read),
      at: read,
    });
  },
};
