import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p37: PartnerCase = {
  id: 'P37',
  title: 'The id in the body is not the id in the path',
  clauses: ['PF2'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment whose body names another platform_payment_id than its path',
  expects: 'a refusal (400), and no payment under either id',
  likely_cause: 'One of the two is silently preferred.',
  creates: (target) => [own(target, 37)],
  async run(t) {
    const intent = t.intend(own(t.target, 37));
    const other = t.intend(own(t.target, 37));
    const put = await t.put(intent, { fields: { platform_payment_id: other.platform_payment_id } });
    t.should(isRefusal(put), { expected: 'a refusal, such as 400', got: tell(put), at: put });
    if (!isRefusal(put)) return;
    t.strict(put.status === 400 || put.status === 422, {
      expected: '400 or 422: the request is wrong, not the credential or the address',
      got: tell(put),
      cause: 'To the platform, another refusal says nothing final: it repeats the request forever.',
      at: put,
    });
    for (const made of [intent, other]) {
      const read = await t.read(made);
      t.should(!isSuccess(read), {
        expected: 'no payment under either id',
        got: tell(read),
        at: read,
      });
    }
  },
};
