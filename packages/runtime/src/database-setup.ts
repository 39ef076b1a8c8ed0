/** Creates databases, and checks that one keeps what it acknowledges. */
import assert from 'node:assert/strict';
import { ConfigurationError } from './errors.ts';
import { openDatabase, sqlState, type Database } from './postgres.ts';

/**
 * Creates database `name` on the server of `adminUrl` unless it exists, and returns its url. Safe to call from many processes at once.
 */
export async function ensureDatabase(adminUrl: string, name: string): Promise<string> {
  assert.match(name, /^[a-z][a-z0-9_]{0,62}$/, 'a database name is lower case, at most 63 bytes');
  const admin = openDatabase({ url: adminUrl, applicationName: 'duebridge setup' });
  try {
    const there = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [name]);
    if (there.length === 0) {
      // 42P04: it exists. 23505: another process is making it at this moment, and wins.
      await admin.query(`CREATE DATABASE ${name}`).catch((error: unknown) => {
        if (!['42P04', '23505'].includes(sqlState(error) ?? '')) throw error;
      });
    }
  } finally {
    await admin.close();
  }
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** The oldest PostgreSQL on which the statements were tested. */
const OLDEST_VERSION = 15;

/**
 * Refuses a database whose acknowledgement does not mean a durable write (F74, F75): synchronous_commit off loses
 * acknowledged payments at a mere process kill, fsync or full_page_writes off at a power cut. It checks the settings that new
 * sessions of this user get, wherever they were set; `local` and the remote_ levels are fine. Call it at the start, on a new pool.
 * Throws ConfigurationError naming every finding.
 */
export async function checkDurability(database: Database): Promise<void> {
  const findings = await database.query<{ finding: string }>(
    `SELECT finding FROM (VALUES
       (current_setting('synchronous_commit') = 'off', 'synchronous_commit is off (for the server, this role or this database)'),
       (current_setting('fsync') = 'off', 'fsync is off'),
       (current_setting('full_page_writes') = 'off', 'full_page_writes is off'),
       (current_setting('server_version_num')::int < ${OLDEST_VERSION * 10_000}, 'PostgreSQL is older than ${OLDEST_VERSION}')
     ) AS checks (is_wrong, finding) WHERE is_wrong`,
  );
  if (findings.length > 0) {
    const all = findings.map(({ finding }) => finding).join('; ');
    throw new ConfigurationError(
      `the database would lose payments it acknowledged: ${all}; correct these settings and start again`,
    );
  }
}

/**
 * What a failover of this database may lose, in one sentence; undefined when a commit waits for a standby, or when none is seen. Without
 * the right to read statistics (pg_monitor), a standby that copies asynchronously beside a synchronous one is not noticed.
 */
export async function asynchronousStandbys(database: Database): Promise<string | undefined> {
  const [row] = await database.query<{ standbys: number; waits: boolean }>(
    `SELECT count(*) FILTER (WHERE sync_state IS NULL OR sync_state = 'async')::int AS standbys,
            current_setting('synchronous_standby_names') <> ''
              AND current_setting('synchronous_commit') NOT IN ('local', 'off') AS waits
       FROM pg_stat_replication WHERE state IS NULL OR state = 'streaming'`,
  );
  if (row === undefined || row.standbys === 0 || row.waits) return undefined;
  const who = row.standbys === 1 ? 'a standby copies' : `${row.standbys} standbys copy`;
  return `${who} this database asynchronously: a failover to it may lose payments that were acknowledged; set synchronous_standby_names (docs/operations.md)`;
}

/** Whether a database accepts writes: it answers, and is neither a standby nor read-only. Never throws. */
export async function takesWrites(database: Database): Promise<boolean> {
  try {
    const [row] = await database.query<{ writable: boolean }>(
      `SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS writable`,
    );
    return row?.writable === true;
  } catch {
    return false;
  }
}
