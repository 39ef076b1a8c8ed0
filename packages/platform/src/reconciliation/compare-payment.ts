/**
 * One payment of ours against what its partner answers about it. Pure.
 */
import type { Difference } from '@duebridge/contract';
import type { NotSent } from '../partners/client.ts';
import type { Exchange } from '../partners/http-call.ts';
import { judgeRecord } from '../partners/payment-record.ts';
import type { PaymentRow } from '../store/payments.ts';

/** How one payment differs from what its partner answered; undefined when the answer is inconclusive. Pure. */
export function comparePayment(
  payment: PaymentRow,
  answer: Exchange | NotSent,
): Difference[] | undefined {
  const { platform_payment_id, status: here } = payment;
  if (answer.kind !== 'reply') return undefined;
  if (answer.status === 404 && answer.json !== undefined) {
    return [{ platform_payment_id, kind: 'missing_there', here, there: null }];
  }
  if (answer.status !== 200) return undefined;
  const judged = judgeRecord(payment, answer.json);
  switch (judged.kind) {
    case 'invalid':
      return undefined;
    case 'mismatch':
      // With another amount it is our payment, recorded wrongly; with another id, account or batch it is not our payment.
      return [
        judged.field === 'amount_in_cents'
          ? {
              platform_payment_id,
              kind: 'amount',
              here: String(payment.amount_in_cents),
              there: amountText(answer.json),
            }
          : { platform_payment_id, kind: 'missing_there', here, there: otherThan(judged.field) },
      ];
    case 'processing':
      return here === 'processing'
        ? []
        : [{ platform_payment_id, kind: 'status', here, there: 'processing' }];
    case 'incomplete':
      return [
        here === 'succeeded'
          ? { platform_payment_id, kind: 'time', here: payment.posted_at, there: null }
          : { platform_payment_id, kind: 'status', here, there: 'succeeded' },
      ];
    case 'ended': {
      const { status: there, posted_at } = judged.ending;
      if (here !== there) return [{ platform_payment_id, kind: 'status', here, there }];
      return payment.posted_at === posted_at
        ? []
        : [{ platform_payment_id, kind: 'time', here: payment.posted_at, there: posted_at }];
    }
  }
}

/** What the partner shows where its record under our id is not of our payment. */
export function otherThan(field: string): string {
  return `a different ${field}`;
}

function amountText(json: unknown): string | null {
  return typeof json === 'object' && json !== null && 'amount_in_cents' in json
    ? String(json.amount_in_cents)
    : null;
}
