import type { PartnerCase } from '../../check/check.ts';
import { isJson, tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p15: PartnerCase = {
  id: 'P15',
  title: 'Reading an unknown payment returns 404',
  clauses: ['B5', 'B3'],
  decisions: [5],
  severity: 'should',
  profile: 'contract',
  sends: 'GET payment with an id that was never used',
  expects: '404 with a JSON body',
  likely_cause:
    'A missing row results in an empty 200 or in an unhandled exception; the platform then cannot tell a lost payment from a slow one.',
  async run(t) {
    const intent = t.intend(own(t.target, 0));
    const replies = [await t.read(intent)];
    if (t.target.paths.get_payment !== null) replies.push(await t.readById(intent));
    for (const reply of replies) {
      t.should(reply.status === 404 && isJson(reply), {
        expected: '404 with a JSON body',
        got: tell(reply),
        at: reply,
      });
    }
  },
};
