/**
 * Client secrets and static keys that an operator issues and revokes while the servers run (decision 38).
 * Those of the environment are valid until they are revoked here; those issued here are valid as well. Only digests are stored. What was
 * read is remembered for five seconds (keys.ts), so that a revocation, and the end of one that expires, take effect everywhere within
 * them. While the database cannot be read, what was read last stays valid until it expires, so that an outage locks nobody out.
 */
import { createHash } from 'node:crypto';
import { Refusal, type KitCredential, type KitCredentialGrant } from '@duebridge/contract';
import {
  DatabaseUnavailable,
  newKey,
  remember,
  sql,
  type Clock,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import { writeAudit } from './store.ts';

/** Maximum number of valid credentials of one client: one in use, its replacement, and room for a mistake. */
const MAX_ACTIVE = 5;

/** What a client may present now: the digests from the environment and those issued, minus those revoked. */
export type ValidDigests = ReadonlyMap<string, readonly Buffer[]>;

/** The credentials of a deployment. */
export interface Credentials {
  /** The valid credentials, as last read where the database cannot be read. Throws its error when they were never read. */
  valid(): Promise<ValidDigests>;
  /** All that are or were valid, those from the environment first. */
  list(): Promise<KitCredential[]>;
  /** Issues a new one, which expires after `days`, or never. Throws Refusal NOT_FOUND for an unknown client, CONFLICT when there are too many. */
  issue(
    client_id: string,
    actor: string,
    reason: string,
    days?: number,
  ): Promise<KitCredentialGrant>;
  /** Revokes one. Throws Refusal NOT_FOUND, and CONFLICT for the last valid one of its client, which would cut the platform off. */
  revoke(credential_id: string, actor: string, reason: string): Promise<KitCredential>;
  /** Clients whose last credential expires within 14 days, or expired in the last 14, as last read. Never throws. */
  ending(): number;
}

interface Row extends KitCredential {
  readonly digest: string;
  /** Until it expires, when it was read; null: it never does. */
  readonly seconds_left: number | null;
}

const listStatement = sql(
  'kit_credentials',
  `SELECT credential_id, client_id, encode(secret_sha256, 'hex') AS digest, source, issued_at, expires_at, revoked_at,
          extract(epoch FROM expires_at - clock_timestamp())::float8 AS seconds_left
     FROM duebridge_partner.credential ORDER BY issued_at NULLS FIRST, credential_id`,
);

const issueStatement = sql(
  'kit_issue_credential',
  `INSERT INTO duebridge_partner.credential (credential_id, client_id, secret_sha256, source, issued_at, expires_at)
   VALUES ($1, $2, decode($3, 'hex'), 'issued', date_trunc('milliseconds', clock_timestamp()),
           date_trunc('milliseconds', clock_timestamp()) + $4::int * interval '1 day')
   RETURNING expires_at`,
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
}): Credentials {
  const { database, clock } = options;
  const configured = [...options.configured].flatMap(([client_id, secrets]) =>
    secrets.map((secret): Row => {
      const digest = digestOf(secret);
      return {
        credential_id: idOf(client_id, digest),
        client_id,
        digest,
        source: 'environment',
        issued_at: null,
        expires_at: null,
        revoked_at: null,
        seconds_left: null,
      };
    }),
  );
  const remembered = remember<Read>({ clock, max: 1 });
  let last: Read | undefined;

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

  const known = (): Promise<Read> =>
    remembered.get('all', async () => {
      let at = clock.monotonic();
      const rows = await read(database).catch((error: unknown) => {
        if (last === undefined || !(error instanceof DatabaseUnavailable)) throw error;
        at = clock.monotonic();
        return aged(last.rows, (at - last.at) / 1_000);
      });
      last = { at, rows, valid: validOf(rows.filter(isActive)) };
      return last;
    });

  const changed = async <T>(work: (tx: Transaction, rows: Row[]) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (tx) => {
      await tx.query(LOCK_TEXT);
      return work(tx, await read(tx));
    });
    remembered.forget();
    return result;
  };

  return {
    valid: async () => (await known()).valid,
    list: async () => (await read(database)).map(viewOf),
    ending() {
      // Read for the next time, also where no request asks for it.
      known().catch(() => undefined);
      return endingOf(last?.rows ?? []);
    },
    issue: (client_id, actor, reason, days) =>
      changed(async (tx, rows) => {
        if (!options.configured.has(client_id)) throw new Refusal('NOT_FOUND');
        if (activeOf(rows, client_id).length >= MAX_ACTIVE) {
          throw new Refusal('CONFLICT', {
            message: `The client has ${MAX_ACTIVE} valid credentials; revoke one first`,
          });
        }
        const secret = newKey('dbs_');
        const digest = digestOf(secret);
        const credential_id = idOf(client_id, digest);
        const [made] = await tx.query<{ expires_at: string | null }>(issueStatement, [
          credential_id,
          client_id,
          digest,
          days ?? null,
        ]);
        const valid_for_days = days === undefined ? {} : { valid_for_days: String(days) };
        const detail = { client_id, credential_id, reason, ...valid_for_days };
        await audit(tx, 'credential_issued', actor, detail);
        return { credential_id, client_id, secret, expires_at: made?.expires_at ?? null };
      }),
    revoke: (credential_id, actor, reason) =>
      changed(async (tx, rows) => {
        const found = rows.find((row) => row.credential_id === credential_id);
        if (found === undefined) throw new Refusal('NOT_FOUND');
        if (found.revoked_at !== null) return viewOf(found);
        const { client_id, digest } = found;
        const active = activeOf(rows, client_id);
        if (active.length === 1 && active.includes(found)) {
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
  return rows.filter((row) => row.client_id === client_id && isActive(row));
}

/** Neither revoked nor expired when it was read. */
function isActive({ revoked_at, seconds_left }: Row): boolean {
  return revoked_at === null && (seconds_left === null || seconds_left > 0);
}

/** The rows as they are so many seconds later, unless someone changed them. */
function aged(rows: readonly Row[], seconds: number): Row[] {
  return rows.map((row) => ({
    ...row,
    seconds_left: row.seconds_left === null ? null : row.seconds_left - seconds,
  }));
}

interface Read {
  /** When `seconds_left` of the rows was true, by the monotonic clock. */
  readonly at: number;
  readonly rows: readonly Row[];
  readonly valid: ValidDigests;
}

/** How long before the end operators are warned, and how long after it. */
const WARN_SECONDS = 14 * 86_400;

function endingOf(rows: readonly Row[]): number {
  const kept = rows.filter((row) => row.revoked_at === null);
  return [...Map.groupBy(kept, (row) => row.client_id).values()].filter((of) => {
    const left = of.map(({ seconds_left }) => seconds_left ?? Infinity);
    return Math.abs(Math.max(...left)) < WARN_SECONDS;
  }).length;
}

function validOf(active: readonly Row[]): ValidDigests {
  return new Map(
    [...Map.groupBy(active, (row) => row.client_id)].map(([client_id, of]) => [
      client_id,
      of.map((row) => Buffer.from(row.digest, 'hex')),
    ]),
  );
}

function viewOf({ digest: _digest, seconds_left: _seconds, ...view }: Row): KitCredential {
  return view;
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** Identifies a credential without revealing anything about it. */
function idOf(client_id: string, digest: string): string {
  return digestOf(`${client_id}\0${digest}`).slice(0, 16);
}
