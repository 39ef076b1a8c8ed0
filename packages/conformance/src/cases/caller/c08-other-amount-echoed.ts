import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import { onRecords } from '../../sandbox/partner.ts';
import { returnedTheEnd } from './calls.ts';

export const c08: CallerCase = {
  id: 'C08',
  title: 'A response with another amount or id freezes the payment',
  clauses: ['PF6', 'PF2'],
  decisions: [9, 22],
  severity: 'must',
  profile: 'contract',
  sends: 'the scripted partner echoes one cent more, or another id, with status succeeded',
  expects: 'the payment is frozen for manual review: neither succeeded nor failed',
  likely_cause: 'The platform reads the status without comparing the other fields of the response.',
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
      const ended = await t.until(() => t.calls(payment).some(returnedTheEnd));
      t.given(ended, 'the platform never polled the payment until its end');
      await t.quiet();
      const status = await payment.status();
      t.given(
        status !== undefined,
        'the kit cannot read the status of a payment from the platform: declare caller.status_command or caller.status_url',
      );
      const [last] = t.calls(payment).filter(returnedTheEnd);
      t.must(status === 'processing', {
        expected: `still processing, although the response said ${JSON.stringify(wrong)}`,
        got: `status ${status}`,
        ...(last === undefined ? {} : { at: t.cite(last) }),
      });
    }
  },
};
