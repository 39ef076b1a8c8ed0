import type { PartnerCase } from '../../check/check.ts';
import { asObject, isJson, isSuccess, show, tell, type Reply } from '../../check/http.ts';
import { accessToken, type PartnerContext } from '../../check/partner-context.ts';
import { oauthOnly } from '../shared.ts';

/** A scope that no server knows. */
const NO_SCOPE = 'no-such-scope-duebridge';

export const p67: PartnerCase = {
  id: 'P67',
  title: 'The token endpoint refuses other grants and scopes with the errors of OAuth 2.0',
  clauses: ['OA2', 'OA1', 'OA3', 'SC1'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  sends:
    'a form POST to the token endpoint with grant_type password, without grant_type, with a wrong secret, and with an unknown scope',
  expects:
    'no token for another grant, and no scope that was not requested; in the strict profile, 400 or 401 with the errors of RFC 6749: unsupported_grant_type, invalid_request, invalid_client and invalid_scope',
  likely_cause:
    'Only client_id and client_secret are read, or errors have the form of the payment operations.',
  unfit: oauthOnly,
  async run(t: PartnerContext) {
    const other = await t.run.fetchToken(t.check, { grant_type: 'password' });
    // RFC 6749 has no separate error for a missing field, and many servers treat it as an unknown grant.
    const none = await t.run.fetchToken(t.check, { grant_type: undefined });
    for (const [what, reply] of [
      ['grant_type password', other],
      ['a request without grant_type', none],
    ] as const) {
      t.should(accessToken(reply) === undefined && !isSuccess(reply), {
        expected: `no token for ${what}: the only grant is client_credentials`,
        got: tell(reply),
        at: reply,
      });
    }
    errorOf(t, other, [400], ['unsupported_grant_type', 'unauthorized_client']);
    errorOf(t, none, [400], ['invalid_request', 'unsupported_grant_type']);
    const wrong = await t.run.fetchToken(t.check, { client_secret: 'wrong-secret-duebridge' });
    errorOf(t, wrong, [400, 401], ['invalid_client']);
    const unknown = await t.run.fetchToken(t.check, { scope: NO_SCOPE });
    const granted = asObject(unknown.json)?.['scope'];
    t.should(typeof granted !== 'string' || !granted.split(' ').includes(NO_SCOPE), {
      expected: 'a refusal, or a token without the unknown scope',
      got: `scope ${show(granted)}`,
      clause: 'OA3',
      cause: 'The response repeats the requested scope instead of the granted one.',
      at: unknown,
    });
    errorOf(t, unknown, [400], ['invalid_scope']);
    const read = await t.run.fetchToken(t.check, { scope: 'read' });
    const shown = asObject(read.json)?.['scope'];
    t.should(typeof shown !== 'string' || !shown.split(' ').includes('write'), {
      expected: 'a token of scope read, as requested',
      got: `scope ${show(shown)}`,
      clause: 'SC1',
      cause: 'The token gets every scope of the client, whatever was requested.',
      at: read,
    });
  },
};

/** Raises a finding, in the strict profile, when a refusal has not the form and one of these errors of RFC 6749, section 5.2. */
function errorOf(
  t: PartnerContext,
  reply: Reply,
  statuses: readonly number[],
  words: readonly string[],
): void {
  // Whether a token may be issued at all is judged elsewhere, and a rate limit says nothing about the request.
  if (isSuccess(reply) || reply.status === undefined || reply.status === 429) return;
  const error = asObject(reply.json)?.['error'];
  const holds =
    statuses.includes(reply.status ?? 0) &&
    isJson(reply) &&
    typeof error === 'string' &&
    words.includes(error);
  t.strict(holds, {
    expected: `${statuses.join(' or ')} {"error":"${words[0] ?? ''}"}`,
    got: tell(reply),
    at: reply,
  });
}
