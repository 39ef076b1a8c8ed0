/**
 * Open differences: what reconciliations found, until an operator resolves it (decision 26).
 *
 * enters: the differences of one run over one batch.  leaves: rows that keep when each was first found and last seen.
 * holds:  one open row per payment and kind of difference; a run that no longer finds it resolves it and says so, if it looks for that
 *         kind; operators resolve the rest with a note, which the audit keeps. Nothing is repaired here. A partner's file may name a payment of
 *         another partner: its amount is not read.
 */
import {
  conflict,
  Refusal,
  type Difference,
  type DifferenceQuery,
  type OpenDifference,
  type Reconciliation,
} from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { v7 as uuidv7 } from 'uuid';
import { note } from '../store/audit.ts';
import { Conditions } from '../store/conditions.ts';
import type { Queryable } from '../store/payments.ts';

/** Rows of one statement. */
const MAX_ROWS = 5_000;

const upsertStatement = sql(`
   INSERT INTO duebridge_platform.differences AS d
          (difference_id, platform_batch_id, partner_id, platform_payment_id, kind, here, there, amount_in_cents, seen_at)
   SELECT u.id, $1, $2, u.platform_payment_id, u.kind, u.here, u.there, p.amount_in_cents, $4::timestamptz
     FROM jsonb_to_recordset($3::jsonb) AS u (id uuid, platform_payment_id text, kind text, here text, there text)
     LEFT JOIN duebridge_platform.payments p ON p.platform_payment_id = u.platform_payment_id AND p.partner_id = $2
   ON CONFLICT (platform_batch_id, platform_payment_id, kind) WHERE resolved_at IS NULL
   DO UPDATE SET seen_at = greatest(d.seen_at, excluded.seen_at), here = excluded.here, there = excluded.there`);
const goneStatement = sql(`
   UPDATE duebridge_platform.differences d
      SET resolved_at = now(), resolved_by = $2, resolution = 'a later reconciliation no longer finds it'
    WHERE d.platform_batch_id = $1 AND d.resolved_at IS NULL AND d.seen_at < $3::timestamptz AND d.kind IS DISTINCT FROM $4 RETURNING 1`);

/** The kind that a run cannot find: statements and files have no times, and reading our payments shows none that only the partner has. Pure. */
function missedBy({ method, file_needed }: Reconciliation): Difference['kind'] | null {
  if (method !== 'payments') return 'time';
  return file_needed === undefined ? null : 'missing_here';
}

/**
 * Keeps what a run over a batch found; returns how many earlier differences it no longer found. `actor` ran it. All of it in
 * the caller's transaction, which holds the batch, so that two runs do not undo each other.
 */
export async function keepDifferences(
  on: Queryable,
  run: {
    readonly partner_id: string;
    /** By the database's clock: what another run found since then stays. */
    readonly began_at: string;
    readonly result: Reconciliation;
    readonly actor: string;
  },
): Promise<number> {
  const { partner_id, began_at, result, actor } = run;
  const { platform_batch_id, differences } = result;
  for (let from = 0; from < differences.length; from += MAX_ROWS) {
    const some = differences.slice(from, from + MAX_ROWS).map((one) => ({ ...one, id: uuidv7() }));
    const rows = JSON.stringify(some);
    await on.query(upsertStatement, [platform_batch_id, partner_id, rows, began_at]);
  }
  const missed = missedBy(result);
  const gone = await on.query(goneStatement, [platform_batch_id, actor, began_at, missed]);
  return gone.length;
}

const COLUMNS = `d.difference_id, d.platform_batch_id, d.partner_id, d.platform_payment_id, d.kind, d.here, d.there,
  d.amount_in_cents, d.found_at, d.seen_at, d.resolved_at, d.resolved_by, d.resolution`;

/** Differences, newest first; `limit` rows at most. */
export function listDifferences(
  on: Queryable,
  query: Omit<DifferenceQuery, 'limit'> & { readonly limit: number },
): Promise<OpenDifference[]> {
  const conditions = new Conditions();
  if (query.state === 'open') conditions.add('d.resolved_at IS NULL');
  if (query.state === 'resolved') conditions.add('d.resolved_at IS NOT NULL');
  conditions.add('d.partner_id = ?', query.partner_id);
  conditions.add('d.platform_batch_id = ?', query.platform_batch_id);
  conditions.add('d.kind = ?', query.kind);
  conditions.add('d.difference_id < ?::uuid', query.cursor);
  return on.query<OpenDifference>(
    `SELECT ${COLUMNS} FROM duebridge_platform.differences d ${conditions.where}
      ORDER BY d.difference_id DESC LIMIT $${conditions.values.length + 1}`,
    [...conditions.values, query.limit],
  );
}

/** Resolves a difference with a note. Throws Refusal NOT_FOUND, or CONFLICT when it is resolved already. */
export function resolveDifference(
  database: Database,
  difference_id: string,
  resolution: string,
  actor: string,
): Promise<OpenDifference> {
  return database.transaction(async (tx) => {
    const [row] = await tx.query<OpenDifference>(
      `UPDATE duebridge_platform.differences d SET resolved_at = now(), resolved_by = $2, resolution = $3
        WHERE d.difference_id = $1 AND d.resolved_at IS NULL RETURNING ${COLUMNS}`,
      [difference_id, actor, resolution],
    );
    if (row === undefined) {
      const known = await tx.query(
        'SELECT 1 FROM duebridge_platform.differences WHERE difference_id = $1',
        [difference_id],
      );
      throw known.length === 0
        ? new Refusal('NOT_FOUND')
        : conflict('The difference is resolved already');
    }
    const { kind, platform_batch_id, platform_payment_id, partner_id } = row;
    const detail = { difference_id, kind, platform_batch_id, resolution };
    const of = { platform_payment_id, partner_id };
    await note(tx, { actor, event: 'difference_resolved', ...of, detail });
    return row;
  });
}
