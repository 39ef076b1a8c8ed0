import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { own, sharedAll } from '../../check/planned-payments.ts';
import { isAnswer } from '../shared.ts';

export const p56: PartnerCase = {
  id: 'P56',
  title: 'A payment can be read as soon as its PUT is acknowledged',
  clauses: ['ST1', 'B5', 'B3'],
  severity: 'must',
  profile: 'contract',
  // Runs when little else is sent, because a late read would prove nothing.
  stage: 'last',
  sends:
    'PUT payment, then an immediate GET (the payment of P20); PUT of another payment, then immediately Get Account Payment and Get Payment',
  expects: '200 with that payment from both',
  likely_cause:
    'The server responds before it commits the row, or reads go to a lagging replica or index.',
  creates: (target) => [...sharedAll(target, ['first']), own(target, 56)],
  async run(t: PartnerContext) {
    const { subject } = await t.accepted();
    const before = recordOf(subject.read);
    t.must(before?.['platform_payment_id'] === subject.intent.platform_payment_id, {
      expected: `200 with platform_payment_id "${subject.intent.platform_payment_id}"`,
      got: tell(subject.read),
      at: subject.read,
    });
    const intent = t.intend(own(t.target, 56));
    const put = await t.put(intent, { burst: true });
    if (!isSuccess(put)) return;
    const reads = await Promise.all([
      t.read(intent, { burst: true }),
      ...(t.target.paths.get_payment === null ? [] : [t.readById(intent, { burst: true })]),
    ]);
    for (const [place, read] of reads.entries()) {
      if (!isAnswer(t, read)) continue;
      const found = recordOf(read);
      t.must(found?.['platform_payment_id'] === intent.platform_payment_id, {
        expected: `200 with platform_payment_id "${intent.platform_payment_id}"`,
        got: tell(read),
        clause: place === 0 ? 'B5' : 'B3',
        at: read,
      });
    }
  },
};
