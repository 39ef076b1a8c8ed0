import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/partner-context.ts';
import { BEYOND_32_BITS, type Planned } from '../../check/planned-payments.ts';
import type { PartnerTarget } from '../../check/target.ts';

export const p24: PartnerCase = {
  id: 'P24',
  title: 'The smallest and the largest amount survive',
  clauses: ['PF6', 'LI1', 'S5'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment of 1 cent, and of ${BEYOND_32_BITS} cents (or the declared limits)`,
  expects: 'the exact amount in the answer and when read again, even if the payment then fails',
  likely_cause: 'The amount is kept in 32 bits, as a float, or in dollars.',
  creates: amounts,
  async run(t) {
    for (const planned of amounts(t.target)) {
      const intent = t.intend(planned);
      const put = await t.put(intent);
      if (isRefusal(put)) {
        t.should(false, {
          expected: `${intent.amount_in_cents} cents accepted, and failed later if it must`,
          got: tell(put),
          at: put,
        });
        continue;
      }
      for (const reply of [put, await t.read(intent)]) {
        const amount = recordOf(reply)?.['amount_in_cents'];
        const exact = t.must(amount === intent.amount_in_cents, {
          expected: `amount_in_cents ${intent.amount_in_cents}`,
          got: recordOf(reply) === undefined ? tell(reply) : `amount_in_cents is ${show(amount)}`,
          at: reply,
        });
        if (!exact) break;
      }
    }
  },
};

function amounts(target: PartnerTarget): readonly Planned[] {
  const { min_amount_in_cents, max_amount_in_cents } = target.limits;
  return [min_amount_in_cents, max_amount_in_cents ?? BEYOND_32_BITS].map((amount_in_cents) => ({
    amount_in_cents,
    account_id: target.accounts.payable,
  }));
}
