/**
 * Both servers behind PgBouncer in transaction mode (decision 34), where two transactions of one connection may run in two sessions:
 * no startup parameter is refused, nothing relies on a session, and nothing is left behind in one for whoever comes next.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { DatabaseUnavailable, openDatabase, sql } from '@duebridge/runtime';
import { freePort, testDatabase, type TestDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../packages/partner/src/migrations.ts';
import { startPartner } from '../packages/partner/src/server.ts';
import { startPlatform } from '../packages/platform/src/server.ts';

const pgbouncer = ['/usr/sbin', '/usr/bin', '/usr/local/bin']
  .map((folder) => path.join(folder, 'pgbouncer'))
  .find((program) => {
    try {
      execFileSync(program, ['--version'], { stdio: 'ignore' });
      return true;
    } catch {
      return false;
    }
  });

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
    if (await answers(port)) return `postgres://anybody:any@127.0.0.1:${port}/pooled`;
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => setTimeout(() => resolve(false), 20));
  });
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
  const quiet = { debug: ignore, info: ignore, warn: ignore, error: ignore };
  const common = {
    databaseUrl,
    port: 0,
    adminPort: 0,
    adminKey: 'an-admin-key-of-a-test',
    log: quiet,
  };
  const key = 'a-static-key-of-a-test';
  const partner = await startPartner({
    ...common,
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
  });
  direct.closing(() => partner.stop());
  // The platform's tables go beside the kit's, as somebody decided who ran its migrate command.
  const { openPlatformDatabase } = await import('../packages/platform/src/server.ts');
  const made = await openPlatformDatabase({ databaseUrl }, { beside: true });
  assert.deepEqual(made.applied, await sqlFiles('platform'));
  await made.close();
  const platform = await startPlatform({
    ...common,
    sealKey: Buffer.alloc(32, 1).toString('base64'),
    keyPepper: Buffer.alloc(32, 2).toString('base64'),
  });
  direct.closing(() => platform.stop());
  for (const url of [partner.url, platform.url]) {
    const ready = await fetch(`${url}/readyz`);
    assert.equal(ready.status, 200, await ready.text());
  }
  await fetch(`${partner.adminUrl}/admin/v1/accounts/import`, {
    method: 'POST',
    headers: { authorization: `Bearer ${common.adminKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ csv: 'biller_id,account_id,amount_due\nacme,A-1,10.00\n' }),
  });
  const payment = `${partner.url}/biller/acme/account/A-1/payment/pay-1`;
  const puts = Array.from({ length: 10 }, () =>
    fetch(payment, {
      method: 'PUT',
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({ amount_in_cents: 250, platform_batch_id: 'batch-1' }),
    }),
  );
  for (const put of await Promise.all(puts)) assert.equal(put.status, 200);
  for (let status = 'processing'; status === 'processing';) {
    const read = await fetch(payment, { headers: { 'x-api-key': key, prefer: 'wait=5' } });
    ({ status } = (await read.json()) as { status: string });
    if (status !== 'processing') assert.equal(status, 'succeeded');
  }
  assert.deepEqual(
    await direct.query(
      `SELECT amount_due_in_cents AS owed FROM duebridge_partner.account WHERE account_id = 'A-1'`,
    ),
    [{ owed: 750 }],
  );
});

async function sqlFiles(side: string): Promise<string[]> {
  const folder = path.join(import.meta.dirname, '..', 'packages', side, 'src', 'migrations');
  const { readdir } = await import('node:fs/promises');
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
  for (const name of names) assert.notEqual(await readFile(path.join(folder, name), 'utf8'), '');
  return names;
}

function ignore(): void {
  // The answers are what counts.
}
