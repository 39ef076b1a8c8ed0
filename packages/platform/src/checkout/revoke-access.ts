/**
 * Ends a client's tokens and sessions: after a key leaked, what was made with it must make no further payments. Payments already
 * confirmed continue, because their customers confirmed them.
 */
import { Refusal, type RevokedAccess } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { note } from '../store/audit.ts';

/** Sessions live shorter than their token's row is kept, so every session of the client is found by its token. */
const revokeStatement = sql(
  'access_revoke',
  `WITH mine AS (
     SELECT token_hash FROM duebridge_platform.tokens WHERE client_id = $1 AND partner_id = $2
   ), ended AS (
     DELETE FROM duebridge_platform.sessions s USING mine WHERE s.token_hash = mine.token_hash AND s.expires_at > now() RETURNING 1
   ), gone AS (
     DELETE FROM duebridge_platform.tokens t USING mine WHERE t.token_hash = mine.token_hash AND t.expires_at > now() RETURNING 1
   )
   SELECT (SELECT count(*) FROM ended)::int AS sessions, (SELECT count(*) FROM gone)::int AS tokens`,
);

/** Ends the tokens and sessions of a client. Throws Refusal NOT_FOUND for a client that is not the partner's. */
export function revokeAccess(
  database: Database,
  of: {
    readonly partner_id: string;
    readonly client_id: string;
    readonly reason: string;
    readonly actor: string;
  },
): Promise<RevokedAccess> {
  const { partner_id, client_id, reason, actor } = of;
  return database.transaction(async (tx) => {
    const known = await tx.query(
      'SELECT 1 FROM duebridge_platform.clients WHERE client_id = $1 AND partner_id = $2',
      [client_id, partner_id],
    );
    if (known.length === 0) throw new Refusal('NOT_FOUND');
    const [count = { sessions: 0, tokens: 0 }] = await tx.query<{
      sessions: number;
      tokens: number;
    }>(revokeStatement, [client_id, partner_id]);
    await note(tx, {
      actor,
      event: 'access_revoked',
      partner_id,
      detail: { client_id, reason, ...count },
    });
    return { client_id, ...count };
  });
}
