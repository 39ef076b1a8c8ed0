/**
 * Client secrets and static keys that an operator issues and revokes while the servers run (decision 146).
 * Those of the environment are valid until they are revoked here; those issued here are valid as well. Only digests are stored. A
 * replica answers from memory and reads the table again once its last read is `recheckMs` old, so that a revocation takes effect
 * everywhere within five seconds. When the database cannot be read, the last known state applies: nothing can have been revoked
 * in it meanwhile.
 */
import { createHash, randomBytes } from 'node:crypto';
import { Refusal, type KitCredential, type KitCredentialGrant } from '@duebridge/contract';
import { sql, type Clock, type Database, type Transaction } from '@duebridge/runtime';
import { writeAudit } from './store.ts';

/** Maximum number of valid credentials of one client: one in use, its replacement, and room for a mistake. */
const MAX_ACTIVE = 5;

/** What a client may present now: the digests from the environment and those issued, minus those revoked. */
export type ValidDigests = ReadonlyMap<string, readonly Buffer[]>;

/** The credentials of a deployment. */
export interface Credentials {
  /** The valid credentials; from memory when they were read recently. Throws the database's error when they were never read. */
  valid(): ValidDigests | Promise<ValidDigests>;
  /** All that are or were valid, those from the environment first. */
  list(): Promise<KitCredential[]>;
  /** Issues a new one. Throws Refusal NOT_FOUND for an unknown client, CONFLICT when there are too many. */
  issue(client_id: string, actor: string, reason: string): Promise<KitCredentialGrant>;
  /** Revokes one. Throws Refusal NOT_FOUND, and CONFLICT for the last valid one of its client, which would cut the platform off. */
  revoke(credential_id: string, actor: string, reason: string): Promise<KitCredential>;
}

interface Row extends KitCredential {
  readonly digest: string;
}

const listStatement = sql(
  'kit_credentials',
  `SELECT credential_id, client_id, encode(secret_sha256, 'hex') AS digest, source, issued_at, revoked_at
     FROM duebridge_partner.credential ORDER BY issued_at NULLS FIRST, credential_id`,
);

const issueStatement = sql(
  'kit_issue_credential',
  `INSERT INTO duebridge_partner.credential (credential_id, client_id, secret_sha256, source, issued_at)
   VALUES ($1, $2, decode($3, 'hex'), 'issued', date_trunc('milliseconds', clock_timestamp()))`,
);

const revokeStatement = sql(
  'kit_revoke_credential',
  `INSERT INTO duebridge_partner.credential (credential_id, client_id, secret_sha256, source, revoked_at)
   VALUES ($1, $2, decode($3, 'hex'), 'environment', date_trunc('milliseconds', clock_timestamp()))
   ON CONFLICT (credential_id) DO UPDATE
      SET revoked_at = coalesce(credential.revoked_at, excluded.revoked_at)`,
);

// One operator at a time: two concurrent revocations could otherwise revoke the last two.
const LOCK_TEXT = 'LOCK TABLE duebridge_partner.credential IN SHARE ROW EXCLUSIVE MODE';

/** Opens the credentials. `configured` holds those of the environment, by client. */
export function openCredentials(options: {
  readonly configured: ReadonlyMap<string, readonly string[]>;
  readonly database: Database;
  readonly clock: Clock;
  readonly recheckMs: number;
}): Credentials {
  const { database, clock, recheckMs } = options;
  const configured = [...options.configured].flatMap(([client_id, secrets]) =>
    secrets.map((secret): Row => {
      const digest = digestOf(secret);
      return {
        credential_id: idOf(client_id, digest),
        client_id,
        digest,
        source: 'environment',
        issued_at: null,
        revoked_at: null,
      };
    }),
  );
  let known: ValidDigests | undefined;
  let lookedAt = -Infinity;
  let looking: Promise<ValidDigests> | undefined;

  const read = async (on: Database | Transaction): Promise<Row[]> => {
    const rows = await on.query<Row>(listStatement);
    const stored = new Map(rows.map((row) => [row.credential_id, row]));
    const fromEnvironment = configured.map((one) => ({
      ...one,
      revoked_at: stored.get(one.credential_id)?.revoked_at ?? null,
    }));
    const ids = new Set(configured.map((one) => one.credential_id));
    return [...fromEnvironment, ...rows.filter((row) => !ids.has(row.credential_id))];
  };

  const look = async (): Promise<ValidDigests> => {
    const at = clock.monotonic();
    try {
      known = validOf(await read(database));
    } catch (error) {
      if (known === undefined) throw error;
    } finally {
      looking = undefined;
    }
    lookedAt = at;
    return known;
  };

  const changed = async <T>(work: (tx: Transaction, rows: Row[]) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (tx) => {
      await tx.query(LOCK_TEXT);
      return work(tx, await read(tx));
    });
    lookedAt = -Infinity;
    return result;
  };

  return {
    valid() {
      if (known !== undefined && clock.monotonic() - lookedAt < recheckMs) return known;
      return (looking ??= look());
    },
    list: async () => (await read(database)).map(viewOf),
    issue: (client_id, actor, reason) =>
      changed(async (tx, rows) => {
        if (!options.configured.has(client_id)) throw new Refusal('NOT_FOUND');
        if (activeOf(rows, client_id).length >= MAX_ACTIVE) {
          throw new Refusal('CONFLICT', {
            message: `The client has ${MAX_ACTIVE} valid credentials; revoke one first`,
          });
        }
        const secret = `dbs_${randomBytes(32).toString('base64url')}`;
        const digest = digestOf(secret);
        const credential_id = idOf(client_id, digest);
        await tx.query(issueStatement, [credential_id, client_id, digest]);
        await audit(tx, 'credential_issued', actor, { client_id, credential_id, reason });
        return { credential_id, client_id, secret };
      }),
    revoke: (credential_id, actor, reason) =>
      changed(async (tx, rows) => {
        const found = rows.find((row) => row.credential_id === credential_id);
        if (found === undefined) throw new Refusal('NOT_FOUND');
        if (found.revoked_at !== null) return viewOf(found);
        const { client_id, digest } = found;
        if (activeOf(rows, client_id).length === 1) {
          throw new Refusal('CONFLICT', {
            message: 'This is the last valid credential of the client; issue another one first',
          });
        }
        await tx.query(revokeStatement, [credential_id, client_id, digest]);
        await audit(tx, 'credential_revoked', actor, { client_id, credential_id, reason });
        const after = (await read(tx)).find((row) => row.credential_id === credential_id);
        return viewOf(after ?? found);
      }),
  };
}

function audit(
  tx: Transaction,
  event: 'credential_issued' | 'credential_revoked',
  actor: string,
  detail: Readonly<Record<string, string>>,
): Promise<void> {
  return writeAudit(tx, [{ platform_payment_id: null, actor, event, detail }]);
}

function activeOf(rows: readonly Row[], client_id: string): Row[] {
  return rows.filter((row) => row.client_id === client_id && row.revoked_at === null);
}

function validOf(rows: readonly Row[]): ValidDigests {
  const active = rows.filter((row) => row.revoked_at === null);
  return new Map(
    [...Map.groupBy(active, (row) => row.client_id)].map(([client_id, of]) => [
      client_id,
      of.map((row) => Buffer.from(row.digest, 'hex')),
    ]),
  );
}

function viewOf({ digest: _digest, ...view }: Row): KitCredential {
  return view;
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** Identifies a credential without revealing anything about it. */
function idOf(client_id: string, digest: string): string {
  return digestOf(`${client_id}\0${digest}`).slice(0, 16);
}
