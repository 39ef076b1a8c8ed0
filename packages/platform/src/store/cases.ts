/**
 * Cases: what a processor or a person reports about a payment, until it has ended. One list of what needs a person.
 *
 * enters: a dispute, a returned debit or a refund that a processor tells of; funds that could not be taken; a complaint.
 * leaves: a case with its reason, its deadline and its money, each of whose moves books the money in the same statement; the payment stays as
 *         it is.
 * holds:  a case moves its money by its own id: a debit that is returned, collected and returned again is two cases. MOVES is the whole
 *         machine: what it does not name cannot happen.
 */
import {
  conflict,
  formatCents,
  Refusal,
  type CaseEnd,
  type CaseEnded,
  type CaseQuery,
  type CaseView,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { noteEarlyRefund } from '../money/refunds.ts';
import { askedBefore, dropAsk } from './asks.ts';
import type { BookAccount } from './money-book.ts';
import type { Queryable } from './payments.ts';

type State = CaseView['state'];

const LOST = 'uncollected';
/**
 * The moves of a case. `from` null: it begins with it. `funds`: what the row of funds becomes, when the case is about the whole payment.
 *
 * `lost` is no end: the biller was paid, and the money is not there until it is collected, borne by the biller, or written off.
 */
const MOVES = {
  complained: { from: null, to: 'open', book: null, funds: null },
  disputed: { from: null, to: 'open', book: ['uncollected', 'disputed'], funds: null },
  debit_returned: { from: null, to: 'lost', book: ['uncollected', 'returned'], funds: LOST },
  answered: { from: 'open', to: 'ended', book: null, funds: null },
  won: { from: 'open', to: 'ended', book: ['disputed', 'uncollected'], funds: null },
  lost: { from: 'open', to: 'lost', book: ['disputed', 'returned'], funds: LOST },
  recovered: { from: 'lost', to: 'ended', book: ['taken', 'uncollected'], funds: 'captured' },
  charged_to_biller: { from: 'lost', to: 'ended', book: ['owed', 'uncollected'], funds: 'borne' },
  written_off: { from: 'lost', to: 'ended', book: ['borne', 'uncollected'], funds: 'borne' },
} as const satisfies Record<
  string,
  {
    readonly from: State | null;
    readonly to: State;
    readonly book: readonly [debit: BookAccount, credit: BookAccount] | null;
    readonly funds: string | null;
  }
>;
type Move = keyof typeof MOVES;

/** What follows the change `c` of a case: its row of the book, what is taken off the biller, the row of funds, and the audit. */
const FOLLOWS = `booked AS (
     INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id, funding_method)
     SELECT c.case_id, $2, ($3::timestamptz AT TIME ZONE 'UTC')::date, $4, $5, c.amount_in_cents, c.partner_id, c.biller_id, c.funding_method
       FROM c WHERE $4::text IS NOT NULL AND c.amount_in_cents > 0 ON CONFLICT (id, act) DO NOTHING
   ), deducted AS (
     INSERT INTO duebridge_platform.deductions (deduction_id, platform_payment_id, partner_id, biller_id, kind, amount_in_cents, reason)
     SELECT c.case_id, c.platform_payment_id, c.partner_id, c.biller_id, 'return', c.amount_in_cents, c.reason_code
       FROM c WHERE $2 = 'charged_to_biller' AND c.amount_in_cents > 0
   ), kept AS (
     UPDATE duebridge_platform.funds f SET state = $6 FROM c, duebridge_platform.payments p
      WHERE $6::text IS NOT NULL AND f.platform_payment_id = c.platform_payment_id AND p.platform_payment_id = c.platform_payment_id
        AND p.amount_in_cents = c.amount_in_cents
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT $7, 'case_' || $2, c.platform_payment_id, c.partner_id,
            jsonb_strip_nulls(jsonb_build_object('case_id', c.case_id, 'reason_code', c.reason_code, 'amount_in_cents', c.amount_in_cents,
                                                 'reason', $8::text)) FROM c
   )
   SELECT c.case_id FROM c`;
const openStatement = sql(`
   WITH c AS (
     INSERT INTO duebridge_platform.cases AS c (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code,
            amount_in_cents, state, note, opened_by, opened_at, deadline)
     SELECT $1, p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, $10, $11::bigint, $12, $8, $7, $3::timestamptz, $13::timestamptz
       FROM duebridge_platform.payments p WHERE p.platform_payment_id = $9
     ON CONFLICT (platform_payment_id, case_id) DO NOTHING RETURNING c.*
   ), ${FOLLOWS}`);
const moveStatement = sql(`
   WITH c AS (
     UPDATE duebridge_platform.cases AS c
        SET state = $10, disposition = CASE WHEN $10 = 'ended' THEN $2 END, ended_at = CASE WHEN $10 = 'ended' THEN $3::timestamptz END,
            ended_by = CASE WHEN $10 = 'ended' THEN $7 END, outcome = $8
      WHERE c.case_id = $1 AND c.state = $9 RETURNING c.*
   ), ${FOLLOWS}`);

/** What each move gives to FOLLOWS. */
function followed(case_id: string, move: Move, said: Said): unknown[] {
  const { book, funds } = MOVES[move];
  const [debit, credit] = book ?? [null, null];
  const { at, actor, reason } = said;
  return [case_id, move, at, debit, credit, funds, actor, reason.slice(0, 500)];
}

/** Who says it, why, and when (an instant of the wall clock). */
interface Said {
  readonly actor: string;
  readonly reason: string;
  readonly at: string;
}

/** A case that begins. */
export interface NewCase extends Said {
  readonly case_id: string;
  readonly platform_payment_id: string;
  readonly reason_code: CaseView['reason_code'];
  /** The money that it moves, or that went back before its payment was posted; 0 for a complaint. */
  readonly amount_in_cents?: number;
  readonly deadline?: string | undefined;
}

/** Opens a case, once for its id; false when it is known, or when no biller knows the payment whose money it is about. */
export async function openCase(
  on: Queryable,
  by: 'complained' | 'disputed' | 'debit_returned',
  { platform_payment_id, reason_code, amount_in_cents = 0, deadline, case_id, ...said }: NewCase,
): Promise<boolean> {
  const about = [platform_payment_id, reason_code, amount_in_cents, MOVES[by].to, deadline ?? null];
  const opened = await on.query(openStatement, [...followed(case_id, by, said), ...about]);
  return opened.length > 0;
}

/** Moves a case; false when it is not in the state in which the move begins. */
export async function moveCase(
  on: Queryable,
  case_id: string,
  by: Exclude<Move, 'complained'>,
  said: Said,
): Promise<boolean> {
  const { from, to } = MOVES[by];
  const moved = await on.query(moveStatement, [...followed(case_id, by, said), from, to]);
  return moved.length > 0;
}

/**
 * A processor's word about a dispute, whose amount is that of `dispute`. It counts more than a person's: a dispute that was given up and is won
 * has its money back. A loss that its case did not book, because it had no money yet or had ended as won, is another case: that of a dispute
 * when the biller is owed the payment, and of money that went back before (noteEarlyRefund) when that is not decided.
 */
export async function decideDispute(
  on: Queryable,
  dispute: NewCase & { readonly amount_in_cents: number },
  outcome: 'won' | 'lost',
  biller: 'is owed' | 'may be owed' | 'is not owed',
): Promise<void> {
  const { case_id, platform_payment_id, amount_in_cents } = dispute;
  if (outcome === 'won') {
    if (await moveCase(on, case_id, 'won', dispute)) return;
    await moveCase(on, case_id, 'recovered', dispute);
    return;
  }
  const [known] = await on.query<CaseView>(lockStatement, [platform_payment_id, case_id]);
  const isBooked = (known?.amount_in_cents ?? 0) > 0 && known?.disposition !== 'won';
  if (isBooked || amount_in_cents === 0 || biller === 'is not owed') {
    await moveCase(on, case_id, 'lost', dispute);
    return;
  }
  await moveCase(on, case_id, 'answered', dispute);
  const loss = { ...dispute, case_id: `${case_id}-lost` };
  await (biller === 'is owed'
    ? openCase(on, 'debit_returned', loss)
    : openCase(on, 'complained', { ...loss, reason_code: 'refunded_elsewhere' }));
}

/**
 * SQL: opens a case for each payment of `from` (alias `p`) that its biller has posted and whose funds could not be taken, because of `p.lost`. The settlement
 * itself books it (steps.ts).
 */
export function uncollectedCases(from: string, at: string, where: string): string {
  return `INSERT INTO duebridge_platform.cases (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code, amount_in_cents,
            state, note, opened_by, opened_at)
     SELECT 'uncollected-' || p.platform_payment_id, p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, 'uncollected',
            p.amount_in_cents, 'lost', coalesce(p.lost, 'not collected'), 'funds', ${at}
       FROM ${from} WHERE ${where} ON CONFLICT (platform_payment_id, case_id) DO NOTHING`;
}

// Reading ---------------------------------------------------------------------------------------------------------------------

const COLUMNS = `c.case_id, c.platform_payment_id, c.partner_id, c.biller_id, c.reason_code, c.amount_in_cents, c.state, c.disposition,
  c.deadline, c.note, c.opened_by, c.opened_at, c.ended_by, c.ended_at, c.outcome`;
/** The most urgent first: a deadline, then the oldest. */
const listStatement = sql(`
   SELECT ${COLUMNS} FROM duebridge_platform.cases c
    WHERE ($1::text IS NULL OR c.platform_payment_id = $1) AND ($2::text IS NULL OR c.reason_code = $2)
      AND CASE $3 WHEN 'all' THEN true WHEN 'unended' THEN c.state <> 'ended' ELSE c.state = $3 END
    ORDER BY c.state = 'ended', c.deadline NULLS LAST, c.opened_at LIMIT 200`);
const findStatement = sql(`
   SELECT c.platform_payment_id FROM duebridge_platform.cases c WHERE c.case_id = $1`);
/** By its payment as well: a sharded database locks rows of one shard only. */
const lockStatement = sql(`
   SELECT ${COLUMNS} FROM duebridge_platform.cases c WHERE c.platform_payment_id = $1 AND c.case_id = $2 FOR UPDATE`);

/** Cases, at most 200; by default those that have not ended. */
export function listCases(
  on: Queryable,
  { platform_payment_id, reason_code, state }: CaseQuery,
): Promise<CaseView[]> {
  return on.query<CaseView>(listStatement, [
    platform_payment_id ?? null,
    reason_code ?? null,
    state ?? 'unended',
  ]);
}

/** Payments with a case that has not ended, which a search considers: the newest ones. More than this are read by nobody. */
const MAX_PAYMENTS = 10_000;
const paymentsStatement = sql(`
   SELECT c.platform_payment_id FROM duebridge_platform.cases c WHERE c.state <> 'ended' ORDER BY c.opened_at DESC LIMIT ${MAX_PAYMENTS}`);
/** The ids of payments with a case. */
export async function paymentsWithCases(on: Queryable): Promise<string[]> {
  const rows = await on.query<{ platform_payment_id: string }>(paymentsStatement);
  return rows.map((row) => row.platform_payment_id);
}

const ofStatement = sql(`
   SELECT DISTINCT ON (c.platform_payment_id) c.platform_payment_id, c.case_id, c.reason_code, c.note, c.opened_by, c.opened_at
     FROM duebridge_platform.cases c WHERE c.platform_payment_id = ANY($1) AND c.state <> 'ended' ORDER BY c.platform_payment_id, c.opened_at`);
/** A case as a list of payments shows it. */
export type OpenCase = Pick<
  CaseView,
  'case_id' | 'reason_code' | 'note' | 'opened_by' | 'opened_at'
>;
/** The oldest case of each payment that has one which has not ended. */
export async function casesOf(
  on: Queryable,
  ids: readonly string[],
): Promise<Map<string, OpenCase>> {
  const rows = await on.query<OpenCase & { platform_payment_id: string }>(ofStatement, [ids]);
  return new Map(rows.map(({ platform_payment_id, ...one }) => [platform_payment_id, one]));
}

// Ending ----------------------------------------------------------------------------------------------------------------------

const bearsStatement = sql(`
   SELECT 1 AS one FROM duebridge_platform.payouts o JOIN duebridge_platform.cases c USING (partner_id, biller_id)
    WHERE c.case_id = $1 AND o.bears_refunds`);

/** Why a case cannot be ended in a way that does not fit it. */
function whyNot({ state, disposition, amount_in_cents }: CaseView, isEarly: boolean): string {
  const sum = formatCents(amount_in_cents);
  if (state === 'ended') return `This case ended as ${disposition}`;
  if (state === 'lost')
    return `The ${sum} of this case are gone: end it as recovered, charged_to_biller or written_off`;
  if (isEarly)
    return `The ${sum} of this case went back to the customer: end it as answered, which books them`;
  return amount_in_cents > 0
    ? `The ${sum} of this case are disputed: end it as won or lost when it is certain and the processor does not say so`
    : 'This case has no money of its own: end it as answered, and refund the payment if money is to go back';
}

/**
 * An operator ends a case. Above the limit a second person, other than the first, has to say the same. Throws Refusal NOT_FOUND, and
 * CONFLICT when the case is not in the state for it: only a dispute about money is won or lost, and money is not answered away.
 */
export function endCase(
  on: {
    readonly database: Database;
    readonly secondPersonAboveCents: number;
  },
  case_id: string,
  { disposition, reason }: CaseEnd,
  { actor, at }: { readonly actor: string; readonly at: string },
): Promise<CaseEnded> {
  return on.database.transaction(async (tx) => {
    const [of] = await tx.query<{ platform_payment_id: string }>(findStatement, [case_id]);
    const key = [of?.platform_payment_id ?? '', case_id];
    const [found] = await tx.query<CaseView>(lockStatement, key);
    if (found === undefined) throw new Refusal('NOT_FOUND');
    const { state, amount_in_cents, platform_payment_id, partner_id } = found;
    const { from } = MOVES[disposition];
    const isEarly = found.reason_code === 'refunded_elsewhere' && amount_in_cents > 0;
    const isDispute = found.reason_code === 'disputed' && amount_in_cents > 0;
    const isFit =
      disposition === 'answered'
        ? amount_in_cents === 0 || isEarly
        : isDispute || (disposition !== 'won' && disposition !== 'lost');
    if (state !== from || !isFit) throw conflict(whyNot(found, isEarly));
    if (
      disposition === 'charged_to_biller' &&
      (await tx.query(bearsStatement, [case_id])).length === 0
    ) {
      throw conflict(
        'This biller bears nothing by its payout settings: write it off, or recover it',
      );
    }
    const subject = `case/${case_id}` as const;
    if (amount_in_cents > on.secondPersonAboveCents) {
      const of = { platform_payment_id, partner_id };
      const ask = { subject, act: `end as ${disposition}`, version: state, reason, actor, ...of };
      const first = await askedBefore(tx, ask);
      if (first === undefined) return { outcome: 'second_person_needed', case: found };
      await dropAsk(tx, subject);
    }
    if (isEarly) {
      const made = { refund_id: case_id, platform_payment_id, amount_in_cents, actor, at };
      await noteEarlyRefund(tx, made);
    }
    await moveCase(tx, case_id, disposition, { actor, reason, at });
    const [after = found] = await tx.query<CaseView>(lockStatement, key);
    return { outcome: 'done', case: after };
  });
}
