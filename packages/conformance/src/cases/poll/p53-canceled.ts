import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, tell, type Reply } from '../../check/http.ts';
import { plainAmount, sharedAll, type Planned } from '../../check/planned-payments.ts';
import type { OutsideCall, PartnerTarget } from '../../check/target.ts';
import { differences, recordOf, tellDifferences, type Intent } from '../../check/payment-fields.ts';
import { ENDED_FIELDS, isAnswer, statusOf } from '../shared.ts';
import type { PartnerContext } from '../../check/partner-context.ts';

export const p53: PartnerCase = {
  id: 'P53',
  title: 'A canceled payment has status canceled',
  clauses: ['ST4', 'RU2'],
  decisions: [18],
  severity: 'should',
  profile: 'contract',
  sends:
    'PUT payment, which the partner then cancels, and GET until it is terminal; with the declared request to cancel, also a cancellation of a payment that has already ended',
  expects:
    'status canceled, spelled with one l, and terminal; a payment that has ended in another way stays as it is',
  likely_cause:
    'The status is spelled cancelled, a cancellation is reported as failed, or a cancellation does not check the status first.',
  unfit: (target) =>
    target.accounts.canceled === undefined && target.cancel === undefined
      ? 'the target declares no way to cancel a payment'
      : undefined,
  creates: (target) => [planned(target), ...sharedAll(target, ['first'])],
  async run(t: PartnerContext) {
    const intent = t.intend(planned(t.target));
    const put = await t.put(intent);
    t.given(recordOf(put) !== undefined, 'no new payment was accepted (see P20)');
    const { cancel } = t.target;
    if (t.target.accounts.canceled === undefined && cancel !== undefined) {
      const reply = await sendCancel(t, cancel, intent);
      t.given(isSuccess(reply), `the declared way to cancel did not work: ${tell(reply)}`);
    }
    const life = await t.end(intent);
    const last = life.end?.reply ?? life.last;
    t.should(recordOf(last)?.['status'] === 'canceled', {
      expected: 'status canceled',
      got: tell(last),
      at: last,
    });
    if (cancel !== undefined) await cancelAfterTheEnd(t, cancel);
  },
};

function sendCancel(t: PartnerContext, cancel: OutsideCall, intent: Intent): Promise<Reply> {
  return t.send({
    method: cancel.method,
    url: cancel.url.replaceAll(
      '{platform_payment_id}',
      encodeURIComponent(intent.platform_payment_id),
    ),
    headers: cancel.headers,
    ...(cancel.body === '' ? {} : { body: cancel.body }),
  });
}

/** The answer to the cancellation does not matter; the payment must stay as it ended (RU2). */
async function cancelAfterTheEnd(t: PartnerContext, cancel: OutsideCall): Promise<void> {
  const { subject } = await t.accepted();
  const { end } = await t.end(subject.intent);
  if (end === undefined) return;
  await sendCancel(t, cancel, subject.intent);
  const read = await t.read(subject.intent);
  if (!isAnswer(t, read)) return;
  const record = recordOf(read);
  t.must(record !== undefined && differences(end.record, record, ENDED_FIELDS).length === 0, {
    expected: `the payment as it ended, status ${statusOf(end.record)}`,
    got: tellDifferences(end.record, read, ENDED_FIELDS),
    clause: 'RU2',
    cause: 'The cancellation updates the row without checking that it is still processing.',
    at: read,
  });
}

function planned(target: PartnerTarget): Planned {
  return {
    amount_in_cents: plainAmount(target, 53),
    account_id: target.accounts.canceled ?? target.accounts.payable,
  };
}
