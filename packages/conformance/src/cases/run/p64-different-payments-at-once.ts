import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';

/** Concurrent payments. */
const PARALLEL = 20;

export const p64: PartnerCase = {
  id: 'P64',
  title: 'Concurrent different payments are not mixed up',
  clauses: ['PF2', 'ID1'],
  severity: 'must',
  profile: 'contract',
  sends: `${PARALLEL} concurrent PUTs of different payments, then concurrent GETs of all of them`,
  expects: 'each response describes the requested payment and has a distinct payment_id',
  likely_cause:
    'Requests share state and overwrite it, such as a global variable or a field of a shared handler object.',
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
    t.given(taken.length > 0, 'none of the concurrent payments was accepted');
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
          expected: 'a distinct payment_id for each payment',
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
