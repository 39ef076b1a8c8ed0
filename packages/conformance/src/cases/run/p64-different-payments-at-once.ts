import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';

/** Concurrent payments. */
const PARALLEL = 20;

export const p64: PartnerCase = {
  id: 'P64',
  title: 'Twenty different payments at the same moment',
  clauses: ['PF2', 'ID1'],
  severity: 'must',
  profile: 'contract',
  sends: `PUT of ${PARALLEL} different payments at once, then GET of all of them at once`,
  expects: 'each answer tells of the payment that was asked for, with a payment_id of its own',
  likely_cause:
    'State of one request is kept where the next overwrites it: a global variable, or a handler object that requests share.',
  creates: (target) => Array.from({ length: PARALLEL }, (_, number) => own(target, 200 + number)),
  async run(t: PartnerContext) {
    const intents = Array.from({ length: PARALLEL }, (_, number) =>
      t.intend(own(t.target, 200 + number)),
    );
    for (const intent of intents) t.run.spend(intent);
    const puts = await t.burst(intents.map((intent) => () => t.put(intent, { burst: true })));
    const taken = intents.filter((_, place) => {
      const put = puts[place];
      return put !== undefined && isSuccess(put);
    });
    t.given(taken.length > 0, 'none of the payments was accepted at once');
    const reads = await t.burst(intents.map((intent) => () => t.read(intent, { burst: true })));
    const seen = new Map<string, string>();
    for (const [place, intent] of intents.entries()) {
      for (const reply of [puts[place], reads[place]]) {
        if (reply === undefined || !isSuccess(reply)) continue;
        const record = recordOf(reply);
        const own = t.must(
          record?.['platform_payment_id'] === intent.platform_payment_id &&
            record['amount_in_cents'] === intent.amount_in_cents,
          {
            expected: `the payment ${intent.platform_payment_id} of ${intent.amount_in_cents} cents`,
            got: tell(reply),
            at: reply,
          },
        );
        if (!own) return;
        const payment_id = show(record?.['payment_id']);
        const other = seen.get(payment_id) ?? intent.platform_payment_id;
        t.must(other === intent.platform_payment_id, {
          expected: 'a payment_id of its own for each payment',
          got: `payment_id ${payment_id} for ${other} and for ${intent.platform_payment_id}`,
          clause: 'PF1',
          at: reply,
        });
        seen.set(payment_id, intent.platform_payment_id);
      }
    }
    t.tried = `${taken.length}`;
  },
};
