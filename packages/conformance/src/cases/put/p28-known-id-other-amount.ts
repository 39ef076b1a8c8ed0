import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

export const p28: PartnerCase = {
  id: 'P28',
  title: 'A repeat with another amount returns the original payment',
  clauses: ['RU5', 'PF6'],
  decisions: [9],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment, then PUT with the same id and twice the amount',
  expects:
    'the original amount; 409 or 422 is a warning, because the response to a known id is its payment',
  likely_cause: 'The server upserts: the second request overwrites the first.',
  creates: (target) => [own(target, 28)],
  async run(t: PartnerContext) {
    const intent = t.intend(own(t.target, 28));
    const first = recordOf(await t.put(intent));
    t.given(first !== undefined, 'no new payment was accepted (see P20)');
    const reply = await t.put(intent, { fields: { amount_in_cents: intent.amount_in_cents * 2 } });
    if (isSuccess(reply)) {
      const second = recordOf(reply);
      t.must(
        second !== undefined &&
          second['amount_in_cents'] === first['amount_in_cents'] &&
          second['payment_id'] === first['payment_id'],
        {
          expected: `payment_id ${show(first['payment_id'])} with amount_in_cents ${show(first['amount_in_cents'])}`,
          got: tell(reply),
          at: reply,
        },
      );
    } else {
      const conflict = reply.status === 409 || reply.status === 422;
      t.must(conflict, { expected: '200 with the first payment', got: tell(reply), at: reply });
      t.should(!conflict, { expected: '200 with the first payment', got: tell(reply), at: reply });
    }
    const read = await t.read(intent);
    t.must(recordOf(read)?.['amount_in_cents'] === first['amount_in_cents'], {
      expected: `amount_in_cents ${show(first['amount_in_cents'])} when read again`,
      got: tell(read),
      at: read,
    });
  },
};
