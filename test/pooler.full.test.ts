/**
 * Both servers behind PgBouncer in transaction mode (decision 34), where two transactions of one connection may run in two sessions:
 * no startup parameter is refused, nothing relies on a session, and nothing is left behind in one for whoever comes next.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { DatabaseUnavailable, openDatabase, sql } from '@duebridge/runtime';
import { freePort, testDatabase, type TestDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../packages/partner/src/migrations.ts';
import { openPlatformDatabase } from '../packages/platform/src/server.ts';
import { listens } from './consumers/consumer.ts';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { createToken, openSession } from './support/customer.ts';

const pgbouncer = ['/usr/sbin', '/usr/bin', '/usr/local/bin']
  .map((folder) => path.join(folder, 'pgbouncer'))
  .find((program) => spawnSync(program, ['--version']).status === 0);

/** Starts PgBouncer before one database and gives the address to use; two server sessions, so that transactions share them. */
async function pooler(t: TestContext, program: string, database: TestDatabase): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-pgbouncer-'));
  await chmod(folder, 0o755);
  t.after(() => rm(folder, { recursive: true, force: true }));
  const url = new URL(database.url);
  const port = await freePort();
  const file = path.join(folder, 'pgbouncer.ini');
  const target = `host=${url.hostname} port=${url.port} dbname=${url.pathname.slice(1)} user=${url.username} password=${url.password}`;
  await writeFile(
    file,
    `[databases]\npooled = ${target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = ${port}\n` +
      'auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\nunix_socket_dir =\n',
    { mode: 0o644 },
  );
  const child = spawn(program, [file], {
    // It refuses to run as root.
    ...(process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : undefined),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (part: Buffer) => (said += part.toString()));
  const gone = once(child, 'exit');
  t.after(() => child.kill('SIGKILL'));
  // Closed after everything that uses it and before the database is dropped.
  database.closing(async () => {
    child.kill('SIGQUIT');
    await gone;
  });
  for (;;) {
    assert.equal(child.exitCode, null, said);
    if (await listens(port)) return `postgres://anybody:any@127.0.0.1:${port}/pooled`;
  }
}

test('statements behind a pooler keep time zone, isolation and limits, and leave no setting behind', async (t) => {
  if (pgbouncer === undefined) {
    t.diagnostic('pgbouncer is not installed');
    return;
  }
  // Its defaults are Berlin time, German dates, serializable, and an empty search path.
  const direct = await testDatabase(t, { migrations, name: 'pooler' });
  const url = await pooler(t, pgbouncer, direct);
  const database = openDatabase({ url, applicationName: 'pooled', statementTimeoutMs: 300 });
  direct.closing(() => database.close());
  const settings = sql(
    'pooler.settings',
    `SELECT current_setting('TimeZone') AS zone, current_setting('transaction_isolation') AS isolation,
            current_setting('statement_timeout') AS statement, timestamptz '2026-03-01 09:30:00Z' AS at`,
  );
  const expected = {
    zone: 'UTC',
    isolation: 'read committed',
    statement: '300ms',
    at: '2026-03-01T09:30:00.000Z',
  };
  const many = await Promise.all(Array.from({ length: 40 }, () => database.query(settings)));
  for (const rows of many) assert.deepEqual(rows, [expected]);
  assert.deepEqual(await database.transaction((tx) => tx.query(settings)), [expected]);
  assert.deepEqual(
    await database.transaction((tx) => tx.query(settings), {
      isolation: 'serializable',
      statementTimeoutMs: 0,
    }),
    [{ ...expected, isolation: 'serializable', statement: '0' }],
  );
  await assert.rejects(database.query('SELECT pg_sleep(5)'), DatabaseUnavailable);

  // What another program of the biller's would meet in the same two sessions.
  const { Client } = await import('pg');
  const stranger = new Client({ connectionString: url });
  await stranger.connect();
  try {
    const left = await stranger.query(
      `SELECT current_setting('statement_timeout') AS statement, current_setting('default_transaction_isolation') AS isolation,
              current_setting('idle_in_transaction_session_timeout') AS idle`,
    );
    assert.deepEqual(left.rows, [{ statement: '0', isolation: 'serializable', idle: '0' }]);
  } finally {
    await stranger.end();
  }
});

test('a platform and a partner serve behind a pooler: migrated, ready, a payment posted once', async (t) => {
  if (pgbouncer === undefined) {
    t.diagnostic('pgbouncer is not installed');
    return;
  }
  const direct = await testDatabase(t, { migrations, name: 'pooled' });
  const databaseUrl = await pooler(t, pgbouncer, direct);
  const sides = new BothSides();
  direct.closing(() => sides.stop());
  const key = 'a-static-key-of-a-test';
  const auth = { method: 'key', header: 'x-api-key', keys: [key] } as const;
  const partner = await sides.partner({ auth, databaseUrl });
  // The platform's tables go beside the kit's, as somebody decided who ran its migrate command.
  const made = await openPlatformDatabase({ databaseUrl, beside: true });
  assert.ok(made.applied.length > 0);
  await made.close();
  // Index builds lock their session, which here is not theirs to end.
  const held = await direct.query(`SELECT pid FROM pg_locks WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`);
  assert.deepEqual(held, []);
  const platform = await sides.platform({ databaseUrl });
  await partner.importAccounts('biller_id,account_id,amount_due\ngas,A-1,10.00\n');
  const client = await platform.register(gasCompany(partner.server.url, key));
  const { body } = await createToken(client, { account_id: 'A-1' });
  const browser = await openSession(client.platformUrl, body.token);
  const confirmed = await Promise.all(Array.from({ length: 10 }, () => browser.confirm(250)));
  const [id = '', ...more] = new Set(confirmed.map((one) => one.body.platform_payment_id));
  assert.deepEqual(more, []);
  assert.equal((await browser.ended(id)).status, 'succeeded');
  assert.deepEqual(
    await direct.query(
      `SELECT amount_due_in_cents AS owed FROM duebridge_partner.account WHERE account_id = 'A-1'`,
    ),
    [{ owed: 750 }],
  );
});
