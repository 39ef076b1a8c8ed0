import type { TokenCase } from '../../check/check.ts';
import { asObject, tell, type Reply } from '../../check/http.ts';

export const t05: TokenCase = {
  id: 'T05',
  title: 'An unknown client id returns 404',
  clauses: ['ER1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with an X-Client-Id that was never issued: a made-up one (twice), the patterns % and *, and the right one truncated, lengthened or in another case; and a made-up one with an invalid body',
  expects:
    '404 {"code": "NOT_FOUND", "message": "Resource not found"} for the made-up one, and a refusal of the others',
  likely_cause: 'The authentication layer answers 401 before the client is looked up.',
  async run(t) {
    const { client_id } = t.target;
    // Twice: the first lookup may leave something behind that the second one finds.
    for (let time = 0; time < 2; time += 1) {
      const reply = await t.create(undefined, { 'x-client-id': 'never-issued-duebridge' });
      const known = t.must(isNotFound(reply), { expected: NOT_FOUND, got: tell(reply), at: reply });
      if (!known) return;
    }
    const similar: [string, string][] = [
      ['the pattern % as client id', '%'],
      ['the pattern * as client id', '*'],
      ['the right client id without its last character', client_id.slice(0, -1)],
      ['the right client id with a character appended', `${client_id}x`],
    ];
    for (const [what, id] of similar.filter(([, one]) => one !== '')) {
      const refusal = await t.create(undefined, { 'x-client-id': id });
      if (!t.refused(refusal, what)) return;
      // A gateway may refuse a malformed id by itself, and a similar one may belong to another client.
      t.should(isNotFound(refusal) || refusal.status === 401, {
        expected: `${NOT_FOUND} for ${what}`,
        got: tell(refusal),
        at: refusal,
      });
    }
    const upper = client_id.toUpperCase();
    const folded = upper === client_id ? client_id.toLowerCase() : upper;
    if (folded !== client_id) {
      const other = await t.create(undefined, { 'x-client-id': folded });
      t.refused(other, 'the client id in another case, which was never issued', 'should');
    }
    const broken = await t.create('{', { 'x-client-id': 'never-issued-duebridge' });
    t.strict(isNotFound(broken), {
      expected: `${NOT_FOUND} for an unknown client, whatever its body`,
      got: tell(broken),
      cause: 'The body is validated before the caller is authenticated.',
      at: broken,
    });
  },
};

const NOT_FOUND = '404 {"code":"NOT_FOUND","message":"Resource not found"}';

function isNotFound(reply: Reply): boolean {
  const error = asObject(reply.json);
  return (
    reply.status === 404 &&
    error?.['code'] === 'NOT_FOUND' &&
    error['message'] === 'Resource not found'
  );
}
