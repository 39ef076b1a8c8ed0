import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, tell } from '../../check/http.ts';
import { plainAmount, type Planned } from '../../check/planned-payments.ts';
import type { PartnerTarget } from '../../check/target.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';

export const p53: PartnerCase = {
  id: 'P53',
  title: 'A canceled payment has status canceled',
  clauses: ['ST4'],
  decisions: [18],
  severity: 'should',
  profile: 'contract',
  sends: 'PUT payment, which the partner then cancels, and GET until it is terminal',
  expects: 'status canceled, spelled with one l, and terminal',
  likely_cause: 'The status is spelled cancelled, or a cancellation is reported as failed.',
  unfit: (target) =>
    target.accounts.canceled === undefined && target.cancel === undefined
      ? 'the target declares no way to cancel a payment'
      : undefined,
  creates: (target) => [planned(target)],
  async run(t: PartnerContext) {
    const intent = t.intend(planned(t.target));
    const put = await t.put(intent);
    t.given(recordOf(put) !== undefined, 'no new payment was accepted (see P20)');
    const { cancel } = t.target;
    if (t.target.accounts.canceled === undefined && cancel !== undefined) {
      const reply = await t.send({
        method: cancel.method,
        url: cancel.url.replaceAll(
          '{platform_payment_id}',
          encodeURIComponent(intent.platform_payment_id),
        ),
        headers: cancel.headers,
        ...(cancel.body === '' ? {} : { body: cancel.body }),
      });
      t.given(isSuccess(reply), `the declared way to cancel did not work: ${tell(reply)}`);
    }
    const life = await t.end(intent);
    const last = life.end?.reply ?? life.last;
    t.should(recordOf(last)?.['status'] === 'canceled', {
      expected: 'status canceled',
      got: tell(last),
      at: last,
    });
  },
};

function planned(target: PartnerTarget): Planned {
  return {
    amount_in_cents: plainAmount(target, 53),
    account_id: target.accounts.canceled ?? target.accounts.payable,
  };
}
