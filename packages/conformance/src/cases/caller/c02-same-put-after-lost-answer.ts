import type { CallerCase } from '../../check/check.ts';
import { sameBytes } from './calls.ts';

/** PUTs that get no answer before one is let through. */
const LOST = 2;

export const c02: CallerCase = {
  id: 'C02',
  title: 'A PUT whose answer was lost is sent again as it was',
  clauses: ['RU5', 'S4'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner takes the payment and cuts the connection, ${LOST} times`,
  expects: 'the same PUT again: same id, same bytes; no second payment',
  likely_cause: 'A retry makes a new id, or builds the body anew with another time or batch in it.',
  async run(t) {
    const cut = new Map<string, number>();
    t.script({
      answer(call, answer) {
        const times = cut.get(call.path) ?? 0;
        if (call.method !== 'PUT' || times >= LOST || answer.status !== 200) return undefined;
        cut.set(call.path, times + 1);
        return (wire) => void wire.socket.destroy();
      },
    });
    const payment = await t.pay(2_001);
    const retried = await t.until(() => t.puts(payment).length > LOST);
    t.must(retried, {
      expected: `the same PUT again, until it is answered`,
      got: `${t.puts(payment).length} PUTs with this id`,
    });
    sameBytes(t, payment);
    const others = t
      .puts()
      .filter((put) => !t.puts(payment).includes(put) && put.body.includes('2001'));
    t.must(others.length === 0, {
      expected: 'no PUT of this amount with another id',
      got: others.map(({ path }) => path).join(', '),
      ...(others[0] === undefined ? {} : { at: t.cite(others[0]) }),
    });
  },
};
