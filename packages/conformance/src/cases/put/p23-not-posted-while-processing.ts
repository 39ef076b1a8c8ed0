import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';

export const p23: PartnerCase = {
  id: 'P23',
  title: 'A payment that is still processing has not been posted',
  clauses: ['PF8', 'ST1'],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment with a new id, then GET until it ends (the payment of P20)',
  expects: 'posted_at null in every answer that says processing',
  likely_cause: 'posted_at is filled when the row is made, or with an expected date.',
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
          expected: 'posted_at there, and null',
          got: 'posted_at is missing',
          at: reply,
        });
      if (!holds) return;
    }
  },
};
