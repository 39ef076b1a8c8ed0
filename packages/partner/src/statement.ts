/**
 * Statements of batches (decision 26): what this side says a batch holds, in a form whose disagreement with the other side's shows
 * in one comparison.
 */
import { createHash } from 'node:crypto';
import {
  PAYMENT_STATUSES,
  toCents,
  type BatchStatement,
  type PaymentStatus,
} from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';

/** Rows read at once: a batch may hold a day's millions, memory should not. */
const pageRows = 10_000;

// A cursor: the rows are sorted once, however many pages they fill.
const openCursor = `DECLARE batch_rows NO SCROLL CURSOR FOR
  SELECT platform_payment_id, status, amount_in_cents FROM duebridge_partner.payment
   WHERE platform_batch_id = $1 AND client_id = ANY ($2) ORDER BY platform_payment_id`;

interface Line {
  readonly platform_payment_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
}

/**
 * The statement of a batch, or undefined when none of these clients put a payment of it. All of it is as of one moment. The ids are in the
 * order of their bytes (collation "C"), as the hash wants them.
 */
export function batchStatement(
  database: Database,
  client_ids: readonly string[],
  platform_batch_id: string,
): Promise<BatchStatement | undefined> {
  return database.transaction(
    async (tx) => {
      const hash = createHash('sha256');
      const totals = new Map<PaymentStatus, { count: number; amount_in_cents: number }>();
      let rows: Line[];
      await tx.query(openCursor, [platform_batch_id, client_ids]);
      do {
        rows = await tx.query<Line>(`FETCH ${pageRows} FROM batch_rows`);
        for (const { platform_payment_id, status, amount_in_cents } of rows) {
          hash.update(`${platform_payment_id},${status},${amount_in_cents}\n`);
          const total = totals.get(status) ?? { count: 0, amount_in_cents: 0 };
          total.count += 1;
          total.amount_in_cents = toCents(total.amount_in_cents + amount_in_cents);
          totals.set(status, total);
        }
      } while (rows.length === pageRows);
      if (totals.size === 0) return undefined;
      return {
        platform_batch_id,
        count: [...totals.values()].reduce((sum, total) => sum + total.count, 0),
        totals: PAYMENT_STATUSES.flatMap((status) => {
          const total = totals.get(status);
          return total === undefined ? [] : [{ status, ...total }];
        }),
        sha256: hash.digest('hex'),
      };
    },
    { isolation: 'repeatable read' },
  );
}
