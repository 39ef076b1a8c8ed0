import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { accessToken } from '../../check/partner-context.ts';
import { oauthOnly } from '../shared.ts';

export const p04: PartnerCase = {
  id: 'P04',
  title: 'The token endpoint is asked with a wrong secret',
  clauses: ['OA1'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST form to the token endpoint with a wrong client_secret',
  expects: '400 or 401, and no access token',
  likely_cause: 'The endpoint looks the client up but does not compare the secret.',
  unfit: oauthOnly,
  async run(t) {
    const reply = await t.run.fetchToken(t.check, { client_secret: 'wrong-secret-duebridge' });
    t.must(
      (reply.status === 400 || reply.status === 401) &&
        accessToken(reply) === undefined &&
        !reply.text.includes('"access_token"'),
      { expected: '400 or 401 without a token', got: tell(reply), at: reply },
    );
  },
};
