import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import { onRecords } from '../../sandbox/partner.ts';
import { toldTheEnd } from './calls.ts';

export const c08: CallerCase = {
  id: 'C08',
  title: 'The partner tells of another amount than was asked for',
  clauses: ['PF6', 'PF2'],
  decisions: [9, 22],
  severity: 'must',
  profile: 'contract',
  sends:
    'the scripted partner echoes one cent more, or another id, and calls the payment succeeded',
  expects: 'the payment is frozen for a person to look at: neither succeeded nor failed',
  likely_cause: 'The status is taken from the answer without comparing the rest of it.',
  async run(t: CallerContext) {
    const wrongs = [
      { amount_in_cents: 8_002 },
      { platform_payment_id: '00000000-0000-7000-8000-000000000000' },
    ];
    for (const wrong of wrongs) {
      // The PUT is answered correctly, so that every platform accepts the payment and starts polling.
      const lies = onRecords((record, call) =>
        call.method === 'GET'
          ? { ...record, ...wrong }
          : { ...record, status: 'processing', posted_at: null },
      );
      const payment = await t.pay(8_001, lies);
      await t.accepted(payment);
      const told = await t.until(() => t.calls(payment).some(toldTheEnd));
      t.given(told, 'the platform never asked for the end of the payment');
      await t.quiet();
      const status = await payment.status();
      t.given(
        status !== undefined,
        'the platform cannot be asked for the status of a payment: declare caller.status_command or caller.status_url',
      );
      const [last] = t.calls(payment).filter(toldTheEnd);
      t.must(status === 'processing', {
        expected: `still processing, although the answer said ${JSON.stringify(wrong)}`,
        got: `status ${status}`,
        ...(last === undefined ? {} : { at: t.cite(last) }),
      });
    }
  },
};
