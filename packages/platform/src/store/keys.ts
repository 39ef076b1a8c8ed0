/**
 * The keys of clients and of operators: how they are issued and revoked, with their lines of the audit.
 *
 * holds: an owner has at most two active keys, so that one is replaced without a gap; an expired key makes room by itself.
 */
import { randomBytes } from 'node:crypto';
import { conflict, Refusal } from '@duebridge/contract';
import { constraintOf, sql, type Clock, type Database, type Transaction } from '@duebridge/runtime';
import { note } from './audit.ts';

/** How often at most the use of one key is written: it tells used keys from unused ones. */
const LAST_USED_EVERY_MS = 30_000;

/** The condition that key `k` of a table is active. */
export const KEY_IS_ACTIVE =
  'k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())';

/** Whose key it is, and who acts; `partner_id` for the audit. */
export interface KeyOwner {
  readonly id: string;
  readonly actor: string;
  readonly partner_id?: string;
}

/** Opens the keys of `clients` or of `operators`. */
export function openKeyStore(database: Database, clock: Clock, owners: 'client' | 'operator') {
  const isClient = owners === 'client';
  const table = `duebridge_platform.${owners}_keys`;
  const ownerColumn = `${owners}_id`;
  const idPrefix = isClient ? 'key_' : 'opk_';
  const events = isClient ? 'key' : 'operator_key';
  const retire = sql(`
     UPDATE ${table} SET revoked_at = expires_at WHERE ${ownerColumn} = $1 AND revoked_at IS NULL AND expires_at <= now()`);
  // The lowest free slot of two. If none is free this is slot 3, which a table constraint rejects.
  const insert = sql(`
     INSERT INTO ${table} (key_id, ${ownerColumn}, slot, digest, expires_at)
     SELECT $1, $2, (SELECT min(slot) FROM generate_series(1, 3) AS slot
              WHERE slot NOT IN (SELECT k.slot FROM ${table} k WHERE k.${ownerColumn} = $2 AND k.revoked_at IS NULL)),
            $3::bytea, now() + $4::int * interval '1 day'
     RETURNING key_id, expires_at`);
  const revoke = sql(`
     UPDATE ${table} SET revoked_at = now() WHERE ${ownerColumn} = $1 AND key_id = $2 AND revoked_at IS NULL RETURNING 1`);
  const known = sql(`SELECT 1 FROM ${table} WHERE ${ownerColumn} = $1 AND key_id = $2`);
  const use = sql(`UPDATE ${table} SET last_used_at = now() WHERE key_id = $1`);
  const idPattern = new RegExp(`^${idPrefix}[0-9a-f]{16}$`);
  const usedAt = new Map<string, number>();
  const noted = (tx: Transaction, act: string, { id, actor, partner_id }: KeyOwner, said: object) =>
    note(tx, {
      actor,
      event: `${events}_${act}`,
      ...(partner_id && { partner_id }),
      detail: { [ownerColumn]: id, ...said },
    });
  return {
    /**
     * Issues a key by its digest; `days` until it expires, or never. `first` runs before it in the same transaction. Throws Refusal CONFLICT
     * when two are active.
     */
    issue: (
      owner: KeyOwner,
      { digest, days }: { readonly digest: Buffer; readonly days: number | undefined },
      first: (tx: Transaction) => Promise<void>,
    ): Promise<{ readonly key_id: string; readonly expires_at: string | null }> =>
      database.transaction(async (tx) => {
        await first(tx);
        const key_id = `${idPrefix}${randomBytes(8).toString('hex')}`;
        await tx.query(retire, [owner.id]);
        const [made] = await tx
          .query<{ key_id: string; expires_at: string | null }>(insert, [
            key_id,
            owner.id,
            digest,
            days ?? null,
          ])
          .catch((error: unknown): never => {
            if (!/_keys_(slot_check|two_active)$/.test(constraintOf(error) ?? '')) throw error;
            throw conflict(`The ${owners} has two active keys already: revoke one first`);
          });
        if (made === undefined) throw new Error('a key was not kept');
        await noted(tx, 'issued', owner, { key_id, ...(days && { valid_for_days: days }) });
        return made;
      }),
    /** Revokes a key; again, it changes nothing. Throws Refusal NOT_FOUND for a key that is not the owner's. */
    async revoke(owner: KeyOwner, key_id: string): Promise<void> {
      // Ids come from a path: what we cannot have issued is not sent to the database, which rejects some characters.
      if (!idPattern.test(key_id)) throw new Refusal('NOT_FOUND');
      await database.transaction(async (tx) => {
        const revoked = await tx.query(revoke, [owner.id, key_id]);
        if (revoked.length > 0) await noted(tx, 'revoked', owner, { key_id });
        else if ((await tx.query(known, [owner.id, key_id])).length === 0)
          throw new Refusal('NOT_FOUND');
      });
    },
    /** Writes that a key was used, not at each use; a failure is made good by the next one. */
    used(key_id: string): void {
      const now = clock.monotonic();
      if (now - (usedAt.get(key_id) ?? -Infinity) < LAST_USED_EVERY_MS) return;
      usedAt.set(key_id, now);
      database.query(use, [key_id]).catch(() => usedAt.delete(key_id));
    },
  };
}
