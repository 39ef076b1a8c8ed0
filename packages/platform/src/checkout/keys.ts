/**
 * Stage 1: authentication. Client ids and API keys of the token endpoint (AU1, decision 6).
 *
 * enters: the two headers of a request.  leaves: the client and its partner, or a Refusal.
 * holds:  the key itself is shown once, when it is issued, and never stored: the database holds its HMAC under a pepper that is
 *         kept outside the database. A client may have two active keys, so that it can rotate them without a gap. A revoked key is
 *         refused here at once, at every other replica within five seconds, and so is an expired one.
 * next:   token.ts.
 */
import { randomBytes } from 'node:crypto';
import {
  Refusal,
  type ClientKeyGrant,
  type ClientKeyView,
  type Mode,
  type RevokedAccess,
} from '@duebridge/contract';
import { keyDigest, matchingKey, newKey, remember, sql } from '@duebridge/runtime';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { KEY_IS_ACTIVE, openKeyStore } from '../store/keys.ts';

/** Clients remembered at most. A deployment has tens; unknown ids are never remembered. */
const MAX_CLIENTS = 10_000;
/** The form of an issued client id. Anything else is rejected without a query. */
const CLIENT_ID_PATTERN = /^dbc_[0-9a-f]{32}$/;

/** Whose credentials a request carried. */
export interface Client {
  readonly client_id: string;
  readonly partner_id: string;
  readonly key_id: string;
}

interface ActiveKey {
  readonly partner_id: string;
  readonly key_id: string | null;
  readonly digest: Buffer | null;
}

const insertClient = sql(`
   INSERT INTO duebridge_platform.clients (client_id, partner_id) VALUES ($1, $2)`);
const selectClient = sql(`
   SELECT 1 FROM duebridge_platform.clients WHERE client_id = $1 AND partner_id = $2`);
const selectMode = sql(`SELECT mode FROM duebridge_platform.partners WHERE partner_id = $1`);
const selectKeys = sql(`
   SELECT p.mode, client_id, key_id, k.created_at, last_used_at, expires_at, revoked_at
     FROM duebridge_platform.client_keys k JOIN duebridge_platform.clients c USING (client_id)
     JOIN duebridge_platform.partners p USING (partner_id)
    WHERE c.partner_id = $1 ORDER BY k.created_at, key_id`);
/** A client without an active key still returns a row: it is known (401), unlike one that was never issued (404). */
const selectActive = sql(`
   SELECT c.partner_id, k.key_id, k.digest
     FROM duebridge_platform.clients c LEFT JOIN duebridge_platform.client_keys k
       ON k.client_id = c.client_id AND ${KEY_IS_ACTIVE}
    WHERE c.client_id = $1`);

/** Sessions live shorter than their token's row is kept, so every session of the client is found by its token. */
const revokeAccess = sql(`
   WITH mine AS (
     SELECT token_hash FROM duebridge_platform.tokens WHERE client_id = $1 AND partner_id = $2
   ), ended AS (
     DELETE FROM duebridge_platform.sessions s USING mine WHERE s.token_hash = mine.token_hash AND s.expires_at > now() RETURNING 1
   ), gone AS (
     DELETE FROM duebridge_platform.tokens t USING mine WHERE t.token_hash = mine.token_hash AND t.expires_at > now() RETURNING t.token_hash
   )
   SELECT (SELECT count(*) FROM ended)::int AS sessions, ARRAY(SELECT token_hash FROM gone) AS tokens`);
/** Those that were being opened: the statement above waited for their tokens, and does not see what was committed meanwhile. */
const revokeOpened = sql(`
   DELETE FROM duebridge_platform.sessions WHERE token_hash = ANY($1::bytea[]) RETURNING 1`);

/** Issues, rotates, verifies and revokes API keys. */
export type ClientKeys = ReturnType<typeof openClientKeys>;

/** Opens the keys. */
export function openClientKeys(services: Pick<Services, 'database' | 'pepper' | 'clock' | 'log'>) {
  const { database, pepper, clock, log } = services;
  const store = openKeyStore(database, clock, 'client');
  const active = remember<readonly ActiveKey[]>({
    clock,
    max: MAX_CLIENTS,
    keep: (keys) => keys.length > 0,
  });
  const list = (partner_id: string): Promise<ClientKeyView[]> =>
    database.query<ClientKeyView>(selectKeys, [partner_id]);

  return {
    /**
     * Issues a key for a new client of the partner, or a second one for an existing client (rotation). The key is returned only here.
     * It expires after `days`; undefined means never.
     * Throws Refusal NOT_FOUND for a client that is not the partner's, CONFLICT when two keys are active.
     */
    async issue(
      partner_id: string,
      given: string | undefined,
      actor: string,
      days?: number,
    ): Promise<ClientKeyGrant> {
      const client_id = given ?? `dbc_${randomBytes(16).toString('hex')}`;
      const [partner] = await database.query<{ mode: Mode }>(selectMode, [partner_id]);
      if (partner === undefined) throw new Refusal('NOT_FOUND');
      const { mode } = partner;
      // The prefix says which mode it is for: a person sees it, and so does whoever finds the key where it should not be.
      const api_key = newKey(`dbk_${mode}_`, { checksum: true });
      const owner = { id: client_id, actor, partner_id };
      const key = { digest: keyDigest(pepper, api_key), days };
      const issued = await store.issue(owner, key, async (tx) => {
        const statement = given === undefined ? insertClient : selectClient;
        const known = await tx.query(statement, [client_id, partner_id]);
        if (given !== undefined && known.length === 0) throw new Refusal('NOT_FOUND');
      });
      active.forget(client_id);
      return { partner_id, mode, client_id, api_key, ...issued };
    },

    /** All keys of a partner, oldest first, without their secrets. */
    list,

    /** Revokes a key; revoking it again changes nothing. Throws Refusal NOT_FOUND for a key that is not the partner's. */
    async revoke(partner_id: string, key_id: string, actor: string): Promise<ClientKeyView> {
      const row = (await list(partner_id)).find((one) => one.key_id === key_id);
      if (row === undefined) throw new Refusal('NOT_FOUND');
      const { client_id } = row;
      await store.revoke({ id: client_id, actor, partner_id }, key_id);
      active.forget(client_id);
      return (await list(partner_id)).find((one) => one.key_id === key_id) ?? row;
    },

    /**
     * Ends a client's tokens and sessions: after a key leaked, what was made with it must make no further payments. Confirmed payments
     * continue. Throws Refusal NOT_FOUND for a client that is not the partner's.
     */
    revokeAccess: (
      partner_id: string,
      client_id: string,
      reason: string,
      actor: string,
    ): Promise<RevokedAccess> =>
      database.transaction(async (tx) => {
        const whose = [client_id, partner_id];
        const known = await tx.query(selectClient, whose);
        if (known.length === 0) throw new Refusal('NOT_FOUND');
        const [ended] = await tx.query<{ sessions: number; tokens: Buffer[] }>(revokeAccess, whose);
        const { sessions = 0, tokens = [] } = ended ?? {};
        const opened = await tx.query(revokeOpened, [tokens]);
        const count = { sessions: sessions + opened.length, tokens: tokens.length };
        const detail = { client_id, reason, ...count };
        await note(tx, { actor, event: 'access_revoked', partner_id, detail });
        return { client_id, ...count };
      }),

    /**
     * Identifies the client by its credentials. Throws Refusal NOT_FOUND for a client id that was never issued (ER1) and UNAUTHORIZED
     * for a missing header and for a wrong, expired or revoked key, after the same work as for a right one (decision 6).
     */
    async verify(client_id: string | undefined, api_key: string | undefined): Promise<Client> {
      const keys =
        client_id === undefined || !CLIENT_ID_PATTERN.test(client_id)
          ? []
          : await active.get(client_id, () => database.query<ActiveKey>(selectActive, [client_id]));
      const match = matchingKey(keyDigest(pepper, api_key ?? ''), keys);
      if (client_id === undefined || api_key === undefined) throw unauthorized();
      if (keys.length === 0) {
        log.info({ what: 'client' }, 'no token: what was named is unknown');
        // The client has no mode that could be known; its key says which it was made for.
        throw notFound('client', api_key.startsWith('dbk_test_') ? 'test' : 'live');
      }
      if (match === undefined || match.key_id === null) throw unauthorized();
      store.used(match.key_id);
      return { client_id, partner_id: match.partner_id, key_id: match.key_id };
    },
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
