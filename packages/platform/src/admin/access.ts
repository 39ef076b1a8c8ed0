/**
 * Which tokens and sessions there are, for a person who asks why a page does not open, and the end of one of them.
 *
 * holds: nothing that opens a page is shown: a token is named by the hash under which it is stored, and accounts are masked. Rows are
 *        those that retention still keeps, until a day after their end. Payments that were confirmed go on.
 */
import { Refusal, type AccessView, type RevokedAccess } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { maskAccountId } from '../mask.ts';
import { note } from '../store/audit.ts';

/** Whose tokens. */
export interface AccessFilter {
  readonly partner_id?: string | undefined;
  readonly client_id?: string | undefined;
  /** Keyed digests of an e-mail address. */
  readonly email_digests?: readonly Buffer[] | undefined;
  /** `next_cursor` of the previous page. */
  readonly cursor?: string | undefined;
  readonly limit: number;
}

/** Maximum number of one person's records that are read; each token request makes one. */
const MAX_CUSTOMERS = 1_000;

const customersStatement = sql(
  'access_customers',
  `SELECT customer_id FROM duebridge_platform.customers WHERE email_digest = ANY($1::bytea[]) ORDER BY customer_id DESC LIMIT ${MAX_CUSTOMERS}`,
);
// In the order of an index that exists for retention: tokens are written for every visit, and no further index slows that down.
const tokensStatement = sql(
  'access_tokens',
  `SELECT encode(t.token_hash, 'hex') AS token_id, t.partner_id, t.client_id, t.account_id, t.created_at, t.expires_at,
          (extract(epoch FROM t.expires_at) * 1000000)::bigint::text AS exact, t.expires_at <= now() AS ended, t.sessions AS opened
     FROM duebridge_platform.tokens t
    WHERE ($1::text IS NULL OR t.partner_id = $1) AND ($2::text IS NULL OR t.client_id = $2)
      AND ($3::uuid[] IS NULL OR t.customer_id = ANY($3))
      AND ($4::bigint IS NULL
           OR (t.expires_at, t.token_hash) < (timestamptz 'epoch' + $4::bigint * interval '1 microsecond', decode($5, 'hex')))
    ORDER BY t.expires_at DESC, t.token_hash DESC LIMIT $6`,
);
const sessionsStatement = sql(
  'access_sessions',
  `SELECT encode(s.token_hash, 'hex') AS token_id, s.session_id, s.created_at, s.expires_at, s.expires_at <= now() AS ended
     FROM duebridge_platform.sessions s WHERE s.token_hash = ANY(SELECT decode(id, 'hex') FROM unnest($1::text[]) AS id)
    ORDER BY s.created_at`,
);
const paymentsStatement = sql(
  'access_payments',
  `SELECT encode(f.token_hash, 'hex') AS token_id, f.platform_payment_id FROM duebridge_platform.flow_payments f
    WHERE f.token_hash = ANY(SELECT decode(id, 'hex') FROM unnest($1::text[]) AS id) ORDER BY f.created_at`,
);

type Session = AccessView['sessions'][number];

/** Tokens with their sessions and payments, those that end last first. */
export async function listAccess(
  database: Database,
  filter: AccessFilter,
): Promise<{ tokens: AccessView[]; next_cursor: string | null }> {
  let customers: string[] | null = null;
  if (filter.email_digests !== undefined) {
    const rows = await database.query<{ customer_id: string }>(customersStatement, [
      filter.email_digests,
    ]);
    customers = rows.map((row) => row.customer_id);
  }
  const [at = null, id = null] = filter.cursor?.split('~') ?? [];
  const rows = await database.query<
    Omit<AccessView, 'masked_account_id' | 'sessions' | 'payments'> & {
      account_id: string | null;
      /** `expires_at` in microseconds since 1970, as PostgreSQL has it. */
      exact: string;
    }
  >(tokensStatement, [
    filter.partner_id ?? null,
    filter.client_id ?? null,
    customers,
    at,
    id,
    filter.limit + 1,
  ]);
  const page = rows.slice(0, filter.limit);
  const ids = page.map((row) => row.token_id);
  const [sessions, payments] = await Promise.all([
    database.query<Session & { token_id: string }>(sessionsStatement, [ids]),
    database.query<{ token_id: string; platform_payment_id: string }>(paymentsStatement, [ids]),
  ]);
  const last = page.at(-1);
  return {
    tokens: page.map(({ account_id, exact: _exact, ...token }) => ({
      ...token,
      masked_account_id: account_id === null ? null : maskAccountId(account_id),
      sessions: sessions
        .filter((one) => one.token_id === token.token_id)
        .map(({ token_id: _id, ...session }) => session),
      payments: payments
        .filter((one) => one.token_id === token.token_id)
        .map((one) => one.platform_payment_id),
    })),
    next_cursor:
      rows.length > filter.limit && last !== undefined ? `${last.exact}~${last.token_id}` : null,
  };
}

const endSessionsStatement = sql(
  'access_end_sessions',
  `DELETE FROM duebridge_platform.sessions WHERE token_hash = decode($1, 'hex') AND expires_at > now() RETURNING 1`,
);
const endTokenStatement = sql(
  'access_end_token',
  `DELETE FROM duebridge_platform.tokens WHERE token_hash = decode($1, 'hex') AND expires_at > now() RETURNING 1`,
);

/** Ends one token and its sessions. Throws Refusal NOT_FOUND. */
export function endAccess(
  database: Database,
  of: { readonly token_id: string; readonly reason: string; readonly actor: string },
): Promise<RevokedAccess> {
  const { token_id, reason, actor } = of;
  return database.transaction(async (tx) => {
    const [token] = await tx.query<{ client_id: string; partner_id: string }>(
      `SELECT client_id, partner_id FROM duebridge_platform.tokens WHERE token_hash = decode($1, 'hex')`,
      [token_id],
    );
    if (token === undefined) throw new Refusal('NOT_FOUND');
    const { client_id, partner_id } = token;
    const sessions = (await tx.query(endSessionsStatement, [token_id])).length;
    const tokens = (await tx.query(endTokenStatement, [token_id])).length;
    const detail = { client_id, token_id, reason, tokens, sessions };
    await note(tx, { actor, event: 'access_revoked', partner_id, detail });
    return { client_id, tokens, sessions };
  });
}
