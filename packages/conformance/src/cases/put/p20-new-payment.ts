import { isPaymentStatus } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { isJson, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';

export const p20: PartnerCase = {
  id: 'P20',
  title: 'A new payment is accepted',
  clauses: ['B4', 'PF1', 'PF2', 'PF3', 'PF4'],
  decisions: [3],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment with a new id',
  expects:
    '200 with the payment: a payment_id, the platform_payment_id and platform_batch_id that were sent, and one of the four statuses',
  likely_cause:
    'The server answers 201 or 202, does not store the batch id, or uses its own status names.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { intent, put } = await t.subject();
    const record = recordOf(put);
    const read = t.must(put.status === 200 && isJson(put) && record !== undefined, {
      expected: '200 with a JSON object',
      got: `${tell(put)}${put.json_problem === undefined ? '' : ` (${put.json_problem})`}`,
      at: put,
    });
    if (!read || record === undefined) return;
    t.must(typeof record['payment_id'] === 'string' && record['payment_id'] !== '', {
      expected: 'payment_id, a non-empty string',
      got: `payment_id is ${show(record['payment_id'])}`,
      at: put,
    });
    for (const name of ['platform_payment_id', 'platform_batch_id'] as const) {
      t.must(record[name] === intent[name], {
        expected: `${name} ${show(intent[name])}`,
        got: `${name} is ${show(record[name])}`,
        at: put,
      });
    }
    const place = { biller_id: t.target.biller_id, account_id: intent.account_id };
    for (const [name, value] of Object.entries(place)) {
      t.strict(record[name] === undefined || record[name] === value, {
        expected: `${name} ${show(value)}`,
        got: `${name} is ${show(record[name])}`,
        clause: 'PF9',
        at: put,
      });
    }
    t.must(isPaymentStatus(record['status']), {
      expected: 'status processing, succeeded, failed or canceled',
      got: `status is ${show(record['status'])}`,
      at: put,
    });
  },
};
