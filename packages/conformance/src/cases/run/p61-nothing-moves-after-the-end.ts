import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import {
  differences,
  recordOf,
  tellDifferences,
  type Intent,
  type PaymentFields,
} from '../../check/payment-fields.ts';
import { ENDED_FIELDS, isAnswer } from '../shared.ts';

export const p61: PartnerCase = {
  id: 'P61',
  title: 'Reads and repeats leave every terminal payment unchanged',
  clauses: ['RU2', 'RU5'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends: 'GET, the identical PUT, and GET again, for every terminal payment of this run',
  expects: 'the same terminal record each time',
  likely_cause:
    'A repeat sets a terminal payment back to processing, the server retries a failed payment by itself, or a later job rewrites the record.',
  async run(t: PartnerContext) {
    t.given((await endedPayments(t)).length > 0, 'no payment of this run has ended');
  },
  // As late as the run allows: P57 polls for seconds, and a later job is a common cause of a change.
  async atEnd(t: PartnerContext) {
    const ended = await endedPayments(t);
    await Promise.all(
      ended.map(async ({ intent, end }) => {
        for (const again of ['read', 'put', 'read'] as const) {
          const reply = await t[again](intent);
          if (!isAnswer(t, reply)) return;
          const record = recordOf(reply);
          const same = t.must(
            record !== undefined && differences(end, record, ENDED_FIELDS).length === 0,
            {
              expected: `the payment as it ended, status ${show(end['status'])}`,
              got: tellDifferences(end, reply, ENDED_FIELDS),
              clause: reply.exchange.method === 'PUT' ? 'RU5' : 'RU2',
              at: reply,
            },
          );
          if (!same) return;
        }
      }),
    );
    t.tried = `${ended.length}`;
  },
};

async function endedPayments(
  t: PartnerContext,
): Promise<{ readonly intent: Intent; readonly end: PaymentFields }[]> {
  return (await t.run.lives()).flatMap(({ intent, life }) =>
    life.end === undefined ? [] : { intent, end: life.end.record },
  );
}
