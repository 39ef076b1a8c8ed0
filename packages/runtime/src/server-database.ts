/**
 * The database of a server: the one of DATABASE_URL, or the embedded one. Opened, checked and migrated the same way by both
 * servers, and a problem with it is reported in one sentence.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { dataDirectory as defaultDataDirectory, type ServerName } from './data-directory.ts';
import { checkDeployment, type DeploymentSecret } from './deployment.ts';
import { startEmbeddedPostgres } from './embedded-postgres.ts';
import { ConfigurationError, DatabaseDown, DatabaseUnavailable, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';
import { migrate, type Migrations } from './migrations.ts';
import {
  asynchronousStandbys,
  checkDurability,
  ensureDatabase,
  takesWrites,
} from './database-setup.ts';
import { openDatabase, sqlState, type Database } from './postgres.ts';

/** What to open. */
export interface ServerDatabaseOptions {
  readonly server: ServerName;
  /** Left out by a command that only looks. */
  readonly migrations?: Migrations | undefined;
  /** PostgreSQL to use; without it the embedded one of `dataDirectory`. */
  readonly databaseUrl?: string | undefined;
  /** How long to wait for a PostgreSQL of one's own that does not answer; default: not at all. */
  readonly databaseWaitSeconds?: number | undefined;
  /** At most; default 10. */
  readonly databaseConnections?: number | undefined;
  /** How long a request waits for one of them in milliseconds; default 5,000. More where nobody is served and the machine is busy: in tests. */
  readonly databaseAcquireMs?: number | undefined;
  readonly dataDirectory?: string | undefined;
  /** The secrets that the data depends on; left out by a command that only migrates. */
  readonly secrets?: readonly DeploymentSecret[] | undefined;
  /** Whether to apply missing migrations; default true. With false a database that lacks one is refused. */
  readonly migrate?: boolean | undefined;
  /** Whether to apply the final migrations too (migrations.ts); default false. */
  readonly finish?: boolean | undefined;
  /** Whether tables may be made beside those of the other server; default false: more likely the address is wrong. */
  readonly beside?: boolean | undefined;
  readonly log?: Log | undefined;
}

/** An opened database. */
export interface ServerDatabase {
  readonly database: Database;
  /** Address of the database, with its password. */
  readonly url: string;
  /** Names of the migrations applied now. */
  readonly applied: readonly string[];
  /** What a failover of this database may lose, in a sentence; undefined for one that loses nothing. */
  readonly warning: string | undefined;
  /** Closes the pool, and leaves the embedded server. */
  readonly close: () => Promise<void>;
}

/** Opens, checks and migrates. Throws ConfigurationError with a sentence for anything that the deployment has to fix. */
export async function openServerDatabase(options: ServerDatabaseOptions): Promise<ServerDatabase> {
  const { server, migrations, databaseUrl, log = silentLog } = options;
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const one of closers.splice(0).toReversed()) await one();
  };
  try {
    let url = databaseUrl;
    if (url === undefined) {
      const dataDirectory = options.dataDirectory ?? defaultDataDirectory();
      const embedded = await startEmbeddedPostgres({ dataDirectory, log });
      closers.push(() => embedded.stop());
      url = await ensureDatabase(embedded.url, `duebridge_${server}`);
    }
    const database = openDatabase({
      url,
      applicationName: `duebridge ${server}`,
      maxConnections: options.databaseConnections ?? 10,
      ...(options.databaseAcquireMs && { acquireTimeoutMs: options.databaseAcquireMs }),
      log,
    });
    closers.push(() => database.close());
    await waitFor(database, (options.databaseWaitSeconds ?? 0) * 1_000, log);
    await checkDurability(database);
    if (!(await takesWrites(database))) {
      throw new ConfigurationError(
        'the database is read-only, as a standby is: give the address of the primary in DATABASE_URL',
      );
    }
    const warning = await asynchronousStandbys(database);
    if (warning !== undefined) log.warn({}, warning);
    if (migrations === undefined) return { database, url, applied: [], warning, close };
    if (options.beside !== true) await assertOwnDatabase(database, server, migrations.schema);
    const { migrate: apply, finish } = options;
    const applied = await migrate(database, migrations, { log, apply, finish });
    if (options.secrets !== undefined) {
      const deployment_id = await checkDeployment(database, migrations.schema, options.secrets);
      log.info({ deployment_id }, 'database opened');
    }
    return { database, url, applied, warning, close };
  } catch (error) {
    await close().catch(() => undefined);
    if (databaseUrl === undefined) throw error;
    const sentence = describeDatabaseTrouble(error, databaseUrl, server);
    if (sentence === undefined) throw error;
    throw isDown(error)
      ? new DatabaseDown(sentence, { cause: error })
      : new ConfigurationError(sentence, { cause: error });
  }
}

/** Pauses between two attempts: short first, for a database that starts beside us, and long after a power cut. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [250, 5_000];

/** Resolves when the database answers; throws its last error after `waitMs`, and at once one that waiting does not mend. */
async function waitFor(database: Database, waitMs: number, log: Log): Promise<void> {
  const until = performance.now() + waitMs;
  for (let attempt = 1; ; attempt += 1) {
    try {
      await database.query('SELECT 1');
      return;
    } catch (error) {
      const left = until - performance.now();
      if (!isDown(error) || left <= 0) throw error;
      log.warn({ attempt, error: deepest(error) }, 'the database does not answer; waiting for it');
      await delay(Math.min(left, LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (attempt - 1)));
    }
  }
}

/** Whether a database is not reached, is starting or stopping, or has no connection free. */
function isDown(error: unknown): boolean {
  const state = sqlState(error) ?? '';
  return error instanceof DatabaseUnavailable && (state === '' || /^(57P|53300)/.test(state));
}

/**
 * A database with the tables of the other server and none of ours is more likely a wrong address than a shared database. Nothing
 * is created in it unless the migrate command asks for it.
 */
async function assertOwnDatabase(
  database: Database,
  server: ServerName,
  schema: string,
): Promise<void> {
  const rows = await database.query<{ name: string }>(
    `SELECT nspname AS name FROM pg_catalog.pg_namespace WHERE nspname IN ('duebridge_platform', 'duebridge_partner')`,
  );
  if (rows.length === 0 || rows.some(({ name }) => name === schema)) return;
  const other = server === 'platform' ? 'partner' : 'platform';
  throw new ConfigurationError(
    `DATABASE_URL leads to the database of a ${other}, which has no tables of the ${server}: correct it, or run "duebridge ${server} migrate" once if both are to share the database`,
  );
}

/**
 * Why a database cannot be used, for the person who set DATABASE_URL: names place, role and database, never the password.
 * Undefined for what is no trouble of the deployment's.
 */
function describeDatabaseTrouble(
  error: unknown,
  databaseUrl: string,
  server: ServerName,
): string | undefined {
  if (error instanceof ConfigurationError) return undefined;
  const url = new URL(databaseUrl);
  const place = `${url.hostname || 'localhost'}:${url.port || '5432'}`;
  const role = decodeURIComponent(url.username) || 'the default role';
  const name = decodeURIComponent(url.pathname.slice(1)) || role;
  switch (sqlState(error)) {
    case '28P01':
    case '28000':
      return `the database at ${place} does not let ${role} in: correct the user and the password in DATABASE_URL`;
    case '3D000':
      return `there is no database ${name} at ${place}: create it (createdb ${name}), or correct DATABASE_URL`;
    case '42501':
      return `${role} lacks a right in the database ${name} (${deepest(error)}): grant it, or run "duebridge ${server} migrate" as a role that may create tables`;
    case '53300':
      return `the database at ${place} has no free connection: raise its max_connections, or lower DUEBRIDGE_DATABASE_CONNECTIONS`;
    default:
  }
  if (!(error instanceof DatabaseUnavailable)) return undefined;
  return `the database at ${place} does not answer (${deepest(error)}): start it, or correct DATABASE_URL`;
}

/** The message of the driver or of PostgreSQL, without our own text around it. */
function deepest(error: unknown): string {
  return error instanceof DatabaseUnavailable && error.cause !== undefined
    ? deepest(error.cause)
    : messageOf(error);
}
