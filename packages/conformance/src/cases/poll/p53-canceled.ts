import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, tell, type Reply } from '../../check/http.ts';
import { own, plainAmount, sharedAll, type Planned } from '../../check/planned-payments.ts';
import type { OutsideCall, PartnerTarget } from '../../check/target.ts';
import { differences, recordOf, tellDifferences, type Intent } from '../../check/payment-fields.ts';
import { ENDED_FIELDS, isAnswer, statusOf } from '../shared.ts';
import type { PartnerContext } from '../../check/partner-context.ts';

/** When payable payments are canceled, in first gaps between two polls (Pace): before and after a posting run selects them. */
const CANCELED_AFTER: readonly number[] = [0, 0.2, 0.4, 0.7];

export const p53: PartnerCase = {
  id: 'P53',
  title: 'A canceled payment has status canceled',
  clauses: ['ST4', 'RU2'],
  decisions: [18],
  severity: 'should',
  profile: 'contract',
  sends:
    'PUT payment, which the partner then cancels, and GET until it is terminal; with the declared request to cancel, also a cancellation of payable payments, and of one that has already ended',
  expects:
    'status canceled, spelled with one l, and terminal; a payment that has ended in another way stays as it is',
  likely_cause:
    'The status is spelled cancelled, a cancellation is reported as failed, or a cancellation does not check the status first.',
  unfit: (target) =>
    target.accounts.canceled === undefined && target.cancel === undefined
      ? 'the target declares no way to cancel a payment'
      : undefined,
  creates: (target) => [
    planned(target),
    ...(target.cancel === undefined || target.accounts.canceled === undefined
      ? []
      : CANCELED_AFTER.map(() => own(target, 54))),
    ...sharedAll(target, ['first']),
  ],
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
    if (cancel === undefined) return;
    await cancelAfterTheEnd(t, cancel);
    if (t.target.accounts.canceled !== undefined) await cancelPayable(t, cancel);
  },
};

function sendCancel(
  t: PartnerContext,
  cancel: OutsideCall,
  intent: Intent,
  options: { burst?: boolean } = {},
): Promise<Reply> {
  return t.send({
    ...options,
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

/** Payments that would have been posted. P60 and P61 read them again at the end of the run. */
async function cancelPayable(t: PartnerContext, cancel: OutsideCall): Promise<void> {
  await Promise.all(
    CANCELED_AFTER.map(async (share) => {
      const intent = t.intend(own(t.target, 54));
      // Ahead of the other checks' requests, because the payment may be posted within milliseconds.
      await t.put(intent, { burst: true });
      await t.run.sleep(share * t.run.pace.poll_first_ms);
      await sendCancel(t, cancel, intent, { burst: true });
      const shown = recordOf(await t.read(intent, { burst: true }));
      if (shown?.['status'] !== 'canceled') return;
      await t.run.sleep(t.run.pace.poll_first_ms);
      const { end } = await t.end(intent);
      if (end === undefined) return;
      t.must(differences(shown, end.record, ENDED_FIELDS).length === 0, {
        expected: 'a canceled payment stays canceled',
        got: tellDifferences(shown, end.reply, ENDED_FIELDS),
        clause: 'RU2',
        cause:
          'The posting run selects its payments first and does not look at their status again.',
        at: end.reply,
      });
    }),
  );
}

function planned(target: PartnerTarget): Planned {
  return {
    amount_in_cents: plainAmount(target, 53),
    account_id: target.accounts.canceled ?? target.accounts.payable,
  };
}
