import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import type { ScriptedExchange } from '../../sandbox/partner.ts';
import { bodyOf, decoded, returnedTheEnd } from './calls.ts';

export const c01: CallerCase = {
  id: 'C01',
  title: 'Every PUT has a batch id, and every payment a distinct id',
  clauses: ['PF3', 'PF2'],
  severity: 'must',
  profile: 'contract',
  sends:
    'nothing: the platform makes three payments, then a second one of the first amount after the first has ended, and (with caller.other_account_id) one for another account; its PUTs are examined',
  expects:
    'platform_batch_id, a non-empty string, in every PUT; another platform_payment_id for the second payment of the same amount and for the payment of the other account',
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
    await otherAccount(t);
  },
};

/** An id that another account has used is another account's payment (PF2). */
async function otherAccount(t: CallerContext): Promise<void> {
  const { other_account_id } = t.run.caller;
  if (other_account_id === undefined) {
    t.notes.push(
      'The ids of two accounts were not compared: the target declares no caller.other_account_id.',
    );
    return;
  }
  const known = new Set(t.run.partner.exchanges().map(({ path }) => path.split('/').at(-1)));
  const payment = await t.pay(1_004, {}, other_account_id);
  const its = (): ScriptedExchange | undefined =>
    t
      .puts()
      .find(
        (put) =>
          bodyOf(put)?.['amount_in_cents'] === payment.amount_in_cents ||
          accountOf(put) === other_account_id,
      );
  t.given(
    await t.until(() => its() !== undefined, Math.max(t.patience_ms, t.run.driver.arrival_ms ?? 0)),
    'the platform sent no PUT for the other account',
  );
  const put = its();
  if (put === undefined) return;
  t.must(accountOf(put) === other_account_id, {
    expected: `a path with the account ${encodeURIComponent(other_account_id)}`,
    got: put.path,
    clause: 'B4',
    cause: 'The id is written into the path without percent-encoding, or encoded as in a query.',
    at: t.cite(put),
  });
  t.must(!known.has(put.path.split('/').at(-1)), {
    expected: 'a platform_payment_id that no payment of another account has',
    got: put.path,
    clause: 'PF2',
    cause: 'Ids are numbered within each account.',
    at: t.cite(put),
  });
}

function accountOf({ path }: ScriptedExchange): string | undefined {
  return decoded(path.split('/').at(-3));
}

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
