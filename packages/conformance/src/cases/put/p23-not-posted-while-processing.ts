import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';

export const p23: PartnerCase = {
  id: 'P23',
  title: 'posted_at is null while a payment is processing',
  clauses: ['PF8', 'ST1'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment with a new id, then GET until it ends (the payment of P20)',
  expects: 'posted_at null in every response with status processing',
  likely_cause: 'posted_at is set when the row is inserted, or holds an expected date.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    const { subject } = await t.accepted();
    const life = await t.end(subject.intent);
    const seen = [subject.put, subject.read, ...life.reads.map(({ reply }) => reply)].filter(
      (reply) => recordOf(reply)?.['status'] === 'processing',
    );
    t.given(seen.length > 0, 'the payment was never seen processing');
    for (const reply of seen) {
      const posted = recordOf(reply)?.['posted_at'];
      const holds =
        t.must(posted === null || posted === undefined, {
          expected: 'posted_at null while processing',
          got: `posted_at is ${show(posted)}`,
          at: reply,
        }) &&
        t.should(posted === null, {
          expected: 'posted_at present, and null',
          got: 'posted_at is missing',
          at: reply,
        });
      if (!holds) return;
    }
  },
};
