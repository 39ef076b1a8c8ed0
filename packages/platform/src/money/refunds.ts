/**
 * Refunds: money of a payment that goes back to its customer, in full or in part, on an operator's word.
 *
 * enters: a captured payment, an amount and a reason code.  leaves: one refund at the processor, its rows of the book, and what is taken off
 *         the biller's next remittance.
 * holds:  all refunds of a payment together are never more than was taken: they are counted under a lock of the payment. A refund is
 *         committed with its row of the book before the processor is asked, and asked for by one id forever, so that an answer that is
 *         lost is asked for again and refunds nothing twice. Above the limit two persons ask for it (store/asks.ts).
 *
 * By `state`: `sending`: the processor may have it; `done`; `refused`: by the processor for certain, also after it was done. The payment
 * itself stays as it is: no operation of the interface takes a payment back from a biller.
 */
import { createHash } from 'node:crypto';
import {
  conflict,
  formatCents,
  Refusal,
  RefundView,
  type RefundMade,
  type RefundRequest,
} from '@duebridge/contract';
import { messageOf, sql, type Clock, type Database, type Log } from '@duebridge/runtime';
import type { RefundedPart } from '../funding/adapter.ts';
import type { FundingCallOptions, FundingOrder } from '../funding.ts';
import { askedBefore, dropAsk, versionOfPayment } from '../store/asks.ts';
import type { PaymentRow, Queryable } from '../store/payments.ts';

/** What refunding stands on. */
export interface Refunding {
  readonly database: Database;
  /** Asks the processor of the payment; see FundingAdapter.refundPart. */
  readonly refundPart: (
    order: FundingOrder,
    part: { readonly refund_id: string; readonly amount_in_cents: number },
    call: FundingCallOptions,
  ) => Promise<RefundedPart>;
  readonly secondPersonAboveCents: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** Refunds that one round asks for. */
const AT_ONCE = 200;
const CALL_MS = 15_000;

const COLUMNS = Object.keys(RefundView.properties).join(', ');
const getStatement = sql(`SELECT ${COLUMNS} FROM duebridge_platform.refunds WHERE refund_id = $1`);
const listStatement = sql(`
   SELECT ${COLUMNS} FROM duebridge_platform.refunds
    WHERE ($1::text IS NULL OR platform_payment_id = $1) AND ($2::text IS NULL OR state = $2) ORDER BY made_at DESC, refund_id DESC LIMIT 100`);
const lockStatement = sql(`
   SELECT p.partner_id, p.biller_id, p.funding_method, p.amount_in_cents, p.status, p.settled_at IS NOT NULL AS is_settled
     FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1 FOR NO KEY UPDATE`);
type LockedPayment = Pick<
  PaymentRow,
  'partner_id' | 'biller_id' | 'funding_method' | 'amount_in_cents' | 'status'
> & { readonly is_settled: boolean };
const fundsStatement = sql(`
   SELECT state FROM duebridge_platform.funds WHERE platform_payment_id = $1`);
const wentBackStatement = sql(`
   SELECT coalesce(sum(amount_in_cents), 0)::bigint AS cents FROM duebridge_platform.refunds
    WHERE platform_payment_id = $1 AND state = 'done'`);
/** What of a payment went back to its customer by refunds, in cents. */
export async function refundedCents(on: Queryable, platform_payment_id: string): Promise<number> {
  const [row] = await on.query<{ cents: number }>(wentBackStatement, [platform_payment_id]);
  return row?.cents ?? 0;
}

/** Refunded, or on its way; and what is disputed: the processor holds it, or the customer has it already. */
const refundedStatement = sql(`
   SELECT (SELECT coalesce(sum(amount_in_cents), 0) FROM duebridge_platform.refunds
            WHERE platform_payment_id = $1 AND state IN ('sending', 'done'))::bigint AS cents,
          (SELECT coalesce(sum(amount_in_cents), 0) FROM duebridge_platform.cases
            WHERE platform_payment_id = $1 AND reason_code = 'disputed' AND disposition IS DISTINCT FROM 'won'
              AND disposition IS DISTINCT FROM 'recovered')::bigint AS disputed`);
/** A biller bears refunds when its payout says so; one without an account has agreed to nothing. */
const insertStatement = sql(`
   INSERT INTO duebridge_platform.refunds (refund_id, platform_payment_id, partner_id, biller_id, funding_method, amount_in_cents, reason_code,
          reason, borne_by, state, asked_by)
   SELECT $1, $2, $3, $4, $5, $6, $7, $8,
          CASE WHEN EXISTS (SELECT 1 FROM duebridge_platform.payouts o WHERE o.partner_id = $3 AND o.biller_id = $4 AND o.bears_refunds)
               THEN 'biller' ELSE 'platform' END, 'asked', $9`);
/** A move with its row of the book: `$2` the state before, `$3` after, `$4` the act, `$5` and `$6` the accounts. */
const moveStatement = sql(`
   WITH r AS (
     UPDATE duebridge_platform.refunds AS r
        SET state = $3, approved_by = coalesce($7, r.approved_by), note = coalesce($8, r.note),
            ended_at = CASE WHEN $3 IN ('done', 'refused') THEN $9::timestamptz ELSE r.ended_at END
      WHERE r.refund_id = $1 AND r.state = $2 RETURNING r.*
   ), booked AS (
     INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id, funding_method)
     SELECT r.refund_id, $4, ($9::timestamptz AT TIME ZONE 'UTC')::date,
            CASE WHEN $5::text <> 'bearer' THEN $5 WHEN r.borne_by = 'biller' THEN 'owed' ELSE 'borne' END,
            CASE WHEN $6::text <> 'bearer' THEN $6 WHEN r.borne_by = 'biller' THEN 'owed' ELSE 'borne' END,
            r.amount_in_cents, r.partner_id, r.biller_id, r.funding_method
       FROM r ON CONFLICT (id, act) DO NOTHING
   ), deducted AS (
     INSERT INTO duebridge_platform.deductions (deduction_id, platform_payment_id, partner_id, biller_id, kind, amount_in_cents, reason)
     SELECT r.refund_id || CASE $3 WHEN 'refused' THEN '-back' ELSE '' END, r.platform_payment_id, r.partner_id, r.biller_id,
            CASE $3 WHEN 'refused' THEN 'correction' ELSE 'refund' END,
            CASE $3 WHEN 'refused' THEN -r.amount_in_cents ELSE r.amount_in_cents END, r.reason_code
       FROM r WHERE r.borne_by = 'biller' AND $3 IN ('sending', 'refused')
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $10, 'refund_' || r.state, r.platform_payment_id, r.partner_id,
            jsonb_strip_nulls(jsonb_build_object('refund_id', r.refund_id, 'amount_in_cents', r.amount_in_cents, 'reason_code', r.reason_code,
                                                 'borne_by', r.borne_by, 'asked_by', r.asked_by, 'approved_by', r.approved_by, 'note', $8::text))
       FROM r
   )
   SELECT r.refund_id FROM r`);

const MOVES = {
  sending: { from: 'asked', to: 'sending', book: ['refund', 'bearer', 'refunding'] },
  done: { from: 'sending', to: 'done', book: ['refund_done', 'refunding', 'refunded'] },
  refused: { from: 'sending', to: 'refused', book: ['refund_refused', 'refunding', 'bearer'] },
  failed: { from: 'done', to: 'refused', book: ['refund_failed', 'refunded', 'bearer'] },
} as const;

async function move(
  on: Queryable,
  refund_id: string,
  by: keyof typeof MOVES,
  said: { readonly now: number; readonly actor: string; approved_by?: string; note?: string },
): Promise<boolean> {
  const { from, to, book } = MOVES[by];
  const moved = await on.query(moveStatement, [
    refund_id,
    from,
    to,
    ...book,
    said.approved_by ?? null,
    said.note?.slice(0, 500) ?? null,
    new Date(said.now).toISOString(),
    said.actor,
  ]);
  return moved.length > 0;
}

/** Refunds, newest first, at most 100. */
export function listRefunds(
  on: Queryable,
  filter: { readonly platform_payment_id?: string; readonly state?: string },
): Promise<RefundView[]> {
  return on.query<RefundView>(listStatement, [
    filter.platform_payment_id ?? null,
    filter.state ?? null,
  ]);
}

/**
 * Makes a refund, or notes that a second person has to ask for the same. The same words again give the refund as it is. Throws Refusal
 * PAYMENT_NOT_FOUND, and CONFLICT when its money was not taken or less of it is left.
 */
export async function requestRefund(
  refunding: Refunding,
  platform_payment_id: string,
  request: RefundRequest,
  actor: string,
): Promise<RefundMade> {
  const { database, clock, secondPersonAboveCents } = refunding;
  const refund_id = await database.transaction(async (tx): Promise<string | undefined> => {
    const { payment, isThere, before, left } = await lock(tx, platform_payment_id);
    const { refund_id, isKnown } = await idOf(tx, platform_payment_id, request);
    if (isKnown) return refund_id;
    if (!isThere) {
      throw conflict('Its money is not with the platform: only what was taken can be refunded');
    }
    const amount_in_cents = request.amount_in_cents ?? left;
    if (amount_in_cents > left || left <= 0) {
      throw conflict(`Of this payment ${left} cents are left to be refunded`);
    }
    const { reason_code, reason } = request;
    let by: { readonly asked_by: string; readonly approved_by?: string } = { asked_by: actor };
    // All of the payment's refunds: one that is split needs the second person as well.
    if (before + amount_in_cents > secondPersonAboveCents) {
      const subject = `payment/${platform_payment_id}` as const;
      const act = `refund ${formatCents(amount_in_cents)}, ${reason_code}`;
      const of = { platform_payment_id, partner_id: payment.partner_id };
      const version = await versionOfPayment(tx, platform_payment_id);
      const first = await askedBefore(tx, { subject, act, version, reason, actor, ...of });
      if (first === undefined) return undefined;
      await dropAsk(tx, subject);
      by = { asked_by: first, approved_by: actor };
    }
    const row = { refund_id, platform_payment_id, amount_in_cents, reason_code, reason };
    await insert(tx, payment, { ...row, actor: by.asked_by });
    await move(tx, refund_id, 'sending', { now: clock.now(), actor, ...by });
    return refund_id;
  });
  if (refund_id === undefined) return { outcome: 'second_person_needed' };
  await repeatRefunds(refunding, refund_id);
  const [refund] = await database.query<RefundView>(getStatement, [refund_id]);
  if (refund === undefined) throw new Error('a refund was not kept');
  return { outcome: 'done', refund };
}

/**
 * The id of a refund: what it says. Whoever repeats it after an answer that was lost asks for the same refund; one that was
 * refused is asked for anew. The caller holds the payment.
 */
async function idOf(
  on: Queryable,
  platform_payment_id: string,
  { amount_in_cents, reason_code, reason }: RefundRequest,
): Promise<{ readonly refund_id: string; readonly isKnown: boolean }> {
  for (let refused = 0; ; refused += 1) {
    const said = [platform_payment_id, amount_in_cents ?? 'the rest', reason_code, reason, refused];
    const digest = createHash('sha256').update(JSON.stringify(said)).digest('hex');
    const refund_id = `refund-${digest.slice(0, 32)}`;
    const [known] = await on.query<RefundView>(getStatement, [refund_id]);
    if (known?.state !== 'refused') return { refund_id, isKnown: known !== undefined };
  }
}

/** Locks a payment: whether its money is with the platform, and how much was refunded before, and how much is not refunded or disputed. */
async function lock(on: Queryable, platform_payment_id: string) {
  const [payment] = await on.query<LockedPayment>(lockStatement, [platform_payment_id]);
  if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
  const [funds] = await on.query<{ state: string }>(fundsStatement, [platform_payment_id]);
  const [gone] = await on.query<Record<'cents' | 'disputed', number>>(refundedStatement, [
    platform_payment_id,
  ]);
  const { cents = 0, disputed = 0 } = gone ?? {};
  const isThere =
    payment.status === 'succeeded' && payment.is_settled && funds?.state === 'captured';
  return { payment, isThere, before: cents, left: payment.amount_in_cents - cents - disputed };
}

/** Stores a refund, which `move` sends, with who bears it. The caller holds the payment. */
async function insert(
  on: Queryable,
  { partner_id, biller_id, funding_method }: LockedPayment,
  made: Pick<RefundView, 'refund_id' | 'platform_payment_id' | 'amount_in_cents' | 'reason'> & {
    readonly reason_code: string;
    readonly actor: string;
  },
): Promise<void> {
  const { refund_id, platform_payment_id, amount_in_cents, reason_code, reason, actor } = made;
  const of = [refund_id, platform_payment_id, partner_id, biller_id, funding_method];
  await on.query(insertStatement, [...of, amount_in_cents, reason_code, reason, actor]);
}

/**
 * Books a refund that somebody made at the processor, once for its id. It is not compared with what is left: it has happened, and
 * `money check` names a payment of which too much was refunded. The caller holds the payment.
 */
export async function noteRefund(
  on: Queryable,
  made: {
    readonly refund_id: string;
    readonly platform_payment_id: string;
    readonly amount_in_cents: number;
    readonly actor: string;
    readonly at: string;
  },
): Promise<void> {
  const { refund_id, platform_payment_id, amount_in_cents, actor, at } = made;
  const [payment] = await on.query<LockedPayment>(lockStatement, [platform_payment_id]);
  const [known] = await on.query<RefundView>(getStatement, [refund_id]);
  if (payment === undefined || known !== undefined) return;
  const why = { reason_code: 'other', reason: 'made at the processor' };
  await insert(on, payment, { refund_id, platform_payment_id, amount_in_cents, ...why, actor });
  const said = { now: Date.parse(at), actor };
  await move(on, refund_id, 'sending', said);
  await move(on, refund_id, 'done', said);
}

/**
 * A refund that was done has failed: its money is back with the platform, and with who bore it. False when there was one that was not
 * done: it is asked for again and refused then, or was refused before. One that is not in the book moves nothing.
 */
export async function failRefund(
  on: Queryable,
  failed: {
    readonly refund_ids: readonly string[];
    readonly note: string;
    readonly actor: string;
    readonly at: string;
  },
): Promise<boolean> {
  const said = { now: Date.parse(failed.at), actor: failed.actor, note: failed.note };
  for (const refund_id of failed.refund_ids) {
    if (await move(on, refund_id, 'failed', said)) return true;
    if ((await on.query(getStatement, [refund_id])).length > 0) return false;
  }
  return true;
}

/**
 * Books what went back to the customer before its payment was posted, now that the payment has ended. Nothing for one that failed: its release
 * books the money. Throws Refusal CONFLICT when the payment has not ended, or its capture is not settled.
 */
export async function noteEarlyRefund(
  on: Queryable,
  made: Parameters<typeof noteRefund>[1],
): Promise<void> {
  const [payment] = await on.query<LockedPayment>(lockStatement, [made.platform_payment_id]);
  const status = payment?.status;
  if (status === 'processing' || (status === 'succeeded' && payment?.is_settled === false)) {
    throw conflict('Its payment has not ended, or is not settled yet: end this case after that');
  }
  if (status === 'succeeded') await noteRefund(on, made);
}

/** In any order: those that stay pending keep no other waiting. */
const openStatement = sql(`
   SELECT f.refund_id, f.platform_payment_id, f.funding_method, f.amount_in_cents, p.amount_in_cents AS whole_in_cents
     FROM duebridge_platform.refunds f JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE f.state = 'sending' AND ($1::text IS NULL OR f.refund_id = $1) ORDER BY random() LIMIT ${AT_ONCE}`);
interface OpenRefund extends FundingOrder {
  readonly refund_id: string;
  /** The amount of its payment. */
  readonly whole_in_cents: number;
}

/** Asks the processor for the refunds that have no answer, or for one of them; again by the same id. Any number of replicas may do it. */
export async function repeatRefunds(refunding: Refunding, refund_id?: string): Promise<void> {
  const { database, refundPart, clock, log } = refunding;
  for (const open of await database.query<OpenRefund>(openStatement, [refund_id ?? null])) {
    const { refund_id, amount_in_cents, whole_in_cents, ...of } = open;
    try {
      const order = { ...of, amount_in_cents: whole_in_cents };
      const call = { signal: AbortSignal.timeout(CALL_MS) };
      const answer = await refundPart(order, { refund_id, amount_in_cents }, call);
      const said = { now: clock.now(), actor: 'refunds' };
      await (answer.kind === 'refunded'
        ? move(database, refund_id, 'done', said)
        : move(database, refund_id, 'refused', { ...said, note: answer.reason }));
    } catch (error) {
      log.warn({ refund_id, error: messageOf(error) }, 'a refund has no answer; it is repeated');
    }
  }
}
