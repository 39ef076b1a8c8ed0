/** Statements of batches (decision 26): counts and cents per status, and a SHA-256 over the lines in the order of their ids. */
import { createHash } from 'node:crypto';
import { PAYMENT_STATUSES, type BatchStatement, type PaymentStatus } from '@duebridge/contract';

/** One payment as a statement counts it. */
export interface StatementLine {
  readonly platform_payment_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
}

/** The statement of these lines, which come in the order of their ids, by byte. Holds sums and a hash: a batch of millions needs no memory. */
export async function statementOf(
  platform_batch_id: string,
  pages: AsyncIterable<readonly StatementLine[]> | Iterable<readonly StatementLine[]>,
): Promise<BatchStatement> {
  const hash = createHash('sha256');
  const totals = new Map<PaymentStatus, { count: number; amount_in_cents: number }>();
  let count = 0;
  for await (const page of pages) {
    for (const { platform_payment_id, status, amount_in_cents } of page) {
      hash.update(`${platform_payment_id},${status},${amount_in_cents}\n`);
      count += 1;
      const total = totals.get(status) ?? { count: 0, amount_in_cents: 0 };
      total.count += 1;
      total.amount_in_cents += amount_in_cents;
      totals.set(status, total);
    }
  }
  return {
    platform_batch_id,
    count,
    totals: PAYMENT_STATUSES.flatMap((status) => {
      const total = totals.get(status);
      return total === undefined ? [] : [{ status, ...total }];
    }),
    sha256: hash.digest('hex'),
  };
}
