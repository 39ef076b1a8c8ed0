/**
 * The payment rows of the partner kit: every statement that creates, reads or ends one. Imports no stage.
 * A row is created by `insertPayments` (accept.ts), ended by `endPayments`, and read by all. An ended row never changes again; a trigger enforces this whatever this file does (RU2).
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  Refusal,
  type KitAuditEntry,
  type KitPaymentQuery,
  type PaymentRecord,
  type TerminalStatus,
} from '@duebridge/contract';
import { sql, type AuditTables, type Database, type Transaction } from '@duebridge/runtime';

/** A payment as stored: the record of the wire (decision 3), with times of the database's clock in UTC (PF7, decision 12). */
export type PaymentRow = Readonly<Required<Omit<PaymentRecord, 'failure_reason'>>> & {
  readonly failure_reason: string | null;
};

/** An account as it is named in a path. */
export type AccountPath = Pick<PaymentRow, 'biller_id' | 'account_id'>;

/** The contents of a first request. */
export interface NewPayment extends AccountPath {
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  /** Who put it: kept, and never read to decide anything. */
  readonly client_id: string;
  readonly amount_in_cents: number;
}

/** Both ids in one text; neither can contain a line break. */
export function accountKey({ biller_id, account_id }: AccountPath): string {
  return `${biller_id}\n${account_id}`;
}

/** The row in wire form (decision 3): failure_reason when, and only when, it failed (PF5). */
export function toRecord({ failure_reason, ...record }: PaymentRow): PaymentRecord {
  return failure_reason === null ? record : { ...record, failure_reason };
}

/** The same of a payment that was looked for. Throws Refusal PAYMENT_NOT_FOUND where there is none. */
export function recordOf(payment: PaymentRow | undefined): PaymentRecord {
  if (!payment) throw new Refusal('PAYMENT_NOT_FOUND');
  return toRecord(payment);
}

/** These fields of the rows, an array each: the parameters of an `unnest`. */
export function arraysOf<T extends object>(
  rows: readonly T[],
  ...fields: (keyof T)[]
): (T[keyof T] | null)[][] {
  return fields.map((field) => rows.map((row) => row[field] ?? null));
}

/** The columns of a PaymentRow, in the order of the wire. */
export const columns = `payment_id, platform_payment_id, platform_batch_id, biller_id, account_id, status, amount_in_cents, initiated_at,
  posted_at, failure_reason`;

const insertStatement = sql(
  'kit_insert_payments',
  `WITH made AS (
     INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
     ON CONFLICT (platform_payment_id) DO NOTHING
     RETURNING ${columns}
   ), begun AS (
     INSERT INTO duebridge_partner.payment_processing (platform_payment_id, initiated_at) SELECT platform_payment_id, initiated_at FROM made
   )
   SELECT ${columns} FROM made`,
);

/**
 * Inserts the payments whose id is new, in one statement that is its own transaction, and returns their rows by id; an existing
 * id is absent (RU5). The ids must be distinct. When this has resolved the rows are on disk (KT3).
 */
export async function insertPayments(
  database: Database,
  payments: readonly NewPayment[],
): Promise<Map<string, PaymentRow>> {
  // In order of id, so that two replicas that insert the same new ids cannot deadlock.
  const sorted = payments
    .map((payment) => ({ payment_id: randomUUID(), ...payment }))
    .toSorted((one, other) => (one.platform_payment_id < other.platform_payment_id ? -1 : 1));
  const made = await database.query<PaymentRow>(
    insertStatement,
    arraysOf(
      sorted,
      'platform_payment_id',
      'payment_id',
      'platform_batch_id',
      'biller_id',
      'account_id',
      'client_id',
      'amount_in_cents',
    ),
  );
  return new Map(made.map((row) => [row.platform_payment_id, row]));
}

const findStatement = sql(
  'kit_find_payments',
  `SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1::text[])`,
);

/** Reads payments by id, from the primary (KT8, KT9); those that do not exist are absent. */
export async function findPayments(
  database: Database | Transaction,
  ids: readonly string[],
): Promise<Map<string, PaymentRow>> {
  const rows = await database.query<PaymentRow>(findStatement, [ids]);
  return new Map(rows.map((row) => [row.platform_payment_id, row]));
}

const endedStatement = sql(`
   SELECT ${columns} FROM duebridge_partner.payment WHERE platform_payment_id = ANY($1::text[]) AND status <> 'processing'`);

/** Those of these payments that have ended. */
export function findEnded(database: Database, ids: readonly string[]): Promise<PaymentRow[]> {
  return database.query<PaymentRow>(endedStatement, [ids]);
}

const lockStatement = sql(
  'kit_lock_payments',
  `SELECT ${columns} FROM duebridge_partner.payment
    WHERE platform_payment_id = ANY($1::text[]) AND status = 'processing'
    ORDER BY platform_payment_id FOR NO KEY UPDATE SKIP LOCKED`,
);

const stillProcessingStatement = sql(
  'kit_still_processing',
  `SELECT platform_payment_id FROM duebridge_partner.payment_processing WHERE platform_payment_id = ANY($1::text[])`,
);

/**
 * Locks those of these payments that are still processing and that no other transaction holds at this moment (`rows`), until the transaction
 * ends: nothing waits. `held`: the ids of those that another transaction holds.
 */
export async function lockPayments(
  tx: Transaction,
  ids: readonly string[],
): Promise<{ rows: PaymentRow[]; held: ReadonlySet<string> }> {
  const rows = await tx.query<PaymentRow>(lockStatement, [ids]);
  if (rows.length === ids.length) return { rows, held: new Set() };
  const locked = new Set(rows.map((row) => row.platform_payment_id));
  const rest = ids.filter((id) => !locked.has(id));
  const left = await tx.query<{ platform_payment_id: string }>(stillProcessingStatement, [rest]);
  return { rows, held: new Set(left.map((row) => row.platform_payment_id)) };
}

/** How a payment ends (ST2-ST4): only a failure has a reason. */
export interface PaymentEnd {
  readonly platform_payment_id: string;
  readonly status: TerminalStatus;
  readonly failure_reason: string | null;
  /** For a success: when the biller's system posted it; absent or null: now. */
  readonly posted_at?: string | null;
  /** It succeeds, and the ledger posted it: it is an entry of its account. */
  readonly in_ledger?: boolean;
}

// The times come from the database's clock at the end of the work; a posted_at named by the biller's system is never after that
// (its clock is ahead). None is before initiated_at, should a clock step back (decision 12).
const endStatement = sql(
  'kit_end_payments',
  `WITH ending AS MATERIALIZED (
     SELECT *, date_trunc('milliseconds', clock_timestamp()) AS at
       FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::boolean[])
              AS e(id, new_status, reason, posted, is_entry)
   ), ended AS (
     UPDATE duebridge_partner.payment
        SET status = new_status, failure_reason = reason, ended_at = greatest(at, initiated_at),
            posted_at = CASE WHEN new_status = 'succeeded' THEN greatest(least(posted, at), initiated_at) END,
            in_ledger = coalesce(is_entry, false)
       FROM ending
      WHERE platform_payment_id = id AND status = 'processing'
     RETURNING ${columns}
   ), done AS (
     DELETE FROM duebridge_partner.payment_processing AS begun USING ended WHERE begun.platform_payment_id = ended.platform_payment_id
   ), noted AS (
     INSERT INTO duebridge_partner.payment_audit (platform_payment_id, actor, event, detail)
     SELECT platform_payment_id, 'account system', 'canceled', '{}' FROM ended WHERE status = 'canceled' AND $6
   )
   SELECT ${columns} FROM ended`,
);

/**
 * Ends those that are still processing (KT5) and returns their rows as they are after the commit; the others are unchanged. A cancel is
 * noted in the audit, unless the caller writes a line of its own.
 */
export function endPayments(
  tx: Transaction | Database,
  ends: readonly PaymentEnd[],
  isNoted = true,
): Promise<PaymentRow[]> {
  return tx.query<PaymentRow>(endStatement, [
    ...arraysOf(ends, 'platform_payment_id', 'status', 'failure_reason', 'posted_at', 'in_ledger'),
    isNoted,
  ]);
}

// A claim that another replica has made since stays.
const postponeStatement = sql(`
   UPDATE duebridge_partner.payment_processing AS begun
      SET not_before = asked.until, claimed_by = CASE WHEN claimed_by = asked.frees THEN NULL ELSE claimed_by END
     FROM unnest($1::text[], $2::timestamptz[], $3::uuid[]) AS asked(id, until, frees)
    WHERE begun.platform_payment_id = asked.id AND (begun.not_before IS DISTINCT FROM asked.until OR claimed_by = asked.frees)`);

/** What an account system put off. */
export interface Postponed {
  readonly platform_payment_id: string;
  /** Hidden from `findUnfinished` until then; null: not at all. */
  readonly until: string | null;
  /** The replica that gives its claim back: the payment can be canceled, and anybody may ask again. */
  readonly frees: string | null;
}

/** Stores that payments were put off. */
export async function postponePayments(
  tx: Transaction | Database,
  postponed: readonly Postponed[],
): Promise<void> {
  await tx.query(postponeStatement, arraysOf(postponed, 'platform_payment_id', 'until', 'frees'));
}

/** A payment that waits to be applied. */
export interface UnfinishedPayment extends PaymentRow {
  /** It was claimed for the biller's own system, and its outcome there is unknown. */
  readonly is_claimed: boolean;
}

/** In SQL: whether the claim of a row of `payment_processing` binds nobody: there is none, or its replica is dead (claims.ts). */
export const IS_FREE = `(claimed_by IS NULL OR claimed_by NOT IN (SELECT replica_id FROM duebridge_partner.replica))`;

const unfinishedStatement = sql(
  'kit_unfinished',
  `SELECT ${columns},
          EXISTS (SELECT FROM duebridge_partner.payment_processing AS begun
                   WHERE begun.platform_payment_id = payment.platform_payment_id AND claimed_by IS NOT NULL) AS is_claimed
     FROM duebridge_partner.payment
    WHERE status = 'processing' AND platform_payment_id = ANY (ARRAY(
      SELECT platform_payment_id FROM duebridge_partner.payment_processing
       WHERE (initiated_at <= clock_timestamp() - $1::float8 * interval '1 millisecond'
              OR initiated_at > clock_timestamp() + $1::float8 * interval '1 millisecond')
         AND (not_before IS NULL OR not_before <= clock_timestamp())
         AND (claimed_by = $4 OR ${IS_FREE})
         AND platform_payment_id > $2::text
       ORDER BY platform_payment_id LIMIT $3))
    ORDER BY platform_payment_id`,
);

/** Payments that are processing and due, in order of id. */
export function findUnfinished(
  database: Database,
  which: {
    /** Processing for at least this many milliseconds; or accepted so far in the future: the clock has stepped back, and its age is unknown. */
    readonly ageMs: number;
    /** Ids after this one, at most `limit` of them. */
    readonly after: string;
    readonly limit: number;
    /** Of claimed payments, only those of this replica and of dead ones. */
    readonly replica_id: string;
  },
): Promise<UnfinishedPayment[]> {
  const { ageMs, after, limit, replica_id } = which;
  return database.query(unfinishedStatement, [ageMs, after, limit, replica_id]);
}

/** How many payments have not ended, and of them those that a biller's own system was asked to post; the age of the oldest of each in seconds. */
export interface Standing {
  readonly processing: number;
  readonly processing_oldest_seconds: number;
  readonly unsettled: number;
  readonly unsettled_oldest_seconds: number;
}

const standingStatement = sql(`
   SELECT count(*) AS processing, count(claimed_at) AS unsettled,
          greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(initiated_at)), 0))::float8 AS processing_oldest_seconds,
          greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(claimed_at)), 0))::float8 AS unsettled_oldest_seconds
     FROM duebridge_partner.payment_processing`);

/** What has not ended. */
export async function findStanding(database: Database): Promise<Standing> {
  const [row] = await database.query<Standing>(standingStatement);
  assert(row);
  return row;
}

/** One line of the audit; `detail` holds amounts and ids of payments, never personal data. */
export interface AuditLine {
  /** Null for an operator's act that belongs to no payment. */
  readonly platform_payment_id: string | null;
  readonly actor: string;
  readonly event:
    | 'mismatch'
    | 'canceled'
    | 'settled'
    | 'contradicted'
    | 'payments_imported'
    | 'accounts_imported';
  readonly detail: Readonly<Record<string, string | number>>;
}

/** The columns covered by the audit's seals (decision 135). Their order is part of every digest. */
export const auditTables: AuditTables = {
  lines: 'duebridge_partner.payment_audit',
  seals: 'duebridge_partner.audit_seals',
  columns: ['platform_payment_id', 'actor', 'event', 'detail'],
};

/** Maximum mismatches kept for one payment: a caller that repeats wrong requests forever must not fill the disk. */
const MAX_MISMATCHES = 100;

const auditStatement = sql(`
   INSERT INTO duebridge_partner.payment_audit (platform_payment_id, actor, event, detail)
   SELECT id, actor, event, detail FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[]) AS line(id, actor, event, detail)
    WHERE event <> 'mismatch'
       OR (SELECT count(*) FROM duebridge_partner.payment_audit AS kept
            WHERE kept.platform_payment_id = id AND kept.event = 'mismatch') < $5`);

/** Appends to the audit; of the mismatches of one payment the first 100, of everything else all. */
export async function writeAudit(
  tx: Transaction | Database,
  lines: readonly AuditLine[],
): Promise<void> {
  await tx.query(auditStatement, [
    ...arraysOf(lines, 'platform_payment_id', 'actor', 'event'),
    lines.map((line) => JSON.stringify(line.detail)),
    MAX_MISMATCHES,
  ]);
}

/** Notes the import of a file, by whoever may reach the database. */
export function noteImport(
  database: Database,
  event: 'payments_imported' | 'accounts_imported',
  detail: AuditLine['detail'],
): Promise<void> {
  return writeAudit(database, [{ platform_payment_id: null, actor: 'operator', event, detail }]);
}

const readAuditText = `SELECT audit_id, at, platform_payment_id, actor, event, detail FROM duebridge_partner.payment_audit
  WHERE ($1::text IS NULL OR platform_payment_id = $1) AND ($2::text IS NULL OR event = $2)
    AND ($3::bigint IS NULL OR audit_id < $3) ORDER BY audit_id DESC LIMIT $4`;

/** Lines of the audit, newest first, `limit` of them, starting before the one named. */
export function readAudit(
  database: Database,
  filter: { readonly platform_payment_id?: string; readonly event?: string },
  before: number | undefined,
  limit: number,
): Promise<KitAuditEntry[]> {
  const values = [filter.platform_payment_id ?? null, filter.event ?? null, before ?? null, limit];
  return database.query<KitAuditEntry>(readAuditText, values);
}

/** Payments, newest first, `limit` of them, starting before the payment `place`. Absent fields of the filter do not filter. */
export function listPayments(
  database: Database,
  filter: Omit<KitPaymentQuery, 'limit' | 'cursor'>,
  place: Pick<PaymentRow, 'initiated_at' | 'platform_payment_id'> | undefined,
  limit: number,
): Promise<PaymentRow[]> {
  // Composed of the filters present, so that each can use its index: a fixed set of texts, none from outside.
  const values: unknown[] = [];
  const conditions: string[] = [];
  if (filter.status === 'processing') {
    // Few among many: found through the work list, not by scanning everything that has ended.
    conditions.push(
      'platform_payment_id IN (SELECT platform_payment_id FROM duebridge_partner.payment_processing)',
    );
  }
  // Few as well, and an index of their own has them.
  if (filter.status === 'failed') conditions.push('failure_reason IS NOT NULL');
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
