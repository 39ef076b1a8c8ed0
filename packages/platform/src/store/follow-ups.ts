/**
 * Marks for a partner's follow-up: an operator's note on a payment that the partner has to look at (decision 61).
 *
 * holds: a mark changes nothing about the payment. Setting, replacing and clearing one are in the audit with the operator's name; the
 *        table holds only the marks that are set.
 */
import { Refusal } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { note } from './audit.ts';
import { findPayment, type PaymentRow, type Queryable } from './payments.ts';

/** A mark as it is stored. */
export interface FollowUp {
  readonly note: string;
  readonly marked_by: string;
  readonly marked_at: string;
}

/** Marked payments that a search considers: the ones marked last. More marks than this are read by nobody. */
const MAX_MARKED = 10_000;

const markedStatement = sql(
  'follow_up_list',
  `SELECT platform_payment_id FROM duebridge_platform.follow_ups ORDER BY marked_at DESC LIMIT ${MAX_MARKED}`,
);

/** The ids of marked payments. */
export async function markedPayments(on: Queryable): Promise<string[]> {
  const rows = await on.query<{ platform_payment_id: string }>(markedStatement);
  return rows.map((row) => row.platform_payment_id);
}

const ofStatement = sql(
  'follow_up_of',
  `SELECT platform_payment_id, note, marked_by, marked_at FROM duebridge_platform.follow_ups WHERE platform_payment_id = ANY($1)`,
);

/** The marks of these payments, by platform_payment_id. */
export async function followUpsOf(
  on: Queryable,
  ids: readonly string[],
): Promise<Map<string, FollowUp>> {
  const rows = await on.query<FollowUp & { platform_payment_id: string }>(ofStatement, [ids]);
  return new Map(rows.map(({ platform_payment_id, ...mark }) => [platform_payment_id, mark]));
}

const markStatement = sql(
  'follow_up_mark',
  `INSERT INTO duebridge_platform.follow_ups AS f (platform_payment_id, note, marked_by) VALUES ($1, $2, $3)
   ON CONFLICT (platform_payment_id) DO UPDATE SET note = $2, marked_by = $3, marked_at = excluded.marked_at`,
);
const clearStatement = sql(
  'follow_up_clear',
  `DELETE FROM duebridge_platform.follow_ups WHERE platform_payment_id = $1 RETURNING platform_payment_id`,
);

/** What an operator says about a mark. */
interface Marking {
  readonly platform_payment_id: string;
  /** The note when it is set; why, when it is cleared. */
  readonly reason: string;
  readonly actor: string;
}

/** Marks a payment, or replaces its note. Run it in a transaction. Throws Refusal PAYMENT_NOT_FOUND. */
export async function markFollowUp(on: Queryable, marking: Marking): Promise<PaymentRow> {
  const { platform_payment_id, reason, actor } = marking;
  const payment = await known(on, platform_payment_id);
  await on.query(markStatement, [platform_payment_id, reason, actor]);
  await noteMark(on, 'follow_up_marked', payment, marking);
  return payment;
}

/** Clears the mark of a payment. Run it in a transaction. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when it has none. */
export async function clearFollowUp(on: Queryable, marking: Marking): Promise<PaymentRow> {
  const payment = await known(on, marking.platform_payment_id);
  const cleared = await on.query(clearStatement, [marking.platform_payment_id]);
  if (cleared.length === 0) {
    throw new Refusal('CONFLICT', { message: 'The payment is not marked for follow-up' });
  }
  await noteMark(on, 'follow_up_cleared', payment, marking);
  return payment;
}

async function known(on: Queryable, platform_payment_id: string): Promise<PaymentRow> {
  const payment = await findPayment(on, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  return payment;
}

function noteMark(
  on: Queryable,
  event: string,
  { platform_payment_id, partner_id }: PaymentRow,
  { reason, actor }: Marking,
): Promise<void> {
  return note(on, { actor, event, platform_payment_id, partner_id, detail: { reason } });
}
