import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { CONTROLS, oneEffect } from '../balance-effect.ts';

/** Consecutive repeats. */
const REPEATS = 20;

/** Repeats that even a slow server must handle. Beyond these, the check stops after `Pace.repeat_ms`. */
const FEWEST = 5;

export const p26: PartnerCase = {
  id: 'P26',
  title: 'Twenty repeats of a PUT create one payment',
  clauses: ['RU5'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment, then the identical PUT ${REPEATS} times, one after another`,
  expects: 'one payment_id, and one effect on the balance',
  likely_cause: 'Each request posts the payment, or queues it for posting again.',
  creates: (target) => [...sharedAll(target, CONTROLS), own(target, 26)],
  async run(t: PartnerContext) {
    const payment = t.run.own(t.check, () => t.intend(own(t.target, 26)));
    const first = await t.put(payment);
    const payment_id = recordOf(first)?.['payment_id'];
    t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
    const until = t.run.now() + t.run.pace.repeat_ms;
    let repeats = 0;
    while (repeats < REPEATS && (repeats < FEWEST || t.run.now() < until)) {
      const reply = await t.put(payment);
      repeats += 1;
      const same = t.must(recordOf(reply)?.['payment_id'] === payment_id, {
        expected: `200 with payment_id ${JSON.stringify(payment_id)}`,
        got: `repeat ${repeats}: ${tell(reply)}`,
        at: reply,
      });
      if (!same) break;
    }
    t.tried = `${repeats}`;
  },
  atEnd: (t) =>
    oneEffect(
      t,
      t.run.own(t.check, () => t.intend(own(t.target, 26))),
    ),
};
