import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import type { Behaviour } from '../../sandbox/partner.ts';
import { goesOn, noDouble, sameBytes } from './calls.ts';

/** PUTs left without an answer before one is answered. */
const LOST = 2;

export const c02: CallerCase = {
  id: 'C02',
  title: 'A PUT whose response was lost is retried unchanged',
  clauses: ['RU5', 'S4'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner accepts the payment and closes the connection, ${LOST} times`,
  expects: 'the same PUT again, with the same id and the same bytes; no second payment',
  likely_cause: 'Any error of the call ends the payment, or nothing retries it.',
  async run(t: CallerContext) {
    let cut = 0;
    const loses: Behaviour = {
      answer(call, answer) {
        if (call.method !== 'PUT' || cut >= LOST || answer.status !== 200) return undefined;
        cut += 1;
        return (wire) => void wire.socket.destroy();
      },
    };
    const payment = await t.pay(2_001, loses);
    await t.arrived(payment);
    t.given(
      await t.until(() => cut > 0 || t.puts(payment).length > 1),
      'no PUT was accepted (see C09)',
    );
    const retried = await t.until(() => t.puts(payment).length > LOST);
    await goesOn(t, payment, retried, {
      expected: `the same PUT again, until it gets a response`,
      got: `${t.puts(payment).length} PUTs with this id`,
      clause: 'RU5',
    });
    sameBytes(t, payment);
    noDouble(t, payment);
  },
};
