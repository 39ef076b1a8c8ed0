import type { PartnerCase } from '../../check/check.ts';
import { isJson, isRefusal, tell } from '../../check/http.ts';

export const p11: PartnerCase = {
  id: 'P11',
  title: 'Reading an account that does not exist returns an error',
  clauses: ['ER3', 'B1'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  sends: 'GET account with an id that no account has',
  expects: 'a refusal (404) with a JSON body; neither 2xx nor 5xx',
  likely_cause: 'A missing row results in an empty 200 or in an unhandled exception.',
  async run(t) {
    const reply = await t.readAccount(t.target.accounts.unknown);
    t.should(isRefusal(reply) && isJson(reply), {
      expected: '404 with a JSON body',
      got: tell(reply),
      at: reply,
    });
    t.strict(reply.status === 404, { expected: '404', got: tell(reply), at: reply });
  },
};
