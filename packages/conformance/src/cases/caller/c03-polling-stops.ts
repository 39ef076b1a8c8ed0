import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { onRecords, type Behaviour } from '../../sandbox/partner.ts';
import { stopsAtTheEnd, returnedTheEnd } from './calls.ts';

/** The three terminal statuses, one payment each. */
const ENDS = ['succeeded', 'failed', 'canceled'] as const;

export const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends: 'the scripted partner ends one payment as succeeded, one as failed and one as canceled',
  expects:
    'the customer sees the same status, and the platform makes no further call for that payment, then or later in the run',
  likely_cause: 'The next poll is scheduled before the response is examined.',
  async run(t) {
    const payments = await t.payAll(
      ENDS.map((status, place) => ({ cents: 3_001 + place, behaviour: endsAs(status) })),
    );
    for (const payment of payments) await t.accepted(payment);
    await t.until(() => payments.every((payment) => t.calls(payment).some(returnedTheEnd)));
    await Promise.all(
      payments.map(async (payment) => {
        const calls = t.calls(payment);
        const polled = t.must(calls.some(returnedTheEnd), {
          expected: 'polls until the payment has ended',
          got: `${calls.length} calls, none of which got a terminal status`,
          cause: 'The platform treats the response to the PUT as final, or polls the wrong URL.',
        });
        if (polled) await stopsAtTheEnd(t, payment);
      }),
    );
    CALLS.set(
      t,
      payments.map((payment) => ({ payment, calls: t.calls(payment).length })),
    );
  },
  async atEnd(t) {
    // One read after the end may be a reconciliation, and one more may follow a restart (C14); the next are polls at a slower pace.
    const most = t.run.restart === undefined ? 1 : 2;
    for (const { payment, calls } of t.all.length > 0 ? [] : (CALLS.get(t) ?? [])) {
      const later = t.calls(payment).slice(calls);
      const next = later[most];
      t.must(next === undefined, {
        expected: `at most ${most} calls for an ended payment while the other checks run`,
        got: `${later.length}`,
        cause: 'The platform goes on polling at a slower pace.',
        ...(next === undefined ? {} : { at: t.cite(next) }),
      });
    }
  },
};

/** The payments of a run, each with the number of its calls when it was seen to rest. */
const CALLS = new WeakMap<
  CallerContext,
  readonly { readonly payment: CallerPayment; readonly calls: number }[]
>();

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
