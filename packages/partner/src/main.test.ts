import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ConfigurationError, openDatabase } from '@duebridge/runtime';
import { freePort, emptyDatabase, testServer } from '@duebridge/runtime/testing';
import { readPartnerConfig } from './config.ts';
import { endPayments } from './store.ts';
import { accepted, instruction, kitDatabase, paymentPath, TEST_KEY } from '../test/kit.ts';

const entryPoint = fileURLToPath(new URL('../../../bin/duebridge.ts', import.meta.url));

interface Finished {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs `duebridge partner …` to its end with this environment only. */
async function run(env: Record<string, string>, args: string[], input?: string): Promise<Finished> {
  const child = start(env, args);
  let [out, err] = ['', ''];
  child.stdout.on('data', (part: Buffer) => (out += part.toString()));
  child.stderr.on('data', (part: Buffer) => (err += part.toString()));
  child.stdin.end(input ?? '');
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, out, err };
}

function start(env: Record<string, string>, args: string[]) {
  return spawn(process.execPath, [entryPoint, 'partner', ...args], {
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      ...env,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

async function folder(t: TestContext): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'kit-'));
  t.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

test('the command line: serve, import, pay, list, cancel, stop [S2 KY1 ST4]', async (t) => {
  const database = await kitDatabase(t, 'cli');
  const directory = await folder(t);
  const adminPort = await freePort();
  const env = {
    DATABASE_URL: database.url,
    DUEBRIDGE_DATA_DIR: directory,
    DUEBRIDGE_PARTNER_KEY: TEST_KEY,
    DUEBRIDGE_PARTNER_BILLERS: '[{"biller_id":"acme","max_amount_in_cents":500000}]',
    DUEBRIDGE_PARTNER_HOLD_SECONDS: '3600',
    PORT: '0',
    ADMIN_PORT: String(adminPort),
  };
  const early = await run(env, ['payments']);
  assert.equal(early.code, 2, 'without a key to the admin API there is nothing to ask it with');

  const server = start(env, ['serve']);
  let log = '';
  const ready = Promise.withResolvers<string>();
  server.stderr.on('data', (part: Buffer) => {
    log += part.toString();
    const url = /"url":"([^"]+)"/.exec(log)?.[1];
    if (url !== undefined) ready.resolve(url);
  });
  server.on('exit', () => ready.reject(new Error(log)));
  t.after(() => server.kill('SIGKILL'));
  const url = await ready.promise;

  const keyFile = await stat(path.join(directory, 'partner-admin-key'));
  assert.equal(keyFile.mode & 0o777, 0o600);

  const file = path.join(directory, 'accounts.csv');
  await writeFile(file, 'account_id,amount_due\nA-1,10.00\n');
  const good = await run(env, ['accounts', 'import', file, '--biller', 'acme', '--json']);
  assert.deepEqual(JSON.parse(good.out), { created: 1, updated: 0, unchanged: 0 });
  const piped = await run(env, ['accounts', 'import', '-'], 'biller_id,account_id\nacme,A-1\n');
  assert.equal(piped.code, 0, piped.err);

  const put = await fetch(`${url}${paymentPath('pay-1')}`, {
    method: 'PUT',
    headers: { 'x-api-key': TEST_KEY, 'content-type': 'application/json' },
    body: instruction(),
  });
  assert.equal(put.status, 200);
  const listed = await run(env, ['payments', '--account', 'A-1', '--json']);
  assert.deepEqual(
    (JSON.parse(listed.out) as { payments: { status: string }[] }).payments.map(
      (one) => one.status,
    ),
    ['processing'],
  );
  const canceled = await run(env, ['payment', 'cancel', 'pay-1', '--reason', 'test', '--json']);
  assert.equal((JSON.parse(canceled.out) as { status: string }).status, 'canceled');
  const unknown = await run(env, ['payment', 'cancel', 'pay-2', '--reason', 'test']);
  assert.equal(unknown.code, 3);
  assert.match((await run(env, ['payments'])).out, /pay-1 +canceled/);

  // The operator's other reads and actions (admin.test.ts has the API's own tests).
  assert.match((await run(env, ['payment', 'show', 'pay-1'])).out, /canceled[^]*reason=test/);
  assert.match((await run(env, ['batch', 'show', 'batch-1'])).out, /sha256 +[0-9a-f]{64}/);
  const lines = await run(env, ['batch', 'export', 'batch-1']);
  assert.equal(lines.out, 'platform_payment_id,status,amount_in_cents\npay-1,canceled,2500\n');
  const settle = ['payment', 'settle', 'pay-1', '--outcome', 'posted', '--reason', 'test'];
  const settled = await run(env, settle);
  assert.deepEqual([settled.code, settled.out], [1, '']);
  assert.match(settled.err, /database of the kit/);

  for (const page of ['/healthz', '/readyz', '/openapi.json', '/docs']) {
    assert.equal((await fetch(`${url}${page}`)).status, 200, page);
  }
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  assert.match(metrics, /duebridge_kit_accepted_total 1/);
  assert.equal((await fetch(`${url}/metrics`)).status, 404, 'figures are for operators');

  server.kill('SIGTERM');
  const [code] = (await once(server, 'exit')) as [number | null];
  assert.equal(code, 0);
  assert.equal(log.includes(TEST_KEY), false);
  const after = await run(env, ['payments']);
  assert.equal(after.code, 1, 'nobody answers any more');
});

test('migrate creates the tables once and reports it', async (t) => {
  const server = await testServer();
  const { url, drop } = await emptyDatabase(server.url, 'kit_migrate');
  const env = { DATABASE_URL: url };
  t.after(async () => {
    await drop();
    await server.stop();
  });
  const platform = openDatabase({ url, applicationName: 'test', maxConnections: 1 });
  await platform.query('CREATE SCHEMA duebridge_platform');
  await platform.close();
  const astray = await run(env, ['accounts', 'import', '-'], 'biller_id,account_id\nacme,A-1\n');
  assert.match(`${astray.code} ${astray.err}`, /^2 [^]*the database of a platform/);
  const first = await run(env, ['migrate', '--json']);
  assert.equal(first.code, 0, first.err);
  const { applied } = JSON.parse(first.out) as { applied: string[] };
  assert.ok(applied.length >= 1);
  const second = await run(env, ['migrate', '--json']);
  assert.deepEqual(JSON.parse(second.out), { applied: [] });
});

test('exit codes and help: usage is 3, configuration is 2, help is 0', async () => {
  assert.equal((await run({}, ['--help'])).code, 0);
  assert.match((await run({}, ['serve', '--help'])).out, /DUEBRIDGE_PARTNER_KEY/);
  assert.equal((await run({}, ['frobnicate'])).code, 3);
  assert.equal((await run({}, ['payment', 'cancel', 'p'])).code, 3, 'a cancel needs its reason');
  const open = await run({}, ['serve']);
  assert.equal(open.code, 2, 'a server without protection does not start');
  assert.match(open.err, /DUEBRIDGE_PARTNER_KEY/);
});

test('every wrong protection setting is refused by name, without revealing a secret [KY2 OA1]', () => {
  const secret = 'a-secret-that-is-not-told';
  const client = { DUEBRIDGE_PARTNER_CLIENT_ID: 'p', DUEBRIDGE_PARTNER_CLIENT_SECRET: secret };
  const wrong: Record<string, string>[] = [
    {},
    { DUEBRIDGE_PARTNER_KEY: 'short' },
    { DUEBRIDGE_PARTNER_KEY: `${secret} with spaces` },
    { DUEBRIDGE_PARTNER_KEY: secret, ...client },
    { DUEBRIDGE_PARTNER_CLIENT_ID: 'p' },
    { DUEBRIDGE_PARTNER_CLIENT_SECRET: secret },
    { DUEBRIDGE_PARTNER_KEY: secret, DUEBRIDGE_PARTNER_BILLERS: '[{"biller_id":"a","max":1}]' },
    {
      DUEBRIDGE_PARTNER_KEY: secret,
      DUEBRIDGE_PARTNER_BILLERS: '[{"biller_id":"a","max_amount_in_cents":1.5}]',
    },
    { DUEBRIDGE_PARTNER_KEY: secret, PORT: '70000' },
    { DUEBRIDGE_PARTNER_KEY: secret, DATABASE_URL: 'mysql://x' },
  ];
  for (const env of wrong) {
    assert.throws(
      () => readPartnerConfig(env),
      (error) => error instanceof ConfigurationError && !error.message.includes(secret),
      JSON.stringify(env),
    );
  }
});

test('the environment describes a deployment with two keys, or with an OAuth client [KY1 OA1 SC1]', () => {
  const keyed = readPartnerConfig({
    DUEBRIDGE_PARTNER_KEY: 'the-first-key-of-two,the-other-key-of-two',
    DUEBRIDGE_PARTNER_KEY_HEADER: 'Authorization',
    DUEBRIDGE_PARTNER_BILLERS: '[{"biller_id":"acme","duplicate_window_seconds":60}]',
  });
  assert.deepEqual(keyed.auth, {
    method: 'key',
    header: 'Authorization',
    keys: ['the-first-key-of-two', 'the-other-key-of-two'],
  });
  assert.deepEqual(keyed.billers, [{ biller_id: 'acme', duplicate_window_seconds: 60 }]);
  assert.deepEqual([keyed.port, keyed.adminPort, keyed.host], [4100, 4101, '127.0.0.1']);
  const oauth = readPartnerConfig({
    DUEBRIDGE_PARTNER_CLIENT_ID: 'a',
    DUEBRIDGE_PARTNER_CLIENT_SECRET: 'a-secret-of-client-a,its-other-secret',
  });
  assert.deepEqual(oauth.auth, {
    method: 'oauth',
    client_id: 'a',
    secrets: ['a-secret-of-client-a', 'its-other-secret'],
  });
});

test('a file of accounts is imported whole or not at all; what is stored is told when one breaks off', async (t) => {
  const database = await kitDatabase(t, 'imports');
  const file = path.join(await folder(t), 'A.csv');
  const env = { DATABASE_URL: database.url };
  const write = (...rows: string[]): Promise<void> =>
    writeFile(file, `biller_id,account_id,amount_due\n${rows.join('\n')}\n`);
  await write('acme,A-1,0.01', 'acme,B-1,one');
  const bad = await run(env, ['accounts', 'import', file]);
  assert.equal(bad.code, 1);
  assert.ok(bad.err.includes(`nothing was imported:\n  ${file}, line 3: amount_due`), bad.err);
  assert.deepEqual(await database.query('SELECT FROM duebridge_partner.account'), []);

  const pages = Array.from({ length: 1_000 }, (_, index) => `acme,A-${index},0.01`);
  await write(...pages, 'acme,B-1,1.00');
  const first = await run(env, ['accounts', 'import', file]);
  assert.equal(first.out, '1001 created, 0 updated, 0 unchanged\n');
  const noted = await database.query(
    `SELECT detail - 'file_sha256' AS detail FROM duebridge_partner.payment_audit WHERE event = 'accounts_imported'`,
  );
  assert.deepEqual(noted, [{ detail: { created: 1_001, updated: 0, unchanged: 0 } }]);
  // Paid since: the second page has to say of which moment its amount is true.
  await accepted(database, ['p'], { account_id: 'B-1' });
  await database.transaction((tx) =>
    endPayments(tx, [
      { platform_payment_id: 'p', status: 'succeeded', failure_reason: null, in_ledger: true },
    ]),
  );
  await write(...pages, 'acme,B-1,3.00');
  const late = await run(env, ['accounts', 'import', file]);
  assert.equal(late.code, 1);
  assert.match(
    late.err,
    /1000 of 1001 accounts were imported, .*\n.*A\.csv, account B-1: has been paid here/,
  );
  const again = await run(env, ['accounts', 'import', file, '--as-of', '2026-01-01T00:00:00Z']);
  assert.equal(again.code, 0, again.err);
  const elsewhere = { ...env, DUEBRIDGE_PARTNER_BILLERS: '[{"biller_id":"water"}]' };
  assert.match((await run(elsewhere, ['accounts', 'import', file])).err, /is not served here/);
});
