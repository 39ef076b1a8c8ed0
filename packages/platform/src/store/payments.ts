/**
 * The payment row: its shape, its statements, the guarded transition.
 *
 * `stage` is the state of a payment: created (the intent is durable) -> authorized (the funds are reserved; written only when
 * the first PUT has to wait) -> dispatching (a PUT may have left; a payment begins here when its PUT can leave at once) -> accepted
 * (the partner has it) -> ended; from dispatching or accepted it may stop in review, and an operator sends it back to dispatching.
 * `status` stays `processing` until it has ended.
 *
 * holds: every write of a worker names its worker, which must own the payment's slot, `status = 'processing'`, and the stage it
 * believes in (the fence, PL10): a stale worker changes no row and is told so. The database rejects every other transition, and any
 * change of the intent (PL1, PL4).
 */
import {
  conflict,
  Refusal,
  type PaymentStage,
  type PaymentStatus,
  type TerminalStatus,
} from '@duebridge/contract';
import { arrayText, sql, type Transaction } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import type { Hold } from '../funding.ts';

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
  `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p WHERE p.platform_payment_id = ANY($1)`,
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

/** An operator's act on a payment, with its reason. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when the payment is not in the state for it. */
export type OperatorsAct = (
  on: Queryable,
  platform_payment_id: string,
  reason: string,
  actor: string,
) => Promise<PaymentRow>;

/** Makes an act out of SQL: what it sets, where, and the detail of its audit line. `refused` says why it is not possible. */
export function operatorsAct(
  name: string,
  act: { set: string; where: string; event: string; detail?: string; refused: string },
): OperatorsAct {
  const { set, where, event, detail = "'{}'::jsonb", refused } = act;
  const statement = sql(
    name,
    `WITH p AS (
       UPDATE duebridge_platform.payments AS p SET ${set}
        WHERE p.platform_payment_id = $1 AND p.status = 'processing' AND ${where} RETURNING p.*
     ), noted AS (
       INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
       SELECT $2, '${event}', p.platform_payment_id, p.partner_id, ${detail} || jsonb_build_object('reason', $3::text) FROM p
     )
     SELECT ${PAYMENT_COLUMNS} FROM p`,
  );
  return async (on, platform_payment_id, reason, actor) => {
    const [row] = await on.query<PaymentRow>(statement, [platform_payment_id, actor, reason]);
    if (row !== undefined) return row;
    const stands = await findPayment(on, platform_payment_id);
    if (stands === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
    throw conflict(refused);
  };
}

/** Those of these payments that exist, in no particular order. */
export function findPayments(on: Queryable, ids: readonly string[]): Promise<PaymentRow[]> {
  return on.query<PaymentRow>(findStatement, [ids]);
}

/** Details of an audit line: flat, and free of personal data. */
export type AuditDetail = Readonly<Record<string, string | number | null>>;

/** One step of a payment that has not ended: the required state of the row, and the new one. */
export interface Advance {
  readonly platform_payment_id: string;
  readonly from: PaymentStage;
  readonly to: 'authorized' | 'dispatching' | 'accepted' | 'review';
  /** Set at acceptance (PF1, PF7). */
  readonly payment_id?: string;
  readonly initiated_at?: string;
  /** Set when it stops in review. */
  readonly review_reason?: string;
  readonly rejection_message?: string | undefined;
  readonly detail?: AuditDetail;
  /**
   * The funds that are reserved: noted in the same statement, in their own row, when the reservation ends by itself or the customer acted for
   * it. Nothing follows from any other: whoever takes the payment over asks again.
   */
  readonly hold?: Hold | undefined;
}

/**
 * What an acceptance sets. The partner names payment_id and initiated_at once; only one that forgot the payment, and was sent the
 * same PUT again, may name others, and then the earlier payment_id is kept as evidence (decision 22).
 */
export const TAKEN_AGAIN = `
            payment_id = coalesce(u.payment_id, p.payment_id),
            initiated_at = CASE WHEN u.payment_id IS NULL OR u.payment_id = p.payment_id
                                THEN coalesce(p.initiated_at, u.initiated_at) ELSE u.initiated_at END,
            former_payment_ids = CASE WHEN p.payment_id <> u.payment_id THEN array_append(p.former_payment_ids, p.payment_id)
                                      ELSE p.former_payment_ids END`;

/** For the audit line of a row that received another payment_id: the previous one. Hardly any row has one, and '{}' costs nothing. */
export const REPLACED = `CASE WHEN p.stage IN ('accepted', 'ended') AND cardinality(p.former_payment_ids) > 0
              THEN jsonb_build_object('former_payment_id', p.former_payment_ids[cardinality(p.former_payment_ids)]) ELSE '{}' END`;

/** The writer, and the time of the write. */
export interface Writer {
  /** The worker, which must own the slots of the rows that it writes. */
  readonly worker_id: string;
  /** The database's time as that worker knows it (engine/ownership.ts). */
  readonly at: string;
}

/** The slot of payments that no worker has taken into a slot of its own yet; see engine/slots.ts. */
export const ARRIVALS = -1;
/** The slot of payments that an operator paused: it belongs to no worker, so the fence refuses every write of one (decision 61). */
export const PAUSED = -2;

/**
 * The fence (PL10): the worker `$1` owns the slot of payment `p`; `s` is slots. The sum keeps the planner from starting with a
 * worker's slots and visiting all of their payments, which looks cheap to it while a new table has no statistics.
 */
export const FENCE = `s.slot = p.slot + 0 AND s.worker_id = $1`;

const advanceStatement = sql(
  'payment_advance',
  `WITH p AS (
     UPDATE duebridge_platform.payments AS p
        SET stage = u.to_stage,
            ${TAKEN_AGAIN},
            review_reason = u.review_reason,
            rejection_message = coalesce(u.rejection_message, p.rejection_message),
            accepted_at = CASE WHEN u.to_stage = 'accepted' THEN $10::timestamptz ELSE p.accepted_at END,
            slot = CASE WHEN u.to_stage <> 'review' THEN p.slot END
       FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[], $9::jsonb[],
                   $11::boolean[], $12::timestamptz[])
            AS u (id, from_stage, to_stage, payment_id, initiated_at, review_reason, rejection_message, detail, held, held_until),
            duebridge_platform.slots AS s
      WHERE p.platform_payment_id = u.id AND ${FENCE} AND p.status = 'processing' AND p.stage = u.from_stage
      RETURNING p.*, u.detail, u.held, u.held_until
   ), held AS (
     UPDATE duebridge_platform.funds AS f SET state = 'authorized', action = NULL, expires_at = p.held_until
       FROM p WHERE f.platform_payment_id = p.platform_payment_id AND p.held AND f.reference IS NOT NULL
          AND (f.state = 'acting' OR f.state IN ('new', 'authorized') AND p.held_until IS NOT NULL)
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $1, 'payment_' || p.stage, p.platform_payment_id, p.partner_id, coalesce(p.detail, '{}') || ${REPLACED} FROM p
      WHERE p.stage IN ('authorized', 'review') OR p.detail IS NOT NULL OR cardinality(p.former_payment_ids) > 0
   )
   SELECT p.platform_payment_id FROM p`,
);

/**
 * Takes steps of many payments in one statement, and notes those in the audit that not every payment takes. Returns for each whether it was taken; false when the
 * fence refused it, because the payment belongs to another worker now or has moved on. A payment may appear only once.
 */
export async function advance(
  on: Queryable,
  writer: Writer,
  steps: readonly Advance[],
): Promise<boolean[]> {
  const changed = await on.query<ChangedId>(advanceStatement, [
    writer.worker_id,
    column(steps, (step) => step.platform_payment_id),
    column(steps, (step) => step.from),
    column(steps, (step) => step.to),
    column(steps, (step) => step.payment_id),
    column(steps, (step) => step.initiated_at),
    column(steps, (step) => step.review_reason),
    column(steps, (step) => step.rejection_message),
    column(steps, (step) => (step.detail === undefined ? null : JSON.stringify(step.detail))),
    writer.at,
    column(steps, (step) => step.hold !== undefined),
    column(steps, ({ hold }) =>
      hold?.expires_at === undefined ? null : new Date(hold.expires_at).toISOString(),
    ),
  ]);
  return wereChanged(steps, changed);
}

/** The id of a row that a statement changed. The worker knows the rest of the row, because it wrote it. */
export type ChangedId = Pick<PaymentRow, 'platform_payment_id'>;

/** One column of a batch, as an array parameter. */
export function column<Step>(
  steps: readonly Step[],
  value: (step: Step) => string | boolean | null | undefined,
): string {
  return arrayText(steps.map((step) => value(step) ?? null));
}

/** Which of the payments were changed, in the order of the request. */
export function wereChanged(asked: readonly ChangedId[], changed: readonly ChangedId[]): boolean[] {
  if (changed.length === asked.length) return asked.map(() => true);
  const ids = new Set(changed.map((row) => row.platform_payment_id));
  return asked.map((one) => ids.has(one.platform_payment_id));
}

/** How a payment ended (RU2). */
export interface Ending {
  readonly status: TerminalStatus;
  readonly payment_id: string | null;
  readonly initiated_at: string | null;
  readonly posted_at: string | null;
  readonly failure_reason: string | null;
}
