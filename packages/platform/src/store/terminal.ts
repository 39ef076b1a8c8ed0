/**
 * Stage 8, the end: the one place that writes a final status, once (RU2, PL4, PL6), and then what follows it for the funds.
 *
 * enters: a payment of ours that has not ended, and why it ends: a believed record of the partner, declined funds, or an
 *         operator's withdrawal while no PUT can have left (decision 18).
 * leaves: the terminal row, with its audit line in the same statement; polling stops (RU4).
 * holds:  the guard `status = 'processing'` makes the first writer win, and a trigger rejects every later change of the outcome.
 * next:   capture or void, noted in settled_at; then batch.ts.
 */
import {
  conflict,
  Refusal,
  type CloseByWord,
  type PaymentStage,
  type SettleFunds,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import type { SettledFunds } from '../funding.ts';
import { uncollectedCases } from './cases.ts';
import { booking, entryByWord, KNOWN_TO_BILLER } from './money-book.ts';
import {
  ARRIVALS,
  column,
  FENCE,
  findPayment,
  operatorsAct,
  PAUSED,
  PAYMENT_COLUMNS,
  REPLACED,
  TAKEN_AGAIN,
  wereChanged,
  type ChangedId,
  type Ending,
  type PaymentRow,
  type Queryable,
  type Writer,
} from './payments.ts';

/**
 * One payment's end. `by`: a record of the partner, a refusal that the partner declared final (decision 21), or declined funds,
 * which need no settlement because nothing is held.
 */
export interface End {
  readonly platform_payment_id: string;
  readonly from: PaymentStage;
  readonly by: 'partner' | 'refusal' | 'funding';
  readonly ending: Ending;
  /** Nothing is left to do for the funds: they are collected elsewhere. */
  readonly settles?: boolean;
}

const endStatement = sql(
  'payment_end',
  `WITH p AS (
     UPDATE duebridge_platform.payments AS p
        SET status = u.status,
            stage = 'ended',
            ${TAKEN_AGAIN},
            posted_at = u.posted_at,
            failure_reason = u.failure_reason,
            ended_by = u.ended_by,
            accepted_at = CASE WHEN u.ended_by = 'partner' THEN coalesce(p.accepted_at, $10::timestamptz) ELSE p.accepted_at END,
            ended_at = $10::timestamptz,
            settled_at = CASE WHEN u.ended_by = 'funding' OR u.settles THEN $10::timestamptz END
       FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[], $9::text[],
                   $11::boolean[])
            AS u (id, from_stage, ended_by, status, payment_id, initiated_at, posted_at, failure_reason, settles),
            duebridge_platform.slots AS s
      WHERE p.platform_payment_id = u.id AND ${FENCE} AND p.status = 'processing' AND p.stage = u.from_stage
      RETURNING p.*
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $1, 'payment_ended', p.platform_payment_id, p.partner_id,
            jsonb_build_object('status', p.status, 'by', p.ended_by, 'payment_id', p.payment_id, 'amount_in_cents', p.amount_in_cents)
              || ${REPLACED} FROM p
   ), booked AS (
     ${booking({
       act: "'settled'",
       debit: "'elsewhere'",
       credit: "'owed'",
       at: '$10::timestamptz',
       from: 'p',
       where: `p.settled_at IS NOT NULL AND p.status = 'succeeded' AND ${KNOWN_TO_BILLER}`,
     })}
   )
   SELECT p.platform_payment_id FROM p`,
);

/** Ends many payments in one statement. Returns for each whether it was ended; false when the fence refused it. */
export async function endPayments(
  on: Queryable,
  writer: Writer,
  ends: readonly End[],
): Promise<boolean[]> {
  const changed = await on.query<ChangedId>(endStatement, [
    writer.worker_id,
    column(ends, (end) => end.platform_payment_id),
    column(ends, (end) => end.from),
    column(ends, (end) => end.by),
    column(ends, (end) => end.ending.status),
    column(ends, (end) => end.ending.payment_id),
    column(ends, (end) => end.ending.initiated_at),
    column(ends, (end) => end.ending.posted_at),
    column(ends, (end) => end.ending.failure_reason),
    writer.at,
    column(ends, (end) => end.settles ?? false),
  ]);
  return wereChanged(ends, changed);
}

/** Funds that were captured or released; `settled` when that differs from what the payment's status implies (decision 110). */
export interface Settlement {
  readonly platform_payment_id: string;
  readonly settled?: SettledFunds | undefined;
}

/**
 * `num_nulls` instead of IS NULL: with IS NULL, a plan for an empty table would scan everything in flight through its partial
 * index.
 */
const settleStatement = sql(
  'payment_settle',
  `WITH p AS (
     UPDATE duebridge_platform.payments AS p SET settled_at = $3::timestamptz
       FROM unnest($2::text[], $4::text[], $5::jsonb[], $6::text[]) AS u (id, kind, detail, source), duebridge_platform.slots AS s
      WHERE p.platform_payment_id = u.id AND ${FENCE} AND p.status <> 'processing' AND num_nulls(p.settled_at) = 1
      RETURNING p.*, coalesce(u.kind, CASE p.status WHEN 'succeeded' THEN 'captured' ELSE 'released' END) AS kind, u.detail, u.source
   ), kept AS (
     UPDATE duebridge_platform.funds AS f SET state = p.kind, action = NULL, reason = coalesce(p.detail ->> 'reason', f.reason)
       FROM p WHERE f.platform_payment_id = p.platform_payment_id AND f.state IN ('new', 'acting', 'authorized', 'releasing')
          AND (f.reference IS NOT NULL OR p.kind = 'released')
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $1, 'funds_' || p.kind, p.platform_payment_id, p.partner_id, p.detail FROM p WHERE p.kind NOT IN ('captured', 'released')
   ), booked AS (
     ${booking({
       act: "'settled'",
       debit:
         "CASE p.kind WHEN 'uncollected' THEN 'uncollected' ELSE coalesce(p.source, 'taken') END",
       credit: "CASE p.kind WHEN 'refunded' THEN 'refunded' ELSE 'owed' END",
       at: '$3::timestamptz',
       from: 'p',
       where: `p.kind <> 'released' AND ${KNOWN_TO_BILLER}`,
     })}
   ), opened AS (
     ${uncollectedCases('p', '$3::timestamptz', "p.kind = 'uncollected'")}
   )
   SELECT p.platform_payment_id FROM p`,
);

/** Records that the funds of ended payments were captured or released. Returns for each whether this call recorded it. */
export async function settlePayments(
  on: Queryable,
  writer: Writer,
  settlements: readonly Settlement[],
): Promise<boolean[]> {
  const changed = await on.query<ChangedId>(settleStatement, [
    writer.worker_id,
    column(settlements, (one) => one.platform_payment_id),
    writer.at,
    column(settlements, ({ settled }) => settled?.kind),
    column(settlements, ({ settled }) =>
      JSON.stringify(settled?.kind === 'uncollected' ? { reason: settled.reason } : {}),
    ),
    column(settlements, ({ settled }) =>
      settled?.kind === 'uncollected' ? undefined : settled?.source,
    ),
  ]);
  return wereChanged(settlements, changed);
}

/** Why operators' acts are refused. */
const TOO_LATE_TO_WITHDRAW =
  'The payment may have reached the partner; only the partner can cancel it now';
const NOT_OPEN = 'Nothing is left to do for the funds of this payment in that way';
const SETTLED_BY_WORD = 'The funds of this payment were settled by an operator’s word before';
const NOT_WAITING = 'The payment is neither in review nor paused';

/**
 * Cancels a payment of which no PUT can have left (decision 18). The worker writes `dispatching`
 * before the first PUT, so that guard and this one exclude each other. Any worker then releases the funds.
 */
export const withdrawPayment = operatorsAct('payment_withdraw', {
  set: `status = 'canceled', stage = 'ended', ended_by = 'operator', ended_at = now(), slot = ${ARRIVALS}`,
  where: `p.stage IN ('created', 'authorized') AND p.maybe_sent IS NULL`,
  event: 'payment_ended',
  detail: `jsonb_build_object('status', p.status, 'by', 'operator')`,
  refused: TOO_LATE_TO_WITHDRAW,
});

/**
 * Takes a payment out of review, or ends its pause. A worker takes it over: from review it repeats the PUT with the same id and bytes
 * (decision 21), after a pause it continues where it was (decision 61).
 */
export const resumePayment = operatorsAct('payment_resume', {
  set: `stage = CASE p.stage WHEN 'review' THEN 'dispatching' ELSE p.stage END, review_reason = NULL, slot = ${ARRIVALS}`,
  where: `(p.stage = 'review' OR p.slot = ${PAUSED})`,
  event: 'payment_resumed',
  refused: NOT_WAITING,
});

/** Who acts, and why. */
export interface ReviewAct {
  /** In the operator's words; kept in the audit. */
  readonly reason: string;
  readonly actor: string;
  /** The second approver, if the amount required one; the caller checks that. */
  readonly approved_by?: string;
}

const closeReviewStatement = sql(
  'payment_close_review',
  `WITH p AS (
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
   SELECT ${PAYMENT_COLUMNS} FROM p`,
);

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

const settleByWordStatement = sql(
  'payment_settle_by_word',
  `WITH p AS (
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
       where: `$9 IS NOT NULL AND ${KNOWN_TO_BILLER}`,
     })}
   )
   SELECT ${PAYMENT_COLUMNS} FROM p`,
);
const lockStatement = sql(
  'payment_lock',
  'SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1 FOR NO KEY UPDATE',
);
const openFundsStatement = sql(
  'funds_left_open',
  `SELECT count(*) > 0 AS is_open, now() AS at FROM duebridge_platform.funds f
    WHERE f.platform_payment_id = $1 AND f.state = 'releasing'`,
);
const bookedStatement = sql(
  'funds_booked',
  `SELECT t.act FROM duebridge_platform.transfers t WHERE t.id = $1 AND t.act IN ('settled', 'taken_early', 'word')`,
);

/**
 * Ends the matter of the funds of an ended payment on an operator's word, when its capture or its release fails for good; what could not be
 * collected is a case (cases.ts). A worker that still tries finds the row settled. Throws Refusal PAYMENT_NOT_FOUND, or CONFLICT when nothing is
 * open, when the outcome does not fit the payment's end, or when a word has moved its money already.
 */
export function settleByWord(
  database: Database,
  platform_payment_id: string,
  { outcome, evidence }: Pick<SettleFunds, 'outcome' | 'evidence'>,
  act: ReviewAct,
): Promise<PaymentRow> {
  return database.transaction((tx) =>
    settleLocked(tx, platform_payment_id, outcome, evidence, act),
  );
}

async function settleLocked(
  on: Queryable,
  platform_payment_id: string,
  outcome: SettleFunds['outcome'],
  evidence: string,
  { reason, actor, approved_by }: ReviewAct,
): Promise<PaymentRow> {
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
    throw conflict(SETTLED_BY_WORD);
  }
  const { is_open = false, at = null } = left ?? {};
  const { debit = null, credit = null } = entry ?? {};
  const said = [platform_payment_id, outcome, actor, reason, evidence, approved_by ?? null];
  const values = [...said, is_open, at, debit, credit];
  const [row] = await on.query<PaymentRow>(settleByWordStatement, values);
  if (row !== undefined) return row;
  if ((await findPayment(on, platform_payment_id)) === undefined)
    throw new Refusal('PAYMENT_NOT_FOUND');
  throw conflict(NOT_OPEN);
}
