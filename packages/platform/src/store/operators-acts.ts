/**
 * What operators do to a payment that a worker would otherwise drive: pause and resume it, withdraw it, end it, and settle its funds by their
 * word.
 *
 * enters: a payment, and a person's reason.  leaves: its row, with the line of the audit in the same statement. A worker finds what is left
 *         to do: the row is in no slot of a worker, or in ARRIVALS.
 * holds:  the guard `processing` makes the first writer of an end win. A paused payment is in a slot of no worker: the fence refuses every
 *         write for it, also of a step that is under way, so that its first PUT cannot leave, because `dispatching` is written before it. A
 *         worker that has it in memory drops it at its next round (engine/worker.ts); a PUT repeated or a poll sent before that is
 *         harmless, and its answer is learned again after the pause.
 */
import { conflict, type CloseByWord, type SettleFunds } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { booking, entryByWord } from './money-book.ts';
import {
  ARRIVALS,
  knownPayment,
  PAUSED,
  PAYMENT_COLUMNS,
  type PaymentRow,
  type Queryable,
} from './payments.ts';

/** An operator's act on a payment, with its reason. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when the payment is not in the state for it. */
type OperatorsAct = (
  on: Queryable,
  platform_payment_id: string,
  reason: string,
  actor: string,
) => Promise<PaymentRow>;

/** Makes an act out of SQL: what it sets, where, and the detail of its audit line. `refused` says why it is not possible. */
function operatorsAct(
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
    await knownPayment(on, platform_payment_id);
    throw conflict(refused);
  };
}

/** Pauses a payment. */
export const pausePayment = operatorsAct('payment_pause', {
  set: `slot = ${PAUSED}`,
  where: `p.slot <> ${PAUSED}`,
  event: 'payment_paused',
  refused: 'Nothing is sent for this payment: it has ended, waits in review, or is paused already',
});

/** Paused payments read at once; each is paused by a person. */
const MAX_PAUSED = 10_000;

const pausedStatement = sql(`
   SELECT p.platform_payment_id FROM duebridge_platform.payments p
    WHERE p.slot = ${PAUSED} AND p.settled_at IS NULL LIMIT ${MAX_PAUSED}`);

/** The ids of paused payments. */
export async function pausedPayments(on: Queryable): Promise<string[]> {
  const rows = await on.query<{ platform_payment_id: string }>(pausedStatement);
  return rows.map((row) => row.platform_payment_id);
}

/**
 * Cancels a payment of which no PUT can have left (decision 18). The worker writes `dispatching`
 * before the first PUT, so that guard and this one exclude each other. Any worker then releases the funds.
 */
export const withdrawPayment = operatorsAct('payment_withdraw', {
  set: `status = 'canceled', stage = 'ended', ended_by = 'operator', ended_at = now(), slot = ${ARRIVALS}`,
  where: `p.stage IN ('created', 'authorized') AND p.maybe_sent IS NULL`,
  event: 'payment_ended',
  detail: `jsonb_build_object('status', p.status, 'by', 'operator')`,
  refused: 'The payment may have reached the partner; only the partner can cancel it now',
});

/**
 * Takes a payment out of review, or ends its pause. A worker takes it over: from review it repeats the PUT with the same id and bytes
 * (decision 21), after a pause it continues where it was (decision 61).
 */
export const resumePayment = operatorsAct('payment_resume', {
  set: `stage = CASE p.stage WHEN 'review' THEN 'dispatching' ELSE p.stage END, review_reason = NULL, slot = ${ARRIVALS}`,
  where: `(p.stage = 'review' OR p.slot = ${PAUSED})`,
  event: 'payment_resumed',
  refused: 'The payment is neither in review nor paused',
});

/** Who acts, and why. */
export interface ReviewAct {
  /** In the operator's words; kept in the audit. */
  readonly reason: string;
  readonly actor: string;
  /** The second approver, if the amount required one; the caller checks that. */
  readonly approved_by?: string;
}

const closeReviewStatement = sql(`
   WITH p AS (
     UPDATE duebridge_platform.payments AS p
        SET status = $2, stage = 'ended', failure_reason = $3, review_reason = NULL, ended_by = 'operator',
            payment_id = coalesce(p.payment_id, $9), posted_at = $10::timestamptz, ended_at = now(), slot = ${ARRIVALS},
            -- What the biller has posted was accepted, although no answer said so: it belongs to its batch and is owed.
            accepted_at = coalesce(p.accepted_at, $10::timestamptz)
      WHERE p.platform_payment_id = $1 AND p.status = 'processing' AND (p.stage IN ('dispatching', 'accepted', 'review') OR p.maybe_sent)
        AND (p.stage = 'review' OR p.slot = ${PAUSED}) AND p.review_reason IS NOT DISTINCT FROM $4
      RETURNING p.*
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $5, 'payment_ended', p.platform_payment_id, p.partner_id,
            jsonb_strip_nulls(jsonb_build_object('status', p.status, 'by', 'operator', 'review_reason', $4::text, 'reason', $6::text,
                                                 'approved_by', $7::text, 'evidence', $8::text)) FROM p
   )
   SELECT ${PAYMENT_COLUMNS} FROM p`);

/**
 * Ends a payment that nobody drives as an operator says; any worker then captures or releases the funds. Only engine/review.ts calls it,
 * which first asks the partner. Returns the terminal row, or undefined when the payment is not in the review any more, or not paused,
 * in which the operator saw it.
 */
export async function endByOperator(
  on: Queryable,
  { platform_payment_id, review_reason }: PaymentRow,
  { actor, reason, approved_by }: ReviewAct,
  word: CloseByWord,
): Promise<PaymentRow | undefined> {
  const failure_reason = word.outcome === 'failed' ? word.failure_reason : null;
  const { payment_id, posted_at } =
    word.outcome === 'succeeded' ? word : { payment_id: null, posted_at: null };
  const what = [platform_payment_id, word.outcome, failure_reason, review_reason];
  const by = [actor, reason, approved_by ?? null, word.evidence];
  const values = [...what, ...by, payment_id, posted_at];
  const [row] = await on.query<PaymentRow>(closeReviewStatement, values);
  return row;
}

const settleByWordStatement = sql(`
   WITH p AS (
     UPDATE duebridge_platform.payments AS p SET settled_at = coalesce(p.settled_at, $8::timestamptz)
      WHERE p.platform_payment_id = $1 AND p.status <> 'processing'
        AND (p.status = 'succeeded') = ($2 IN ('captured', 'borne'))
        AND (num_nulls(p.settled_at) = 1 OR $7::boolean)
      RETURNING p.*
   ), kept AS (
     UPDATE duebridge_platform.funds AS f SET state = $2, action = NULL, reason = left($4, 500)
       FROM p WHERE f.platform_payment_id = p.platform_payment_id AND (f.reference IS NOT NULL OR $2 = 'released')
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $3, 'funds_settled_by_operator', p.platform_payment_id, p.partner_id,
            jsonb_strip_nulls(jsonb_build_object('outcome', $2::text, 'reason', $4::text, 'evidence', $5::text, 'approved_by', $6::text))
       FROM p
   ), booked AS (
     ${booking({
       act: "'word'",
       debit: '$9::text',
       credit: '$10::text',
       at: '$8::timestamptz',
       from: 'p',
       where: '$9 IS NOT NULL',
     })}
   )
   SELECT ${PAYMENT_COLUMNS} FROM p`);
const lockStatement = sql(`
   SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1 FOR NO KEY UPDATE`);
const openFundsStatement = sql(`
   SELECT count(*) > 0 AS is_open, now() AS at FROM duebridge_platform.funds f
    WHERE f.platform_payment_id = $1 AND f.state = 'releasing'`);
const bookedStatement = sql(`
   SELECT t.act FROM duebridge_platform.transfers t WHERE t.id = $1 AND t.act IN ('settled', 'taken_early', 'word')`);

/**
 * Ends the matter of the funds of an ended payment on an operator's word, when its capture or its release fails for good; what could not be
 * collected is a case (cases.ts). A worker that still tries finds the row settled. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when nothing is
 * open, when the outcome does not fit the payment's end, or when a word has moved its money already.
 */
export function settleByWord(
  database: Database,
  platform_payment_id: string,
  { outcome, evidence }: Pick<SettleFunds, 'outcome' | 'evidence'>,
  { reason, actor, approved_by }: ReviewAct,
): Promise<PaymentRow> {
  return database.transaction(async (on) => {
    // What is booked follows from what the next statements read: neither a worker nor a second operator may settle in between.
    await on.query(lockStatement, [platform_payment_id]);
    const [left] = await on.query<{ is_open: boolean; at: string }>(openFundsStatement, [
      platform_payment_id,
    ]);
    const booked = await on.query<{ act: string }>(bookedStatement, [platform_payment_id]);
    const entry = entryByWord(
      outcome,
      booked.some(({ act }) => act === 'taken_early'),
    );
    // The book has one place for a word: a second one would change the funds, and not the book.
    if (entry !== undefined && booked.some(({ act }) => act === 'word')) {
      throw conflict('The funds of this payment were settled by an operator’s word before');
    }
    const { is_open = false, at = null } = left ?? {};
    const { debit = null, credit = null } = entry ?? {};
    const said = [platform_payment_id, outcome, actor, reason, evidence, approved_by ?? null];
    const values = [...said, is_open, at, debit, credit];
    const [row] = await on.query<PaymentRow>(settleByWordStatement, values);
    if (row !== undefined) return row;
    await knownPayment(on, platform_payment_id);
    throw conflict('Nothing is left to do for the funds of this payment in that way');
  });
}
