/**
 * What an act would do to each of several payments (decision 166).
 *
 * holds: nothing is changed, and no partner is asked. The act itself decides again, inside its own statement: what is said here is
 *        how the payments are at this moment.
 */
import type { BulkAct, BulkPreview } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import { NOT_REFUSED_BY_PARTNER } from '../engine/review.ts';
import { findPayments, PAUSED, type PaymentRow } from '../store/payments.ts';
import { NOT_IN_REVIEW, NOT_WAITING, TOO_LATE_TO_WITHDRAW } from '../store/terminal.ts';
import { pendingClose } from './close-review.ts';
import { NOTHING_SENT } from './poll-now.ts';

/** One payment's answer, without its view. */
interface Would {
  readonly refused: boolean;
  readonly would: string;
}

const refused = (would: string): Would => ({ refused: true, would });
const does = (would: string): Would => ({ refused: false, would });

/** Previews the act for each payment, in the order given. `view`: how payments are shown. */
export async function previewActs<View>(
  options: {
    readonly database: Database;
    readonly secondPersonAboveCents: number;
    readonly view: (payments: readonly PaymentRow[]) => Promise<readonly View[]>;
  },
  act: BulkAct,
  ids: readonly string[],
  actor: string,
): Promise<{
  payments: (Omit<BulkPreview['payments'][number], 'payment'> & { payment: View | null })[];
}> {
  const { database, secondPersonAboveCents, view } = options;
  const found = await findPayments(database, [...new Set(ids)]);
  const rows = new Map(found.map((row) => [row.platform_payment_id, row]));
  const shown = await view(found);
  const views = new Map(found.map((row, index) => [row.platform_payment_id, shown[index]]));
  const closing = async (payment: PaymentRow): Promise<Would> => {
    if (payment.stage !== 'review') return refused(NOT_IN_REVIEW);
    if (payment.review_reason?.startsWith('rejected_') !== true)
      return refused(NOT_REFUSED_BY_PARTNER);
    const ends = 'Asks the partner, and ends it as failed when the partner does not know it';
    if (payment.amount_in_cents <= secondPersonAboveCents) return does(ends);
    const pending = await pendingClose(database, payment.platform_payment_id);
    if (pending === null) return does('Asks for a second person, because of the amount');
    return pending.requested_by === actor
      ? refused('You asked for this already: a second person must confirm it')
      : does(`${ends}: you are the second person`);
  };
  const judge = (payment: PaymentRow): Would | Promise<Would> => {
    const { stage, status } = payment;
    switch (act) {
      case 'resume':
        if (payment.slot === PAUSED) return does('Ends its pause: it is driven again');
        return stage === 'review' ? does('Sends the same PUT again') : refused(NOT_WAITING);
      case 'withdraw':
        return status === 'processing' && (stage === 'created' || stage === 'authorized')
          ? does('Cancels it: nothing was sent to the partner')
          : refused(TOO_LATE_TO_WITHDRAW);
      case 'poll':
        return stage === 'created' || stage === 'authorized'
          ? refused(NOTHING_SENT)
          : does('Asks the partner for its status; changes nothing');
      case 'close':
        return closing(payment);
    }
  };
  const payments = [];
  for (const platform_payment_id of ids) {
    const row = rows.get(platform_payment_id);
    const would = row === undefined ? refused('There is no such payment') : await judge(row);
    payments.push({
      platform_payment_id,
      payment: views.get(platform_payment_id) ?? null,
      ...would,
    });
  }
  return { payments };
}
