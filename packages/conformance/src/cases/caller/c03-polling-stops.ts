import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { onRecords, type Behaviour } from '../../sandbox/partner.ts';
import { statusGiven, toldTheEnd } from './calls.ts';

/** The three terminal statuses, one payment each. */
const ENDS = ['succeeded', 'failed', 'canceled'] as const;

export const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends: 'the scripted partner ends one payment succeeded, one failed and one canceled',
  expects: 'that end, for the customer too; and no further call for that payment',
  likely_cause: 'The poll is rescheduled before the answer is looked at.',
  async run(t) {
    const payments = await t.payAll(
      ENDS.map((status, place) => ({ cents: 3_001 + place, behaviour: endsAs(status) })),
    );
    for (const payment of payments) await t.accepted(payment);
    const ended = await t.until(() =>
      payments.every((payment) => t.calls(payment).some(toldTheEnd)),
    );
    if (ended) await t.quiet();
    for (const payment of payments) await followed(t, payment);
  },
};

/** The customer must be shown the status that the partner reported, and no call may follow it. */
async function followed(t: CallerContext, payment: CallerPayment): Promise<void> {
  const calls = t.calls(payment);
  const place = calls.findIndex(toldTheEnd);
  const told = calls[place];
  const polled = t.must(told !== undefined, {
    expected: 'polls until the payment has ended',
    got: `${calls.length} calls, none of which was told the end`,
    cause: 'The answer to the PUT is taken for the end, or the poll asks at another address.',
  });
  if (!polled || told === undefined) return;
  const after = calls[place + 1];
  t.must(after === undefined, {
    expected: `no call after the end, ${statusGiven(told) ?? ''}`,
    got: `${calls.length - 1 - place} more`,
    ...(after === undefined ? {} : { at: t.cite(after) }),
  });
  const word = statusGiven(told);
  let status: string | undefined;
  const known = await t.until(async () => {
    status = await payment.status();
    return status === undefined || status === word;
  });
  t.must(known, {
    expected: `status ${word ?? ''} for the customer, as the partner has said`,
    got: `status ${status ?? ''}`,
    clause: word === 'succeeded' ? 'ST2' : word === 'failed' ? 'ST3' : 'ST4',
    cause: 'The end is read, and then lost before it is written down.',
    at: t.cite(told),
  });
}

/** Ends the payment with this status when the sandbox ends it. */
function endsAs(status: (typeof ENDS)[number]): Behaviour {
  return onRecords((record) =>
    record['status'] !== 'succeeded' || status === 'succeeded'
      ? record
      : {
          ...record,
          status,
          posted_at: null,
          ...(status === 'failed' ? { failure_reason: 'The account is closed.' } : {}),
        },
  );
}
