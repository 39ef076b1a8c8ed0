import type { PartnerCase } from '../../check/check.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';

const FIELDS = [
  'payment_id',
  'platform_payment_id',
  'platform_batch_id',
  'biller_id',
  'account_id',
  'amount_in_cents',
  'initiated_at',
] as const;

export const p55: PartnerCase = {
  id: 'P55',
  title: 'The PUT response and both reads agree',
  clauses: ['B3', 'B5', 'PF9'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, then Get Account Payment and Get Payment (the payment of P20)',
  expects: 'equal fields in all responses; only status, posted_at and failure_reason may change',
  likely_cause:
    'The two reads use different tables, or the PUT returns what was sent instead of what was stored.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject, record } = await t.accepted();
    const reads = [subject.read, ...(subject.other_read === undefined ? [] : [subject.other_read])];
    for (const read of reads) {
      const found = recordOf(read);
      // P56 reports a read that finds nothing. This check compares the contents of successful reads.
      if (found === undefined && read === subject.read) continue;
      t.must(found !== undefined && differences(record, found, FIELDS).length === 0, {
        expected: 'the fields of the response to the PUT',
        got: tellDifferences(record, read, FIELDS),
        at: read,
      });
    }
  },
};
