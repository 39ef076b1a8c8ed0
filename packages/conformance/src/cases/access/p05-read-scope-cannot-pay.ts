import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { oauthOnly } from '../shared.ts';

/** Content types for which the scope must be enforced too. */
const TYPES = ['application/json', 'application/json; charset=utf-8', 'text/plain'];

export const p05: PartnerCase = {
  id: 'P05',
  title: 'A token with scope read cannot create payments',
  clauses: ['SC1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'PUT payment with a token that has scope read: as JSON, as JSON with a charset, and as text; and PUT of an existing payment',
  expects: 'a refusal (403), and no payment under that id',
  likely_cause:
    'Any valid token is accepted, or the scope is checked only for one content type or only when a payment is new.',
  unfit: oauthOnly,
  creates: (target) => [...sharedAll(target, ['first']), ...TYPES.map(() => own(target, 5))],
  async run(t: PartnerContext) {
    const granted = await t.run.fetchToken(t.check, { scope: 'read' });
    const token = accessToken(granted);
    t.given(
      token !== undefined,
      `the token endpoint issues no token for scope read: ${tell(granted)}`,
    );
    const proof = { authorization: `Bearer ${token}` };
    for (const type of TYPES) {
      const intent = t.intend(own(t.target, 5));
      const reply = await t.put(intent, { proof, headers: { 'content-type': type } });
      const refused = t.must(isRefusal(reply), {
        expected: `a refusal of a PUT as ${type}, such as 403`,
        got: tell(reply),
        at: reply,
      });
      if (type === TYPES[0]) {
        t.strict(!refused || reply.status === 403, {
          expected: '403',
          got: tell(reply),
          at: reply,
        });
      }
      const read = await t.read(intent);
      t.must(!isSuccess(read), {
        expected: 'no payment under the refused id',
        got: tell(read),
        at: read,
      });
    }
    const { subject } = await t.accepted();
    const again = await t.put(subject.intent, { proof });
    t.must(isRefusal(again), {
      expected: 'a refusal of a PUT that repeats a known payment, such as 403',
      got: tell(again),
      at: again,
    });
  },
};
