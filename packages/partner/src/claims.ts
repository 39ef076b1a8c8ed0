/**
 * Which replica may hand a payment to the biller's own system. A claim is a column of the payment's row in `payment_processing`, made
 * before each call; it holds while its replica has a row in `replica`, so that renewing one row keeps all claims. An answer that
 * leaves the payment cancelable gives it back (`postponePayments`).
 *
 * A replica that lives changes `lease_until` every five seconds. The others look at it as often and delete the row of one whose
 * value has not changed for thirty seconds by their own monotonic clock; the time itself is compared with no clock, because clocks
 * step (F87). A replica whose row is gone has lost its claims for good: it goes on under a new id, and makes them anew.
 */
import { randomUUID } from 'node:crypto';
import { messageOf, repeatedly, sql, type Transaction } from '@duebridge/runtime';
import type { KitContext } from './metrics.ts';
import { IS_FREE } from './store.ts';

/** A replica is dead when its lease has not changed for so long, as seen by another one. */
const LEASE_MS = 30_000;
/** Pause between renewals. */
const RENEW_MS = 5_000;
/** No call starts when the last renewal is older than this: another replica might take over during the call. */
const TRUST_MS = 20_000;

// Replicas of earlier versions compare the time with the database's clock.
const renewStatement = sql(`
   UPDATE duebridge_partner.replica SET lease_until = clock_timestamp() + $2::float8 * interval '1 millisecond'
    WHERE replica_id = $1 RETURNING replica_id`);

const beginStatement = sql(`
   INSERT INTO duebridge_partner.replica (replica_id, lease_until)
   VALUES ($1, clock_timestamp() + $2::float8 * interval '1 millisecond')`);

const othersStatement = sql(
  'kit_other_leases',
  `SELECT replica_id, lease_until::text AS value FROM duebridge_partner.replica WHERE replica_id <> $1`,
);

// Unless it was renewed at this very moment.
const buryStatement = sql(`
   DELETE FROM duebridge_partner.replica AS dead USING unnest($1::uuid[], $2::text[]) AS seen(id, value)
    WHERE dead.replica_id = seen.id AND dead.lease_until = seen.value::timestamptz`);

// Others must not touch what a call may still be doing before the lease has expired.
const releaseStatement = sql(`
   DELETE FROM duebridge_partner.replica WHERE replica_id = $1
      AND NOT EXISTS (SELECT FROM duebridge_partner.payment_processing WHERE claimed_by = $1)`);

interface OtherLease {
  readonly replica_id: string;
  readonly value: string;
}

/** Creates a lease; nothing is written before the first `hold`. */
export function openLease(options: Omit<KitContext, 'metrics'>) {
  const { database, log, clock } = options;
  const stopped = new AbortController();
  let replica_id = randomUUID();
  /** When the latest renewal that succeeded was sent. */
  let renewedAt: { readonly monotonic: number; readonly wall: number } | undefined;
  let renewing: Promise<void> | undefined;
  let keeping: Promise<void> | undefined;
  /** The leases of others, and for how long each has been the same. */
  let others = new Map<string, OtherLease & { readonly unchangedMs: number }>();
  let lookedAt = -Infinity;

  const renewOnce = async (): Promise<void> => {
    const at = { monotonic: clock.monotonic(), wall: clock.now() };
    const rows = await database.query(renewStatement, [replica_id, LEASE_MS]);
    if (rows.length === 0) {
      if (renewedAt !== undefined) {
        log.warn(
          { replica_id },
          'another replica took this one for dead: it goes on under a new id',
        );
        replica_id = randomUUID();
        renewedAt = undefined;
      }
      await database.query(beginStatement, [replica_id, LEASE_MS]);
    }
    renewedAt = at;
  };

  const renew = (): Promise<void> =>
    (renewing ??= renewOnce().finally(() => {
      renewing = undefined;
    }));

  /** Looks at the other leases and deletes those that have not changed for too long. */
  const look = async (): Promise<void> => {
    const rows = await database.query<OtherLease>(othersStatement, [replica_id]);
    const now = clock.monotonic();
    // While the database was away, or this process stood still, the others could not be seen to renew.
    const passedMs = Math.min(now - lookedAt, 2 * RENEW_MS);
    lookedAt = now;
    others = new Map(
      rows.map((row) => {
        const before = others.get(row.replica_id);
        const isSame = before?.value === row.value;
        return [
          row.replica_id,
          { ...row, unchangedMs: isSame ? before.unchangedMs + passedMs : 0 },
        ];
      }),
    );
    const dead = [...others.values()].filter((one) => one.unchangedMs >= LEASE_MS);
    if (dead.length === 0) return;
    await database.query(buryStatement, [
      dead.map((one) => one.replica_id),
      dead.map((one) => one.value),
    ]);
  };

  const keep = async (): Promise<void> => {
    const { signal } = stopped;
    await clock.sleep(RENEW_MS, signal);
    await repeatedly({ clock, log, signal }, RENEW_MS, 'could not renew the lease', async () => {
      await renew();
      await look();
    });
  };

  /** The wall clock goes on while a machine sleeps, the monotonic one may not; a step forward costs a pause until the next renewal. */
  const isFresh = (): boolean =>
    renewedAt !== undefined &&
    clock.monotonic() - renewedAt.monotonic < TRUST_MS &&
    clock.now() - renewedAt.wall < TRUST_MS;

  return {
    /** The id under which this replica claims; a new one after its row was deleted. */
    get replica_id(): string {
      return replica_id;
    },
    /** Resolves with `replica_id` once the lease is held, immediately if it already is; rejects when the database is unavailable. */
    async hold(): Promise<string> {
      keeping ??= keep();
      if (renewedAt === undefined) await renew();
      return replica_id;
    },
    /** Whether a call may start now for a payment that was claimed under this id. */
    covers: (id: string): boolean => id === replica_id && isFresh(),
    /** False when a lease that was held has not been renewed in time, so that no call may start. */
    isRenewed: (): boolean => renewedAt === undefined || isFresh(),
    /** Stops renewing. Other replicas take over what it has claimed after thirty seconds. */
    async stop(): Promise<void> {
      stopped.abort();
      await keeping;
      if (renewedAt) {
        await database.query(releaseStatement, [replica_id]).catch((error: unknown) => {
          log.warn({ error: messageOf(error) }, 'could not release the lease; it will expire');
        });
      }
    },
  };
}

/** The lease of this process. */
export type Lease = ReturnType<typeof openLease>;

const claimStatement = sql(`
   WITH held AS (
     SELECT platform_payment_id, claimed_by, claimed_at FROM duebridge_partner.payment_processing
      WHERE platform_payment_id = ANY($1::text[]) AND (claimed_by = $2 OR ${IS_FREE})
      ORDER BY platform_payment_id FOR UPDATE
   )
   UPDATE duebridge_partner.payment_processing AS begun
      SET claimed_by = $2, claimed_at = coalesce(begun.claimed_at, clock_timestamp())
     FROM held WHERE begun.platform_payment_id = held.platform_payment_id
   RETURNING begun.platform_payment_id, held.claimed_by IS NULL AS is_known, held.claimed_at IS NULL AS is_first`);

/** A claim. */
export interface Claim {
  /** The outcome is known: the payment was never handed over, or the last answer was `later`. */
  readonly is_known: boolean;
  /** It was never claimed before. */
  readonly is_first: boolean;
}

/**
 * Claims payments for replica `by`, which is about to hand them to the biller's own system; returns those that it may hand over. From then
 * on no other replica does, and nobody cancels them.
 */
export async function claimPayments(
  tx: Transaction,
  ids: readonly string[],
  by: string,
): Promise<Map<string, Claim>> {
  const rows = await tx.query<Claim & { platform_payment_id: string }>(claimStatement, [ids, by]);
  return new Map(rows.map(({ platform_payment_id: id, ...claim }) => [id, claim]));
}
