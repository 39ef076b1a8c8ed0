import type { PartnerCase } from '../../check/check.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { ENDED_FIELDS } from '../shared.ts';

export const p31: PartnerCase = {
  id: 'P31',
  title: 'A repeat after the end returns the same terminal payment',
  clauses: ['RU2', 'RU5'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, GET until it is terminal, then the identical PUT, then GET',
  expects: '200 with the same terminal payment; nothing is processed again',
  likely_cause: 'The repeat resets the status to processing or queues the payment again.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject } = await t.accepted();
    const { record } = await t.ended(subject.intent);
    for (const again of [await t.put(subject.intent), await t.read(subject.intent)]) {
      const found = recordOf(again);
      const same = t.must(
        found !== undefined && differences(record, found, ENDED_FIELDS).length === 0,
        {
          expected: 'the terminal payment, unchanged',
          got: tellDifferences(record, again, ENDED_FIELDS),
          at: again,
        },
      );
      if (!same) return;
    }
  },
};
