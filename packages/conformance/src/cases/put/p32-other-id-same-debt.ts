import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

export const p32: PartnerCase = {
  id: 'P32',
  title: 'A PUT with another id is another payment, even with the same account and amount',
  clauses: ['ID1', 'FR1'],
  severity: 'must',
  profile: 'contract',
  sends: 'two PUTs with different ids, the same account and the same amount',
  expects:
    '200 and a distinct payment_id for each; the second may end as failed because it is a business duplicate',
  likely_cause: 'The server detects repeats by account and amount instead of by id.',
  creates: (target) => [own(target, 32), own(target, 32)],
  async run(t: PartnerContext) {
    const first = recordOf(await t.put(t.intend(own(t.target, 32))));
    t.given(first !== undefined, 'no new payment was accepted (see P20)');
    const intent = t.intend(own(t.target, 32));
    const reply = await t.put(intent);
    const second = recordOf(reply);
    t.must(
      second !== undefined &&
        second['payment_id'] !== first['payment_id'] &&
        second['platform_payment_id'] === intent.platform_payment_id,
      {
        expected: '200 with a distinct payment_id and the id that was sent',
        got: tell(reply),
        at: reply,
      },
    );
  },
};
