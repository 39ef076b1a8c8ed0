import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { oauthOnly } from '../shared.ts';

export const p04: PartnerCase = {
  id: 'P04',
  title: 'The token endpoint refuses wrong client credentials',
  clauses: ['OA1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'a form POST to the token endpoint with a wrong client_secret, with the right one truncated and lengthened, and with another client_id',
  expects: '400 or 401, and no access token',
  likely_cause:
    'The endpoint looks up the client but does not compare the whole secret, or it compares only the secret and ignores the client_id.',
  unfit: oauthOnly,
  async run(t: PartnerContext) {
    const { authentication } = t.target;
    t.given(authentication.method === 'oauth', 'the target uses a static key, not OAuth');
    const { client_id, client_secret } = authentication;
    const tries: [string, { client_secret?: string; client_id?: string }][] = [
      ['a wrong secret', { client_secret: 'wrong-secret-duebridge' }],
      ['the secret without its last character', { client_secret: client_secret.slice(0, -1) }],
      ['the secret with one character appended', { client_secret: `${client_secret}x` }],
      ['the right secret under another client_id', { client_id: `${client_id}-duebridge` }],
    ];
    for (const [what, change] of tries) {
      const reply = await t.run.fetchToken(t.check, change);
      t.must(
        (reply.status === 400 || reply.status === 401 || reply.status === 403) &&
          accessToken(reply) === undefined &&
          !reply.text.includes('"access_token"'),
        { expected: `400 or 401 without a token, for ${what}`, got: tell(reply), at: reply },
      );
    }
  },
};
