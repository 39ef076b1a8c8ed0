/**
 * Our payments against what their partner has of them: a line of its file, or the record that it answers. Pure, but for turns of the event
 * loop: nothing is sorted, so that a million lines hold nobody up.
 */
import { setImmediate as turn } from 'node:timers/promises';
import type { Difference, PaymentStatus } from '@duebridge/contract';
import type { Exchange } from '../partners/http-call.ts';
import type { NotSent } from '../partners/oauth-client.ts';
import { judgeRecord } from '../partners/payment-record.ts';
import type { PaymentRow } from '../store/payments.ts';
import type { StatementLine } from './batch.ts';

/** What a partner has of one payment. */
export interface TheirLine {
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
  /** How often a file has the id; the amounts are added up. */
  readonly lines?: number;
  /** Left out where nothing is said of it; null where it is missing. */
  readonly posted_at?: string | null;
}

/** Compares our lines, page by page, with the partner's file, by ids. An id that occurs twice there counts with the sum of its amounts. */
export async function compareLines(
  ours: AsyncIterable<readonly StatementLine[]> | Iterable<readonly StatementLine[]>,
  file: ReadonlyMap<string, TheirLine>,
) {
  const there = new Map(file);
  /** Of our payments, in the order of their ids; then of what only the partner has, in the order of its file. */
  const differences: Difference[] = [];
  /** Payments that either side has: the number that differences are counted against. */
  let compared = there.size;
  for await (const page of ours) {
    for (const line of page) {
      const other = there.get(line.platform_payment_id);
      if (!there.delete(line.platform_payment_id)) compared += 1;
      differences.push(...compareLine(line, other));
    }
    await turn();
  }
  for (const [platform_payment_id, { status }] of there) {
    differences.push({ platform_payment_id, kind: 'missing_here', here: null, there: status });
  }
  return { compared, differences };
}

/** How a payment differs from the partner's answer to a GET of it; undefined when the answer is inconclusive. */
export function comparePayment(
  payment: PaymentRow,
  answer: Exchange | NotSent,
): Difference[] | undefined {
  if (answer.kind !== 'reply') return undefined;
  if (answer.status === 404 && answer.json !== undefined) return compareLine(payment, undefined);
  if (answer.status !== 200) return undefined;
  const { platform_payment_id, amount_in_cents, status } = payment;
  const judged = judgeRecord(payment, answer.json);
  switch (judged.kind) {
    case 'invalid':
      return undefined;
    case 'mismatch': {
      // With another amount it is our payment, recorded wrongly; with another id, account or batch it is not our payment.
      if (judged.field === 'amount_in_cents') {
        const other = answer.json as { readonly amount_in_cents: number };
        return compareLine(payment, { status, amount_in_cents: other.amount_in_cents });
      }
      const there = otherThan(judged.field);
      return [{ platform_payment_id, kind: 'missing_there', here: status, there }];
    }
    case 'processing':
      return compareLine(payment, { status: 'processing', amount_in_cents });
    case 'incomplete':
      return compareLine(payment, { status: 'succeeded', amount_in_cents, posted_at: null });
    case 'ended':
      return compareLine(payment, { ...judged.ending, amount_in_cents });
  }
}

/** What the partner shows where its record under our id is not of our payment. */
export function otherThan(field: string): string {
  return `a different ${field}`;
}

function compareLine(
  line: StatementLine & Pick<TheirLine, 'posted_at'>,
  other: TheirLine | undefined,
): Difference[] {
  const { platform_payment_id, status, amount_in_cents, posted_at: here = null } = line;
  if (other === undefined) {
    return [{ platform_payment_id, kind: 'missing_there', here: status, there: null }];
  }
  const { lines = 1, posted_at: there } = other;
  const differences: Difference[] = [];
  if (other.status !== status) {
    differences.push({ platform_payment_id, kind: 'status', here: status, there: other.status });
  } else if (there !== undefined && there !== here) {
    differences.push({ platform_payment_id, kind: 'time', here, there });
  }
  if (other.amount_in_cents !== amount_in_cents || lines > 1) {
    const amount = `${other.amount_in_cents}${lines > 1 ? ` in ${lines} lines` : ''}`;
    const here = String(amount_in_cents);
    differences.push({ platform_payment_id, kind: 'amount', here, there: amount });
  }
  return differences;
}
