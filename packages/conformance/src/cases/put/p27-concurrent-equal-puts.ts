import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** PUTs at the same moment. */
const PARALLEL = 25;

export const p27: PartnerCase = {
  id: 'P27',
  title: 'Twenty-five equal PUTs at the same moment',
  clauses: ['RU5', 'PF2'],
  severity: 'must',
  profile: 'contract',
  stage: 'quiet',
  sends: `PUT payment with one new id, ${PARALLEL} times at once`,
  expects: 'every 2xx carries the same payment_id; no 5xx; one effect on the balance',
  likely_cause:
    'The server looks for the id and then inserts, with no unique key between the two: a race that retries will find.',
  creates: (target) => [own(target, 27)],
  async run(t) {
    const effect = await t.effect(async () => {
      const intent = t.intend(own(t.target, 27));
      const replies = await Promise.all(
        Array.from({ length: PARALLEL }, () => t.put(intent, { raw: true })),
      );
      const broken = replies.find((reply) => reply.status === undefined || reply.status >= 500);
      if (broken !== undefined) {
        t.must(false, {
          expected: 'no 5xx and no broken answer',
          got: tell(broken),
          at: broken,
        });
      }
      const taken = replies.filter(isSuccess);
      const first = taken[0];
      t.must(first !== undefined, {
        expected: 'at least one 200',
        got: replies.map((reply) => reply.status ?? 'none').join(', '),
      });
      const payment_id = first === undefined ? undefined : recordOf(first)?.['payment_id'];
      const other = taken.find((reply) => recordOf(reply)?.['payment_id'] !== payment_id);
      if (other !== undefined) {
        t.must(false, {
          expected: `payment_id ${show(payment_id)} in every answer`,
          got: tell(other),
          at: other,
        });
      }
      return [intent];
    });
    t.oneEffect(effect);
  },
};
