import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';
import { own } from '../../check/planned-payments.ts';

export const p37: PartnerCase = {
  id: 'P37',
  title: 'A body whose id differs from the path is refused',
  clauses: ['PF2'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment with a platform_payment_id in the body that differs from the one in the path',
  expects: 'a refusal (400), and no payment under either id',
  likely_cause: 'The server silently uses one of the two.',
  creates: (target) => [own(target, 37)],
  async run(t) {
    const intent = t.intend(own(t.target, 37));
    const other = t.intend(own(t.target, 37));
    const put = await t.put(intent, { fields: { platform_payment_id: other.platform_payment_id } });
    t.should(isRefusal(put), { expected: 'a refusal, such as 400', got: tell(put), at: put });
    if (!isRefusal(put)) return;
    t.strict(put.status === 400 || put.status === 422, {
      expected: '400 or 422: the request is invalid, not the credential or the URL',
      got: tell(put),
      cause:
        'The platform does not treat any other refusal as final, so it retries the request forever.',
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
