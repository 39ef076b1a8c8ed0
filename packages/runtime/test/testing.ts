/**
 * Test support: a fresh database in a tenth of a second, and a clock and random numbers that the test controls. A test fakes only
 * time, chance and the outside world; PostgreSQL is always the real one.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { chmod, mkdir } from 'node:fs/promises';
import { createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ensureDatabase } from '../src/database-setup.ts';
import { startEmbeddedPostgres } from '../src/embedded-postgres.ts';
import { migrate, readMigrations, type Migrations } from '../src/migrations.ts';
import { openDatabase, type Database } from '../src/postgres.ts';

export { assertInTime, testInRealTime } from './real-time.ts';
export { assertSchemaSnapshot } from './schema-snapshot.ts';

/** Ports below those that Linux gives to whoever asks for none (from 32768), so that no connection or server takes one unasked. */
const CLAIMED_PORTS = { min: 20_000, max: 32_768 };

/**
 * A TCP port of 127.0.0.1 on which nothing listens, and which no other caller gets while this process lives. For a server that cannot
 * listen on port 0 and report it: it may take half a minute to start, and whoever listened there meanwhile would be tested instead.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(CLAIMED_PORTS.min, CLAIMED_PORTS.max);
    if (!(await claim(port))) continue;
    const server = await listening({ host: '127.0.0.1', port });
    if (!server) continue;
    await new Promise((resolve) => {
      server.close(resolve);
    });
    return port;
  }
}

/** Claims a port until this process ends, by a name that Linux forgets with it; other systems have no such names, and no claims. */
async function claim(port: number): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  const claimed = await listening({ path: `\0duebridge port ${port}` });
  claimed?.unref();
  return claimed !== undefined;
}

/** A server that listens there; undefined where another does. */
function listening(where: ListenOptions): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(undefined);
      else reject(error);
    });
    server.listen(where, () => resolve(server));
  });
}

/** What a test gives to be cleaned up after: the context of node:test, or its module (`{ after }`) for a whole file. */
export interface Cleanup {
  after(hook: () => Promise<void>): unknown;
}

/** Starts a server of a test on a free port, and ends it with the test. Returns its address, such as http://127.0.0.1:40123. */
export async function served(cleanup: Cleanup, server: Server): Promise<string> {
  const connections = new Set<Socket>();
  server.on('connection', (socket) => {
    connections.add(socket);
    socket.on('close', () => connections.delete(socket));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const address = server.address();
  assert(typeof address === 'object' && address !== null);
  cleanup.after(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const connection of connections) connection.destroy();
      }),
  );
  return `http://127.0.0.1:${address.port}`;
}

/** Changes rows past the triggers that guard them, as no statement of ours may. */
export async function force(
  database: Database,
  statement: string,
  values: readonly unknown[] = [],
): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(statement, values);
  });
}

/** How long a test waits for what must come: a machine may be busy. A file without progress is ended later. */
export const PATIENCE_MS = 240_000;

/** Asks every 10 ms, or as often as is said, until `holds` gives something other than false, and returns that. Fails the test, naming `what`, after four minutes. */
export async function until<T>(
  what: string | (() => string),
  holds: () => T | Promise<T>,
  everyMs = 10,
): Promise<Exclude<T, false | undefined>> {
  for (const end = performance.now() + PATIENCE_MS; ; await delay(everyMs)) {
    const found = await holds();
    if (found !== undefined && found !== false) return found as Exclude<T, false | undefined>;
    assert(performance.now() < end, `did not come: ${typeof what === 'string' ? what : what()}`);
  }
}

/** How long a test waits for a connection: PostgreSQL forks a process for each, which takes seconds on a busy machine. */
export const ACQUIRE_MS = 60_000;

/** A database of one test, with the migrations applied. */
export type TestDatabase = Awaited<ReturnType<typeof testDatabase>>;

/**
 * Makes a database from the migrations for one test or one file and drops it afterwards. Fails the test when connections to it
 * are left open. It is a copy of a template that is made once per content of the migrations, however many processes ask.
 * The server is the one of DUEBRIDGE_TEST_DATABASE_URL, or else an embedded one that all test files of this user share.
 */
export async function testDatabase(
  cleanup: Cleanup,
  options: {
    migrations: Migrations;
    name?: string;
    maxConnections?: number;
    /** Sorts text as people do, not by its bytes: an ICU locale instead of the server's own. */
    icuLocale?: string;
  },
) {
  const server = await testServer();
  const admin = openDatabase({
    url: server.url,
    applicationName: 'duebridge test setup',
    maxConnections: 2,
    statementTimeoutMs: 60_000,
    acquireTimeoutMs: ACQUIRE_MS,
  });
  const closers: (() => Promise<unknown>)[] = [];
  let made: { name: string; url: string; database: Database };
  try {
    const template = await templateOf(admin, server.url, options.migrations);
    const name = `test_${options.name ?? 'one'}_${randomBytes(6).toString('hex')}`.toLowerCase();
    assert.match(name, /^[a-z0-9_]{1,63}$/, 'the name of a test database is lower case letters');
    const { icuLocale } = options;
    await admin.query(
      icuLocale === undefined
        ? `CREATE DATABASE ${name} TEMPLATE ${template}`
        : `CREATE DATABASE ${name} LOCALE_PROVIDER icu ICU_LOCALE '${icuLocale}' TEMPLATE template0`,
    );
    // A database as unusual as a deployment's may be: code that relies on a default of PostgreSQL, or does not name the schema of
    // a table, fails in its test.
    for (const setting of [
      "search_path = ''",
      "TimeZone = 'Europe/Berlin'",
      "DateStyle = 'German'",
      "default_transaction_isolation = 'serializable'",
    ]) {
      await admin.query(`ALTER DATABASE ${name} SET ${setting}`);
    }
    const url = urlOfDatabase(server.url, name);
    const database = openDatabase({
      url,
      applicationName: 'duebridge test',
      maxConnections: options.maxConnections ?? 10,
      acquireTimeoutMs: ACQUIRE_MS,
    });
    made = { name, url, database };
    if (icuLocale !== undefined) await migrate(database, options.migrations);
  } catch (error) {
    await admin.close();
    await server.stop();
    throw error;
  }
  cleanup.after(async () => {
    try {
      for (const close of closers.toReversed()) await close();
    } finally {
      await made.database.close();
      const left = await connectionsLeft(admin, made.name);
      await admin.query(`DROP DATABASE ${made.name} WITH (FORCE)`);
      await admin.close();
      await server.stop();
      assert.deepEqual(left, [], 'connections to the test database were left open');
    }
  });
  return {
    ...made.database,
    /** Its address, for a server under test that opens its own pool. */
    url: made.url,
    /**
     * Registers something that uses the database (a server, a worker) to be closed before it is dropped, the last first.
     * node:test runs `after` hooks in the order they were made, which would drop the database under it.
     */
    closing: (close: () => Promise<unknown>): void => void closers.push(close),
  };
}

/** An empty database on a server, for a program that makes its own tables; `drop` ends whatever is still connected to it. */
export async function emptyDatabase(
  serverUrl: string,
  prefix: string,
): Promise<{ readonly url: string; readonly drop: () => Promise<void> }> {
  const name = `${prefix}_${randomBytes(6).toString('hex')}`;
  const url = await ensureDatabase(serverUrl, name);
  return {
    url,
    drop: async () => {
      const admin = openDatabase({
        url: serverUrl,
        applicationName: 'duebridge test setup',
        maxConnections: 1,
        // It writes a checkpoint, which takes long on a busy disk.
        statementTimeoutMs: 60_000,
      });
      try {
        await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      } finally {
        await admin.close();
      }
    },
  };
}

/** Address of a server that tests may make databases on, and how to leave it; with a folder, of an embedded one in there. */
export async function testServer(folder?: string): Promise<{ url: string; stop(): Promise<void> }> {
  const given = process.env['DUEBRIDGE_TEST_DATABASE_URL'];
  if (folder === undefined && given !== undefined && given !== '') {
    return { url: given, stop: () => Promise.resolve() };
  }
  if (folder !== undefined) {
    // As root, the server runs as another user, who has to get in; otherwise the cluster is elsewhere, and stays when the folder goes.
    await mkdir(folder, { recursive: true });
    await chmod(folder, 0o711);
  }
  return startEmbeddedPostgres({
    dataDirectory: folder ?? path.join(tmpdir(), `duebridge-test-${process.getuid?.() ?? 'user'}`),
  });
}

function urlOfDatabase(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** Key of the advisory lock under which templates are made. */
const TEMPLATE_LOCK = 7_033_124_800_418;

async function templateOf(
  admin: Database,
  serverUrl: string,
  migrations: Migrations,
): Promise<string> {
  const files = await readMigrations(migrations.directory);
  const hash = createHash('sha256').update(migrations.schema);
  for (const file of files) hash.update(`${file.name} ${file.sha256}\n`);
  const name = `template_${hash.digest('hex').slice(0, 24)}`;
  if (await isTemplate(admin, name)) return name;
  await admin.withConnection(async (connection) => {
    // The lock ends with the connection.
    await connection.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK]);
    if (await isTemplate(admin, name)) return;
    // A template that exists but is not marked was left incomplete by a killed process.
    await connection.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await connection.query(`CREATE DATABASE ${name}`);
    const url = urlOfDatabase(serverUrl, name);
    const database = openDatabase({ url, applicationName: 'duebridge test template' });
    try {
      await migrate(database, migrations);
    } finally {
      await database.close();
    }
    await connectionsLeft(admin, name);
    await connection.query(`ALTER DATABASE ${name} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
  });
  return name;
}

async function isTemplate(admin: Database, name: string): Promise<boolean> {
  const rows = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1 AND datistemplate', [
    name,
  ]);
  return rows.length > 0;
}

/** Names of the connections to a database that are still there after a moment: PostgreSQL ends a closed session asynchronously. */
async function connectionsLeft(admin: Database, name: string): Promise<string[]> {
  const until = performance.now() + 2_000;
  for (;;) {
    const rows = await admin.query<{ application_name: string }>(
      `SELECT application_name FROM pg_stat_activity
        WHERE datname = $1 AND backend_type = 'client backend' ORDER BY application_name`,
      [name],
    );
    if (rows.length === 0 || performance.now() > until) {
      return rows.map((row) => row.application_name);
    }
    await delay(10);
  }
}

/** Random numbers in [0, 1) that are the same for the same seed (mulberry32). Print the seed in a test that uses it. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d_2b_79_f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A clock that moves only when it is told to. */
export type ManualClock = ReturnType<typeof manualClock>;

interface Sleeper {
  at: number;
  wake(): void;
}

/** A clock for tests: starts at `start` (wall milliseconds; default 2026-01-01T00:00:00Z), with chance from `seed`. */
export function manualClock(start = Date.UTC(2026, 0, 1), seed = 1) {
  let elapsed = 0;
  let wallOffset = start;
  const sleepers: Sleeper[] = [];
  const remove = (sleeper: Sleeper): void => {
    const index = sleepers.indexOf(sleeper);
    if (index >= 0) sleepers.splice(index, 1);
  };
  return {
    now: () => wallOffset + elapsed,
    monotonic: () => elapsed,
    random: seededRandom(seed),
    sleep: (ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve) => {
        if (signal?.aborted) {
          resolve();
          return;
        }
        const wake = (): void => {
          remove(sleeper);
          signal?.removeEventListener('abort', wake);
          resolve();
        };
        const sleeper: Sleeper = { at: elapsed + Math.max(0, Number.isNaN(ms) ? 0 : ms), wake };
        // Kept in order of time; equal times in order of arrival.
        const index = sleepers.findIndex((other) => other.at > sleeper.at);
        sleepers.splice(index < 0 ? sleepers.length : index, 0, sleeper);
        signal?.addEventListener('abort', wake);
      }),
    /**
     * Moves time on by `ms`, waking sleepers in the order of their time (those of one time in the order they lay down). After each,
     * promises settle before time goes on, so that what a sleeper starts next is part of the same run. Work that waits for real
     * input or output is not waited for.
     */
    async advance(ms: number): Promise<void> {
      assert(ms >= 0, 'time does not go back');
      const until = elapsed + ms;
      await settle();
      for (let next = sleepers[0]; next && next.at <= until; next = sleepers[0]) {
        elapsed = Math.max(elapsed, next.at);
        next.wake();
        await settle();
      }
      elapsed = until;
      await settle();
    },
    /** Steps only the wall clock, forwards or backwards, as an operator or a time server does (F87). */
    stepWallClock(ms: number): void {
      wallOffset += ms;
    },
    /** Number of current sleepers. */
    get sleeping(): number {
      return sleepers.length;
    },
  };
}

/** Lets promises and what they start settle: a few turns of the real event loop, which cost microseconds. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** Runs a statement that locks something in a transaction of its own connection, which stays open until the returned function is called, once or again. */
export async function holdLock(
  url: string,
  statement: string,
  values: readonly unknown[] = [],
): Promise<() => Promise<void>> {
  const other = openDatabase({
    url,
    applicationName: 'holds a lock',
    maxConnections: 1,
    statementTimeoutMs: 0,
  });
  const held = Promise.withResolvers<void>();
  const letGo = Promise.withResolvers<void>();
  const done = other.transaction(async (tx) => {
    await tx.query(statement, values);
    held.resolve();
    await letGo.promise;
  });
  await Promise.race([held.promise, done]);
  let over: Promise<void> | undefined;
  return () => {
    letGo.resolve();
    return (over ??= done.then(() => other.close()));
  };
}
