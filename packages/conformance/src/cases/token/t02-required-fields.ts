import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { leastBody, tokenOf } from '../../check/token-context.ts';

export const t02: TokenCase = {
  id: 'T02',
  title: 'A token request with only the required fields is accepted',
  clauses: ['TR1'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token without address_line_2, balance and external_identifiers',
  expects: '200 with a token',
  likely_cause:
    'The schema requires an optional field, or the code reads it without checking that it is present.',
  async run(t) {
    const reply = await t.create(leastBody());
    t.must(reply.status === 200 && tokenOf(reply) !== undefined, {
      expected: '200 with a token',
      got: tell(reply),
      at: reply,
    });
  },
};
