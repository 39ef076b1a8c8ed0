import type { DrivenPayment } from '../../check/caller-context.ts';
import type { CallerCase } from '../../check/check.ts';
import type { Reply } from '../../sandbox/partner.ts';
import { sameBytes } from './calls.ts';

/** What the first PUT of each payment gets instead of its answer; the payment is taken all the same. */
const FAULTS: readonly { readonly name: string; readonly amount: number; readonly reply: Reply }[] =
  [
    { name: '500', amount: 7_001, reply: { status: 500, body: { code: 'X', message: 'x' } } },
    { name: '503', amount: 7_002, reply: { status: 503, body: '' } },
    {
      name: '200 with a web page',
      amount: 7_003,
      reply: {
        status: 200,
        headers: { 'Content-Type': 'text/html' },
        body: '<html><body>Service error: payment failed</body></html>',
      },
    },
    {
      name: 'half a body',
      amount: 7_004,
      reply: (wire) => {
        const bytes = wire.bytes(wire.answer);
        wire.socket.end(bytes.subarray(0, bytes.length - 20));
      },
    },
    { name: 'a cut connection', amount: 7_005, reply: (wire) => void wire.socket.destroy() },
  ];

export const c07: CallerCase = {
  id: 'C07',
  title: 'An answer that says nothing never fails a payment',
  clauses: ['ST3', 'RU5'],
  decisions: [21],
  severity: 'must',
  profile: 'contract',
  sends: 'the scripted partner takes payments but answers 5xx, a web page, half a body, or nothing',
  expects: 'the same PUT again, and never failed: it may have happened',
  likely_cause: 'Any error of the call is recorded as a failed payment.',
  async run(t) {
    const met = new Set<string>();
    t.script({
      answer(call) {
        if (call.method !== 'PUT' || met.has(call.path)) return undefined;
        const fault = FAULTS.find(({ amount }) => call.text.includes(`:${amount}`));
        if (fault === undefined) return undefined;
        met.add(call.path);
        return fault.reply;
      },
    });
    const payments: { readonly name: string; readonly payment: DrivenPayment }[] = [];
    for (const { name, amount } of FAULTS) payments.push({ name, payment: await t.pay(amount) });
    await t.until(() => payments.every(({ payment }) => t.puts(payment).length > 1));
    for (const { name, payment } of payments) {
      const status = await payment.status();
      const [first] = t.puts(payment);
      t.must(status !== 'failed' && status !== 'canceled', {
        expected: `after ${name}: still processing, or succeeded`,
        got: `status ${status ?? 'unknown'}`,
        ...(first === undefined ? {} : { at: t.cite(first) }),
      });
      t.must(t.puts(payment).length > 1, {
        expected: `after ${name}: the same PUT again`,
        got: `${t.puts(payment).length} PUT`,
      });
      sameBytes(t, payment);
    }
  },
};
