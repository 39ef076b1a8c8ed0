/**
 * A rehearsal of docs/operations.md, "Backup and restore": a platform is set back to an earlier moment while its partner is not. The
 * backup is a copy of the database's files that PostgreSQL makes itself; how it was taken does not matter to what follows.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientKeyGrant, PaymentDetail, Reconciliation } from '@duebridge/contract';
import { startPlatform, type Platform } from '@duebridge/platform';
import { ensureDatabase, openDatabase, silentLog } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { BothSides } from './support/both-sides.ts';
import { call, createToken, openSession } from './support/customer.ts';

const sides = new BothSides();
const server = await testServer();
const maintenance = openDatabase({
  url: server.url,
  applicationName: 'duebridge test',
  maxConnections: 1,
  statementTimeoutMs: 60_000,
});
const folder = await mkdtemp(join(tmpdir(), 'duebridge-restore-'));
const suffix = randomBytes(6).toString('hex');
const databases = { live: `restore_live_${suffix}`, backup: `restore_backup_${suffix}` };
const running = new Set<Platform>();
after(async () => {
  for (const platform of running) await platform.stop();
  await sides.stop();
  for (const name of Object.values(databases)) {
    await maintenance.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  }
  await maintenance.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The secrets are kept elsewhere than the backup, and are the same after a restore. */
const secrets = {
  sealKey: randomBytes(32).toString('base64'),
  keyPepper: randomBytes(32).toString('base64'),
  adminKey: randomBytes(24).toString('base64url'),
};

async function start(database: string): Promise<Platform> {
  const platform = await startPlatform({
    port: 0,
    adminPort: 0,
    databaseUrl: await ensureDatabase(server.url, database),
    dataDirectory: folder,
    allowPrivateAddresses: true,
    ipRate: undefined,
    log: silentLog,
    ...secrets,
  });
  running.add(platform);
  return platform;
}

async function stop(platform: Platform): Promise<void> {
  running.delete(platform);
  await platform.stop();
}

async function admin<T>(
  at: Platform,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
): Promise<T> {
  const headers = { authorization: `Bearer ${secrets.adminKey}` };
  const answer = await call<T>(method, `${at.adminUrl}/admin/v1${path}`, headers, body);
  assert.equal(answer.status, 200, `${method} ${path}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + 60_000;
  while (!(await holds())) {
    assert(performance.now() < end, what);
    await delay(100);
  }
}

test('a platform that is set back to an earlier moment ends what it knows, charges nobody twice, and names what it lost [PL2 RU5 EE3]', async () => {
  const key = 'the-key-that-the-biller-chose';
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
    // A system of the biller's own that decides later, when the test says so.
    accounts: () => ({
      posts: 'in_own_system',
      findAccount: (biller_id, account_id) =>
        Promise.resolve({ biller_id, account_id, status: 'active' as const }),
      post: (payments) => Promise.resolve(payments.map(() => ({ outcome: 'later' as const }))),
    }),
  });
  const rows = (): Promise<{ id: string; status: string }[]> =>
    partner.books.query(
      'SELECT platform_payment_id AS id, status FROM duebridge_partner.payment ORDER BY initiated_at, id',
    );
  const post = async (id: string): Promise<void> => {
    const settled = await partner.server.app.partnerKit.settle(id, { outcome: 'posted' });
    assert.equal(settled.outcome, 'settled');
  };

  let platform = await start(databases.live);
  await admin(platform, 'POST', '/partners', {
    partner_id: 'gas',
    name: 'Gas Company',
    kind: 'biller',
    biller_id: 'gas',
    base_url: partner.server.url,
    origins: [],
    auth: { method: 'key', header: 'x-api-key', key },
  });
  const { client_id, api_key } = await admin<ClientKeyGrant>(
    platform,
    'POST',
    '/partners/gas/keys',
    {},
  );
  const confirm = async (account_id: string): Promise<string> => {
    const client = { platformUrl: platform.url, client_id, api_key };
    const { body } = await createToken(client, { account_id });
    const browser = await openSession(platform.url, body.token);
    const { platform_payment_id: id } = (await browser.confirm(5_000)).body;
    await until('the partner has the payment', async () =>
      (await rows()).some((row) => row.id === id),
    );
    return id;
  };
  const read = (id: string): Promise<PaymentDetail> => admin(platform, 'GET', `/payments/${id}`);
  const ends = (id: string): Promise<void> =>
    until(`${id} ends`, async () => (await read(id)).payment.status === 'succeeded');

  const ended = await confirm('A-1');
  await post(ended);
  await ends(ended);
  const waiting = await confirm('A-2');
  await stop(platform);
  await maintenance.query(`CREATE DATABASE ${databases.backup} TEMPLATE ${databases.live}`);

  platform = await start(databases.live);
  const lost = await confirm('A-3');
  for (const id of [waiting, lost]) {
    await post(id);
    await ends(id);
  }
  const batch = (await read(lost)).payment.platform_batch_id;
  const seen = await rows();
  await stop(platform);

  platform = await start(databases.backup);
  // What was in flight at that moment is asked about again, by its id, and ends as it had ended.
  await ends(waiting);
  assert.equal((await read(ended)).payment.status, 'succeeded');
  assert.deepEqual(await rows(), seen, 'the partner has the same three payments, each once');
  // What was confirmed after it is unknown here; the partner's file of the batch names it.
  const headers = { authorization: `Bearer ${partner.server.adminKey}` };
  const file = await fetch(`${partner.server.adminUrl}/admin/v1/batches/${batch}/lines`, {
    headers,
  });
  const { differences } = await admin<Reconciliation>(
    platform,
    'POST',
    `/batches/${batch}/reconcile`,
    {
      csv: await file.text(),
    },
  );
  assert.deepEqual(differences, [
    { platform_payment_id: lost, kind: 'missing_here', here: null, there: 'succeeded' },
  ]);
});
