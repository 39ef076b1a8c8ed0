import type { PartnerCase } from '../../check/check.ts';
import { asObject, isRefusal, tell } from '../../check/http.ts';

export const p01: PartnerCase = {
  id: 'P01',
  title: 'A caller without a credential reads an account',
  clauses: ['S3'],
  severity: 'must',
  profile: 'contract',
  sends: 'GET account with no credential at all',
  expects: 'a refusal (401), with nothing of the account in it',
  likely_cause:
    'The route is mounted outside the authentication layer, or a missing header is treated as "no check needed".',
  async run(t) {
    const reply = await t.readAccount(undefined, { proof: 'none' });
    const refused = t.must(isRefusal(reply), {
      expected: 'a refusal, such as 401',
      got: tell(reply),
      at: reply,
    });
    if (!refused) return;
    const body = asObject(reply.json) ?? {};
    t.must(!('balance' in body) && !('holder' in body) && !('account_id' in body), {
      expected: 'no account data in the refusal',
      got: tell(reply),
      at: reply,
    });
    t.strict(reply.status === 401, { expected: '401', got: tell(reply), at: reply });
  },
};
