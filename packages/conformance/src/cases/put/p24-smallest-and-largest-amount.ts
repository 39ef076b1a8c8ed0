import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { BEYOND_24_BITS, BEYOND_32_BITS, type Planned } from '../../check/planned-payments.ts';
import type { PartnerTarget } from '../../check/target.ts';

export const p24: PartnerCase = {
  id: 'P24',
  title: 'Small, odd and large amounts are kept exactly',
  clauses: ['PF6', 'LI1', 'S5'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment of 1 cent, of ${BEYOND_24_BITS}, of ${BEYOND_32_BITS}, and of the declared maximum, within the declared limits`,
  expects: 'the exact amount in the response and when read again, even if the payment then fails',
  likely_cause: 'The amount is stored in 32 bits, as a floating-point number, or in dollars.',
  creates: amounts,
  async run(t) {
    const { limits, spending_cap_in_cents: cap } = t.target;
    if (limits.max_amount_in_cents === undefined && cap === undefined) {
      t.wanting.push(
        'large amounts were not tried: declare limits.max_amount_in_cents or spending_cap_in_cents',
      );
    }
    for (const planned of amounts(t.target)) {
      const intent = t.intend(planned);
      const put = await t.put(intent);
      if (isRefusal(put)) {
        t.should(false, {
          expected: `${intent.amount_in_cents} cents accepted, even if the payment fails later`,
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
  const { min_amount_in_cents: min, max_amount_in_cents: max } = target.limits;
  // Do not ask for a large amount when the target declares neither its limits nor a spending cap.
  const bounded = max !== undefined || target.spending_cap_in_cents !== undefined;
  const large = bounded ? [BEYOND_24_BITS, BEYOND_32_BITS, max ?? BEYOND_32_BITS] : [];
  const fit = large.filter((cents) => cents > min && cents <= (max ?? Infinity));
  return [...new Set([min, ...fit])].map((amount_in_cents) => ({
    amount_in_cents,
    account_id: target.accounts.payable,
  }));
}
