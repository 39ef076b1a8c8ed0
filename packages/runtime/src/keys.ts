/**
 * Keys that a server issues to programs and people: random, shown once, stored as digests under a pepper that is kept outside the
 * database.
 *
 * holds: an owner has at most two active keys, so that one is replaced without a gap; an expired key makes room by itself. What was
 *        read is remembered for five seconds, which bounds how late a revocation takes effect elsewhere. Unknown keys that arrive
 *        together are looked up in one statement, so that guessing takes one connection and not the pool.
 */
import { createHmac, randomBytes, timingSafeEqual, type KeyObject } from 'node:crypto';
import zlib from 'node:zlib';
import { Refusal } from '@duebridge/contract';
import type { Clock } from './clock.ts';
import { groupCommit } from './group-commit.ts';
import { constraintOf, sql, type Database, type Statement, type Transaction } from './postgres.ts';

/** How long what was read of a key is remembered. */
const REMEMBER_MS = 5_000;
/** How often at most the use of one key is written: it tells used keys from unused ones. */
const LAST_USED_EVERY_MS = 30_000;
/** Digests of one statement, and at most waiting. */
const [DIGESTS_AT_ONCE, MAX_DIGESTS] = [500, 10_000];

/**
 * A key of 256 random bits. `checksum` adds one by which secret scanners recognise it with certainty; it is never verified, because
 * refusing by it would be faster than refusing by the digest.
 */
export function newKey(prefix: string, options: { readonly checksum?: boolean } = {}): string {
  const secret = randomBytes(32);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(zlib.crc32(secret));
  const bytes = options.checksum === true ? Buffer.concat([secret, checksum]) : secret;
  return `${prefix}${bytes.toString('base64url')}`;
}

/** What is stored of a key; `purpose` keeps the digests of one kind from being those of another. */
export function keyDigest(pepper: KeyObject, key: string, purpose = ''): Buffer {
  return createHmac('sha256', pepper).update(purpose).update(key).digest();
}

const nobody = randomBytes(32);

/**
 * The one of at most two stored keys that `digest` is, or undefined. Always two comparisons, so that timing tells neither how many keys
 * there are nor which one it was.
 */
export function matchingKey<Key extends { readonly digest: Buffer | null }>(
  digest: Buffer,
  keys: readonly Key[],
): Key | undefined {
  let match: Key | undefined;
  for (const key of [keys[0], keys[1]]) {
    const stored = key?.digest ?? null;
    if (timingSafeEqual(digest, stored ?? nobody) && stored !== null) match = key;
  }
  return match;
}

/** Answers that are remembered for a short time, by name. Failures are not. */
export interface Remembered<T> {
  get(name: string, read: () => Promise<T>): Promise<T>;
  forget(name?: string): void;
}

/** `keep`: whether an answer is worth remembering; strangers could fill the memory with absences. */
export function remember<T>(options: {
  readonly clock: Clock;
  readonly max: number;
  readonly keep?: (answer: T) => boolean;
  /** Default: five seconds. */
  readonly forMs?: number;
}): Remembered<T> {
  const { clock, max, keep = () => true, forMs = REMEMBER_MS } = options;
  const known = new Map<string, { readonly at: number; readonly answer: Promise<T> }>();
  return {
    get(name, read) {
      // Counted from before the read, so that nothing older than the limit is believed.
      const at = clock.monotonic();
      const before = known.get(name);
      if (before !== undefined && at - before.at < forMs) return before.answer;
      if (known.size >= max) known.clear();
      const entry = { at, answer: read() };
      known.set(name, entry);
      const forget = (): void => {
        if (known.get(name) === entry) known.delete(name);
      };
      entry.answer.then((answer) => (keep(answer) ? undefined : forget()), forget);
      return entry.answer;
    },
    forget(name) {
      if (name === undefined) known.clear();
      else known.delete(name);
    },
  };
}

/**
 * Looks up the rows of digests. What is asked for at the same time is looked up in one statement, one after the other. The statement
 * takes an array of digests and returns `column` with each row.
 */
export function digestLookUp<Row>(
  database: Database,
  statement: Statement,
  column: string,
): (digest: Buffer) => Promise<Row | undefined> {
  const lookUps = groupCommit<Buffer, Row | undefined>({
    maxBatch: DIGESTS_AT_ONCE,
    maxQueued: MAX_DIGESTS,
    async flush(digests) {
      const rows = await database.query<Row & Readonly<Record<string, Buffer>>>(statement, [
        digests,
      ]);
      const found = new Map(rows.map((row) => [row[column]?.toString('hex'), row]));
      return digests.map((digest) => found.get(digest.toString('hex')));
    },
  });
  return (digest) => lookUps.add(digest);
}

/** The condition that key `k` of a table is active. */
export const KEY_IS_ACTIVE =
  'k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())';

/** Issues and revokes the keys of one table. */
export interface KeyStore {
  /**
   * Issues a key in a transaction; `days` until it expires, or never. Throws Refusal CONFLICT when two are active; the transaction is then
   * over.
   */
  issue(
    tx: Transaction,
    owner: string,
    key: { readonly digest: Buffer; readonly days?: number | undefined; readonly shown?: string },
  ): Promise<{ readonly key_id: string; readonly expires_at: string | null }>;
  /** True when it was active until now. Throws Refusal NOT_FOUND for a key that is not the owner's. */
  revoke(tx: Transaction, owner: string, key_id: string): Promise<boolean>;
  /** Writes that a key was used, not at each use; a failure is made good by the next one. */
  used(key_id: string): void;
}

/**
 * Opens the keys of a table with the columns key_id, the owner's, slot, digest, expires_at, revoked_at and last_used_at, whose
 * constraints admit two active slots. `shownColumn` keeps the beginning of a key.
 */
export function openKeyStore(options: {
  readonly database: Database;
  readonly clock: Clock;
  readonly table: string;
  readonly ownerColumn: string;
  readonly idPrefix: string;
  readonly shownColumn?: string;
  /** For the refusal: `The client`. */
  readonly owner: string;
}): KeyStore {
  const { database, clock, table, ownerColumn, idPrefix, shownColumn } = options;
  const name = table.replace(/^.*\./, '');
  const retire = sql(
    `${name}_retire`,
    `UPDATE ${table} SET revoked_at = expires_at WHERE ${ownerColumn} = $1 AND revoked_at IS NULL AND expires_at <= now()`,
  );
  // The lowest free slot of two. If none is free this is slot 3, which a table constraint rejects.
  const insert = sql(
    `${name}_issue`,
    `INSERT INTO ${table} (key_id, ${ownerColumn}, slot, digest, expires_at${shownColumn === undefined ? '' : `, ${shownColumn}`})
     SELECT $1, $2, (SELECT min(slot) FROM generate_series(1, 3) AS slot
              WHERE slot NOT IN (SELECT k.slot FROM ${table} k WHERE k.${ownerColumn} = $2 AND k.revoked_at IS NULL)),
            $3::bytea, now() + $4::int * interval '1 day'${shownColumn === undefined ? '' : ', $5'}
     RETURNING expires_at`,
  );
  const lock = sql(
    `${name}_lock`,
    `SELECT revoked_at IS NULL AS active FROM ${table} WHERE ${ownerColumn} = $1 AND key_id = $2 FOR UPDATE`,
  );
  const revoke = sql(`${name}_revoke`, `UPDATE ${table} SET revoked_at = now() WHERE key_id = $1`);
  const use = sql(`${name}_used`, `UPDATE ${table} SET last_used_at = now() WHERE key_id = $1`);
  const idPattern = new RegExp(`^${idPrefix}[0-9a-f]{16}$`);
  const usedAt = new Map<string, number>();
  return {
    async issue(tx, owner, { digest, days, shown }) {
      const key_id = `${idPrefix}${randomBytes(8).toString('hex')}`;
      await tx.query(retire, [owner]);
      const values = [key_id, owner, digest, days ?? null];
      const [made] = await tx
        .query<{ expires_at: string | null }>(
          insert,
          shownColumn === undefined ? values : [...values, shown ?? ''],
        )
        .catch((error: unknown): never => {
          const rule = constraintOf(error);
          if (rule !== `${name}_slot_check` && rule !== `${name}_two_active`) throw error;
          throw new Refusal('CONFLICT', {
            message: `${options.owner} has two active keys already: revoke one first`,
          });
        });
      return { key_id, expires_at: made?.expires_at ?? null };
    },
    async revoke(tx, owner, key_id) {
      // Ids come from a path: what we cannot have issued is not sent to the database, which rejects some characters.
      if (!idPattern.test(key_id)) throw new Refusal('NOT_FOUND');
      const [found] = await tx.query<{ active: boolean }>(lock, [owner, key_id]);
      if (found === undefined) throw new Refusal('NOT_FOUND');
      if (found.active) await tx.query(revoke, [key_id]);
      return found.active;
    },
    used(key_id) {
      const now = clock.monotonic();
      if (now - (usedAt.get(key_id) ?? -Infinity) < LAST_USED_EVERY_MS) return;
      usedAt.set(key_id, now);
      database.query(use, [key_id]).catch(() => usedAt.delete(key_id));
    },
  };
}
