import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { bodyOf, toldTheEnd } from './calls.ts';

export const c01: CallerCase = {
  id: 'C01',
  title: 'Every payment that the platform puts belongs to a batch, and has an id of its own',
  clauses: ['PF3', 'PF2'],
  severity: 'must',
  profile: 'contract',
  sends:
    'nothing: the platform is made to pay three times, and the first amount once more when it has ended; its PUTs are read',
  expects:
    'platform_batch_id, a text, in every PUT; another platform_payment_id for the equal payment',
  likely_cause: 'The batch is decided later, by a job that runs after the PUT.',
  async run(t) {
    const payments = await t.payAll([{ cents: 1_001 }, { cents: 1_002 }, { cents: 1_003 }]);
    for (const payment of payments) {
      await t.arrived(payment);
      for (const put of t.puts(payment)) {
        const batch = bodyOf(put)?.['platform_batch_id'];
        t.must(typeof batch === 'string' && batch !== '', {
          expected: 'platform_batch_id, a text',
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
  if (!(await t.until(() => t.calls(first).some(toldTheEnd)))) return;
  const before = t.puts(first).length;
  await t.pay(first.amount_in_cents);
  const other = (): boolean => t.doubles(first).length > 0;
  await t.until(() => other() || t.puts(first).length > before);
  // Its polls would otherwise reach into the next check.
  const [double] = t.doubles(first);
  if (double !== undefined) {
    await t.until(() => t.calls().some((call) => call.path === double.path && toldTheEnd(call)));
  }
  const repeated = t.puts(first)[before];
  t.must(other() || repeated === undefined, {
    expected: 'another platform_payment_id for a second payment of the same amount',
    got: repeated?.path ?? '',
    clause: 'PF2',
    cause: 'The id is made of account, amount and date: the second payment is never made.',
    ...(repeated === undefined ? {} : { at: t.cite(repeated) }),
  });
  if (!other() && repeated === undefined) {
    t.notes.push('The second payment of the same amount was not put; it may count as a duplicate.');
  }
}
