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
const BY_HAND = ['500', '404', '200 with a web page', 'a closed connection', 'no response'];

export const c07: CallerCase = {
  id: 'C07',
  title: 'An inconclusive response to a PUT never fails a payment',
  clauses: ['ST3', 'RU5'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner accepts payments but answers their first PUT with a fault: ${ALL.map(({ name }) => name).join(', ')}`,
  expects: 'the same PUT again, and never failed, because the payment may exist',
  likely_cause: 'The platform records any error of the call as a failed payment.',
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
          'The platform gives up instead of retrying, and leaves a payment that may exist unresolved.',
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
