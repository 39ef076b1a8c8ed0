/**
 * The payment row: its shape, how it begins and how it is read. steps.ts and operators-acts.ts change it.
 *
 * `stage` is the state of a payment: created (the intent is durable; earlier versions wrote authorized when
 * its first PUT had to wait for its partner) -> dispatching (a PUT may have left; a payment begins here when its PUT can leave at once) -> accepted
 * (the partner has it) -> ended; from dispatching or accepted it may stop in review, and an operator sends it back to dispatching.
 * `status` stays `processing` until it has ended.
 *
 * holds: the database rejects every other transition, and any change of the intent (PL1, PL4).
 */
import { Refusal, type PaymentStage, type PaymentStatus } from '@duebridge/contract';
import { sql, type Transaction } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { spanOf } from '../payment-id.ts';

/** Runs statements: the pool, or a transaction. */
export type Queryable = Pick<Transaction, 'query'>;

/** A payment as stored. Times are ISO 8601 texts in UTC with milliseconds (decision 12). */
export interface PaymentRow {
  readonly platform_payment_id: string;
  readonly partner_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly funding_method: string;
  readonly status: PaymentStatus;
  readonly stage: PaymentStage;
  /**
   * A PUT may have left whatever the stage says: the database had lost the payment, or its page had confirmed it before, without an answer
   * (checkout/confirm.ts). Null otherwise.
   */
  readonly maybe_sent: true | null;
  readonly review_reason: string | null;
  /** The partner's message when it refused the PUT, at most 500 characters. */
  readonly rejection_message: string | null;
  /** The slot whose owner drives it (engine/slots.ts); -1 until a worker has placed it, -2 while paused, null in review. */
  readonly slot: number | null;
  readonly payment_id: string | null;
  readonly failure_reason: string | null;
  /** What ended it: the partner's answer, or declined funds, in which case the payment never reached the partner. */
  readonly ended_by: 'partner' | 'refusal' | 'funding' | 'operator' | null;
  readonly initiated_at: string | null;
  readonly posted_at: string | null;
  readonly created_at: string;
  readonly accepted_at: string | null;
  readonly ended_at: string | null;
  /** When the funds were captured or released after the end. */
  readonly settled_at: string | null;
}

/** The columns of a PaymentRow, for every `select` and `returning`: `p` is the table's alias. */
export const PAYMENT_COLUMNS = `p.platform_payment_id, p.partner_id, p.biller_id, p.account_id, p.platform_batch_id,
  p.amount_in_cents, p.funding_method, p.status, p.stage, p.maybe_sent, p.review_reason, p.rejection_message, p.slot,
  p.payment_id, p.failure_reason, p.ended_by, p.initiated_at, p.posted_at, p.created_at, p.accepted_at, p.ended_at, p.settled_at`;

/** What the customer confirmed: never changes after the insert (PL1). */
export interface PaymentIntent {
  readonly partner_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  /** From `batchFor`. */
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly funding_method: string;
}

/** Where a new payment begins; from `engine.placeForNew`. */
export interface NewPlace {
  readonly slot: number;
  /**
   * `dispatching` when its method reserves nothing and its PUT leaves at once, which saves the statement before the PUT (decision 66).
   */
  readonly stage: 'created' | 'dispatching';
}

const insertStatement = sql(
  'payment_insert',
  `WITH p AS (
     INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
                           funding_method, slot, stage, maybe_sent)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING *
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $11, 'payment_created', p.platform_payment_id, p.partner_id, jsonb_build_object('amount_in_cents', p.amount_in_cents)
       FROM p WHERE $11::text IS NOT NULL
   )
   SELECT ${PAYMENT_COLUMNS} FROM p`,
);

/**
 * Writes the intent, with the platform_payment_id given or a new one (UUIDv7, decision 13); no call leaves before
 * this is committed (PL1). `slot` and `stage` are from `engine.placeForNew`, whose engine then gets the row by `engine.take`; slot -1
 * leaves it to any worker.
 */
export async function insertPayment(
  on: Queryable,
  payment: PaymentIntent &
    NewPlace & {
      /** Who made it, unless a customer's session did: then the row itself says so (audit.ts). */
      readonly actor?: string;
      readonly platform_payment_id?: string | undefined;
      readonly maybe_sent?: true | null;
    },
): Promise<PaymentRow> {
  const { platform_payment_id: id = uuidv7(), partner_id, biller_id, account_id } = payment;
  const { platform_batch_id, amount_in_cents, funding_method } = payment;
  const whose = [id, partner_id, biller_id, account_id, platform_batch_id];
  const { slot, stage, maybe_sent = null, actor = null } = payment;
  const values = [...whose, amount_in_cents, funding_method, slot, stage, maybe_sent, actor];
  const [row] = await on.query<PaymentRow>(insertStatement, values);
  if (row === undefined) throw new Error('an insert gave no row');
  return row;
}

const findStatement = sql(
  'payment_find',
  `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p
    WHERE p.platform_payment_id = ANY($1) AND p.platform_payment_id BETWEEN $2 AND $3`,
);

/** The payment with this id, or undefined. */
export async function findPayment(
  on: Queryable,
  platform_payment_id: string,
): Promise<PaymentRow | undefined> {
  const [row] = await findPayments(on, [platform_payment_id]);
  return row;
}

/** The same. Throws Refusal PAYMENT_NOT_FOUND. */
export async function knownPayment(
  on: Queryable,
  platform_payment_id: string,
): Promise<PaymentRow> {
  const payment = await findPayment(on, platform_payment_id);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  return payment;
}

/** Those of these payments that exist, in no particular order. */
export function findPayments(on: Queryable, ids: readonly string[]): Promise<PaymentRow[]> {
  return on.query<PaymentRow>(findStatement, [ids, ...spanOf(ids)]);
}

/** Details of an audit line: flat, and free of personal data. */
export type AuditDetail = Readonly<Record<string, string | number | null>>;

/** The slot of payments that no worker has taken into a slot of its own yet; see engine/slots.ts. */
export const ARRIVALS = -1;
/** The slot of payments that an operator paused: it belongs to no worker, so the fence refuses every write of one (decision 61). */
export const PAUSED = -2;
