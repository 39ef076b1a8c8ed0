import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';
import { isAnswer } from '../shared.ts';

/** Connections over which the payment is put and read again. */
const CONNECTIONS = 8;

export const p63: PartnerCase = {
  id: 'P63',
  title: 'A payment is known on every connection as soon as one has accepted it',
  clauses: ['RU5', 'PF2', 'B5'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT payment; then GET, and the same PUT, over ${CONNECTIONS} new connections each`,
  expects: 'the same payment_id on each: replicas behind a balancer share what they know',
  likely_cause:
    'Each process keeps ids in its own memory, or reads go to a replica that lags behind the writes.',
  creates: (target) => [own(target, 64)],
  async run(t: PartnerContext) {
    const intent = t.intend(own(t.target, 64));
    const payment_id = recordOf(await t.put(intent, { fresh: true }))?.['payment_id'];
    t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
    const several = (send: () => ReturnType<typeof t.read>) =>
      Promise.all(Array.from({ length: CONNECTIONS }, send));
    for (const reply of [
      ...(await several(() => t.read(intent, { fresh: true }))),
      ...(await several(() => t.put(intent, { fresh: true }))),
      ...(await several(() => t.read(intent, { fresh: true }))),
    ]) {
      if (!isAnswer(t, reply)) return;
      const same = t.must(recordOf(reply)?.['payment_id'] === payment_id, {
        expected: `200 with payment_id ${show(payment_id)}`,
        got: tell(reply),
        clause: reply.exchange.method === 'PUT' ? 'RU5' : 'B5',
        at: reply,
      });
      if (!same) return;
    }
  },
};
