import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { recordOf, type PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** Repeats in a row. */
const REPEATS = 20;

export const p26: PartnerCase = {
  id: 'P26',
  title: 'The same PUT twenty times more',
  clauses: ['RU5'],
  severity: 'must',
  profile: 'contract',
  stage: 'quiet',
  sends: `PUT payment, then the same PUT ${REPEATS} times, one after another`,
  expects: 'one payment_id, and one effect on the balance',
  likely_cause: 'Each request books, or each request hands the payment to the queue again.',
  creates: (target) => [own(target, 26)],
  async run(t: PartnerContext) {
    const effect = await t.effect(async () => {
      const intent = t.intend(own(t.target, 26));
      const first = await t.put(intent);
      const payment_id = recordOf(first)?.['payment_id'];
      t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
      for (let repeat = 0; repeat < REPEATS; repeat += 1) {
        const reply = await t.put(intent);
        const same = t.must(recordOf(reply)?.['payment_id'] === payment_id, {
          expected: `200 with payment_id ${JSON.stringify(payment_id)}`,
          got: `repeat ${repeat + 1}: ${tell(reply)}`,
          at: reply,
        });
        if (!same) break;
      }
      return [intent];
    });
    t.oneEffect(effect);
  },
};
