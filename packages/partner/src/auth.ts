/**
 * Who may call the partner's operations (S3): OAuth 2.0 client credentials (OA1-OA4, SC1), or one static key (KY1, KY2). One of the
 * two for a deployment, never both (decision 15).
 *
 * Secrets and keys are those of the configuration: one, or two during a rotation. A token ends with the secret for which it was issued.
 * Checks of tokens are answered from memory: what was read of one is remembered for five seconds (keys.ts). Secrets, keys and tokens are
 * compared, and tokens stored, as SHA-256: they are long and random, so a slower hash is not needed, and equal lengths allow a
 * constant-time comparison.
 */
import crypto, { timingSafeEqual } from 'node:crypto';
import {
  Refusal,
  SCOPES,
  type AccessTokenReply,
  type AccessTokenRequest,
  type Scope,
} from '@duebridge/contract';
import {
  ConfigurationError,
  digestLookUp,
  newKey,
  OAuthRefusal,
  rateLimiter,
  remember,
  sql,
} from '@duebridge/runtime';
import type { IncomingHttpHeaders } from 'node:http';
import type { KitContext } from './metrics.ts';

/** Option 1 of the interface: the client application that the partner created for the platform (OA1). */
export interface OAuthOptions {
  readonly method: 'oauth';
  readonly client_id: string;
  /** One secret, or two during a rotation: both are valid (F67). */
  readonly secrets: readonly string[];
}

/** Option 2: the header is the partner's choice, with the key as its whole value in either form (KY2). */
export interface KeyOptions {
  readonly method: 'key';
  /** Such as `x-api-key` or `Authorization`. */
  readonly header: string;
  /** One key, or two during a rotation. */
  readonly keys: readonly string[];
}

/** How the operations are protected. */
export type AuthOptions = OAuthOptions | KeyOptions;

/** Life of an access token in seconds: the interface's sample. */
const TOKEN_SECONDS = 3_600;
/** Tokens kept in memory; a platform uses one for each of its processes. */
const MAX_REMEMBERED = 10_000;
/** Shortest secret or key: 16 characters of a random text are beyond guessing. */
const MIN_SECRET_LENGTH = 16;
/** Failed attempts per second, and the burst; beyond it they get 429. They do not count against the right secret. */
const failures = { perSecond: 1, burst: 20 };
/**
 * Access tokens per second, and the burst. A process of a platform takes one in 48 minutes, so this is for hundreds that
 * start at once; one that takes a token for each call would fill the table and write for each read.
 */
const issues = { perSecond: 10, burst: 200 };

/** The name of the caller where a static key protects the operations. */
const KEY_HOLDER = 'static-key';

/**
 * Creates what decides who may call. Its `client_id` is the one caller: stored with its payments and in the audit, and never read to decide
 * anything. Throws ConfigurationError when the options are not usable.
 */
export function openAuthenticator(
  options: Pick<KitContext, 'database' | 'clock'> & { readonly auth: AuthOptions },
) {
  const { auth } = options;
  return auth.method === 'oauth' ? oauthAuthenticator(auth, options) : keyAuthenticator(auth);
}

// Static key ---------------------------------------------------------------------------------------------------------------

/** Headers that mean something else to Node, to proxies or to us; a key in one of them would be lost or logged. */
const UNUSABLE_HEADERS =
  /^(host|connection|cookie|content-.*|transfer-encoding|te|trailer|upgrade|expect|prefer|forwarded|via|x-forwarded-.*|x-request-id|accept.*|date)$/i;

function keyAuthenticator(options: KeyOptions) {
  const header = options.header.toLowerCase();
  if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(header) || UNUSABLE_HEADERS.test(header)) {
    throw new ConfigurationError('the header of the static key must be an ordinary header name');
  }
  checkSecrets(options.keys, 'static key', 'auth.keys');
  const keys = options.keys.map(sha256);
  return {
    client_id: KEY_HOLDER,
    issue: undefined,
    /** Refuses with UNAUTHORIZED. */
    async authenticate(headers: IncomingHttpHeaders): Promise<void> {
      // The whole value, byte for byte: `Bearer KEY` is not the key (KY2, decision 15).
      const given = headers[header];
      if (typeof given === 'string' && isOneOf(sha256(given), keys)) return;
      throw new Refusal('UNAUTHORIZED', {
        headers: { 'WWW-Authenticate': `ApiKey header="${header}"` },
      });
    },
  };
}

/** `where`: the option that takes them. */
function checkSecrets(secrets: readonly string[], what: string, where: string): void {
  // From process.env, without a compiler that would have said so.
  if (!Array.isArray(secrets) || secrets.some((secret) => typeof secret !== 'string')) {
    throw new ConfigurationError(`the ${what} is not set (${where})`);
  }
  if (secrets.length < 1 || secrets.length > 2) {
    throw new ConfigurationError(`give one ${what}, or two during a rotation`);
  }
  for (const secret of secrets) {
    if (!/^[\u0021-\u007e]+$/.test(secret) || secret.length < MIN_SECRET_LENGTH) {
      throw new ConfigurationError(
        `a ${what} must be at least ${MIN_SECRET_LENGTH} visible ASCII characters, without spaces`,
      );
    }
  }
}

const sha256 = (text: string): Buffer => crypto.hash('sha256', text, 'buffer');

/** Compares with all of them whatever the outcome, so that timing reveals nothing. */
function isOneOf(digest: Buffer, digests: readonly Buffer[]): boolean {
  return digests.filter((known) => timingSafeEqual(digest, known)).length > 0;
}

// OAuth --------------------------------------------------------------------------------------------------------------------

/** The cached data of a valid token. Times are of the monotonic clock. */
interface KnownToken {
  readonly scopes: readonly string[];
  readonly expiresAt: number;
}

interface TokenRow {
  readonly client_id: string;
  readonly scope: string;
  /** Null for a token that the version before issued. */
  readonly secret_sha256: Buffer | null;
  readonly seconds_left: number;
}

const issueStatement = sql(`
   INSERT INTO duebridge_partner.access_token (token_sha256, client_id, secret_sha256, scope, expires_at)
   VALUES ($1, $2, $3, $4, clock_timestamp() + $5::int * interval '1 second')`);

// The version before revoked tokens.
const findTokenStatement = sql(`
   SELECT token_sha256, client_id, secret_sha256, scope, extract(epoch FROM expires_at - clock_timestamp())::float8 AS seconds_left
     FROM duebridge_partner.access_token
    WHERE token_sha256 = ANY($1::bytea[]) AND revoked_at IS NULL AND expires_at > clock_timestamp()`);

// Delete a few expired tokens with every token issued, which keeps the table as small as the set of live tokens.
const forgetStatement = sql(`
   DELETE FROM duebridge_partner.access_token WHERE token_sha256 IN (
     SELECT token_sha256 FROM duebridge_partner.access_token WHERE expires_at < clock_timestamp() - interval '1 day' LIMIT 10)`);

function oauthAuthenticator(
  { client_id, secrets }: OAuthOptions,
  { database, clock }: Pick<KitContext, 'database' | 'clock'>,
) {
  if (!/^[\u0020-\u007e]{1,128}$/.test(client_id)) {
    throw new ConfigurationError('a client_id must be 1 to 128 printable ASCII characters');
  }
  checkSecrets(secrets, 'client secret', 'auth.secrets');
  const digests = secrets.map(sha256);
  // Unknown tokens are not kept: invented ones would push out those in use.
  const known = remember<KnownToken | undefined>({
    clock,
    max: MAX_REMEMBERED,
    keep: (token) => token !== undefined,
  });
  const lookUp = digestLookUp<TokenRow>(database, findTokenStatement, 'token_sha256');
  const failed = rateLimiter({ ...failures, maxKeys: 1, clock });
  const issued = rateLimiter({ ...issues, maxKeys: 1, clock });

  const look = async (token: string): Promise<KnownToken | undefined> => {
    const askedAt = clock.monotonic();
    const row = await lookUp(sha256(token));
    // A client or a secret that is no longer configured is refused with its tokens that have not expired.
    if (row?.client_id !== client_id) return undefined;
    if (row.secret_sha256 !== null && !isOneOf(row.secret_sha256, digests)) return undefined;
    return { scopes: row.scope.split(' '), expiresAt: askedAt + row.seconds_left * 1000 };
  };

  return {
    client_id,
    /** Refuses with UNAUTHORIZED or INSUFFICIENT_SCOPE; else the caller may do what the scope covers. */
    async authenticate(headers: IncomingHttpHeaders, scope: Scope): Promise<void> {
      const token = bearerToken(headers.authorization);
      const found = await known.get(token, () => look(token));
      if (!found || clock.monotonic() >= found.expiresAt) throw invalidToken();
      if (!found.scopes.includes(scope)) {
        throw new Refusal('INSUFFICIENT_SCOPE', {
          headers: { 'WWW-Authenticate': `Bearer error="insufficient_scope", scope="${scope}"` },
        });
      }
    },

    /** Issues an access token. Throws OAuthRefusal, or Refusal TOO_MANY_REQUESTS for too many wrong secrets or too many tokens. */
    issue: async (form: AccessTokenRequest): Promise<AccessTokenReply> => {
      // Both are compared whatever the other is, so that timing reveals nothing.
      const secret = sha256(form.client_secret ?? '');
      const isRight = isOneOf(secret, digests);
      if (!isOneOf(sha256(form.client_id ?? ''), [sha256(client_id)]) || !isRight) {
        throw (
          failed.take('') ??
          new OAuthRefusal('invalid_client', 'The client is not known or its secret is wrong')
        );
      }
      if (form.grant_type !== 'client_credentials') {
        throw new OAuthRefusal('unsupported_grant_type', 'grant_type must be client_credentials');
      }
      const scopes = grantedScopes(form.scope);
      const refusal = issued.take('');
      if (refusal) throw refusal;
      const access_token = newKey('dbp_');
      const scope = scopes.join(' ');
      const values = [sha256(access_token), client_id, secret, scope, TOKEN_SECONDS];
      await database.query(issueStatement, values);
      await database.query(forgetStatement, []);
      return { access_token, token_type: 'Bearer', expires_in: TOKEN_SECONDS, scope };
    },
  };
}

/** The token of `Authorization: Bearer TOKEN` (OA4). A token that cannot be ours is refused without a query. */
function bearerToken(authorization: string | undefined): string {
  if (authorization === undefined) {
    throw new Refusal('UNAUTHORIZED', { headers: { 'WWW-Authenticate': 'Bearer' } });
  }
  const token = /^Bearer +(dbp_[A-Za-z0-9_-]{43})$/i.exec(authorization)?.[1];
  if (token === undefined) throw invalidToken();
  return token;
}

function invalidToken(): Refusal {
  return new Refusal('UNAUTHORIZED', {
    headers: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
  });
}

/** The scopes asked for, or both when none were (RFC 6749 section 3.3). */
function grantedScopes(asked: string | undefined): readonly Scope[] {
  const words = (asked ?? '').split(' ').filter((word) => word !== '');
  if (words.some((word) => !SCOPES.some((scope) => scope === word))) {
    throw new OAuthRefusal('invalid_scope', 'The scope is not known');
  }
  return words.length === 0 ? SCOPES : SCOPES.filter((scope) => words.includes(scope));
}
