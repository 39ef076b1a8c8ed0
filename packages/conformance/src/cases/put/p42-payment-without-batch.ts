import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p42: PartnerCase = {
  id: 'P42',
  title: 'A payment that belongs to no batch',
  clauses: ['PF3'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment without platform_batch_id',
  expects: 'a refusal (400), and no payment under that id',
  likely_cause: 'Only the amount is validated; the missing batch is found at reconciliation.',
  creates: (target) => [own(target, 42)],
  async run(t) {
    const intent = t.intend(own(t.target, 42));
    const put = await t.put(intent, { fields: { platform_batch_id: undefined } });
    const refused = t.should(isRefusal(put), {
      expected: 'a refusal of a body without platform_batch_id, such as 400',
      got: tell(put),
      at: put,
    });
    if (!refused) return;
    t.strict(put.status === 400 || put.status === 422, {
      expected: '400 or 422: the request is wrong, not the credential or the address',
      got: tell(put),
      cause: 'To the platform, another refusal says nothing final: it repeats the request forever.',
      at: put,
    });
    const read = await t.read(intent);
    t.should(!isSuccess(read), {
      expected: 'no payment under the refused id',
      got: tell(read),
      at: read,
    });
  },
};
