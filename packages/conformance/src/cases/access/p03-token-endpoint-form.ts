import type { PartnerCase } from '../../check/check.ts';
import { asObject, isJson, show, tell } from '../../check/http.ts';
import { oauthOnly } from '../shared.ts';

export const p03: PartnerCase = {
  id: 'P03',
  title: 'The token endpoint accepts the OAuth 2.0 client credentials form',
  clauses: ['OA2', 'OA3'],
  decisions: [14],
  severity: 'must',
  profile: 'contract',
  sends: 'a form POST to the token endpoint: grant_type, client_id, client_secret, scope',
  expects:
    '200 JSON with access_token, token_type Bearer, expires_in as a positive integer, and scope',
  likely_cause:
    'The endpoint expects JSON instead of a form, or omits a field that the partner’s own client library does not read.',
  unfit: oauthOnly,
  async run(t) {
    const reply = await t.run.fetchToken(t.check);
    const body = asObject(reply.json);
    const read = t.must(reply.status === 200 && isJson(reply) && body !== undefined, {
      expected: '200 with a JSON object',
      got: tell(reply),
      at: reply,
    });
    if (!read || body === undefined) return;
    const { access_token, token_type, expires_in, scope } = body;
    t.must(typeof access_token === 'string' && access_token !== '', {
      expected: 'access_token, a non-empty string',
      got: `access_token is ${access_token === undefined ? 'missing' : 'not a non-empty string'}`,
      at: reply,
    });
    t.must(typeof token_type === 'string' && token_type.toLowerCase() === 'bearer', {
      expected: 'token_type "Bearer"',
      got: `token_type is ${show(token_type)}`,
      at: reply,
    });
    t.must(typeof expires_in === 'number' && expires_in > 0, {
      expected: 'expires_in, a positive integer number of seconds',
      got: `expires_in is ${show(expires_in)}`,
      at: reply,
    });
    t.must(typeof scope === 'string', {
      expected: 'scope, the scopes granted',
      got: `scope is ${show(scope)}`,
      at: reply,
    });
  },
};
