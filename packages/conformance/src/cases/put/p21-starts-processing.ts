import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { isTerminalWord } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { statusOf } from '../shared.ts';

export const p21: PartnerCase = {
  id: 'P21',
  title: 'A payment starts as processing',
  clauses: ['RU1', 'ST1'],
  severity: 'should',
  profile: 'contract',
  sends:
    'PUT payment with a new id (the payment of P20); the first responses to the other payments of this run are examined too',
  expects:
    'status processing; if the payment is already terminal, posted_at or failure_reason is set accordingly',
  likely_cause:
    'The payment is posted within the request, and the response shows only its final status.',
  creates: (target) => sharedAll(target, ['first']),
  atEnd: otherPayments,
  async run(t) {
    const { subject, record } = await t.accepted();
    t.should(record['status'] === 'processing', {
      expected: 'status processing in the response to the first PUT',
      got: `status is ${statusOf(record)}`,
      at: subject.put,
    });
    if (!isTerminalWord(record['status'])) return;
    t.should(record['status'] !== 'succeeded' || typeof record['posted_at'] === 'string', {
      expected: 'posted_at set, because the payment has already succeeded',
      got: `posted_at is ${show(record['posted_at'])}`,
      at: subject.put,
    });
    t.should(record['status'] !== 'failed' || typeof record['failure_reason'] === 'string', {
      expected: 'failure_reason set, because the payment has already failed',
      got: `failure_reason is ${show(record['failure_reason'])}`,
      at: subject.put,
    });
  },
};

/** Checks whose first response may be a repeat: the first request was cut off, or many were sent together. */
const MAY_BE_REPEATS: readonly string[] = ['P27', 'P34', 'P63'];

/** A server may treat the first payment of an account differently from the next. */
async function otherPayments(t: PartnerContext): Promise<void> {
  if (t.all.length > 0) return;
  const others = t.run.intents.flatMap(({ first }) =>
    first === undefined || MAY_BE_REPEATS.includes(first.reply.exchange.check) ? [] : [first],
  );
  const ended = others.filter(
    ({ reply, record }) => reply.exchange.burst !== true && isTerminalWord(record['status']),
  );
  const [one] = ended;
  t.should(one === undefined, {
    expected: 'status processing in the response to the first PUT of every payment',
    got:
      one === undefined
        ? ''
        : `status ${statusOf(one.record)} (${ended.length} of ${others.length} payments)`,
    ...(one === undefined ? {} : { at: one.reply }),
  });
}
