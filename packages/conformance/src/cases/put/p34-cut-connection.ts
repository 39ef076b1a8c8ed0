import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { CONTROLS, oneEffect } from '../balance-effect.ts';

/** Delay between sending the request and cutting the connection: none, and while the server works on the request. */
const CUTS_MS = [0, 30];

export const p34: PartnerCase = {
  id: 'P34',
  title: 'A retry after a lost response creates no second payment',
  clauses: ['RU5', 'S4'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment, closing the connection before the response (${CUTS_MS.length} times), then the identical PUT`,
  expects: 'exactly one payment, and one effect on the balance',
  likely_cause: 'The id is stored only after the response has been sent.',
  creates: (target) => [...sharedAll(target, CONTROLS), own(target, 34)],
  async run(t) {
    const intent = t.run.own(t.check, () => t.intend(own(t.target, 34)));
    for (const wait of CUTS_MS) await t.putAndCut(intent, wait);
    const between = recordOf(await t.read(intent));
    const reply = await t.put(intent);
    const record = recordOf(reply);
    const taken = t.must(record !== undefined, {
      expected: '200 with the payment',
      got: tell(reply),
      at: reply,
    });
    if (taken && between !== undefined) {
      t.must(record?.['payment_id'] === between['payment_id'], {
        expected: `payment_id ${show(between['payment_id'])}, as read after the lost response`,
        got: tell(reply),
        at: reply,
      });
    }
  },
  atEnd: (t) =>
    oneEffect(
      t,
      t.run.own(t.check, () => t.intend(own(t.target, 34))),
    ),
};
