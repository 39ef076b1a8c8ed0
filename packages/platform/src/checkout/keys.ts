/**
 * Stage 1: authentication. Client ids and API keys of the token endpoint (AU1, decision 6).
 *
 * enters: the two headers of a request.  leaves: the client and its partner, or a Refusal.
 * holds:  the key itself is shown once, when it is issued, and never stored: the database holds its HMAC under a pepper that is
 *         kept outside the database. A client may have two active keys, so that it can rotate them without a gap. A revoked key is
 *         refused here at once and at every other replica within `CACHE_MS`; an expired one within `CACHE_MS` of its expiry.
 * next:   token.ts.
 */
import { createHmac, randomBytes, timingSafeEqual, type KeyObject } from 'node:crypto';
import zlib from 'node:zlib';
import { Refusal, type ClientKeyGrant, type ClientKeyView, type Mode } from '@duebridge/contract';
import { constraintOf, sql, type Clock, type Database, type Log } from '@duebridge/runtime';

/** How long a key read from the database is cached; bounds how late a revocation takes effect. */
const CACHE_MS = 5_000;
/** Clients cached at most. A deployment has tens; unknown ids are never cached. */
const MAX_CACHED_CLIENTS = 10_000;
/** How often key use is saved: `last_used_at` tells unused keys from used ones and need not be exact to the second. */
const LAST_USED_EVERY_MS = 30_000;

/** The form of an issued key. Anything else is rejected without a query. */
const CLIENT_ID_PATTERN = /^dbc_[0-9a-f]{32}$/;
/** The beginning of a key that is stored: its prefix and four characters. */
const SHOWN_LENGTH = 'dbk_live_'.length + 4;
const KEY_ID_PATTERN = /^key_[0-9a-f]{16}$/;

/** Whose credentials a request carried. */
export interface Client {
  readonly client_id: string;
  readonly partner_id: string;
  readonly key_id: string;
}

/** Issues, rotates, verifies and revokes API keys. */
export interface ClientKeys {
  /**
   * Issues a key for a new client of the partner, or a second one for an existing client (rotation). The key is returned only here.
   * It expires after `validForDays`; undefined means never.
   * Throws Refusal NOT_FOUND for a client that is not the partner's, CONFLICT when two keys are active.
   */
  issue(
    partner_id: string,
    client_id: string | undefined,
    actor: string,
    validForDays?: number,
  ): Promise<ClientKeyGrant>;
  /** All keys of a partner, oldest first, without their secrets. */
  list(partner_id: string): Promise<ClientKeyView[]>;
  /** Revokes a key; revoking it again changes nothing. Throws Refusal NOT_FOUND for a key that is not the partner's. */
  revoke(partner_id: string, key_id: string, actor: string): Promise<ClientKeyView>;
  /**
   * Identifies the client by its credentials. Throws Refusal NOT_FOUND for a client id that was never issued (ER1) and UNAUTHORIZED
   * for a missing header and for a wrong, expired or revoked key, after the same work as for a right one (decision 6).
   */
  verify(client_id: string | undefined, api_key: string | undefined): Promise<Client>;
  /** Saves which keys were used since the last call. The server calls it periodically and when it stops. */
  flushUsed(): Promise<void>;
}

interface CachedClient {
  readonly readAt: number;
  readonly keys: Promise<readonly ActiveKey[]>;
}

interface ActiveKey {
  readonly partner_id: string;
  readonly key_id: string | null;
  readonly digest: Buffer | null;
}

interface KeyRow {
  mode: Mode;
  client_id: string;
  key_id: string;
  created_at: string;
  last_used_at: string | null;
  expires_at: string | null;
  revoked_at: string | null;
}

const insertClient = sql(
  'keys_insert_client',
  'INSERT INTO duebridge_platform.clients (client_id, partner_id) VALUES ($1, $2)',
);
/** Frees the slots of expired keys. */
const retireExpired = sql(
  'keys_retire_expired',
  `UPDATE duebridge_platform.client_keys k SET revoked_at = expires_at FROM duebridge_platform.clients c
    WHERE k.client_id = $1 AND c.client_id = k.client_id AND c.partner_id = $2 AND revoked_at IS NULL AND expires_at <= now()`,
);
/** The lowest free slot of two. If none is free this is slot 3, which a table constraint rejects. */
const insertKey = sql(
  'keys_insert_key',
  `WITH issued AS (
     INSERT INTO duebridge_platform.client_keys AS made (key_id, client_id, slot, prefix, digest, expires_at)
     SELECT $1, client_id, (SELECT min(slot) FROM generate_series(1, 3) AS slot
              WHERE slot NOT IN (SELECT k.slot FROM duebridge_platform.client_keys k
                                  WHERE k.client_id = c.client_id AND k.revoked_at IS NULL)), $3, $4, now() + $7::int * interval '1 day'
       FROM duebridge_platform.clients c WHERE client_id = $2 AND partner_id = $5
     RETURNING made.key_id, made.client_id, made.expires_at
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
     SELECT $6, 'key_issued', $5, jsonb_strip_nulls(jsonb_build_object('client_id', client_id, 'key_id', key_id,
                                         'valid_for_days', $7::int)) FROM issued
   )
   SELECT expires_at FROM issued`,
);
const selectMode = sql(
  'keys_mode',
  'SELECT mode FROM duebridge_platform.partners WHERE partner_id = $1',
);
const selectKey = sql(
  'keys_of_id',
  `SELECT p.mode, client_id, key_id, k.created_at, last_used_at, expires_at, revoked_at
     FROM duebridge_platform.client_keys k JOIN duebridge_platform.clients c USING (client_id)
     JOIN duebridge_platform.partners p USING (partner_id)
    WHERE c.partner_id = $1 AND key_id = $2`,
);
const selectKeys = sql(
  'keys_of_partner',
  `SELECT p.mode, client_id, key_id, k.created_at, last_used_at, expires_at, revoked_at
     FROM duebridge_platform.client_keys k JOIN duebridge_platform.clients c USING (client_id)
     JOIN duebridge_platform.partners p USING (partner_id)
    WHERE c.partner_id = $1 ORDER BY k.created_at, key_id`,
);
const revokeKey = sql(
  'keys_revoke',
  `WITH revoked AS (
     UPDATE duebridge_platform.client_keys k SET revoked_at = now()
       FROM duebridge_platform.clients c
      WHERE k.key_id = $2 AND c.client_id = k.client_id AND c.partner_id = $1 AND k.revoked_at IS NULL
     RETURNING k.client_id, k.key_id
   )
   INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
   SELECT $3, 'key_revoked', $1, jsonb_build_object('client_id', client_id, 'key_id', key_id) FROM revoked`,
);
/** A client without an active key still returns a row: it is known (401), unlike one that was never issued (404). */
const selectActive = sql(
  'keys_active',
  `SELECT c.partner_id, k.key_id, k.digest
     FROM duebridge_platform.clients c LEFT JOIN duebridge_platform.client_keys k
       ON k.client_id = c.client_id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
    WHERE c.client_id = $1`,
);
const updateUsed = sql(
  'keys_used',
  'UPDATE duebridge_platform.client_keys SET last_used_at = now() WHERE key_id = ANY ($1)',
);

/** Opens the keys over a database. `pepper` is the server's secret of 32 bytes or more; without it no stored digest can be tried. */
export function openClientKeys(options: {
  database: Database;
  pepper: KeyObject;
  clock: Clock;
  log: Log;
}): ClientKeys {
  const { database, pepper, clock, log } = options;
  const cache = new Map<string, CachedClient>();
  const used = new Set<string>();
  let usedFlushedAt = clock.monotonic();
  const digestOf = (key: string): Buffer => createHmac('sha256', pepper).update(key).digest();
  /** Compared with when the client has no key, so that the work is the same. */
  const nobody = randomBytes(32);

  const activeKeys = (client_id: string): Promise<readonly ActiveKey[]> => {
    const now = clock.monotonic();
    const cached = cache.get(client_id);
    if (cached !== undefined && now - cached.readAt < CACHE_MS) return cached.keys;
    // The age counts from before the read, so that a cached entry is never older than CACHE_MS.
    const keys = database.query<ActiveKey>(selectActive, [client_id]);
    if (cache.size >= MAX_CACHED_CLIENTS) cache.clear();
    cache.set(client_id, { readAt: now, keys });
    const forget = (): void => {
      if (cache.get(client_id)?.keys === keys) cache.delete(client_id);
    };
    keys.then((rows) => (rows.length === 0 ? forget() : undefined), forget);
    return keys;
  };

  const flushUsed = async (): Promise<void> => {
    usedFlushedAt = clock.monotonic();
    if (used.size === 0) return;
    const ids = [...used];
    used.clear();
    await database.query(updateUsed, [ids]);
  };

  const noteUse = (key_id: string): void => {
    used.add(key_id);
    if (clock.monotonic() - usedFlushedAt < LAST_USED_EVERY_MS) return;
    flushUsed().catch((error: unknown) => {
      log.warn({ error }, 'could not save API key last-used times');
    });
  };

  return {
    async issue(partner_id, client_id, actor, validForDays) {
      const id = client_id ?? `dbc_${randomBytes(16).toString('hex')}`;
      const [partner] = await database.query<{ mode: Mode }>(selectMode, [partner_id]);
      if (partner === undefined) throw new Refusal('NOT_FOUND');
      const { mode } = partner;
      const api_key = newApiKey(mode);
      const key_id = `key_${randomBytes(8).toString('hex')}`;
      const rows = await database
        .transaction(async (tx) => {
          if (client_id === undefined) await tx.query(insertClient, [id, partner_id]);
          else await tx.query(retireExpired, [id, partner_id]);
          return tx.query<{ expires_at: string | null }>(insertKey, [
            key_id,
            id,
            api_key.slice(0, SHOWN_LENGTH),
            digestOf(api_key),
            partner_id,
            actor,
            validForDays ?? null,
          ]);
        })
        .catch((error: unknown) => {
          switch (constraintOf(error)) {
            case 'client_keys_slot_check':
            case 'client_keys_two_active':
              throw new Refusal('CONFLICT', {
                message: 'The client has two active keys already: revoke one first',
              });
            default:
              throw error;
          }
        });
      const [issued] = rows;
      if (issued === undefined) throw new Refusal('NOT_FOUND');
      cache.delete(id);
      const { expires_at } = issued;
      return { partner_id, mode, client_id: id, key_id, api_key, expires_at };
    },

    async list(partner_id) {
      return database.query<KeyRow>(selectKeys, [partner_id]);
    },

    async revoke(partner_id, key_id, actor) {
      // Ids come from a path. Ids that we cannot have issued are not sent to the database, which rejects some characters.
      if (!KEY_ID_PATTERN.test(key_id)) throw new Refusal('NOT_FOUND');
      await database.query(revokeKey, [partner_id, key_id, actor]);
      const [row] = await database.query<KeyRow>(selectKey, [partner_id, key_id]);
      if (row === undefined) throw new Refusal('NOT_FOUND');
      cache.delete(row.client_id);
      return row;
    },

    async verify(client_id, api_key) {
      const keys =
        client_id === undefined || !CLIENT_ID_PATTERN.test(client_id)
          ? []
          : await activeKeys(client_id);
      const digest = digestOf(api_key ?? '');
      // Every request makes two comparisons, so that timing reveals neither the number of keys nor which one matched.
      let match: ActiveKey | undefined;
      for (const key of [keys[0], keys[1]]) {
        const stored = key?.digest ?? null;
        if (timingSafeEqual(digest, stored ?? nobody) && stored !== null) match = key;
      }
      if (client_id === undefined || api_key === undefined) throw unauthorized();
      if (keys.length === 0) {
        log.info({ what: 'client' }, 'no token: what was named is unknown');
        // The client has no mode that could be known; its key says which it was made for.
        throw notFound('client', api_key.startsWith('dbk_test_') ? 'test' : 'live');
      }
      if (match === undefined || match.key_id === null) throw unauthorized();
      noteUse(match.key_id);
      return { client_id, partner_id: match.partner_id, key_id: match.key_id };
    },

    flushUsed,
  };
}

/**
 * The one answer of the interface for an unknown client and an unknown account (ER1). In test mode a header says which it was: the
 * engineer of a partner cannot see the log.
 */
export function notFound(what: 'client' | 'account', mode: Mode): Refusal {
  return new Refusal('NOT_FOUND', {
    headers: mode === 'test' ? { 'Duebridge-Not-Found': what } : {},
  });
}

/** A 401 names its scheme (RFC 9110 section 15.5.2); ours is not a registered one, so it names the header to fix. */
function unauthorized(): Refusal {
  return new Refusal('UNAUTHORIZED', {
    headers: { 'WWW-Authenticate': 'ApiKey header="X-Api-Key"' },
  });
}

/**
 * A key of 256 random bits, with a prefix and a checksum by which secret scanners recognize it with certainty.
 * The checksum is never verified here: rejecting by checksum would be faster than rejecting by digest, and so
 * leak timing. The prefix says which mode it is for: a person sees it, and so does whoever finds the key where it should not be.
 */
function newApiKey(mode: Mode): string {
  const secret = randomBytes(32);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(zlib.crc32(secret));
  return `dbk_${mode}_${Buffer.concat([secret, checksum]).toString('base64url')}`;
}
