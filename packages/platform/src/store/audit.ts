/**
 * The audit: who did what and why, append-only (E8). The lines of a payment are written by the statement that changes it; this is
 * for the rest, and for reading.
 */
import type { AuditEntry } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import type { AuditDetail, Queryable } from './payments.ts';

const noteStatement = sql(
  'audit_note',
  `INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail) VALUES ($1, $2, $3, $4, $5)`,
);

/** Writes one line. `detail` holds no personal data and no secret (P15). */
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

/** The trail of one payment, oldest first. */
export function auditOfPayment(on: Queryable, platform_payment_id: string): Promise<AuditEntry[]> {
  return on.query<AuditEntry>(
    sql(
      'audit_of_payment',
      `SELECT at, actor, event, detail FROM duebridge_platform.audit WHERE platform_payment_id = $1 ORDER BY at, event LIMIT 1000`,
    ),
    [platform_payment_id],
  );
}

/** The latest lines, newest first. */
export function latestAudit(on: Queryable, limit = 200): Promise<AuditEntry[]> {
  return on.query<AuditEntry>(
    sql(
      'audit_latest',
      // A line tells which payment or partner it is about where its own detail does not.
      `SELECT at, actor, event,
              detail || jsonb_strip_nulls(jsonb_build_object('platform_payment_id', platform_payment_id, 'partner_id', partner_id)) AS detail
         FROM duebridge_platform.audit ORDER BY at DESC LIMIT $1`,
    ),
    [limit],
  );
}
