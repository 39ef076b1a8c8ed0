import type { TokenCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import { credentials } from '../../check/token-context.ts';

export const t11: TokenCase = {
  id: 'T11',
  title: 'Other content types and methods are refused',
  clauses: ['A1', 'ER3'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  sends:
    'POST create token as text/plain, and as types whose names only begin with application/json; GET on its path',
  expects: '415 for the content types, 405 for the method',
  likely_cause: 'Any body is parsed as JSON, or the router answers 404 for an unsupported method.',
  async run(t) {
    for (const type of ['text/plain', 'application/jsonlines', 'application/json-patch+json']) {
      const typed = await t.create(undefined, { 'content-type': type });
      t.should(typed.status === 415, { expected: `415 for ${type}`, got: tell(typed), at: typed });
    }
    const got = await t.send({
      method: 'GET',
      url: t.run.url,
      headers: credentials(t.target, { 'content-type': undefined }),
    });
    t.should(got.status === 405, { expected: '405', got: tell(got), at: got });
    t.strict(got.status !== 405 || /\bPOST\b/.test(got.headers['allow'] ?? ''), {
      expected: 'the header Allow: POST',
      got: show(got.headers['allow']),
      at: got,
    });
  },
};
