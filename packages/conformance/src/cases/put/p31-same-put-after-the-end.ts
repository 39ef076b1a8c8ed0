import type { PartnerCase } from '../../check/check.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { ENDED_FIELDS } from '../shared.ts';

export const p31: PartnerCase = {
  id: 'P31',
  title: 'The same PUT after the payment has ended',
  clauses: ['RU2', 'RU5'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, GET until it ends, then the same PUT, then GET',
  expects: '200 with the same ended payment; nothing is run again',
  likely_cause:
    'The repeat resets the status to processing, or hands the payment to the queue again.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject } = await t.accepted();
    const { record } = await t.ended(subject.intent);
    for (const again of [await t.put(subject.intent), await t.read(subject.intent)]) {
      const found = recordOf(again);
      const same = t.must(
        found !== undefined && differences(record, found, ENDED_FIELDS).length === 0,
        {
          expected: 'the ended payment, unchanged',
          got: tellDifferences(record, again, ENDED_FIELDS),
          at: again,
        },
      );
      if (!same) return;
    }
  },
};
