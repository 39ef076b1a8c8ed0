/**
 * Who operates the platform: people with a key or an OpenID Connect identity each, and a role (decision 38).
 *
 * enters: a bearer key, or the cookie of a console session.  leaves: the operator, whose id is the actor of every audit line.
 * holds:  keys are stored as digests under the pepper; the deployment's own admin key (DUEBRIDGE_ADMIN_KEY) is an operator with
 *         the role admin that is in no table, so that nobody is ever locked out. A revoked key, a disabled operator and a changed
 *         role count here at once and at every other replica within five seconds.
 */
import crypto, { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import {
  conflict,
  Refusal,
  roleCovers,
  type AnyRole,
  type OperatorChange,
  type OperatorKeyGrant,
  type OperatorRegistration,
  type OperatorRole,
  type OperatorView,
} from '@duebridge/contract';
import {
  constraintOf,
  digestLookUp,
  keyDigest,
  newKey,
  remember,
  sql,
  type Clock,
  type Database,
  type Remembered,
  type Statement,
} from '@duebridge/runtime';
import type { Services } from '../services.ts';
import { note } from '../store/audit.ts';
import { KEY_IS_ACTIVE, openKeyStore } from '../store/keys.ts';

/** Operators and sessions remembered at most. */
const MAX_REMEMBERED = 1_000;
/** Lifetime of a console session: a working day. */
const SESSION_HOURS = 10;
/** Minimum interval between two audit lines about refused keys, so that guessing keys cannot fill the audit (decision 38). */
const REFUSED_EVERY_MS = 60_000;

const KEY_PATTERN = /^dbo_[A-Za-z0-9_-]{43}$/;

/** The caller. */
export interface Operator {
  /** The name recorded in the audit. */
  readonly actor: string;
  readonly name: string;
  readonly role: AnyRole;
  /** The one partner that it sees; null for those who see all. */
  readonly partner_id: string | null;
  /** The key that was used; null for the deployment's own key and for OpenID Connect. */
  readonly key_id: string | null;
  /** For a console session: every change must carry it in X-CSRF-Token. */
  readonly csrf: string | null;
}

/** The deployment's own key, as an operator. */
const adminOperator: Operator = {
  actor: 'admin-key',
  name: 'Admin key',
  role: 'admin',
  partner_id: null,
  key_id: null,
  csrf: null,
};

/** The columns of an Operator `o` with a key `k`. */
const OPERATOR = 'o.operator_id AS actor, o.name, o.role, o.partner_id, k.key_id, NULL AS csrf';
const byKeyStatement = sql(`
   SELECT ${OPERATOR}, k.digest
     FROM duebridge_platform.operator_keys k JOIN duebridge_platform.operators o USING (operator_id)
    WHERE k.digest = ANY ($1::bytea[]) AND ${KEY_IS_ACTIVE} AND o.disabled_at IS NULL`);
/** A session ends with the key that opened it, and with its operator. */
const bySessionStatement = sql(`
   SELECT coalesce(o.operator_id, '${adminOperator.actor}') AS actor, coalesce(o.name, '${adminOperator.name}') AS name,
          coalesce(o.role, '${adminOperator.role}') AS role, o.partner_id, s.key_id, s.csrf
     FROM duebridge_platform.operator_sessions s
     LEFT JOIN duebridge_platform.operators o USING (operator_id)
     LEFT JOIN duebridge_platform.operator_keys k USING (key_id)
    WHERE s.session_hash IN ($1, $2) AND (s.session_hash = $2) = (s.operator_id IS NULL)
      AND s.expires_at > clock_timestamp() AND o.disabled_at IS NULL AND ${KEY_IS_ACTIVE}`);
const bySubjectStatement = sql(`
   SELECT ${OPERATOR} FROM duebridge_platform.operators o, (SELECT NULL AS key_id) AS k
    WHERE o.oidc_subject = $1 AND o.disabled_at IS NULL`);
const openSessionStatement = sql(`
   WITH swept AS (DELETE FROM duebridge_platform.operator_sessions WHERE expires_at < clock_timestamp())
   INSERT INTO duebridge_platform.operator_sessions (session_hash, operator_id, key_id, csrf, expires_at)
   VALUES ($1, $2, $3, $4, clock_timestamp() + interval '${SESSION_HOURS} hours')`);
const closeSessionStatement = sql(`
   DELETE FROM duebridge_platform.operator_sessions WHERE session_hash IN ($1, $2)`);
const endIdentityStatement = sql(`
   DELETE FROM duebridge_platform.operator_sessions WHERE operator_id = $1 AND key_id IS NULL`);
const enabledStatement = sql(`
   SELECT 1 FROM duebridge_platform.operators WHERE operator_id = $1 AND disabled_at IS NULL`);
const insertStatement = sql(`
   INSERT INTO duebridge_platform.operators (operator_id, name, role, partner_id, oidc_subject) VALUES ($1, $2, $3, $4, $5)`);
/** The time is a parameter, because a sharded database allows no clock function inside CASE. */
const changeStatement = sql(`
   UPDATE duebridge_platform.operators
      SET name = coalesce($2, name), role = coalesce($3, role),
          oidc_subject = CASE WHEN $4 THEN $5 ELSE oidc_subject END,
          disabled_at = CASE $6::boolean WHEN true THEN coalesce(disabled_at, $7::timestamptz)
                                         WHEN false THEN NULL ELSE disabled_at END
    WHERE operator_id = $1 RETURNING 1`);
const listStatement = sql(`
   SELECT o.operator_id, o.name, o.role, o.partner_id, o.oidc_subject, o.created_at, o.disabled_at,
          coalesce((SELECT jsonb_agg(jsonb_build_object('key_id', k.key_id, 'created_at', ${iso('k.created_at')},
                     'last_used_at', ${iso('k.last_used_at')},
                     'expires_at', ${iso('k.expires_at')}, 'revoked_at', ${iso('k.revoked_at')}) ORDER BY k.created_at)
             FROM duebridge_platform.operator_keys k WHERE k.operator_id = o.operator_id), '[]') AS keys
     FROM duebridge_platform.operators o WHERE $1::text IS NULL OR o.operator_id = $1 ORDER BY o.operator_id`);
/** A time in a JSON object, in the same form as in columns (decision 12). */
function iso(column: string): string {
  return `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

/** Operators, their keys and their console sessions. */
export type Operators = ReturnType<typeof openOperators>;

/** Opens the operators. `adminKey` is the deployment's own key. */
export function openOperators(
  { database, pepper, clock }: Pick<Services, 'database' | 'pepper' | 'clock'>,
  adminKey: string,
) {
  const digestOf = (key: string): Buffer => keyDigest(pepper, key, 'operator');
  const store = openKeyStore(database, clock, 'operator');
  const byKey = digestLookUp<Operator>(database, byKeyStatement, 'digest');
  const adminDigest = digestOf(adminKey);
  const known = remember<Operator>({ clock, max: MAX_REMEMBERED });
  const refuse = openRefusals(database, clock);
  const readOne = async (operator_id: string): Promise<OperatorView> => {
    const [view] = await database.query<OperatorView>(listStatement, [operator_id]);
    if (view === undefined) throw new Refusal('NOT_FOUND');
    return view;
  };
  return {
    ...consoleSessions(database, known, adminDigest),

    /** Identifies the owner of a bearer key. Throws Refusal UNAUTHORIZED. */
    async verifyKey(key: string | undefined): Promise<Operator> {
      const digest = digestOf(key ?? '');
      if (timingSafeEqual(digest, adminDigest)) return adminOperator;
      if (key === undefined) throw unauthorized();
      if (!KEY_PATTERN.test(key)) throw refuse();
      const operator = await known
        .get(digest.toString('base64'), async () => found(await byKey(digest)))
        .catch((error: unknown) => {
          throw error instanceof Refusal ? refuse() : error;
        });
      if (operator.key_id !== null) store.used(operator.key_id);
      return operator;
    },

    list: () => database.query<OperatorView>(listStatement, [null]),

    /** Throws Refusal CONFLICT when the id or the identity is taken, or the role and the partner do not go together. */
    async add(registration: OperatorRegistration, actor: string): Promise<OperatorView> {
      const { operator_id, name, role, partner_id, oidc_subject } = registration;
      // The deployment's own key has this name in the audit, so no other operator may have it.
      if (operator_id === adminOperator.actor) throw taken();
      const row = [operator_id, name, role, partner_id ?? null, oidc_subject ?? null];
      const detail = { operator_id, role, ...(partner_id && { partner_id }) };
      await database
        .transaction(async (tx) => {
          await tx.query(insertStatement, row);
          await note(tx, { actor, event: 'operator_added', detail });
        })
        .catch(refuseTaken);
      return readOne(operator_id);
    },

    /** Throws Refusal NOT_FOUND, or CONFLICT for a taken identity. */
    async change(
      operator_id: string,
      { name, role, oidc_subject, disabled }: OperatorChange,
      actor: string,
    ): Promise<OperatorView> {
      const now = new Date(clock.now()).toISOString();
      const identity = [oidc_subject !== undefined, oidc_subject ?? null];
      const set = [operator_id, name ?? null, role ?? null, ...identity, disabled ?? null, now];
      const detail = {
        operator_id,
        ...(role && { role }),
        ...(disabled !== undefined && { disabled: String(disabled) }),
      };
      await database
        .transaction(async (tx) => {
          if ((await tx.query(changeStatement, set)).length === 0) throw new Refusal('NOT_FOUND');
          // A session that an identity opened ends with it: those are the ones without a key.
          if (oidc_subject !== undefined) await tx.query(endIdentityStatement, [operator_id]);
          await note(tx, { actor, event: 'operator_changed', detail });
        })
        .catch(refuseTaken);
      known.forget();
      return readOne(operator_id);
    },

    /** `days`: until it expires; without it, never. Throws Refusal NOT_FOUND, or CONFLICT when two keys are active. */
    async issueKey(operator_id: string, actor: string, days?: number): Promise<OperatorKeyGrant> {
      const operator_key = newKey('dbo_');
      const key = { digest: digestOf(operator_key), days };
      const issued = await store.issue({ id: operator_id, actor }, key, async (tx) => {
        const able = await tx.query(enabledStatement, [operator_id]);
        if (able.length === 0) throw new Refusal('NOT_FOUND');
      });
      return { operator_id, operator_key, ...issued };
    },

    /** Throws Refusal NOT_FOUND. */
    async revokeKey(operator_id: string, key_id: string, actor: string): Promise<OperatorView> {
      await store.revoke({ id: operator_id, actor }, key_id);
      known.forget();
      return readOne(operator_id);
    },
  };
}

/** Makes the refusal of a key, and notes now and then how many there were. */
function openRefusals(database: Database, clock: Clock): () => Refusal {
  let keys = 0;
  let notedAt = Number.NEGATIVE_INFINITY;
  return () => {
    keys += 1;
    if (clock.monotonic() - notedAt >= REFUSED_EVERY_MS) {
      notedAt = clock.monotonic();
      const detail = { keys };
      keys = 0;
      // If this line cannot be written, the next one counts these too.
      note(database, { actor: 'unknown', event: 'operator_key_refused', detail }).catch(
        () => void (keys += detail.keys),
      );
    }
    return unauthorized();
  };
}

/** Sessions of the console, by the hash of their cookie. */
function consoleSessions(database: Database, known: Remembered<Operator>, adminDigest: Buffer) {
  const hashOf = (cookie: string): Buffer => crypto.hash('sha256', cookie, 'buffer');
  /** A session that the admin key opened ends with that key: under another one, its hash is not found. */
  const adminHashOf = (cookie: string): Buffer =>
    createHmac('sha256', adminDigest).update(cookie).digest();
  const hashesOf = (cookie: string): Buffer[] => [hashOf(cookie), adminHashOf(cookie)];
  const one = async (statement: Statement, values: readonly unknown[]): Promise<Operator> =>
    found((await database.query<Operator>(statement, values))[0]);
  return {
    /** Identifies the owner of a session's cookie. Throws Refusal UNAUTHORIZED when the cookie is invalid or has expired. */
    verifySession: (cookie: string): Promise<Operator> =>
      known.get(`session ${hashOf(cookie).toString('base64')}`, () =>
        one(bySessionStatement, hashesOf(cookie)),
      ),

    /** Opens a session; returns the cookie's value and its lifetime in seconds. Throws Refusal UNAUTHORIZED for an unknown identity. */
    async openSession(
      of: Operator | { readonly oidc_subject: string },
    ): Promise<{ cookie: string; seconds: number }> {
      const { actor, key_id } =
        'oidc_subject' in of ? await one(bySubjectStatement, [of.oidc_subject]) : of;
      const cookie = `dbc_${randomBytes(32).toString('base64url')}`;
      const isAdminKey = actor === adminOperator.actor;
      await database.query(openSessionStatement, [
        isAdminKey ? adminHashOf(cookie) : hashOf(cookie),
        isAdminKey ? null : actor,
        key_id,
        randomBytes(24).toString('base64url'),
      ]);
      await note(database, { actor, event: 'operator_signed_in' });
      return { cookie, seconds: SESSION_HOURS * 3_600 };
    },

    async closeSession(cookie: string): Promise<void> {
      await database.query(closeSessionStatement, hashesOf(cookie));
      // After the deletion: a request meanwhile may have read the session and remembered it.
      known.forget();
    },
  };
}

function found(operator: Operator | undefined): Operator {
  if (operator === undefined) throw unauthorized();
  return operator;
}

function taken(): Refusal {
  return conflict('An operator with this id or OpenID Connect identity exists already');
}

function refuseTaken(error: unknown): never {
  const rule = constraintOf(error);
  if (rule === 'operators_of_partner' || rule === 'operators_partner_id_fkey') {
    throw conflict(
      'An operator of the role partner has the partner_id of a registered partner, for good; no other role has one',
    );
  }
  throw rule === 'operators_pkey' || rule === 'operators_oidc_subject_key' ? taken() : error;
}

function unauthorized(): Refusal {
  return new Refusal('UNAUTHORIZED', { headers: { 'WWW-Authenticate': 'Bearer' } });
}

/** Throws Refusal INSUFFICIENT_ROLE unless the operator's role includes `needed`. */
export function assertRole(operator: Operator, needed: OperatorRole): void {
  if (roleCovers(operator.role, needed)) return;
  throw new Refusal('INSUFFICIENT_ROLE', {
    message: `This needs the role ${needed}; ${operator.actor} has ${operator.role}`,
  });
}
