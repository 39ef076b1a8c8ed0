import type { CallerCase } from '../../check/check.ts';
import { statusGiven, toldTheEnd } from './calls.ts';

export const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends: 'nothing: the platform pays, and polls until it is told the end',
  expects: 'that end, for the customer too; and no further call for that payment',
  likely_cause: 'The poll is rescheduled before the answer is looked at.',
  async run(t) {
    const payment = await t.pay(3_001);
    await t.accepted(payment);
    const ended = await t.until(() => t.calls(payment).some(toldTheEnd));
    const polled = t.must(ended, {
      expected: 'polls until the payment has ended',
      got: `${t.calls(payment).length} calls, none of which was told the end`,
      cause: 'The answer to the PUT is taken for the end, or the poll asks at another address.',
    });
    if (!polled) return;
    const told = t.calls(payment).find(toldTheEnd);
    const word = told === undefined ? undefined : statusGiven(told);
    let status: string | undefined;
    const known = await t.until(async () => {
      status = await payment.status();
      return status === undefined || status === word;
    });
    t.must(known, {
      expected: `status ${word ?? ''} for the customer, as the partner has said`,
      got: `status ${status ?? ''}`,
      clause: 'ST2',
      cause: 'The end is read, and then lost before it is written down.',
      ...(told === undefined ? {} : { at: t.cite(told) }),
    });
    await t.quiet();
    const calls = t.calls(payment);
    const after = calls[calls.findIndex(toldTheEnd) + 1];
    t.must(after === undefined, {
      expected: 'no call after the end',
      got: `${calls.length - 1 - calls.findIndex(toldTheEnd)} more`,
      ...(after === undefined ? {} : { at: t.cite(after) }),
    });
  },
};
