/**
 * What a worker writes of payments: their steps, of many payments in one statement, and the one place that writes the end that a partner
 * or the funds give a payment, once (RU2, PL4, PL6).
 *
 * enters: payments of ours, where each stands, and its step (engine/payment-steps.ts).  leaves: the rows, with the lines of the audit for
 *         what not every payment goes through, the rows of the book and of the funds, and a case where nothing could be collected.
 * holds:  the fence. The end of a payment keeps its guard `processing`: the first writer wins, and a trigger rejects every later change.
 * next:   after the end, capture or release, noted in settled_at; then batch.ts.
 */
import type { PaymentStage, TerminalStatus } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import type { Hold, SettledFunds } from '../funding.ts';
import { spanOf } from '../payment-id.ts';
import { uncollectedCases } from './cases.ts';
import { booking } from './money-book.ts';
import type { AuditDetail, PaymentRow, Queryable } from './payments.ts';

/** How a payment ended (RU2). */
export interface Ending {
  readonly status: TerminalStatus;
  readonly payment_id: string | null;
  readonly initiated_at: string | null;
  readonly posted_at: string | null;
  readonly failure_reason: string | null;
}

/** What a step changes. */
export type StepWrite =
  | {
      readonly kind: 'advance';
      readonly to: 'dispatching' | 'accepted' | 'review';
      /** Set at acceptance (PF1, PF7). */
      readonly payment_id?: string;
      readonly initiated_at?: string;
      /** Set when it stops in review. */
      readonly review_reason?: string;
      readonly rejection_message?: string | undefined;
      readonly detail?: AuditDetail;
      /**
       * The funds that are reserved: noted in their own row when the reservation ends by itself or the customer acted for it. Nothing
       * follows from any other: whoever takes the payment over asks again.
       */
      readonly hold?: Hold | undefined;
    }
  /**
   * `by`: a record of the partner, a refusal that the partner declared final (decision 21), or declined funds. `settles`: nothing is left
   * to do for the funds, because they are collected elsewhere; nor is it after a decline, where nothing is held.
   */
  | {
      readonly kind: 'end';
      readonly by: 'partner' | 'refusal' | 'funding';
      readonly ending: Ending;
      readonly settles?: boolean;
    }
  /**
   * The funds of an ended payment were captured or released; `settled` when that differs from what the payment's status implies
   * (decision 110).
   */
  | { readonly kind: 'settle'; readonly settled?: SettledFunds | undefined };

/** A step of a payment that stands at `from`. */
export type Step = {
  readonly platform_payment_id: string;
  readonly from: PaymentStage;
} & StepWrite;

/** The writer, and the time of the write. */
export interface Writer {
  /** The worker, which must own the slots of the rows that it writes. */
  readonly worker_id: string;
  /** The database's time as that worker knows it (engine/ownership.ts). */
  readonly at: string;
}

/** Whether nothing is left to do for the funds after a step. Pure. */
export function isSettling(step: StepWrite): boolean {
  return step.kind === 'end'
    ? step.settles === true || step.by === 'funding'
    : step.kind === 'settle';
}

/** A step as the statement reads it. */
function recordOf(step: Step): object {
  const of = { id: step.platform_payment_id, from_stage: step.from, settles: isSettling(step) };
  switch (step.kind) {
    case 'advance': {
      const { to, payment_id, initiated_at, review_reason, rejection_message, detail, hold } = step;
      const said = { payment_id, initiated_at, review_reason, rejection_message, detail };
      const ends = hold?.expires_at;
      const held_until = ends === undefined ? ends : new Date(ends).toISOString();
      return { ...of, to_stage: to, ...said, held: hold !== undefined, held_until };
    }
    case 'end':
      return { ...of, to_stage: 'ended', ended_by: step.by, ...step.ending, source: 'elsewhere' };
    case 'settle': {
      const { kind, ...said } = step.settled ?? {};
      return { ...of, to_stage: 'ended', funds: kind, ...said };
    }
  }
}

/**
 * One statement for all steps: those that are taken at about the same time share a commit, whatever they are. `$1` worker, `$2` time, `$3`
 * steps, `$4` and `$5` the span of their ids.
 *
 * The fence (PL10): the worker owns the slot of the payment, which stands where the worker believes. The sum keeps the planner from starting
 * with a worker's slots and visiting all of their payments, which looks cheap to it while a new table has no statistics; `num_nulls` keeps
 * it from scanning everything in flight through its partial index.
 *
 * The partner names payment_id and initiated_at once; only one that forgot the payment, and was sent the same PUT again, may name others, and
 * then the earlier payment_id is kept as evidence (decision 22). Hardly any row has one. A worker may know another than the row after a failover
 * that lost the acceptance under it: the row is read again.
 */
const stepStatement = sql(
  'payment_step',
  `WITH p AS (
     UPDATE duebridge_platform.payments AS p
        SET stage = u.to_stage,
            status = coalesce(u.status, p.status),
            payment_id = coalesce(u.payment_id, p.payment_id),
            initiated_at = CASE WHEN u.payment_id IS NULL OR u.payment_id = p.payment_id
                                THEN coalesce(p.initiated_at, u.initiated_at) ELSE u.initiated_at END,
            former_payment_ids = CASE WHEN p.payment_id <> u.payment_id THEN array_append(p.former_payment_ids, p.payment_id)
                                      ELSE p.former_payment_ids END,
            posted_at = coalesce(u.posted_at, p.posted_at),
            failure_reason = coalesce(u.failure_reason, p.failure_reason),
            ended_by = coalesce(u.ended_by, p.ended_by),
            review_reason = u.review_reason,
            rejection_message = coalesce(u.rejection_message, p.rejection_message),
            accepted_at = CASE WHEN u.to_stage = 'accepted' THEN $2::timestamptz
                               WHEN u.ended_by = 'partner' THEN coalesce(p.accepted_at, $2::timestamptz) ELSE p.accepted_at END,
            ended_at = CASE WHEN u.status IS NULL THEN p.ended_at ELSE $2::timestamptz END,
            settled_at = CASE WHEN u.settles THEN $2::timestamptz END,
            slot = CASE WHEN u.to_stage <> 'review' THEN p.slot END
       FROM json_to_recordset($3::json)
            AS u (id text, from_stage text, to_stage text, payment_id text, initiated_at timestamptz, review_reason text,
                  rejection_message text, detail jsonb, held boolean, held_until timestamptz, ended_by text, status text,
                  posted_at timestamptz, failure_reason text, settles boolean, funds text, source text, reason text),
            duebridge_platform.slots AS s
      WHERE p.platform_payment_id = u.id AND p.platform_payment_id BETWEEN $4 AND $5 AND s.slot = p.slot + 0 AND s.worker_id = $1 AND p.stage = u.from_stage
        AND num_nulls(p.settled_at) = 1 AND (p.stage <> 'accepted' OR coalesce(u.payment_id, p.payment_id) = p.payment_id)
      RETURNING p.*, u.detail, u.held, u.held_until, u.status IS NOT NULL AS ends, u.source, u.reason AS lost,
                CASE WHEN u.settles THEN coalesce(u.funds, CASE p.status WHEN 'succeeded' THEN 'captured' ELSE 'released' END) END AS funds
   ), kept AS (
     UPDATE duebridge_platform.funds AS f
        SET state = coalesce(p.funds, 'authorized'), action = NULL, reason = coalesce(p.lost, f.reason),
            expires_at = CASE WHEN p.held THEN p.held_until ELSE f.expires_at END
       FROM p WHERE f.platform_payment_id = p.platform_payment_id AND (p.held OR p.funds IS NOT NULL AND NOT p.ends)
        AND CASE WHEN p.held THEN f.reference IS NOT NULL
                                  AND (f.state = 'acting' OR f.state IN ('new', 'authorized') AND p.held_until IS NOT NULL)
                 ELSE f.state IN ('new', 'acting', 'authorized', 'releasing') AND (f.reference IS NOT NULL OR p.funds = 'released') END
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $1, CASE WHEN p.ends THEN 'payment_ended' WHEN p.funds IS NULL THEN 'payment_' || p.stage ELSE 'funds_' || p.funds END,
            p.platform_payment_id, p.partner_id,
            CASE WHEN p.ends THEN jsonb_build_object('status', p.status, 'payment_id', p.payment_id, 'amount_in_cents', p.amount_in_cents)
                                || jsonb_strip_nulls(jsonb_build_object('by', nullif(p.ended_by, 'partner')))
                 ELSE coalesce(p.detail, jsonb_strip_nulls(jsonb_build_object('reason', p.lost))) END
              || CASE WHEN (p.ends OR p.stage = 'accepted') AND cardinality(p.former_payment_ids) > 0
                      THEN jsonb_build_object('former_payment_id', p.former_payment_ids[cardinality(p.former_payment_ids)]) ELSE '{}' END
       FROM p WHERE CASE WHEN p.ends THEN true WHEN p.funds IS NOT NULL THEN p.funds NOT IN ('captured', 'released')
                         ELSE p.stage = 'review' OR p.detail IS NOT NULL OR cardinality(p.former_payment_ids) > 0 END
   ), booked AS (
     ${booking({
       act: "'settled'",
       debit:
         "CASE p.funds WHEN 'uncollected' THEN 'uncollected' ELSE coalesce(p.source, 'taken') END",
       credit: "CASE p.funds WHEN 'refunded' THEN 'refunded' ELSE 'owed' END",
       at: '$2::timestamptz',
       from: 'p',
       where: "p.funds <> 'released'",
     })}
   ), opened AS (
     ${uncollectedCases('p', '$2::timestamptz', "p.funds = 'uncollected'")}
   )
   SELECT p.platform_payment_id FROM p`,
);

/**
 * Takes steps of many payments in one statement. Returns for each whether it was taken; false when the fence refused it, because the
 * payment belongs to another worker now or has moved on. A payment may appear only once.
 */
export async function takeSteps(
  on: Queryable,
  { worker_id, at }: Writer,
  steps: readonly Step[],
): Promise<boolean[]> {
  const changed = await on.query<Pick<PaymentRow, 'platform_payment_id'>>(stepStatement, [
    worker_id,
    at,
    JSON.stringify(steps.map(recordOf)),
    ...spanOf(steps.map((step) => step.platform_payment_id)),
  ]);
  const ids = new Set(changed.map((row) => row.platform_payment_id));
  return steps.map((step) => ids.has(step.platform_payment_id));
}
