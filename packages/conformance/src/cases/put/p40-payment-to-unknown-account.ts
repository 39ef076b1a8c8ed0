import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { statusOf } from '../shared.ts';

export const p40: PartnerCase = {
  id: 'P40',
  title: 'A payment to an unknown account never succeeds',
  clauses: ['FR1', 'ST3'],
  decisions: [10],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment under an account id that does not exist, then GET until it is terminal',
  expects: 'a refusal (4xx), or 200 and later status failed with a reason; never succeeded',
  likely_cause: 'The server does not look up the account before it reports the payment as posted.',
  creates: (target) => sharedAll(target, ['unknown']),
  async run(t: PartnerContext) {
    const made = await t.sharedPayment('unknown');
    t.given(made !== undefined, 'the target declares no unknown account');
    if (isRefusal(made.put)) return;
    const taken = t.must(recordOf(made.put) !== undefined, {
      expected: 'a refusal, or 200 with a payment that ends as failed',
      got: tell(made.put),
      at: made.put,
    });
    if (!taken) return;
    const life = await t.end(made.intent);
    if (
      life.end === undefined &&
      (t.run.endsLater || t.target.terminal_window_seconds === undefined)
    ) {
      throw t.notEnded();
    }
    const record = life.end?.record;
    t.must(record?.['status'] === 'failed', {
      expected: `status failed within ${t.run.window_ms / 1_000} s`,
      got:
        record === undefined ? `it did not end: ${tell(life.last)}` : `status ${statusOf(record)}`,
      at: life.end?.reply ?? life.last,
    });
  },
};
