import type { TokenCase } from '../../check/check.ts';
import { asObject, tell } from '../../check/http.ts';

export const t05: TokenCase = {
  id: 'T05',
  title: 'An unknown client id returns 404',
  clauses: ['ER1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with an X-Client-Id that was never issued, and with the right one in another case',
  expects: '404 {"code": "NOT_FOUND", "message": "Resource not found"}',
  likely_cause: 'The authentication layer answers 401 before the client is looked up.',
  async run(t) {
    const reply = await t.create(undefined, { 'x-client-id': 'never-issued-duebridge' });
    const error = asObject(reply.json);
    t.must(
      reply.status === 404 &&
        error?.['code'] === 'NOT_FOUND' &&
        error['message'] === 'Resource not found',
      {
        expected: '404 {"code":"NOT_FOUND","message":"Resource not found"}',
        got: tell(reply),
        at: reply,
      },
    );
    const { client_id } = t.target;
    const upper = client_id.toUpperCase();
    const folded = upper === client_id ? client_id.toLowerCase() : upper;
    if (folded === client_id) return;
    const other = await t.create(undefined, { 'x-client-id': folded });
    t.refused(other, 'the client id in another case, which was never issued', 'should');
  },
};
