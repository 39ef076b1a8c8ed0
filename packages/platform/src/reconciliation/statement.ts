/** Statements of batches (decision 26): counts and cents per status, and a SHA-256 over the lines in the order of their ids. */
import { createHash } from 'node:crypto';
import { PAYMENT_STATUSES, type BatchStatement, type PaymentStatus } from '@duebridge/contract';

/** One payment as a statement counts it. */
export interface StatementLine {
  readonly platform_payment_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
}

/** A statement under construction. Holds sums and a hash, not the lines, so a batch of millions needs no memory. */
interface StatementBuilder {
  /** Adds a line; lines must come in the order of their ids, by byte. */
  add(line: StatementLine): void;
  end(): BatchStatement;
}

export function statementBuilder(platform_batch_id: string): StatementBuilder {
  const hash = createHash('sha256');
  const totals = new Map<PaymentStatus, { count: number; amount_in_cents: number }>();
  let count = 0;
  return {
    add({ platform_payment_id, status, amount_in_cents }) {
      hash.update(`${platform_payment_id},${status},${amount_in_cents}\n`);
      count += 1;
      const total = totals.get(status) ?? { count: 0, amount_in_cents: 0 };
      total.count += 1;
      total.amount_in_cents += amount_in_cents;
      totals.set(status, total);
    },
    end: () => ({
      platform_batch_id,
      count,
      totals: PAYMENT_STATUSES.flatMap((status) => {
        const total = totals.get(status);
        return total === undefined ? [] : [{ status, ...total }];
      }),
      sha256: hash.digest('hex'),
    }),
  };
}

/** The statement of these lines, which come in the order of their ids, by byte. */
export async function statementOf(
  platform_batch_id: string,
  pages: AsyncIterable<readonly StatementLine[]> | Iterable<readonly StatementLine[]>,
): Promise<BatchStatement> {
  const builder = statementBuilder(platform_batch_id);
  for await (const page of pages) for (const line of page) builder.add(line);
  return builder.end();
}
