import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { ConfigurationError } from './errors.ts';
import { silentLog, type Log } from './log.ts';
import { migrate, waitingMigrations } from './migrations.ts';
import { openDatabase, sqlState, type Database } from './postgres.ts';
import { emptyDatabase, testServer } from '../test/testing.ts';

const migrations = {
  schema: 'test_ground',
  directory: new URL('./fixtures/migrations/', import.meta.url),
};
const execFileAsync = promisify(execFile);
const server = await testServer();
after(() => server.stop());

async function openEmpty(t: { after(hook: () => Promise<void>): unknown }): Promise<{
  database: Database;
  url: string;
}> {
  const { url, drop } = await emptyDatabase(server.url, 'empty');
  const database = openDatabase({ url, applicationName: 'empty' });
  t.after(async () => {
    await database.close();
    await drop();
  });
  return { database, url };
}

test('eight processes that start at once migrate once, and a later one changes nothing', async (t) => {
  const { database, url } = await openEmpty(t);
  const program = `
    import { migrate } from ${JSON.stringify(new URL('./migrations.ts', import.meta.url).href)};
    import { openDatabase } from ${JSON.stringify(new URL('./postgres.ts', import.meta.url).href)};
    const database = openDatabase({ url: process.argv[1], applicationName: 'starter' });
    const done = await migrate(database, { schema: 'test_ground', directory: new URL(process.argv[2]) });
    await database.close();
    console.log(done.length);`;
  const starters = Array.from({ length: 8 }, () =>
    execFileAsync(process.execPath, [
      '--input-type=module-typescript',
      '-e',
      program,
      url,
      migrations.directory.href,
    ]),
  );
  const counts = (await Promise.all(starters)).map(({ stdout }) => Number(stdout));
  assert.equal(
    counts.reduce((sum, count) => sum + count),
    2,
  );
  assert.deepEqual(await migrate(database, migrations), []);
  const rows = await database.query<{ name: string }>(
    'SELECT name FROM test_ground.migrations ORDER BY name',
  );
  assert.deepEqual(
    rows.map((row) => row.name),
    ['001-payment.sql', '002-note.sql'],
  );
});

test('a changed, a missing, a misnamed or a failing migration stops the start and leaves the database as it was', async (t) => {
  const { database, here, add, remove } = await migrated(t);
  await add('003-bad.sql', 'CREATE TABLE test_ground.half (); SELECT 1 / 0;');
  await assert.rejects(migrate(database, here), (error) => sqlState(error) === '22012');
  const [half] = await database.query(`SELECT to_regclass('test_ground.half') AS half`);
  assert.deepEqual(half, { half: null });
  await remove('003-bad.sql');

  await add('3-short.sql', 'SELECT 1');
  await assert.rejects(migrate(database, here), ConfigurationError);
  await remove('3-short.sql');

  await add('002-note.sql', 'SELECT 1');
  await assert.rejects(migrate(database, here), ConfigurationError);
  await remove('002-note.sql');
  // Additive, so the version that lacks it goes on; the first is not.
  assert.deepEqual(await migrate(database, here), []);
  await remove('001-payment.sql');
  await assert.rejects(migrate(database, here), ConfigurationError);
});

test('what the version before reads by stays until somebody says that it is gone, and then it refuses the database', async (t) => {
  const { database, here, add, remove } = await migrated(t);
  await add('003-new.sql', '-- additive\nCREATE TABLE test_ground.late ();');
  await add('004-old.sql', '-- final\nALTER TABLE test_ground.payment DROP COLUMN note;');
  assert.deepEqual(await migrate(database, here), ['003-new.sql']);
  assert.deepEqual(await migrate(database, here, { apply: false }), [], 'it may serve meanwhile');
  assert.deepEqual(await waitingMigrations(database, here), ['004-old.sql']);
  assert.deepEqual(await migrate(database, here, { finish: true }), ['004-old.sql']);
  await remove('004-old.sql');
  await assert.rejects(
    migrate(database, here),
    /the database is newer than this program: .*004-old/,
  );
});

// Under way ------------------------------------------------------------------------------------------------------------------

/** A database with the fixture's tables, and a folder of migrations to which a test adds. */
async function migrated(t: TestContext) {
  const { database, url } = await openEmpty(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-migrations-'));
  t.after(() => rm(folder, { recursive: true }));
  await cp(migrations.directory, folder, { recursive: true });
  const here = { schema: 'test_ground', directory: pathToFileURL(folder) };
  await migrate(database, here);
  return {
    database,
    url,
    here,
    add: (name: string, text: string) => writeFile(path.join(folder, name), text),
    remove: (name: string) => rm(path.join(folder, name)),
  };
}

/** A pool whose statements may take so long. */
function impatient(t: TestContext, url: string, statementTimeoutMs: number): Database {
  const database = openDatabase({ url, applicationName: 'impatient', statementTimeoutMs });
  t.after(() => database.close());
  return database;
}

const AMOUNTS =
  '-- additive\n-- concurrently\nCREATE INDEX CONCURRENTLY month_amount ON test_ground.month (amount);\n';

/** A log whose warnings and notes a test can wait for. */
function heardLog(): { log: Log; heard: (words: string) => Promise<void> } {
  const waiting = new Map<string, () => void>();
  const keep = (_details: object, message: string): void => waiting.get(message)?.();
  return {
    log: { debug: keep, info: keep, warn: keep, error: keep },
    heard: (words) =>
      new Promise((resolve) => {
        waiting.set(words, resolve);
      }),
  };
}

test('a migration takes as long as it takes, and a replica that starts meanwhile waits for it', async (t) => {
  const { url, here, add } = await migrated(t);
  // Longer than a statement may take, and than the client waits for the answer to one.
  await add('003-long.sql', 'SELECT pg_sleep(6.5); CREATE TABLE test_ground.late ();');
  const { log, heard } = heardLog();
  const waits = heard('waiting for the migrations of another process');
  // A session that rests for as long between two statements ends too: a busy machine takes some of it.
  const [first, second] = [1, 2].map(() => migrate(impatient(t, url, 1_000), here, { log }));
  await waits;
  assert.deepEqual((await Promise.all([first, second])).flat(), ['003-long.sql']);
});

test('a migration that meets a busy table lets the traffic pass, and succeeds in the end [F80]', async (t) => {
  const { database, here, add } = await migrated(t);
  await add('003-column.sql', 'ALTER TABLE test_ground.payment ADD COLUMN more text');
  const { log, heard } = heardLog();
  const gaveUpOnce = heard('migration is waiting for a busy table');
  const [locked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const busy = database.transaction(async (tx) => {
    await tx.query('SELECT * FROM test_ground.payment');
    locked.resolve();
    await release.promise;
  });
  await locked.promise;
  const done = migrate(database, here, { log, lockTimeoutMs: 100, retryPauseMs: 10 });
  await gaveUpOnce;
  // Nobody queues behind it for longer than it waits itself.
  await database.query('SELECT count(*) FROM test_ground.payment');
  release.resolve();
  await busy;
  assert.deepEqual(await done, ['003-column.sql']);
});

test('a migration that deadlocks with the traffic is retried, and the traffic loses nothing [EE10]', async (t) => {
  const { database, here, add } = await migrated(t);
  await database.query('CREATE TABLE test_ground.other AS SELECT 1 AS one');
  await database.query(`INSERT INTO test_ground.payment VALUES ('p1', 1)`);
  await add('003-both.sql', 'LOCK TABLE test_ground.other; LOCK TABLE test_ground.payment');
  const traffic = database.transaction(async (tx) => {
    // The migration is the one that notices the deadlock.
    await tx.query(`SET LOCAL deadlock_timeout = '1min'`);
    await tx.query('UPDATE test_ground.payment SET amount_in_cents = 2');
    const done = migrate(database, here, { lockTimeoutMs: 30_000 });
    for (let waits = 0; waits === 0;) {
      const rows = await database.query(
        `SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'test_ground.payment'::regclass`,
      );
      waits = rows.length;
    }
    await tx.query('UPDATE test_ground.other SET one = 2');
    return { done };
  });
  assert.deepEqual(await (await traffic).done, ['003-both.sql']);
  assert.deepEqual(await database.query('SELECT amount_in_cents AS n FROM test_ground.payment'), [
    { n: 2 },
  ]);
  assert.deepEqual(await database.query('SELECT one FROM test_ground.other'), [{ one: 2 }]);
});

test('a start with nothing to apply only reads, and with --no-migrate it reports what is missing', async (t) => {
  const { database, url, here, add } = await migrated(t);
  const name = new URL(url).pathname.slice(1);
  await database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  const reader = openDatabase({ url, applicationName: 'reader' });
  t.after(() => reader.close());
  assert.deepEqual(await migrate(reader, here), []);
  await add('003-new.sql', 'SELECT 1');
  const lacks = { name: 'ConfigurationError', message: /lacks migration 003-new\.sql/ };
  await assert.rejects(migrate(reader, here, { apply: false }), lacks);
});

test('an index is built once while its table is written, however many processes start and whatever was interrupted [EE10]', async (t) => {
  const { database, url, here, add } = await migrated(t);
  await database.query(
    `INSERT INTO test_ground.payment SELECT 'p' || n, n FROM generate_series(1, 1000) n`,
  );
  const file = `-- additive\n-- concurrently\n-- Finds payments by their amount.\nCREATE INDEX CONCURRENTLY payment_amount ON test_ground.payment (amount_in_cents);\n`;
  await add('003-amounts.sql', file);
  // An interrupted build leaves an index that nothing uses.
  await database.query('CREATE INDEX payment_amount ON test_ground.payment (amount_in_cents)');
  await database.query(
    `UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = 'test_ground.payment_amount'::regclass`,
  );
  const { log, heard } = heardLog();
  const [begun, waiting] = [
    heard('building an index; writes continue'),
    heard('waiting for the migrations of another process'),
  ];
  // A transaction that has written holds up the build, as in any living database, and is not held up by it. It outlasts the time
  // that a statement has in the pool.
  const [written, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const writing = database.transaction(async (tx) => {
    await tx.query(`UPDATE test_ground.payment SET amount_in_cents = 7 WHERE amount_in_cents = 1`);
    written.resolve();
    await release.promise;
    await tx.query(`UPDATE test_ground.payment SET amount_in_cents = 8 WHERE amount_in_cents = 2`);
  });
  await written.promise;
  const [first, second] = [1, 2].map(() => migrate(impatient(t, url, 100), here, { log }));
  await Promise.all([begun, waiting]);
  await database.query(`INSERT INTO test_ground.payment VALUES ('meanwhile', 9)`);
  release.resolve();
  await writing;
  assert.deepEqual((await Promise.all([first, second])).flat(), ['003-amounts.sql']);
  const [index] = await database.query<{ valid: boolean }>(
    `SELECT indisvalid AS valid FROM pg_catalog.pg_index WHERE indexrelid = 'test_ground.payment_amount'::regclass`,
  );
  assert.equal(index?.valid, true);
  await add(
    '004-wrong.sql',
    '-- concurrently\nCREATE INDEX CONCURRENTLY one ON test_ground.payment (amount_in_cents);\nSELECT 1;\n',
  );
  await assert.rejects(migrate(database, here), ConfigurationError);
});

test('an index of a partitioned table is built on one partition after the other while they are written, and an interrupted build is completed [EE10]', async (t) => {
  const { database, here, add } = await migrated(t);
  await database.query(
    `CREATE TABLE test_ground.month (id text PRIMARY KEY, amount bigint) PARTITION BY RANGE (id);
     CREATE TABLE test_ground.month_1 PARTITION OF test_ground.month FOR VALUES FROM ('a') TO ('m');
     CREATE TABLE test_ground.month_2 PARTITION OF test_ground.month DEFAULT;
     INSERT INTO test_ground.month SELECT chr(97 + n % 26) || n, n FROM generate_series(1, 1000) n;
     CREATE INDEX month_amount ON ONLY test_ground.month (amount);
     CREATE INDEX month_2_amount ON test_ground.month_2 (amount);
     UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = 'test_ground.month_2_amount'::regclass`,
  );
  await add('003-amounts.sql', AMOUNTS);
  const { log, heard } = heardLog();
  const begun = heard('building an index; writes continue');
  const written = await database.transaction(async (tx) => {
    await tx.query(`UPDATE test_ground.month SET amount = 7 WHERE amount = 1`);
    const migrating = migrate(database, here, { log });
    await begun;
    await database.query(`INSERT INTO test_ground.month VALUES ('meanwhile', 9)`);
    return { migrating };
  });
  assert.deepEqual(await written.migrating, ['003-amounts.sql']);
  const valid = await database.query(
    `SELECT indexrelid::regclass::text AS index, indisvalid AS valid FROM pg_catalog.pg_index
      WHERE indexrelid::regclass::text ~ 'amount$' AND indrelid::regclass::text ~ 'month' ORDER BY 1`,
  );
  assert.deepEqual(
    valid,
    ['month_1', 'month_2', 'month'].map((one) => ({
      index: `test_ground.${one}_amount`,
      valid: true,
    })),
  );
});

test('an index that is attached to that of its partitioned table waits for a long reading as briefly as other migrations, and writes pass [EE10 F80]', async (t) => {
  const { database, here, add } = await migrated(t);
  await database.query(
    `CREATE TABLE test_ground.month (id text PRIMARY KEY, amount bigint) PARTITION BY RANGE (id);
     CREATE TABLE test_ground.month_1 PARTITION OF test_ground.month DEFAULT;
     CREATE INDEX month_amount ON ONLY test_ground.month (amount);
     CREATE INDEX month_1_amount ON test_ground.month_1 (amount)`,
  );
  await add('003-amounts.sql', AMOUNTS);
  const { log, heard } = heardLog();
  const gaveUpOnce = heard('migration is waiting for a busy table');
  const written = await database.transaction(async (tx) => {
    await tx.query('SELECT * FROM test_ground.month WHERE amount = 1');
    const migrating = migrate(database, here, { log, lockTimeoutMs: 100, retryPauseMs: 10 });
    await gaveUpOnce;
    await database.query(`INSERT INTO test_ground.month VALUES ('meanwhile', 9)`);
    return { migrating };
  });
  assert.deepEqual(await written.migrating, ['003-amounts.sql']);
});

test('a replica that starts while another makes the first tables finishes with it, index builds too [EE10]', async (t) => {
  const { database, url } = await openEmpty(t);
  const directory = await mkdtemp(path.join(tmpdir(), 'migrations-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const numbers = Array.from({ length: 24 }, (_, index) => String(index + 1).padStart(3, '0'));
  for (const number of numbers) {
    const isIndex = Number(number) % 2 === 0;
    const text = isIndex
      ? `-- additive\n-- concurrently\nCREATE INDEX CONCURRENTLY i${number} ON test_ground.first (id);\n`
      : `CREATE TABLE test_ground.${number === '001' ? 'first' : `t${number}`} (id int);\n`;
    await writeFile(path.join(directory, `${number}-file.sql`), text);
  }
  const files = { schema: 'test_ground', directory: pathToFileURL(directory) };
  const second = openDatabase({ url, applicationName: 'second' });
  t.after(() => second.close());
  let late: Promise<string[]> | undefined;
  const info = (): void => {
    late ??= migrate(second, files, { retryPauseMs: 5 });
  };
  const done = await migrate(database, files, { log: { ...silentLog, info }, retryPauseMs: 5 });
  assert.ok(late !== undefined);
  assert.deepEqual(
    [...done, ...(await late)].toSorted(),
    numbers.map((number) => `${number}-file.sql`),
  );
});

test('no tables are made beside those of an older version, nor among those of somebody else [EE1]', async (t) => {
  const { database } = await openEmpty(t);
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-migrations-'));
  t.after(() => rm(folder, { recursive: true }));
  const here = { schema: 'test_ground', directory: pathToFileURL(`${folder}/`) };
  const names = ['payments', 'partners', 'invoices'];
  const text = names.map((name) => `CREATE TABLE test_ground.${name} ();`).join('\n');
  await writeFile(path.join(folder, '001-tables.sql'), text);
  const refused = (place: string): Promise<void> => {
    const message = new RegExp(`schema ${place} `);
    return assert.rejects(migrate(database, here), { name: 'ConfigurationError', message });
  };
  await database.query('CREATE SCHEMA test_ground CREATE TABLE somebodys ()');
  await refused('test_ground');
  await database.query('DROP TABLE test_ground.somebodys');
  for (const name of names) await database.query(`CREATE TABLE public.${name} ()`);
  await refused('public');
  // A biller's own tables may have a name in common with ours.
  await database.query('DROP TABLE public.invoices');
  assert.deepEqual(await migrate(database, here), ['001-tables.sql']);
});
