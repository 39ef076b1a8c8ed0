/**
 * The payment rows of the partner kit: every statement that makes, reads or ends one. Imports no stage.
 *
 * A row is made by `insertPayments` (accept.ts), ended by `endPayments` (apply.ts) or `cancelPayment` (admin.ts), and read by
 * all. What an ended row holds never changes again; a trigger sees to it whatever this file says (RU2).
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { PaymentRecord, PaymentStatus, TerminalStatus } from '@duebridge/contract';
import { sql, type Database, type Transaction } from '@duebridge/runtime';

/** A payment as the table has it: the record of the wire (decision 3) and who put it. */
export interface PaymentRow {
  readonly platform_payment_id: string;
  readonly payment_id: string;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  /** The OAuth client that put it; `static-key` where a key protects the operations (decision 9). Never on the wire. */
  readonly client_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
  /** ISO 8601, UTC, milliseconds, of the database's clock (PF7, decision 12). */
  readonly initiated_at: string;
  readonly posted_at: string | null;
  readonly failure_reason: string | null;
}

/** What a first request says. */
export interface NewPayment {
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly client_id: string;
  readonly amount_in_cents: number;
}

/** The row as the wire shows it (decision 3): failure_reason when, and only when, it failed (PF5). */
export function toRecord(row: PaymentRow): PaymentRecord {
  return {
    payment_id: row.payment_id,
    platform_payment_id: row.platform_payment_id,
    platform_batch_id: row.platform_batch_id,
    biller_id: row.biller_id,
    account_id: row.account_id,
    status: row.status,
    amount_in_cents: row.amount_in_cents,
    initiated_at: row.initiated_at,
    posted_at: row.posted_at,
    ...(row.failure_reason === null ? undefined : { failure_reason: row.failure_reason }),
  };
}

const columns = `platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, status,
  amount_in_cents, initiated_at, posted_at, failure_reason`;

const insertStatement = sql(
  'kit_insert_payments',
  `WITH made AS (
     INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
     SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
     ON CONFLICT (platform_payment_id) DO NOTHING
     RETURNING platform_payment_id, initiated_at
   ), begun AS (
     INSERT INTO duebridge_partner.payment_processing (platform_payment_id, initiated_at) SELECT platform_payment_id, initiated_at FROM made
   )
   SELECT platform_payment_id, initiated_at FROM made`,
);

/**
 * Inserts those whose id is new, in one statement that is its own transaction, and gives their rows by id; an id that existed is
 * absent (RU5). The ids must be distinct. When this has resolved the rows are on disk (Q3).
 */
export async function insertPayments(
  database: Database,
  payments: readonly NewPayment[],
): Promise<Map<string, PaymentRow>> {
  // In order of id: two replicas that insert the same new ids then wait for each other in one direction only.
  const sorted = payments.toSorted((one, other) =>
    one.platform_payment_id < other.platform_payment_id ? -1 : 1,
  );
  const ids = sorted.map((payment) => payment.platform_payment_id);
  const paymentIds = sorted.map(() => randomUUID());
  const made = await database.query<{ platform_payment_id: string; initiated_at: string }>(
    insertStatement,
    [
      ids,
      paymentIds,
      sorted.map((payment) => payment.platform_batch_id),
      sorted.map((payment) => payment.biller_id),
      sorted.map((payment) => payment.account_id),
      sorted.map((payment) => payment.client_id),
      sorted.map((payment) => payment.amount_in_cents),
    ],
  );
  const times = new Map(made.map((row) => [row.platform_payment_id, row.initiated_at]));
  const rows = new Map<string, PaymentRow>();
  sorted.forEach((payment, index) => {
    const initiated_at = times.get(payment.platform_payment_id);
    if (initiated_at === undefined) return;
    rows.set(payment.platform_payment_id, {
      platform_payment_id: payment.platform_payment_id,
      payment_id: paymentIds[index] ?? '',
      platform_batch_id: payment.platform_batch_id,
      biller_id: payment.biller_id,
      account_id: payment.account_id,
      client_id: payment.client_id,
      status: 'processing',
      amount_in_cents: payment.amount_in_cents,
      initiated_at,
      posted_at: null,
      failure_reason: null,
    });
  });
  return rows;
}

const findStatement = sql(
  'kit_find_payments',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1::text[])`,
);

/** Reads payments by id, from the primary (Q8, Q9); those that do not exist are absent. */
export async function findPayments(
  database: Database | Transaction,
  ids: readonly string[],
): Promise<Map<string, PaymentRow>> {
  const rows = await database.query<PaymentRow>(findStatement, [ids]);
  return new Map(rows.map((row) => [row.platform_payment_id, row]));
}

const endedStatement = sql(
  'kit_find_ended',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1::text[]) AND status <> 'processing'`,
);

/** Of these payments, those that have ended. */
export function findEnded(database: Database, ids: readonly string[]): Promise<PaymentRow[]> {
  return database.query<PaymentRow>(endedStatement, [ids]);
}

/** A payment that is held by the transaction that reads it. */
export interface HeldPayment extends PaymentRow {
  /** When a biller's own system was last asked to post it; null when never. */
  readonly posting_since: string | null;
}

const holdStatement = sql(
  'kit_hold_payments',
  `SELECT ${columns}, posting_since FROM duebridge_partner.payment
    WHERE platform_payment_id = ANY($1::text[]) AND status = 'processing'
    ORDER BY platform_payment_id FOR NO KEY UPDATE`,
);

/**
 * Of these payments, those still processing, locked until the transaction ends, in order of id so that two holders cannot wait
 * for each other in a circle. Whoever comes second waits, and then finds them ended.
 */
export function holdPayments(tx: Transaction, ids: readonly string[]): Promise<HeldPayment[]> {
  return tx.query<HeldPayment>(holdStatement, [ids]);
}

/** How a payment ends (ST2-ST4): only a failure has a reason. */
export interface PaymentEnd {
  readonly platform_payment_id: string;
  readonly status: TerminalStatus;
  readonly failure_reason: string | null;
}

// The times come from the database's clock at the end of the work, and never before initiated_at, should that clock step back
// (decision 12, reliability F87).
const endStatement = sql(
  'kit_end_payments',
  `WITH ending AS MATERIALIZED (
     SELECT *, date_trunc('milliseconds', clock_timestamp()) AS at
       FROM unnest($1::text[], $2::text[], $3::text[]) AS e(id, new_status, reason)
   ), ended AS (
     UPDATE duebridge_partner.payment
        SET status = new_status, failure_reason = reason, ended_at = greatest(at, initiated_at),
            posted_at = CASE WHEN new_status = 'succeeded' THEN greatest(at, initiated_at) END
       FROM ending
      WHERE platform_payment_id = id AND status = 'processing'
     RETURNING ${columns}
   ), done AS (
     DELETE FROM duebridge_partner.payment_processing AS begun USING ended WHERE begun.platform_payment_id = ended.platform_payment_id
   )
   SELECT ${columns} FROM ended`,
);

/** Ends those that are still processing (Q5) and gives their rows as they are after the commit; the others are untouched. */
export function endPayments(
  tx: Transaction | Database,
  ends: readonly PaymentEnd[],
): Promise<PaymentRow[]> {
  return tx.query<PaymentRow>(endStatement, [
    ends.map((end) => end.platform_payment_id),
    ends.map((end) => end.status),
    ends.map((end) => end.failure_reason),
  ]);
}

const markStatement = sql(
  'kit_mark_posting',
  `UPDATE duebridge_partner.payment SET posting_since = clock_timestamp(), posting_by = $3
    WHERE platform_payment_id = ANY($1::text[]) AND status = 'processing'
      AND (posting_since IS NULL OR posting_by = $3
           OR posting_since < clock_timestamp() - $2::float8 * interval '1 millisecond')
   RETURNING platform_payment_id`,
);

/**
 * Marks payments as being posted to the biller's own system by process `by` (a UUID), and gives those that it may hand over: not
 * those that another process marked less than `leaseMs` ago. From the first mark on a cancel is refused.
 */
export async function markPosting(
  tx: Transaction,
  ids: readonly string[],
  by: string,
  leaseMs: number,
): Promise<Set<string>> {
  const rows = await tx.query<{ platform_payment_id: string }>(markStatement, [ids, leaseMs, by]);
  return new Set(rows.map((row) => row.platform_payment_id));
}

const unfinishedStatement = sql(
  'kit_unfinished',
  `SELECT ${columns} FROM duebridge_partner.payment
    WHERE status = 'processing' AND platform_payment_id = ANY (ARRAY(
      SELECT platform_payment_id FROM duebridge_partner.payment_processing
       WHERE (initiated_at <= clock_timestamp() - $1::float8 * interval '1 millisecond'
              OR initiated_at > clock_timestamp() + $4::float8 * interval '1 millisecond')
         AND platform_payment_id > $2::text
       ORDER BY platform_payment_id LIMIT $3))
    ORDER BY platform_payment_id`,
);

/**
 * Payments that have been processing for at least `ageMs`, in order of id, `limit` of them from after the id `after`. With
 * `aheadMs` also those from further ahead: the clock has stepped back since, and their age is not known (E7); null leaves them out.
 */
export function findUnfinished(
  database: Database,
  ageMs: number,
  aheadMs: number | null,
  after: string,
  limit: number,
): Promise<PaymentRow[]> {
  return database.query<PaymentRow>(unfinishedStatement, [ageMs, after, limit, aheadMs]);
}

/** One line of the audit; `detail` holds amounts and ids of payments, never a customer's datum. */
export interface AuditLine {
  readonly platform_payment_id: string;
  readonly actor: string;
  readonly event: 'mismatch' | 'foreign_client' | 'canceled';
  readonly detail: Readonly<Record<string, string | number>>;
}

/** Lines kept for one payment: a caller that repeats wrong requests for ever must not fill the disk. */
const maxAuditLines = 100;

const auditStatement = sql(
  'kit_audit',
  `INSERT INTO duebridge_partner.payment_audit (platform_payment_id, actor, event, detail)
   SELECT id, actor, event, detail FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[]) AS line(id, actor, event, detail)
    WHERE (SELECT count(*) FROM duebridge_partner.payment_audit WHERE platform_payment_id = id) < $5`,
);

/** Appends to the audit, up to 100 lines for one payment. */
export async function writeAudit(
  tx: Transaction | Database,
  lines: readonly AuditLine[],
): Promise<void> {
  await tx.query(auditStatement, [
    lines.map((line) => line.platform_payment_id),
    lines.map((line) => line.actor),
    lines.map((line) => line.event),
    lines.map((line) => JSON.stringify(line.detail)),
    maxAuditLines,
  ]);
}

/** What became of a cancel. `was_canceled`: by an earlier one, whose reason stands. */
export type CancelOutcome =
  | { readonly outcome: 'canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'was_canceled'; readonly payment: PaymentRow }
  | { readonly outcome: 'too_late'; readonly payment: PaymentRow }
  | { readonly outcome: 'not_found' };

const cancelLookStatement = sql(
  'kit_cancel_look',
  `SELECT ${columns}, posting_since FROM duebridge_partner.payment WHERE platform_payment_id = $1 FOR NO KEY UPDATE`,
);

const cancelStatement = sql(
  'kit_cancel_payment',
  `WITH ended AS (
     UPDATE duebridge_partner.payment
        SET status = 'canceled', ended_at = greatest(date_trunc('milliseconds', clock_timestamp()), initiated_at)
      WHERE platform_payment_id = $1
     RETURNING ${columns}
   ), done AS (
     DELETE FROM duebridge_partner.payment_processing AS begun USING ended WHERE begun.platform_payment_id = ended.platform_payment_id
   )
   SELECT ${columns} FROM ended`,
);

/**
 * Cancels a payment that is processing and has not been handed to the biller's own system (ST4, decision 18), with its reason in
 * the audit. Waits for a posting that is under way, and comes too late if that succeeded. A payment canceled before stays so.
 */
export function cancelPayment(
  database: Database,
  platform_payment_id: string,
  actor: string,
  reason: string,
): Promise<CancelOutcome> {
  return database.transaction(async (tx): Promise<CancelOutcome> => {
    // Looked at under its lock and only then changed: an update first and a look after could meet a payment accepted in between,
    // and call too late what had only just begun.
    const [held] = await tx.query<HeldPayment>(cancelLookStatement, [platform_payment_id]);
    if (!held) return { outcome: 'not_found' };
    const { posting_since, ...payment } = held;
    if (payment.status === 'canceled') return { outcome: 'was_canceled', payment };
    if (payment.status !== 'processing' || posting_since !== null) {
      return { outcome: 'too_late', payment };
    }
    const [canceled] = await tx.query<PaymentRow>(cancelStatement, [platform_payment_id]);
    assert(canceled, 'a payment changed under its lock');
    await writeAudit(tx, [{ platform_payment_id, actor, event: 'canceled', detail: { reason } }]);
    return { outcome: 'canceled', payment: canceled };
  });
}

/** A place in the operator's list: that of a payment. */
export type Place = { readonly initiated_at: string; readonly platform_payment_id: string };

/** What an operator's list is narrowed to; absent fields do not narrow. */
export interface PaymentFilter {
  readonly status?: PaymentStatus;
  readonly biller_id?: string;
  readonly account_id?: string;
  readonly platform_batch_id?: string;
}

/** Payments, the newest first, `limit` of them from before `place`. */
export function listPayments(
  database: Database,
  filter: PaymentFilter,
  place: Place | undefined,
  limit: number,
): Promise<PaymentRow[]> {
  // Composed of the filters that are there, so that each can use its index: a fixed set of texts, none from outside.
  const values: unknown[] = [];
  const conditions: string[] = [];
  if (filter.status === 'processing') {
    // Few among many: found by the work list, not by walking through everything that has ended.
    conditions.push(
      'platform_payment_id IN (SELECT platform_payment_id FROM duebridge_partner.payment_processing)',
    );
  }
  for (const name of ['status', 'biller_id', 'account_id', 'platform_batch_id'] as const) {
    if (filter[name] === undefined) continue;
    values.push(filter[name]);
    conditions.push(`${name} = $${values.length}`);
  }
  if (place) {
    values.push(place.initiated_at, place.platform_payment_id);
    conditions.push(
      `(initiated_at, platform_payment_id) < ($${values.length - 1}::timestamptz, $${values.length}::text)`,
    );
  }
  values.push(limit);
  return database.query<PaymentRow>(
    `SELECT ${columns} FROM duebridge_partner.payment ${conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : ''}
      ORDER BY initiated_at DESC, platform_payment_id DESC LIMIT $${values.length}`,
    values,
  );
}
