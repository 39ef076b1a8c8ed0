import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import type { Behaviour } from '../../sandbox/partner.ts';
import {
  goesOn,
  noDouble,
  notEnded,
  returnedTheEnd,
  UNCLEAR,
  type UnclearAnswer,
} from './calls.ts';

/** Faults used when a person makes the payments by hand. */
const BY_HAND = ['500', '404', '200 with a web page'];

export const c10: CallerCase = {
  id: 'C10',
  title: 'An inconclusive poll response ends neither the payment nor the polling',
  clauses: ['RU4', 'ST3'],
  decisions: [22],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner answers the first poll of each payment with a fault: ${UNCLEAR.map(({ name }) => name).join(', ')}`,
  expects:
    'further calls for that payment until it gets a terminal status; never failed before that',
  likely_cause: 'A poll that throws ends the polling loop, or is recorded as a failed payment.',
  async run(t: CallerContext) {
    const faults = UNCLEAR.filter(({ name }) => t.run.driver.at_once > 1 || BY_HAND.includes(name));
    let judged = 0;
    await t.each(faults, async (fault, place) => {
      const poll = firstPoll(fault);
      const payment = await t.pay(10_002 + place, poll.behaviour);
      await t.accepted(payment);
      if (!(await t.until(poll.met))) return;
      judged += 1;
      await notEnded(t, payment, `a poll answered with ${fault.name}`, 'ST3');
      const ended = (): boolean => t.calls(payment).some(returnedTheEnd);
      await goesOn(t, payment, await t.until(ended), {
        expected: `after a poll answered with ${fault.name}: polls until a terminal status, within ${t.run.caller.patience_seconds} s`,
        got: 'the platform stopped polling',
        clause: 'RU4',
      });
      noDouble(t, payment);
    });
    t.given(judged > 0, 'the platform never polled a payment after its PUT');
  },
};

/** Answers the first poll incorrectly. The payment is processing at that time and ends a little later. */
function firstPoll(fault: UnclearAnswer): { behaviour: Behaviour; met: () => boolean } {
  let met = false;
  return {
    met: () => met,
    behaviour: {
      answer(call) {
        if (met || call.method !== 'GET' || !call.path.includes('/payment/')) return undefined;
        met = true;
        return fault.reply;
      },
    },
  };
}
