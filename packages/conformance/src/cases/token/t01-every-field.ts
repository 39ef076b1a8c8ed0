import type { TokenCase } from '../../check/check.ts';
import { asObject, isJson, tell } from '../../check/http.ts';
import { tokenOf } from '../../check/token-context.ts';

export const t01: TokenCase = {
  id: 'T01',
  title: 'A token request with every field',
  clauses: ['A2', 'TK1', 'A1', 'S1'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with every field of the interface',
  expects: '200 JSON that holds the one text field token',
  likely_cause: 'The answer carries more than token, such as its expiry, or another status.',
  async run(t) {
    const reply = await t.create();
    t.must(reply.status === 200 && isJson(reply) && tokenOf(reply) !== undefined, {
      expected: '200 with {"token": "…"}',
      got: tell(reply),
      at: reply,
    });
    const fields = Object.keys(asObject(reply.json) ?? {});
    t.must(tokenOf(reply) === undefined || fields.length === 1, {
      expected: 'the single field token',
      got: `the fields ${fields.join(', ')}`,
      at: reply,
    });
  },
};
