/**
 * Which replica hands which payment to a biller's own system. A claim is a column of the payment's row in `payment_processing`, made
 * once before the first call; it holds while the lease of its replica lives, so that asking again writes nothing, and no living
 * replica asks for a payment that another may have in a call.
 */
import { randomUUID } from 'node:crypto';
import {
  messageOf,
  sql,
  type Clock,
  type Database,
  type Log,
  type Transaction,
} from '@duebridge/runtime';

/** Lifetime of a lease after its last renewal; payments claimed by a dead replica wait this long. */
const LEASE_MS = 30_000;
/** Pause between renewals. */
const RENEW_MS = 5_000;
/** No call starts when the last renewal is older than this: another replica might take over during the call. */
const TRUST_MS = 20_000;

/** The lease of this process. */
export interface Lease {
  readonly replica_id: string;
  /** Resolves once the lease is on disk, immediately if it already is; rejects when the database is unavailable. */
  hold(): Promise<void>;
  /** Whether calls may start for claims that were seen to hold at `since`, a time of the monotonic clock; default: now. */
  lives(since?: number): boolean;
  /** False when a lease that was held has not been renewed in time, so that no call may start. */
  isRenewed(): boolean;
  /** Stops renewing. With `release` other replicas take over immediately; without it, when the lease has expired. */
  stop(release: boolean): Promise<void>;
}

const renewStatement = sql(
  'kit_renew_lease',
  `INSERT INTO duebridge_partner.replica (replica_id, lease_until)
   VALUES ($1, clock_timestamp() + $2::float8 * interval '1 millisecond')
   ON CONFLICT (replica_id) DO UPDATE SET lease_until = excluded.lease_until`,
);

// Rows of replicas that ended long ago. A payment claimed by such a replica is free whether or not the row exists.
const forgetStatement = sql(
  'kit_forget_replicas',
  `DELETE FROM duebridge_partner.replica WHERE lease_until < clock_timestamp() - interval '1 day'`,
);

const releaseStatement = sql(
  'kit_release_lease',
  `DELETE FROM duebridge_partner.replica WHERE replica_id = $1`,
);

/** Creates a lease; nothing is written before the first `hold`. */
export function openLease(options: { database: Database; log: Log; clock: Clock }): Lease {
  const { database, log, clock } = options;
  const replica_id = randomUUID();
  const stopped = new AbortController();
  let renewedAt = -Infinity;
  /** Since when no other replica can have taken over a claim of this one. */
  let unbrokenSince = Infinity;
  let first: Promise<void> | undefined;
  let renewing: Promise<void> | undefined;

  const renew = async (): Promise<void> => {
    // Counted from before the statement: the lease in the table lives at least as long as we believe.
    const began = clock.monotonic();
    await database.query(renewStatement, [replica_id, LEASE_MS]);
    const now = clock.monotonic();
    if (now - renewedAt >= LEASE_MS) unbrokenSince = now;
    renewedAt = began;
  };

  const keepRenewing = async (): Promise<void> => {
    let isFailing = false;
    while (!stopped.signal.aborted) {
      await clock.sleep(RENEW_MS, stopped.signal);
      if (stopped.signal.aborted) return;
      try {
        await renew();
        isFailing = false;
        await database.query(forgetStatement);
      } catch (error) {
        // Logged once per outage.
        if (!isFailing) log.warn({ error: messageOf(error) }, 'could not renew the lease');
        isFailing = true;
      }
    }
  };

  const begin = async (): Promise<void> => {
    await renew();
    renewing ??= keepRenewing();
  };

  return {
    replica_id,
    hold() {
      first ??= begin().catch((error: unknown) => {
        first = undefined;
        throw error;
      });
      return first;
    },
    lives(since = clock.monotonic()) {
      return clock.monotonic() - renewedAt < TRUST_MS && since >= unbrokenSince;
    },
    isRenewed: () => renewing === undefined || clock.monotonic() - renewedAt < TRUST_MS,
    async stop(release) {
      stopped.abort();
      await renewing;
      if (release && renewing) {
        await database.query(releaseStatement, [replica_id]).catch((error: unknown) => {
          log.warn({ error: messageOf(error) }, 'could not release the lease; it will expire');
        });
      }
    },
  };
}

// Another replica's claim ends with its lease, whatever the result of its call.
const claimStatement = sql(
  'kit_claim_payments',
  `WITH held AS (
     SELECT platform_payment_id, claimed_by AS before FROM duebridge_partner.payment_processing
      WHERE platform_payment_id = ANY($1::text[])
        AND (claimed_by IS NULL OR claimed_by = $2
             OR claimed_by NOT IN (SELECT replica_id FROM duebridge_partner.replica WHERE lease_until > clock_timestamp()))
      ORDER BY platform_payment_id FOR UPDATE
   )
   UPDATE duebridge_partner.payment_processing AS begun
      SET claimed_by = $2, claimed_at = coalesce(claimed_at, clock_timestamp()), cancel_actor = NULL, cancel_reason = NULL
     FROM held WHERE begun.platform_payment_id = held.platform_payment_id
   RETURNING begun.platform_payment_id, held.before IS NOT NULL AS was_claimed`,
);

/**
 * Claims payments for replica `by`, which is about to hand them to the biller's own system. Returns those that it may hand over,
 * and whether each had been claimed before, in which case its outcome is unknown. From then on only that replica cancels them.
 */
export async function claimPayments(
  tx: Transaction,
  ids: readonly string[],
  by: string,
): Promise<Map<string, boolean>> {
  const rows = await tx.query<{ platform_payment_id: string; was_claimed: boolean }>(
    claimStatement,
    [ids, by],
  );
  return new Map(rows.map((row) => [row.platform_payment_id, row.was_claimed]));
}

const heldStatement = sql(
  'kit_find_held',
  `SELECT platform_payment_id FROM duebridge_partner.payment_processing
    WHERE platform_payment_id = ANY($1::text[]) AND claimed_by = $2`,
);

/** Those of these payments that have not ended and are still claimed by replica `by`. */
export async function findHeld(
  database: Database,
  ids: readonly string[],
  by: string,
): Promise<Set<string>> {
  const rows = await database.query<{ platform_payment_id: string }>(heldStatement, [ids, by]);
  return new Set(rows.map((row) => row.platform_payment_id));
}
