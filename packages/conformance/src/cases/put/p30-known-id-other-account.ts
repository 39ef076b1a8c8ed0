import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { differences, recordOf, tellDifferences } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** The fields that say whose payment it is. */
const OWNER_FIELDS = ['platform_payment_id', 'biller_id', 'account_id', 'amount_in_cents'] as const;

export const p30: PartnerCase = {
  id: 'P30',
  title: 'A known id under another account creates no second payment',
  clauses: ['PF2'],
  decisions: [9],
  severity: 'must',
  profile: 'contract',
  sends:
    'PUT payment, then PUT with the same id under the path of another account, then GET under both',
  expects: 'no second payment: ids are unique across all payments, not per account',
  likely_cause:
    'The unique constraint is on (account_id, platform_payment_id) instead of platform_payment_id.',
  creates: (target) => [own(target, 30)],
  async run(t: PartnerContext) {
    const intent = t.intend(own(t.target, 30));
    const first = recordOf(await t.put(intent));
    t.given(first !== undefined, 'no new payment was accepted (see P20)');
    const account_id = t.target.accounts.other ?? t.target.accounts.unknown;
    const put = await t.put(intent, { account_id });
    const under = await t.read(intent, { account_id });
    for (const reply of [put, under]) {
      const alone = t.must(
        !isSuccess(reply) || recordOf(reply)?.['payment_id'] === first['payment_id'],
        {
          expected: `a refusal, or payment_id ${show(first['payment_id'])}`,
          got: tell(reply),
          at: reply,
        },
      );
      if (!alone) return;
    }
    const shown = recordOf(put);
    const changed = shown === undefined ? [] : differences(first, shown, OWNER_FIELDS);
    t.must(changed.length === 0, {
      expected: `the stored payment, with account_id ${show(first['account_id'])}`,
      got: tellDifferences(first, put, OWNER_FIELDS),
      clause: 'RU5',
      cause: 'The response repeats the account of the path instead of the stored one.',
      at: put,
    });
    t.strict(under.status === 404, {
      expected: '404: a payment is found only under its own account',
      got: tell(under),
      at: under,
    });
    const read = await t.read(intent);
    t.must(recordOf(read)?.['payment_id'] === first['payment_id'], {
      expected: `payment_id ${show(first['payment_id'])} under its own account`,
      got: tell(read),
      at: read,
    });
  },
};
