import type { PartnerCase } from '../../check/check.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { LASTING_FIELDS } from '../shared.ts';

export const p25: PartnerCase = {
  id: 'P25',
  title: 'An identical PUT returns the same payment',
  clauses: ['RU5', 'ID1'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, then the identical PUT',
  expects: '200 with the same payment_id, initiated_at and amount',
  likely_cause:
    'The server answers the repeat with 409, or inserts it again because the id is unique only per account or per day.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject, record } = await t.accepted();
    const again = await t.put(subject.intent);
    const second = recordOf(again);
    t.must(
      again.status === 200 &&
        second !== undefined &&
        differences(record, second, LASTING_FIELDS).length === 0,
      {
        expected: '200 with the first payment, unchanged',
        got:
          again.status === 200
            ? tellDifferences(record, again, LASTING_FIELDS)
            : `${again.status ?? 'no answer'}: ${again.exchange.answer_body || (again.exchange.no_answer ?? '')}`,
        at: again,
      },
    );
  },
};
