import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import pg from 'pg';
import { ConfigurationError, DatabaseUnavailable } from './errors.ts';
import { checkDurability, takesWrites } from './database-setup.ts';
import { constraintOf, openDatabase, sql, sqlState, type Database } from './postgres.ts';
import { freePort, testDatabase, testServer, until } from '../test/testing.ts';

const migrations = {
  schema: 'test_ground',
  directory: new URL('./fixtures/migrations/', import.meta.url),
};
// One user for the whole file, so that the server does not stop and start between its tests.
const server = await testServer();
after(() => server.stop());

function isUnavailable(outcome: 'not_executed' | 'unknown') {
  return (error: unknown): boolean =>
    error instanceof DatabaseUnavailable && error.outcome === outcome;
}

test('cents, times and dates come back as the wire writes them, whatever the time zone of the process', async (t) => {
  const database = await testDatabase(t, { migrations });
  const rows = await database.query(
    `SELECT 99999999999::bigint AS cents, timestamptz '2026-03-01 01:30:00.123999-08' AS at,
            timestamptz '2026-03-01 09:30:00Z' AS whole, date '2026-02-28' AS day,
            ARRAY[1, NULL, 9007199254740991]::bigint[] AS many, ARRAY[]::bigint[] AS none, NULL::bigint AS nothing`,
  );
  assert.deepEqual(rows, [
    {
      cents: 99_999_999_999,
      at: '2026-03-01T09:30:00.123Z',
      whole: '2026-03-01T09:30:00.000Z',
      day: '2026-02-28',
      many: [1, null, 9_007_199_254_740_991],
      none: [],
      nothing: null,
    },
  ]);
});

test('an amount beyond 2^53 is a bug that stops, never a rounded amount', async (t) => {
  const database = await testDatabase(t, { migrations });
  await assert.rejects(
    database.query('SELECT 9007199254740993::bigint AS cents'),
    assert.AssertionError,
  );
  assert.equal((await database.query('SELECT 1 AS one')).length, 1);
});

test('a constraint is known by its name, also where a node of a cluster reports it for its shard', () => {
  // The messages of Citus 13.2.2: the code of the first is XX000 where the rows were copied to their shards.
  for (const [message, name] of [
    [
      'duplicate key value violates unique constraint "sandbox_funds_pkey_102080"',
      'sandbox_funds_pkey',
    ],
    [
      'new row for relation "client_keys_102021" violates check constraint "client_keys_slot_check"',
      'client_keys_slot_check',
    ],
    ['no open batch of this partner has the id none', undefined],
  ] as const) {
    assert.equal(constraintOf(new pg.DatabaseError(message, message.length, 'error')), name);
  }
});

test('a violated constraint keeps its code and the connection', async (t) => {
  const database = await testDatabase(t, { migrations, maxConnections: 1 });
  const backend = 'SELECT pg_backend_pid() AS pid';
  const before = await database.query(backend);
  const insert = sql(
    'test.insert',
    'INSERT INTO test_ground.payment (platform_payment_id, amount_in_cents) VALUES ($1, $2)',
  );
  await database.query(insert, ['p1', 5]);
  await assert.rejects(
    database.query(insert, ['p1', 5]),
    (error) => sqlState(error) === '23505' && constraintOf(error) === 'payment_pkey',
  );
  await assert.rejects(database.query(insert, ['p2', 0]), (error) => sqlState(error) === '23514');
  await assert.rejects(
    database.transaction(() => Promise.reject(new Error('changed my mind'))),
    { message: 'changed my mind' },
  );
  assert.deepEqual(await database.query(backend), before);
});

test('two transactions that lock in opposite order both commit in the end [F72]', async (t) => {
  const database = await testDatabase(t, { migrations });
  await database.query(`INSERT INTO test_ground.payment VALUES ('a', 1), ('b', 1)`);
  let runs = 0;
  const both = Promise.withResolvers<void>();
  const add = (ids: [string, string]): Promise<void> =>
    database.transaction(async (tx) => {
      runs += 1;
      for (const [index, id] of ids.entries()) {
        await tx.query(
          'UPDATE test_ground.payment SET amount_in_cents = amount_in_cents + 1 WHERE platform_payment_id = $1',
          [id],
        );
        // The first time each waits until the other holds its first row, so that they surely meet.
        if (index === 0 && runs === 2) both.resolve();
        if (index === 0 && runs <= 2) await both.promise;
      }
    });
  await Promise.all([add(['a', 'b']), add(['b', 'a'])]);
  // Three, or more: the loser may come back before the winner has woken up, and they meet again.
  assert.ok(runs > 2, 'neither was run again');
  const rows = await database.query('SELECT amount_in_cents FROM test_ground.payment');
  assert.deepEqual(rows, [{ amount_in_cents: 3 }, { amount_in_cents: 3 }]);
});

test('a transaction that always conflicts gives up as unavailable, having written nothing [F72]', async (t) => {
  const database = await testDatabase(t, { migrations });
  let runs = 0;
  const hopeless = database.transaction(async (tx) => {
    runs += 1;
    await tx.query(`INSERT INTO test_ground.payment VALUES ('p1', 1)`);
    await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`);
  });
  await assert.rejects(hopeless, isUnavailable('not_executed'));
  assert.equal(runs, 8);
  assert.deepEqual(await database.query('SELECT * FROM test_ground.payment'), []);
});

test('a statement that waited too long costs its transaction, not the connection', async (t) => {
  const own = await testDatabase(t, { migrations });
  const database = openDatabase({ url: own.url, applicationName: 'patient', maxConnections: 1 });
  own.closing(() => database.close());
  const session = async (): Promise<unknown> => {
    const [row] = await database.query<{ pid: number; open: boolean }>(
      `SELECT pg_backend_pid() AS pid, xact_start < query_start AS open FROM pg_stat_activity WHERE pid = pg_backend_pid()`,
    );
    return row;
  };
  const first = await session();
  const lock = 'SELECT pg_advisory_xact_lock(7)';
  const waiting = (limits: object, text: string): Promise<unknown> =>
    database.transaction(async (tx) => {
      await tx.query(
        `INSERT INTO test_ground.payment (platform_payment_id, amount_in_cents) VALUES ('p', 1)`,
      );
      await tx.query(text);
    }, limits);
  const release = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const holder = own.transaction(async (tx) => {
    await tx.query(lock);
    held.resolve();
    await release.promise;
  });
  await held.promise;
  try {
    for (const [limits, text] of [
      [{ lockTimeoutMs: 20 }, lock],
      [{ statementTimeoutMs: 20 }, 'SELECT pg_sleep(30)'],
    ] as const) {
      await assert.rejects(waiting(limits, text), isUnavailable('not_executed'));
      assert.deepEqual(await session(), first, text);
    }
    // An error of another pool's leaves no transaction open either.
    const theirs = await waiting({ lockTimeoutMs: 20 }, lock).catch((error: unknown) => error);
    await assert.rejects(
      database.transaction(async (tx) => {
        await tx.query('SELECT 1');
        throw theirs;
      }),
    );
    assert.deepEqual(await session(), first);
  } finally {
    release.resolve();
    await holder;
  }
  assert.deepEqual(await database.query('SELECT * FROM test_ground.payment'), []);
});

test('a full pool refuses in time instead of hanging [F73]', async (t) => {
  const own = await testDatabase(t, { migrations });
  const database = openDatabase({
    url: own.url,
    applicationName: 'small',
    maxConnections: 1,
    acquireTimeoutMs: 1_000,
    maxWaiting: 1,
  });
  own.closing(() => database.close());
  // To open the connection may take longer on a busy machine: it is there, and idle, before its limit of time is tried.
  await until('a connection', () =>
    database.query('SELECT 1').then(
      () => true,
      () => false,
    ),
  );
  const release = Promise.withResolvers<void>();
  const holding = Promise.withResolvers<void>();
  const holder = database.withConnection(async () => {
    holding.resolve();
    await release.promise;
  });
  await holding.promise;
  const waits = database.query('SELECT 1');
  await assert.rejects(database.query('SELECT 2'), isUnavailable('not_executed'));
  await assert.rejects(waits, isUnavailable('not_executed'));
  release.resolve();
  await holder;
  assert.equal((await database.query('SELECT 1 AS one')).length, 1);
});

test('a full disk, a standby, a time limit or a lost right is the database’s trouble, and surely wrote nothing [F73]', async (t) => {
  const database = await testDatabase(t, { migrations });
  const raise = (state: string): Promise<unknown> =>
    database.query(`DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '${state}'; END $$`);
  // No room on the disk, no memory, too many connections; no longer admitted; limits of time.
  const definite = '53100 53200 53300 28P01 28000 3D000 25006 57014 55P03 25P03 25P04';
  for (const state of definite.split(' ')) {
    await assert.rejects(raise(state), isUnavailable('not_executed'), state);
  }
  // The connection or the server's own files failed: whether the statement was executed is not known.
  for (const state of ['08006', '57P01', '57P02', '58030']) {
    await assert.rejects(raise(state), isUnavailable('unknown'), state);
  }
  for (const state of ['22P05', '23505', '42601', '25001', '55000']) {
    await assert.rejects(raise(state), (error) => sqlState(error) === state, state);
  }
  await assert.rejects(
    database.transaction(async (tx) => {
      await tx.query('SET TRANSACTION READ ONLY');
      await tx.query('CREATE TABLE test_ground.of_a_standby ()');
    }),
    isUnavailable('not_executed'),
  );
});

test('without a server the database is unavailable, and an unreadable address is refused', async () => {
  const port = await freePort();
  const database = openDatabase({
    url: `postgres://nobody:secret@127.0.0.1:${port}/none`,
    applicationName: 'lost',
  });
  await assert.rejects(database.query('SELECT 1'), isUnavailable('not_executed'));
  await database.close();
  await assert.rejects(database.query('SELECT 1'), isUnavailable('not_executed'));
  assert.throws(() => openDatabase({ url: 'not a url', applicationName: 'x' }), ConfigurationError);
});

test('a session that the server ends under a statement leaves the outcome unknown, and the pool recovers', async (t) => {
  const database = await testDatabase(t, { migrations });
  const asleep = database.query('SELECT pg_sleep(30)');
  const ended = assert.rejects(asleep, isUnavailable('unknown'));
  await endSessions(database, `query LIKE 'SELECT pg_sleep%'`);
  await ended;
  assert.equal((await database.query('SELECT 1 AS one')).length, 1);
});

test('a session lost before COMMIT was sent surely wrote nothing [F71]', async (t) => {
  const database = await testDatabase(t, { migrations });
  const work = database.transaction(async (tx) => {
    await tx.query(`INSERT INTO test_ground.payment VALUES ('p1', 1)`);
    const [me] = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await database.query('SELECT pg_terminate_backend($1)', [me!.pid]);
    await tx.query('SELECT pg_sleep(30)');
  });
  await assert.rejects(work, isUnavailable('not_executed'));
  assert.deepEqual(await database.query('SELECT * FROM test_ground.payment'), []);
});

test('idle sessions that the server ends neither end the process nor fail the next statement [F78]', async (t) => {
  const database = await testDatabase(t, { migrations });
  await Promise.all([1, 2, 3].map(() => database.query('SELECT pg_sleep(0.01)')));
  assert.equal(database.stats().idle, 3);
  const other = openDatabase({ url: server.url, applicationName: 'killer' });
  await other.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, [
    new URL(database.url).pathname.slice(1),
  ]);
  await other.close();
  while (database.stats().open > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal((await database.query('SELECT 1 AS one')).length, 1);
});

test('a statement prepared before a migration changed its table still answers', async (t) => {
  const database = await testDatabase(t, { migrations, maxConnections: 1 });
  const all = sql('test.all', 'SELECT * FROM test_ground.payment');
  await database.query(`INSERT INTO test_ground.payment VALUES ('p1', 1, now(), 'x')`);
  await database.query(all);
  await database.query('ALTER TABLE test_ground.payment DROP COLUMN note');
  const rows = await database.query(all);
  assert.equal(Object.keys(rows[0]!).join(), 'platform_payment_id,amount_in_cents,initiated_at');
});

async function endSessions(database: Database, condition: string): Promise<void> {
  for (let ended = 0; ended === 0;) {
    const rows = await database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${condition} AND pid <> pg_backend_pid()
        AND datname = current_database()`,
    );
    ended = rows.length;
  }
}

// Setting up ---------------------------------------------------------------------------------------------------------------

test('a database that would lose acknowledged payments is refused wherever that was set [KT3 F74 F75]', async (t) => {
  const own = await testDatabase(t, { migrations });
  await checkDurability(own);
  const name = new URL(own.url).pathname.slice(1);
  const check = async (): Promise<void> => {
    const fresh = openDatabase({ url: own.url, applicationName: 'check' });
    try {
      await checkDurability(fresh);
    } finally {
      await fresh.close();
    }
  };
  await own.query(`ALTER DATABASE ${name} SET synchronous_commit = local`);
  await check();
  await own.query(`ALTER DATABASE ${name} SET synchronous_commit = off`);
  await assert.rejects(check(), ConfigurationError);
  await own.query(`ALTER DATABASE ${name} RESET synchronous_commit`);
  await check();
  await own.query(`ALTER ROLE CURRENT_USER IN DATABASE ${name} SET synchronous_commit = off`);
  await assert.rejects(check(), ConfigurationError);
});

test('a database that is set to read only, as a standby is, makes a server not ready [F73 F77]', async (t) => {
  const database = await testDatabase(t, { migrations });
  assert.equal(await takesWrites(database), true);
  const name = new URL(database.url).pathname.slice(1);
  await database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  const later = openDatabase({ url: database.url, applicationName: 'later' });
  database.closing(() => later.close());
  assert.equal(await takesWrites(later), false);
  const nowhere = openDatabase({ url: 'postgres://a:b@127.0.0.1:1/c', applicationName: 'nowhere' });
  assert.equal(await takesWrites(nowhere), false);
  await nowhere.close();
});
