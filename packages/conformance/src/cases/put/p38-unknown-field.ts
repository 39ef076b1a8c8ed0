import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p38: PartnerCase = {
  id: 'P38',
  title: 'Unknown fields are ignored',
  clauses: ['PF9', 'VE1'],
  decisions: [2, 17],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment with an extra field in its body',
  expects: '200: unknown fields are ignored, so that the interface can grow',
  likely_cause: 'The schema forbids additional properties.',
  creates: (target) => [own(target, 38)],
  async run(t) {
    const reply = await t.put(t.intend(own(t.target, 38)), {
      fields: { a_field_of_tomorrow: 'duebridge' },
    });
    t.should(reply.status === 200, { expected: '200', got: tell(reply), at: reply });
  },
};
