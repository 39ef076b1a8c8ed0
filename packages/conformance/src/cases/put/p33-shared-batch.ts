import { randomBytes, randomUUID } from 'node:crypto';
import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { own } from '../../check/planned-payments.ts';

/** Payments that share one batch. */
const PAYMENTS = 3;

/** Batch ids that careless code changes. A server may refuse them, but must not store another one. */
const UNUSUAL: readonly ((random: string) => string)[] = [
  (random) => `0012${BigInt(`0x${random}`)}`,
  (random) => `Judge.${random.toUpperCase()}.`,
  (random) => `judge-${random}`.padEnd(64, 'x'),
  (random) => `${random} & <"O'Neill">`,
];

export const p33: PartnerCase = {
  id: 'P33',
  title: 'Several payments can share a batch id',
  clauses: ['PF3'],
  severity: 'must',
  profile: 'contract',
  sends: `${PAYMENTS} PUTs with different ids and one platform_batch_id, then GET of each; ${UNUSUAL.length} PUTs with a batch id of digits, of mixed case, of 64 characters and with punctuation`,
  expects: `${PAYMENTS} payments, each with that batch id; the others with theirs, unless refused`,
  likely_cause: 'The server uses the batch id as an idempotency key, or does not store it.',
  creates: (target) =>
    Array.from({ length: PAYMENTS + UNUSUAL.length }, (_, number) => own(target, 330 + number)),
  async run(t: PartnerContext) {
    const batch = randomUUID();
    const seen = new Set<string>();
    for (let number = 0; number < PAYMENTS; number += 1) {
      const intent = t.intend(own(t.target, 330 + number), batch);
      const put = await t.put(intent);
      t.given(number > 0 || recordOf(put) !== undefined, 'no new payment was accepted (see P20)');
      const read = await t.read(intent);
      const record = recordOf(read);
      const payment_id = show(record?.['payment_id']);
      const holds = t.must(
        record !== undefined && record['platform_batch_id'] === batch && !seen.has(payment_id),
        {
          expected: `a distinct payment with platform_batch_id ${show(batch)}`,
          got: tell(read),
          at: read,
        },
      );
      if (!holds) return;
      seen.add(payment_id);
    }
    await Promise.all(
      UNUSUAL.map(async (make, place) => {
        const unusual = make(randomBytes(8).toString('hex'));
        const intent = t.intend(own(t.target, 330 + PAYMENTS + place), unusual);
        const put = await t.put(intent);
        if (!isSuccess(put)) return;
        for (const reply of [put, await t.read(intent)]) {
          t.must(recordOf(reply)?.['platform_batch_id'] === unusual, {
            expected: `platform_batch_id ${show(unusual)}, as it was sent`,
            got: tell(reply),
            cause: 'The batch id is escaped, folded, cut or converted to a number.',
            at: reply,
          });
        }
      }),
    );
  },
};
