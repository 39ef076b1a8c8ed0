import { randomUUID } from 'node:crypto';
import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

export const p29: PartnerCase = {
  id: 'P29',
  title: 'A repeat with another batch id leaves the stored one unchanged',
  clauses: ['PF3', 'RU5'],
  decisions: [9],
  severity: 'should',
  profile: 'contract',
  sends: 'PUT payment, then PUT with the same id and another platform_batch_id, then GET',
  expects: 'the batch id of the first request',
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: (target) => [own(target, 29)],
  async run(t: PartnerContext) {
    const intent = t.intend(own(t.target, 29));
    const first = recordOf(await t.put(intent));
    t.given(first !== undefined, 'no new payment was accepted (see P20)');
    await t.put(intent, { fields: { platform_batch_id: randomUUID() } });
    const read = await t.read(intent);
    t.should(recordOf(read)?.['platform_batch_id'] === first['platform_batch_id'], {
      expected: `platform_batch_id ${show(first['platform_batch_id'])}`,
      got: tell(read),
      at: read,
    });
  },
};
