import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { bodyOf, returnedTheEnd } from './calls.ts';

export const c01: CallerCase = {
  id: 'C01',
  title: 'Every PUT has a batch id, and every payment a distinct id',
  clauses: ['PF3', 'PF2'],
  severity: 'must',
  profile: 'contract',
  sends:
    'nothing: the platform makes three payments, then a second one of the first amount after the first has ended; its PUTs are examined',
  expects:
    'platform_batch_id, a non-empty string, in every PUT; another platform_payment_id for the second payment of the same amount',
  likely_cause: 'A later job assigns the batch, after the PUT.',
  async run(t) {
    const payments = await t.payAll([{ cents: 1_001 }, { cents: 1_002 }, { cents: 1_003 }]);
    for (const payment of payments) {
      await t.arrived(payment);
      for (const put of t.puts(payment)) {
        const batch = bodyOf(put)?.['platform_batch_id'];
        t.must(typeof batch === 'string' && batch !== '', {
          expected: 'platform_batch_id, a non-empty string',
          got: `the body ${put.body.slice(0, 200)}`,
          at: t.cite(put),
        });
      }
    }
    const [first] = payments;
    if (first !== undefined) await paidAgain(t, first);
  },
};

/** A second payment of the same amount to the same account is another payment (PF2). */
async function paidAgain(t: CallerContext, first: CallerPayment): Promise<void> {
  if (!(await t.until(() => t.calls(first).some(returnedTheEnd)))) return;
  const before = t.puts(first).length;
  await t.pay(first.amount_in_cents);
  const other = (): boolean => t.doubles(first).length > 0;
  await t.until(() => other() || t.puts(first).length > before);
  // Its polls would otherwise reach into the next check.
  const [double] = t.doubles(first);
  if (double !== undefined) {
    await t.until(() =>
      t.calls().some((call) => call.path === double.path && returnedTheEnd(call)),
    );
  }
  const repeated = t.puts(first)[before];
  t.must(other() || repeated === undefined, {
    expected: 'another platform_payment_id for a second payment of the same amount',
    got: repeated?.path ?? '',
    clause: 'PF2',
    cause: 'The id is derived from account, amount and date, so the second payment is never made.',
    ...(repeated === undefined ? {} : { at: t.cite(repeated) }),
  });
  if (!other() && repeated === undefined) {
    t.notes.push(
      'The platform sent no PUT for the second payment of the same amount; it may have rejected it as a duplicate.',
    );
  }
}
