import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';

export const p56: PartnerCase = {
  id: 'P56',
  title: 'A payment can be read as soon as its PUT was answered',
  clauses: ['ST1', 'B5'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, then GET at once (the payment of P20)',
  expects: '200 with that payment',
  likely_cause:
    'The answer leaves before the row is committed, or reads go to a replica that lags.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject } = await t.accepted();
    const found = recordOf(subject.read);
    t.must(found?.['platform_payment_id'] === subject.intent.platform_payment_id, {
      expected: `200 with platform_payment_id "${subject.intent.platform_payment_id}"`,
      got: tell(subject.read),
      at: subject.read,
    });
  },
};
