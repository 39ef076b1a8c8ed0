/** The kit beside any stack: accounts behind the biller's HTTP service. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import test, { type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { accountServiceRoutes } from '@duebridge/contract';
import { freePort, until } from '@duebridge/runtime/testing';
import { accountsOverHttp } from './accounts-over-http.ts';
import { readPartnerConfig } from './config.ts';
import { accountServiceOpenApi } from './server.ts';
import { ended, instruction, kitDatabase, paymentPath, startKit, TEST_KEY } from '../test/kit.ts';

const secret = 'a-secret-that-both-know';
const example = (name: string): string =>
  fileURLToPath(new URL(`./example/${name}`, import.meta.url));

/** The id of an account with what separates things in paths, files and JSON. */
const ODD = '12,34/5+"ä\\ ';

/** An example in another language: where its records are, and how it starts. */
interface Example {
  /** The program and arguments that succeed when the example can run. */
  readonly probe: readonly [program: string, ...args: string[]];
  readonly storage: string;
  start(storage: string, port: number): string[];
  /** Adds two accounts to its records: before it starts, or once it has created its tables. */
  fill(storage: string): void;
  readonly filled: 'before it starts' | 'once it listens';
  /** Leaves in its records what a crash in the middle of a write leaves there, for the payment `torn`. */
  tear?(storage: string): void;
}

const inSqlite = {
  storage: 'books.sqlite',
  filled: 'once it listens',
  fill(file: string) {
    const database = new DatabaseSync(file);
    database.exec(
      `PRAGMA busy_timeout = 5000; INSERT INTO account VALUES ('acme', 'A-1', 1, 10000), ('acme', 'shut', 0, 1), ('acme', '${ODD}', 1, 500)`,
    );
    database.close();
  },
} as const;

const examples: Readonly<Record<'python3' | 'php' | 'java', Example>> = {
  python3: {
    ...inSqlite,
    probe: ['python3', '--version'],
    start: (storage, port) => [example('account_service.py'), storage, String(port)],
  },
  php: {
    ...inSqlite,
    probe: ['php', '--version'],
    start: (_books, port) => ['-S', `127.0.0.1:${port}`, example('account-service.php')],
  },
  java: {
    // A runtime without the compiler does not run a source file.
    probe: ['java', '--describe-module', 'jdk.compiler'],
    storage: 'books',
    filled: 'before it starts',
    fill(folder) {
      mkdirSync(folder);
      const lines = ['acme,A-1,1,10000', 'acme,shut,0,1', `acme,${encodeURIComponent(ODD)},1,500`];
      writeFileSync(path.join(folder, 'accounts.csv'), `${lines.join('\n')}\n`);
    },
    tear: (folder) => appendFileSync(path.join(folder, 'bookings.csv'), 'torn,acme,A-1,1'),
    start: (storage, port) => [example('AccountService.java'), storage, String(port)],
  },
};

/** Starts an example; returns its address and a function that kills it. */
async function startExample(
  t: TestContext,
  of: Example,
  storage: string,
): Promise<{ url: string; kill: () => Promise<void> }> {
  const port = await freePort();
  const [program] = of.probe;
  const child = spawn(program, of.start(storage, port), {
    env: { PATH: process.env['PATH'], DUEBRIDGE_PARTNER_ACCOUNTS_SECRET: secret, BOOKS: storage },
    stdio: 'ignore',
  });
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  t.after(kill);
  const url = `http://127.0.0.1:${port}`;
  const status = await until(`${program} listens`, () => {
    assert.equal(child.exitCode, null, `${program} ended instead of listening`);
    // Unsigned: any answer proves that it listens.
    return fetch(`${url}/accounts/acme/none`).then(
      (response) => response.status,
      () => undefined,
    );
  });
  assert.equal(status, 401, 'a request without a signature');
  return { url, kill };
}

for (const [name, of] of Object.entries(examples)) {
  test(`an account service in ${name}: accounts are read, payments posted once, refusals reported [S2 B1 B2 ST2 ST3 PF2]`, async (t) => {
    const directory = await mkdtemp(path.join(tmpdir(), 'kit-service-'));
    t.after(() => rm(directory, { recursive: true, force: true }));
    const [program, ...asked] = of.probe;
    if (spawnSync(program, asked, { stdio: 'ignore' }).status !== 0) {
      t.diagnostic(`${name} is not installed`);
      return;
    }
    const storage = path.join(directory, of.storage);
    if (of.filled === 'before it starts') of.fill(storage);
    const { url, kill } = await startExample(t, of, storage);
    const accounts = accountsOverHttp({ url, secret });
    // The service makes its tables at its first signed request, if not before.
    assert.equal(await accounts.findAccount('acme', 'none'), undefined);
    if (of.filled === 'once it listens') of.fill(storage);
    const database = await kitDatabase(t);
    const partner = await startKit(database, { accounts });
    const account = await partner.call('GET', '/biller/acme/account/A-1');
    assert.deepEqual(account.body, {
      biller_id: 'acme',
      account_id: 'A-1',
      status: 'active',
      balance: { amount_due_in_cents: 10_000 },
    });
    assert.equal((await partner.call('GET', '/biller/acme/account/a-1')).status, 404);
    const put = (id: string, name = 'A-1'): Promise<unknown> =>
      partner.call('PUT', paymentPath(id, name), { body: instruction(100) });
    await Promise.all([
      ...Array.from({ length: 30 }, (_, index) => put(`p-${index % 10}`)),
      put('to-shut', 'shut'),
      put('to-none', 'none'),
      put('to-odd', encodeURIComponent(ODD)),
    ]);
    for (let index = 0; index < 10; index += 1) {
      assert.equal((await ended(partner, `p-${index}`)).body['status'], 'succeeded');
    }
    const shut = await ended(partner, 'to-shut', paymentPath('to-shut', 'shut'));
    const none = await ended(partner, 'to-none', paymentPath('to-none', 'none'));
    assert.deepEqual([shut.body['status'], none.body['status']], ['failed', 'failed']);
    const odd = await ended(partner, 'to-odd', paymentPath('to-odd', encodeURIComponent(ODD)));
    assert.equal(odd.body['status'], 'succeeded');
    const balance = await partner.call('GET', '/biller/acme/account/A-1/balance');
    assert.equal(balance.body['amount_due_in_cents'], 10_000 - 10 * 100);
    // A repeated posting gets the same answer, and so does a look-up.
    const [posting] = await database.query<Parameters<typeof accounts.post>[0][number]>(
      `SELECT platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, amount_in_cents, initiated_at
         FROM duebridge_partner.payment WHERE platform_payment_id = 'p-1'`,
    );
    const signal = new AbortController().signal;
    const [again] = await accounts.post([posting!], signal);
    assert.deepEqual(await accounts.lookup?.('p-1', signal), again);
    assert.equal(await accounts.lookup?.('never', signal), undefined);
    const after = await partner.call('GET', '/biller/acme/account/A-1/balance');
    assert.equal(after.body['amount_due_in_cents'], 9_000);
    await assert.rejects(
      accountsOverHttp({ url, secret: 'some-other-secret' }).findAccount('acme', 'A-1'),
      /401/,
    );
    // After a kill and a restart it still knows what it booked.
    await kill();
    of.tear?.(storage);
    const { url: at, kill: stop } = await startExample(t, of, storage);
    const restarted = accountsOverHttp({ url: at, secret });
    assert.deepEqual(await restarted.lookup?.('p-1', signal), again);
    assert.equal(await restarted.lookup?.('torn', signal), undefined);
    const [repeated] = await restarted.post([posting!], signal);
    assert.deepEqual(repeated, again);
    const kept = await restarted.findAccount('acme', 'A-1');
    assert.equal(kept?.balance?.amount_due_in_cents, 9_000);
    const { account_id, balance: due } = (await restarted.findAccount('acme', ODD)) ?? {};
    assert.deepEqual([account_id, due], [ODD, { amount_due_in_cents: 400 }]);
    // What is booked after a restart follows what was booked before it.
    const later = { ...posting!, platform_payment_id: 'later', account_id: ODD };
    const [booked] = await restarted.post([later], signal);
    await stop();
    const third = accountsOverHttp({ url: (await startExample(t, of, storage)).url, secret });
    assert.deepEqual(await third.lookup?.('later', signal), booked);
    assert.deepEqual((await third.findAccount('acme', ODD))?.balance, { amount_due_in_cents: 300 });
  });
}

test('an account service without a secret stops the start, with the reason [S3]', () => {
  const env = {
    DUEBRIDGE_PARTNER_KEY: TEST_KEY,
    DUEBRIDGE_PARTNER_ACCOUNTS_URL: 'https://x.example',
  };
  assert.throws(() => readPartnerConfig(env), /DUEBRIDGE_PARTNER_ACCOUNTS_SECRET/);
});

test('the OpenAPI document of the account service holds its three operations [S2]', () => {
  const { paths } = accountServiceOpenApi() as { paths: Record<string, object> };
  assert.deepEqual(
    new Set(Object.keys(paths)),
    new Set(Object.values(accountServiceRoutes).map((route) => route.path)),
  );
});
