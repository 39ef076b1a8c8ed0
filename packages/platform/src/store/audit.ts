/**
 * The audit: who did what and why, append-only (EE8). The statement that changes a payment writes its audit line, unless
 * every payment takes that step and its row tells who and when; this module writes all other lines, and reads them.
 */
import type { AuditEntry } from '@duebridge/contract';
import { sql, type AuditTables } from '@duebridge/runtime';
import { ENDED_BY, type Archived } from './archived.ts';
import { Conditions } from './conditions.ts';
import { findPayment, type AuditDetail, type PaymentRow, type Queryable } from './payments.ts';

/** The columns covered by the audit's seals (decision 135). Their order is part of every digest. */
export const auditTables: AuditTables = {
  lines: 'duebridge_platform.audit',
  seals: 'duebridge_platform.audit_seals',
  archives: 'duebridge_platform.archives',
  columns: ['actor', 'event', 'platform_payment_id', 'partner_id', 'detail'],
};

const noteStatement = sql(`
   INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail) VALUES ($1, $2, $3, $4, $5)`);

/** Writes one line. `detail` must hold no personal data and no secret (PL15). */
export async function note(
  on: Queryable,
  line: {
    readonly actor: string;
    readonly event: string;
    readonly platform_payment_id?: string;
    readonly partner_id?: string;
    readonly detail?: AuditDetail;
  },
): Promise<void> {
  await on.query(noteStatement, [
    line.actor,
    line.event,
    line.platform_payment_id ?? null,
    line.partner_id ?? null,
    JSON.stringify(line.detail ?? {}),
  ]);
}

/**
 * The time in the id of the payment of line `a`, in steps of four seconds. The index has it in place of the id: lines of the same time share an
 * entry, so whoever looks for payments names their times as well.
 */
export const TIME_OF_PAYMENT = 'left(a.platform_payment_id, 10)';
/** Lines `a` of the payment `$1`. */
export const OF_PAYMENT = `${TIME_OF_PAYMENT} = left($1, 10) AND a.platform_payment_id = $1`;
/** Lines `a` of the payments `$1`, whose ids begin with `$2`, ten characters of each. */
export const OF_PAYMENTS = `${TIME_OF_PAYMENT} = ANY($2::text[]) AND a.platform_payment_id = ANY($1::text[])`;

/** The detail of line `a` as its readers know it. */
const DETAIL = `CASE a.event WHEN 'payment_ended' THEN '${JSON.stringify(ENDED_BY)}'::jsonb ELSE '{}' END || a.detail`;

/**
 * What happened to one payment, oldest first: the lines of the audit, and the steps that every payment takes, which its row tells. The
 * database lets nobody change the times of a row that has ended. `archived`: what files have of it (archived.ts).
 */
export async function auditOfPayment(
  on: Queryable,
  platform_payment_id: string,
  archived?: Archived,
): Promise<AuditEntry[]> {
  const lines = await on.query<AuditEntry>(
    sql(`
       SELECT at, actor, event, ${DETAIL} AS detail FROM duebridge_platform.audit a WHERE ${OF_PAYMENT} ORDER BY at, event LIMIT 1000`),
    [platform_payment_id],
  );
  const row = await findPayment(on, platform_payment_id);
  const all = [...(archived?.lines ?? []), ...lines];
  return row === undefined ? all : withSteps(all, { ...row, ...archived?.fields });
}

/** After one of these lines nothing happened to the funds that the row tells alone. */
const ENDS_OF_FUNDS = [
  'funds_captured',
  'funds_released',
  'funds_refunded',
  'funds_uncollected',
  'funds_settled_by_operator',
];

/** Adds the steps that a row tells and no line does: earlier versions wrote a line for each. Pure. */
function withSteps(lines: readonly AuditEntry[], row: PaymentRow): AuditEntry[] {
  const { created_at, accepted_at, ended_at, settled_at, amount_in_cents } = row;
  const has = (event: string): boolean => lines.some((line) => line.event === event);
  // The row has the time of the database as a worker knows it, some milliseconds off that of a line.
  const end = lines.find(({ event }) => event === 'payment_ended')?.at;
  const steps: AuditEntry[] = [...lines];
  if (!has('payment_created')) {
    const [actor, event] = ['session', 'payment_created'] as const;
    steps.unshift({ at: created_at, actor, event, detail: { amount_in_cents } });
  }
  if (accepted_at !== null && !has('payment_accepted')) {
    const at = end !== undefined && end < accepted_at ? end : accepted_at;
    steps.splice(1, 0, { at, actor: 'platform', event: 'payment_accepted', detail: {} });
  }
  // The funds of a payment that was declined, or is collected elsewhere, end with it.
  if (settled_at !== null && settled_at !== ended_at && !ENDS_OF_FUNDS.some(has)) {
    const at = end !== undefined && end > settled_at ? end : settled_at;
    const event = row.status === 'succeeded' ? 'funds_captured' : 'funds_released';
    steps.push({ at, actor: 'platform', event, detail: {} });
  }
  return steps.toSorted((one, other) => Date.parse(one.at) - Date.parse(other.at));
}

/** Which lines to list; an absent field does not filter. */
export interface AuditFilter {
  readonly actor?: string | undefined;
  readonly event?: string | undefined;
  readonly partner_id?: string | undefined;
  readonly platform_payment_id?: string | undefined;
  /** ISO 8601. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** From `cursorOf` of the last line of the previous page. */
  readonly cursor?: { readonly at: string; readonly audit_id: string } | undefined;
  readonly limit: number;
}

/** A line and its sort position. */
export interface AuditLine extends AuditEntry {
  readonly audit_id: string;
  /** `at` to the microsecond, as PostgreSQL has it. */
  readonly exact_at: string;
}

/** Events that every payment has, which the partial index audit_event leaves out. */
const EVERY_PAYMENT = [
  'payment_created',
  'payment_authorized',
  'payment_dispatching',
  'payment_accepted',
  'payment_ended',
  'funds_captured',
  'funds_released',
];

/** Lines, newest first. A line includes its payment or partner unless its own detail does. */
export function listAudit(on: Queryable, filter: AuditFilter): Promise<AuditLine[]> {
  const conditions = new Conditions();
  const { actor, event, platform_payment_id: id, cursor } = filter;
  conditions.add('actor = ?', actor);
  // Repeats the condition of the partial index of human actions, so that the plan can use it.
  if (actor !== undefined && !/^(worker-|session )/.test(actor))
    conditions.add(`actor NOT LIKE 'worker-%' AND actor NOT LIKE 'session %'`);
  conditions.add('event = ?', event);
  // The events of every payment are selective anyway; the others have their own index, selected here by repeating its
  // condition.
  if (event !== undefined && !EVERY_PAYMENT.includes(event))
    conditions.add(`event NOT IN (${EVERY_PAYMENT.map((one) => `'${one}'`).join(', ')})`);
  conditions.add(`${TIME_OF_PAYMENT} = left(?, 10) AND a.platform_payment_id = ?`, id, id);
  // Lines about the partner itself; those about its payments are listed with the payments.
  conditions.add('partner_id = ? AND platform_payment_id IS NULL', filter.partner_id);
  conditions.add('at >= ?', filter.from);
  conditions.add('at < ?', filter.to);
  conditions.add('(at, audit_id) < (?::timestamptz, ?::uuid)', cursor?.at, cursor?.audit_id);
  return on.query<AuditLine>(
    `SELECT at, actor, event, audit_id, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS exact_at,
            ${DETAIL} || jsonb_strip_nulls(jsonb_build_object('platform_payment_id', platform_payment_id, 'partner_id', partner_id)) AS detail
       FROM duebridge_platform.audit a ${conditions.where}
      ORDER BY at DESC, audit_id DESC LIMIT $${conditions.values.length + 1}`,
    [...conditions.values, filter.limit],
  );
}
