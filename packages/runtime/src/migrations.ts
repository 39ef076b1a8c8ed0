/**
 * Migrations: the `.sql` files of one side applied in order, each once and in a transaction of its own. Every table of a side is
 * in a schema named after it (decision 34), so that both sides, and a biller's own tables, may share one database.
 *
 * A start that finds nothing to apply only reads, so it needs no right to create anything. One that finds something takes a lock
 * first; another process that starts meanwhile waits for it, however long it takes. A migration that waits for a busy table leaves
 * the lock queue every few seconds and tries again, because statements queue behind it while it waits. A file that begins with
 * `-- concurrently` builds indexes on tables of any size, partitioned ones too, without stopping a write. One that begins with `-- final` waits
 * until somebody says that the version before is gone for good.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { ConfigurationError } from './errors.ts';
import { silentLog, type Log } from './log.ts';
import { sqlState, type Database, type Transaction } from './postgres.ts';

/** The migrations of one side. */
export interface Migrations {
  /** The schema that holds its tables, and `migrations`, the list of those applied. Made before the first is applied. */
  schema: string;
  /** A folder of files `NNN-what-it-does.sql`. */
  directory: URL;
}

/** A migration file: its name orders it, its hash keeps it unchanged. */
interface Migration {
  name: string;
  text: string;
  sha256: string;
  /**
   * Whether the previous version still works after it: its first line is `-- additive`. That version then starts, and may continue
   * serving during a rolling upgrade.
   */
  additive: boolean;
  /**
   * Whether it builds indexes while the tables are in use: `-- concurrently` is among its first two lines. It contains CREATE INDEX
   * CONCURRENTLY statements and nothing else. In a database that has tables it runs outside a transaction; an interrupted one is repeated.
   */
  concurrently: boolean;
  /**
   * Whether it takes away what the version before reads by: its first line is `-- final`. In a database that has tables it waits for
   * `finish`, and the version before refuses the database from then on.
   */
  final: boolean;
}

/** How often a migration that met locks or deadlocks is tried before it fails; with the pauses, more than ten minutes. */
const MAX_ATTEMPTS = 200;
/** How a migration treats concurrent traffic. */
export interface MigrateOptions {
  log?: Log;
  /** Whether to apply what is missing; default true. */
  apply?: boolean | undefined;
  /** Whether to apply the final ones too: no process of the version before is left, and none will be started again. Default false. */
  finish?: boolean | undefined;
  /** How long it waits for a lock while everybody else queues behind it, in milliseconds; default 2,000. */
  lockTimeoutMs?: number;
  /** Pause between attempts in milliseconds; default 2,000: at least as long as the others had to wait. */
  retryPauseMs?: number;
}

/**
 * Applies the missing files of `migrations` and returns their names. Any number of processes may start at once.
 *
 * With `apply: false` nothing is written. Throws ConfigurationError when an applied file was changed since, when the database has
 * one that this code does not know and that is not additive, or, with `apply: false`, when one is missing.
 */
export async function migrate(
  database: Database,
  migrations: Migrations,
  options: MigrateOptions = {},
): Promise<string[]> {
  const { log = silentLog, lockTimeoutMs = 2_000, retryPauseMs = 2_000 } = options;
  assert.match(migrations.schema, /^[a-z][a-z0-9_]{0,62}$/, 'a schema name is lower case');
  const files = await readMigrations(migrations.directory);
  const applied = await appliedOf(database, migrations.schema);
  const isDue = ({ final }: Migration): boolean =>
    !final || applied.size === 0 || options.finish === true;
  const { due: missing = [], waiting } = Object.groupBy(missingOf(files, applied, log), (file) =>
    isDue(file) ? 'due' : 'waiting',
  );
  if (missing[0] !== undefined && options.apply === false) {
    throw new ConfigurationError(
      `the database lacks migration ${missing[0].name} of this version: run the migrate command with a role that may create tables, then start again`,
    );
  }
  const done: string[] = [];
  for (const file of missing) {
    const apply = (): Promise<boolean | undefined> =>
      file.concurrently && applied.size > 0
        ? buildIndexes(database, migrations.schema, file, { log, lockTimeoutMs })
        : applyOne(database, migrations.schema, file, lockTimeoutMs);
    if (await withPatience(log, file.name, retryPauseMs, apply)) {
      log.info({ migration: file.name, schema: migrations.schema }, 'migration applied');
      done.push(file.name);
    }
  }
  if (waiting !== undefined) {
    log.info(
      { migrations: waiting.map(({ name }) => name), schema: migrations.schema },
      'some migrations wait until no process of the version before is left: run migrate --finish then',
    );
  }
  return done;
}

/** Names of the final migrations that wait for `finish`. */
export async function waitingMigrations(
  database: Database,
  { schema, directory }: Migrations,
): Promise<string[]> {
  const [files, applied] = [await readMigrations(directory), await appliedOf(database, schema)];
  return files.flatMap(({ final, name }) => (final && !applied.has(name) ? [name] : []));
}

/** Reads and hashes the migrations of a folder, in order. Throws ConfigurationError on an invalid or duplicate name. */
export async function readMigrations(directory: URL): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.sql')).sort();
  const numbers = names.map((name) => /^(\d{3})-[a-z0-9-]+\.sql$/.exec(name)?.[1]);
  const wrong = numbers.findIndex(
    (number, index) => number === undefined || numbers.indexOf(number) !== index,
  );
  if (wrong >= 0) {
    throw new ConfigurationError(
      `migration ${names[wrong]} is misnamed: name it NNN-what-it-does.sql with a number of its own`,
    );
  }
  const base = directory.href.endsWith('/') ? directory : new URL(`${directory.href}/`);
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, base), 'utf8');
      const sha256 = createHash('sha256').update(text).digest('hex');
      const head = text.split('\n', 2).map((line) => line.trim());
      const is = (word: string): boolean => head.includes(`-- ${word}`);
      const kind = {
        additive: is('additive'),
        concurrently: is('concurrently'),
        final: is('final'),
      };
      return { name, text, sha256, ...kind };
    }),
  );
}

type Applied = Pick<Migration, 'name' | 'sha256' | 'additive'>;

/** The migrations that the database has. */
async function appliedOf(
  database: Pick<Transaction, 'query'>,
  schema: string,
): Promise<Map<string, Applied>> {
  const there = await database.query(
    `SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'migrations'`,
    [schema],
  );
  if (there.length === 0) return new Map();
  const rows = await database.query<Applied>(
    `SELECT name, sha256, additive FROM ${schema}.migrations`,
  );
  return new Map(rows.map((row) => [row.name, row]));
}

/** The files that are to be applied. Throws ConfigurationError when files and database do not match. */
function missingOf(files: Migration[], applied: Map<string, Applied>, log: Log): Migration[] {
  for (const { name, additive } of applied.values()) {
    if (files.some((file) => file.name === name)) continue;
    if (!additive) {
      throw new ConfigurationError(
        `the database is newer than this program: it has migration ${name}; run the newer version`,
      );
    }
    log.info({ migration: name }, 'the database has an additive migration of a newer version');
  }
  return files.filter((file) => {
    const before = applied.get(file.name);
    if (before !== undefined && before.sha256 !== file.sha256) {
      throw new ConfigurationError(
        `migration ${file.name} was changed after it had been applied: restore it and write the change as a new file`,
      );
    }
    return before === undefined;
  });
}

/**
 * Refuses to make the first tables beside tables that look like them, as in a copy that was restored into another schema, and in a
 * schema of somebody else: empty tables would abandon every payment in flight. A biller's own schema may have a name or two in common
 * with ours, not three. Throws ConfigurationError that says what was found.
 */
async function assertUnused(tx: Transaction, schema: string, first: string): Promise<void> {
  const ours = [...first.matchAll(new RegExp(`CREATE TABLE ${schema}\\.(\\w+)`, 'g'))];
  const [found] = await tx.query<{ place: string; tables: string }>(
    `SELECT schemaname AS place, string_agg(tablename, ', ' ORDER BY tablename) AS tables FROM pg_catalog.pg_tables
      WHERE schemaname = $2 OR (schemaname NOT IN ('duebridge_platform', 'duebridge_partner') AND tablename = ANY ($1::text[]))
      GROUP BY schemaname HAVING schemaname = $2 OR count(*) >= 3`,
    [ours.map(([, name]) => name), schema],
  );
  if (found === undefined) return;
  throw new ConfigurationError(
    `the schema ${found.place} has tables that this program did not make in ${schema} (${found.tables}): nothing was changed; give DATABASE_URL of an empty database, or move the tables to ${schema} with their list of migrations`,
  );
}

/**
 * The name of the lock under which a schema is changed. Both ways of applying a file take it, because a process that starts while
 * another makes the first tables builds an index in the way of an update, and the other one in that of a first start.
 */
const lockOf = (schema: string): string => `duebridge migrations of ${schema}`;

/**
 * Applies one file unless another process has; returns whether it did, undefined while another process holds the lock. Statements have no
 * time limit, waiting for a table has.
 */
function applyOne(
  database: Database,
  schema: string,
  file: Migration,
  lockTimeoutMs: number,
): Promise<boolean | undefined> {
  const work = async (tx: Transaction): Promise<boolean | undefined> => {
    const [row] = await tx.query<{ locked: boolean }>(
      'SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS locked',
      [lockOf(schema)],
    );
    if (row?.locked !== true) return undefined;
    const applied = await appliedOf(tx, schema);
    if (applied.has(file.name)) return false;
    await tx.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    if (applied.size === 0) {
      // Under the lock: tables that another process is making at this moment are not taken for somebody else's.
      await assertUnused(tx, schema, file.text);
      await prepare(tx, schema);
    }
    // A first start has no writes that an index build could hold up.
    await tx.query(file.text.replaceAll('INDEX CONCURRENTLY', 'INDEX'));
    await noteApplied(tx, schema, file);
    return true;
  };
  return database.transaction(work, { statementTimeoutMs: 0 });
}

async function noteApplied(on: Transaction, schema: string, file: Migration): Promise<void> {
  await on.query(`INSERT INTO ${schema}.migrations (name, sha256, additive) VALUES ($1, $2, $3)`, [
    file.name,
    file.sha256,
    file.additive,
  ]);
}

/** An index to build: `keys` is what follows the table in its statement. */
interface Index {
  readonly name: string;
  /** With its schema. */
  readonly table: string;
  readonly kind: 'INDEX' | 'UNIQUE INDEX';
  readonly keys: string;
}

/** The indexes that a file builds. Throws ConfigurationError when it contains anything else. */
function indexesOf(file: Migration): Index[] {
  const statements = file.text.replaceAll(/^\s*--.*$/gm, '').split(';');
  return statements.flatMap((one) => {
    const statement = one.trim();
    if (statement === '') return [];
    const found = /^CREATE (UNIQUE INDEX|INDEX) CONCURRENTLY (\w+) ON ([\w.]+) (.+)$/s.exec(
      statement,
    );
    const [, kind, name, table, keys] = found ?? [];
    if (name !== undefined && table !== undefined && keys !== undefined) {
      return [{ name, table, keys, kind: kind === 'INDEX' ? kind : 'UNIQUE INDEX' }];
    }
    throw new ConfigurationError(
      `migration ${file.name} is marked concurrently and may hold only CREATE INDEX CONCURRENTLY name ON …: move the rest to a file of its own`,
    );
  });
}

/**
 * Builds the indexes of one file without a transaction, unless another process has; returns whether it did, undefined while another
 * process holds the lock.
 */
function buildIndexes(
  database: Database,
  schema: string,
  file: Migration,
  options: { readonly log: Log; readonly lockTimeoutMs: number },
): Promise<boolean | undefined> {
  const indexes = indexesOf(file);
  return database.withConnection(async (connection) => {
    // Both end with the session.
    const [row] = await connection.query<{ locked: boolean }>(
      `SELECT pg_try_advisory_lock(hashtextextended($1, 0)) AS locked, set_config('statement_timeout', '0', false)`,
      [lockOf(schema)],
    );
    if (row?.locked !== true) return undefined;
    if ((await appliedOf(connection, schema)).has(file.name)) return false;
    for (const index of indexes) {
      options.log.info(
        { migration: file.name, index: index.name },
        'building an index; writes continue',
      );
      await build(connection, index, options.lockTimeoutMs);
    }
    await noteApplied(connection, schema, file);
    return true;
  });
}

/**
 * Builds one index. An index that an interrupted build left behind is invalid, and is removed first; that of a partitioned table is invalid
 * until each of its partitions has one, and is completed.
 */
async function build(connection: Transaction, index: Index, lockTimeoutMs: number): Promise<void> {
  const { name, table, kind, keys } = index;
  const [schema = '', short = ''] = table.split('.');
  const full = `${schema}.${name}`;
  const [known] = await connection.query<{ is_partitioned: boolean; is_valid: boolean | null }>(
    `SELECT c.relkind = 'p' AS is_partitioned, (SELECT x.indisvalid FROM pg_catalog.pg_index x WHERE x.indexrelid = to_regclass($2)) AS is_valid
       FROM pg_catalog.pg_class c WHERE c.oid = $1::regclass`,
    [table, full],
  );
  if (known?.is_valid === true) return;
  if (known?.is_partitioned !== true) {
    if (known?.is_valid === false) await connection.query(`DROP INDEX CONCURRENTLY ${full}`);
    await connection.query(`CREATE ${kind} CONCURRENTLY ${name} ON ${table} ${keys}`);
    return;
  }
  // Takes no time, but waits for whoever writes to the table, or reads it, and the next ones wait behind it.
  const briefly = async (statement: string): Promise<void> => {
    await connection.query(`SET lock_timeout = ${lockTimeoutMs}`);
    await connection.query(statement);
    await connection.query('SET lock_timeout = 0');
  };
  if (known.is_valid === null) await briefly(`CREATE ${kind} ${name} ON ONLY ${table} ${keys}`);
  const partitions = await connection.query<{ partition: string }>(
    `SELECT n.nspname || '.' || c.relname AS partition FROM pg_catalog.pg_inherits p JOIN pg_catalog.pg_class c ON c.oid = p.inhrelid
       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE p.inhparent = $1::regclass AND NOT EXISTS
        (SELECT 1 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_index x ON x.indexrelid = i.inhrelid
          WHERE i.inhparent = $2::regclass AND x.indrelid = p.inhrelid)`,
    [table, full],
  );
  for (const { partition } of partitions) {
    // payments_account on payments is payments_2026_11_account on its partition payments_2026_11.
    const own = partition.slice(schema.length + 1) + name.slice(short.length);
    await build(connection, { ...index, name: own, table: partition }, lockTimeoutMs);
    await briefly(`ALTER INDEX ${full} ATTACH PARTITION ${schema}.${own}`);
  }
}

/** Creates schema and list. Checks first: CREATE … IF NOT EXISTS requires the right to create even if nothing has to be created. */
async function prepare(tx: Transaction, schema: string): Promise<void> {
  const there = 'SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1';
  if ((await tx.query(there, [schema])).length === 0) await tx.query(`CREATE SCHEMA ${schema}`);
  await tx.query(
    `CREATE TABLE IF NOT EXISTS ${schema}.migrations (
       name text PRIMARY KEY,
       sha256 text NOT NULL,
       additive boolean NOT NULL,
       applied_at timestamptz NOT NULL DEFAULT now()
     )`,
  );
}

/** Pause in milliseconds between two looks at whether another process has finished its file. */
const TURN_PAUSE_MS = 500;

/**
 * Repeats `attempt` while another process holds the lock, however long, and while a busy table (55P03) or a deadlock (40P01) stops it:
 * traffic continues in the pauses. Nothing of a failed attempt remains. The transaction itself retries deadlocks a few times at once;
 * this continues where that was not enough.
 *
 * A process that waits for its turn looks again instead of waiting for the lock: an index build waits for every transaction that is
 * older, so a transaction that waited for the build would block both.
 */
async function withPatience(
  log: Log,
  name: string,
  retryPauseMs: number,
  attempt: () => Promise<boolean | undefined>,
): Promise<boolean> {
  for (let tried = 1, isFirst = true; ;) {
    try {
      const applied = await attempt();
      if (applied !== undefined) return applied;
      if (isFirst) log.info({ migration: name }, 'waiting for the migrations of another process');
      isFirst = false;
      await delay(Math.min(TURN_PAUSE_MS, retryPauseMs));
    } catch (error) {
      const state = sqlState(error);
      if ((state !== '55P03' && state !== '40P01') || tried >= MAX_ATTEMPTS) throw error;
      log.warn({ migration: name, state, tried }, 'migration is waiting for a busy table');
      tried += 1;
      await delay(retryPauseMs);
    }
  }
}
