import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p42: PartnerCase = {
  id: 'P42',
  title: 'A payment without a batch id is refused',
  clauses: ['PF3'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment without platform_batch_id',
  expects: 'a refusal (400), and no payment under that id',
  likely_cause:
    'Only the amount is validated; the missing batch id is noticed only at reconciliation.',
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
      expected: '400 or 422: the request is invalid, not the credential or the URL',
      got: tell(put),
      cause:
        'The platform does not treat any other refusal as final, so it retries the request forever.',
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
