import type { CallerCase } from '../../check/check.ts';
import type { Behaviour } from '../../sandbox/partner.ts';
import {
  goesOn,
  noDouble,
  notEnded,
  sameBytes,
  SILENCE,
  UNCLEAR,
  type UnclearAnswer,
} from './calls.ts';

const ALL = [SILENCE, ...UNCLEAR];

/** Faults used when a person makes the payments by hand, one payment each. */
const BY_HAND = ['500', '404', '200 with a web page', 'a cut connection', 'no answer at all'];

export const c07: CallerCase = {
  id: 'C07',
  title: 'An answer that says nothing never fails a payment',
  clauses: ['ST3', 'RU5'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner takes payments but answers their first PUT wrongly: ${ALL.map(({ name }) => name).join(', ')}`,
  expects: 'the same PUT again, and never failed: it may have happened',
  likely_cause: 'Any error of the call is recorded as a failed payment.',
  async run(t) {
    const faults = ALL.filter(({ name }) => t.run.driver.at_once > 1 || BY_HAND.includes(name));
    await t.each(faults, async (fault, place) => {
      const payment = await t.pay(7_002 + place, firstPut(fault));
      await t.arrived(payment);
      const retried = await t.until(() => t.puts(payment).length > 1);
      await notEnded(t, payment, `a PUT answered with ${fault.name}`, 'ST3');
      await goesOn(t, payment, retried, {
        expected: `after ${fault.name}: the same PUT again within ${t.run.caller.patience_seconds} s`,
        got: `${t.puts(payment).length} PUT`,
        clause: 'RU5',
        cause:
          'The call is given up instead of repeated: a payment that may have happened is left alone.',
      });
      sameBytes(t, payment);
      noDouble(t, payment);
    });
  },
};

/** Answers the first PUT incorrectly although the payment was accepted. */
function firstPut(fault: UnclearAnswer): Behaviour {
  let met = false;
  return {
    answer(call) {
      if (met || call.method !== 'PUT') return undefined;
      met = true;
      return fault.reply;
    },
  };
}
