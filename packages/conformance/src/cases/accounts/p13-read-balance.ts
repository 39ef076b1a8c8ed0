import { isDate, isDateTime } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { asObject, show, tell } from '../../check/http.ts';

export const p13: PartnerCase = {
  id: 'P13',
  title: 'A balance can be read',
  clauses: ['S5', 'B2', 'TR3'],
  decisions: [1, 4],
  severity: 'must',
  profile: 'contract',
  sends: 'GET balance of a known account',
  expects:
    '200; amount_due_in_cents is a JSON integer, due_date a calendar date, last_updated_at an ISO 8601 time',
  likely_cause: 'Amounts are stored in dollars or as decimal strings and returned unconverted.',
  unfit: (target) =>
    target.paths.get_balance === null ? 'the target does not offer Get Balance' : undefined,
  async run(t) {
    const reply = await t.readBalance();
    const balance = asObject(reply.json);
    const read = t.must(reply.status === 200 && balance !== undefined, {
      expected: '200 with a JSON object',
      got: tell(reply),
      at: reply,
    });
    if (!read || balance === undefined) return;
    const { amount_due_in_cents, due_date, last_updated_at } = balance;
    t.must(amount_due_in_cents === undefined || typeof amount_due_in_cents === 'number', {
      expected: 'amount_due_in_cents as a plain JSON integer, such as 12500',
      got: `amount_due_in_cents is ${show(amount_due_in_cents)}`,
      at: reply,
    });
    // No field of a Balance is required, so an empty one is correct.
    if ([amount_due_in_cents, due_date, last_updated_at].every((one) => one === undefined)) {
      t.notes.push('The balance has no field of the interface, so there was nothing to check.');
    }
    t.should(due_date === undefined || (typeof due_date === 'string' && isDate(due_date)), {
      expected: 'due_date as YYYY-MM-DD, an existing date',
      got: `due_date is ${show(due_date)}`,
      at: reply,
    });
    t.should(
      last_updated_at === undefined ||
        (typeof last_updated_at === 'string' && isDateTime(last_updated_at)),
      {
        expected: 'last_updated_at as an ISO 8601 time',
        got: `last_updated_at is ${show(last_updated_at)}`,
        at: reply,
      },
    );
  },
};
