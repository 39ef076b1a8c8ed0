/**
 * A rehearsal of docs/operations.md, "Backup and restore": a partner is set back to an earlier moment while the platform is not. For a
 * platform, lost-tail.full.test.ts has the same. The backup is a copy of the database's files that PostgreSQL makes itself; how it was taken does not matter to what follows.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { PaymentDetail, Reconciliation } from '@duebridge/contract';
import {
  importAccounts,
  importFormerPayments,
  startPartner,
  type AccountSystem,
  type PartnerConfig,
  type RunningPartner,
} from '@duebridge/partner';
import { ensureDatabase, openDatabase, silentLog } from '@duebridge/runtime';
import { testServer, until } from '@duebridge/runtime/testing';
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
const databases = {
  ledger: `restore_ledger_${suffix}`,
  ledgerBackup: `restore_ledger_backup_${suffix}`,
  core: `restore_core_${suffix}`,
  coreBackup: `restore_core_backup_${suffix}`,
};
const running = new Set<{ stop(): Promise<void> }>();
after(async () => {
  for (const one of running) await one.stop();
  await sides.stop();
  for (const name of Object.values(databases)) {
    await maintenance.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  }
  await maintenance.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

const adminKey = randomBytes(24).toString('base64url');

async function stop(one: { stop(): Promise<void> }): Promise<void> {
  running.delete(one);
  await one.stop();
}

/** A partner kit of the test on a named database, with the key of the test. */
async function startKit(
  database: string,
  config: Partial<PartnerConfig> = {},
): Promise<RunningPartner> {
  const kit = await startPartner({
    port: 0,
    adminPort: 0,
    databaseUrl: await ensureDatabase(server.url, database),
    dataDirectory: folder,
    adminKey,
    auth: { method: 'key', header: 'x-api-key', keys: [PARTNER_KEY] },
    log: silentLog,
    ...config,
  });
  running.add(kit);
  return kit;
}

const PARTNER_KEY = 'the-key-that-the-biller-chose';
const asPlatform = { 'x-api-key': PARTNER_KEY };

/** A system of the biller's own, which knows every id that it booked; it may report a booking only when it is asked again. */
class Core {
  readonly asked: string[] = [];
  readonly #booked = new Set<string>();
  answersLater = false;

  readonly accounts: AccountSystem = {
    posts: 'in_own_system',
    findAccount: (biller_id, account_id) =>
      Promise.resolve({ biller_id, account_id, status: 'active' as const }),
    post: (payments) =>
      Promise.resolve(
        payments.map(({ platform_payment_id: id }) => {
          this.asked.push(id);
          const isKnown = this.#booked.has(id);
          this.#booked.add(id);
          if (isKnown || !this.answersLater) return { outcome: 'posted' as const };
          return { outcome: 'later' as const, until: IN_AN_HOUR };
        }),
      ),
  };
}

const IN_AN_HOUR = new Date(Date.now() + 3_600_000).toISOString();

/** Everything that can happen to a payment around a backup of the partner, once in its ledger and once in front of its own system. */
const KITS = [
  { name: 'ledger', live: databases.ledger, backup: databases.ledgerBackup },
  { name: 'core', live: databases.core, backup: databases.coreBackup },
] as const;

test('a partner restored to an earlier moment gets again what it lost, and pays no account twice [PL2 RU5 PF1 PF2 EE3 EE6 F79]', async (t) => {
  const { platform, admin: ask, register, books } = await sides.platform();
  for (const { name: partner_id, live, backup } of KITS) {
    await t.test(partner_id, async () => {
      const core = new Core();
      const own = partner_id === 'core' ? { accounts: () => core.accounts } : {};
      let kit = await startKit(live, own);
      const client = await register({
        partner_id,
        name: partner_id,
        kind: 'biller',
        biller_id: partner_id,
        base_url: kit.url,
        auth: { method: 'key', header: 'x-api-key', key: PARTNER_KEY },
      });
      const owe = (amount_due_in_cents: number, as_of?: string): Promise<object> => {
        const accounts = ['A-1', 'A-2', 'A-3'].map((account_id) => ({
          biller_id: partner_id,
          account_id,
          amount_due_in_cents,
        }));
        return importAccounts(kit.database, accounts, as_of);
      };
      if (partner_id === 'ledger') await owe(10_000);
      const confirm = async (account_id: string): Promise<string> => {
        const { body } = await createToken(client, { account_id });
        return (await (await openSession(platform.url, body.token)).confirm(5_000)).body
          .platform_payment_id;
      };
      const read = (id: string): Promise<PaymentDetail> => ask('GET', `/payments/${id}`);
      const ends = (id: string): Promise<true> =>
        until(`${id} ends`, async () => (await read(id)).payment.status === 'succeeded');

      const kept = await confirm('A-1');
      await ends(kept);
      await stop(kit);
      await maintenance.query(`CREATE DATABASE ${backup} TEMPLATE ${live}`);

      // After the backup: one payment ends, and one is accepted and still processing when the database is lost.
      core.answersLater = false;
      kit = await startKit(live, own);
      await ask('PATCH', `/partners/${partner_id}`, { base_url: kit.url });
      const lost = await confirm('A-2');
      await ends(lost);
      await stop(kit);
      core.answersLater = true;
      kit = await startKit(live, { ...own, holdMs: partner_id === 'core' ? 0 : 3_600_000 });
      await ask('PATCH', `/partners/${partner_id}`, { base_url: kit.url });
      const waiting = await confirm('A-3');
      await until(
        'the platform knows that it was accepted',
        async () => (await read(waiting)).payment.payment_id !== null,
      );
      const former = (await read(waiting)).payment;
      if (partner_id === 'core') {
        await until('the core has booked it', () => Promise.resolve(core.asked.includes(waiting)));
      }
      assert.equal(former.status, 'processing');
      await stop(kit);

      kit = await startKit(backup, own);
      await ask('PATCH', `/partners/${partner_id}`, { base_url: kit.url });
      // What the platform still asks about is put again by itself: 404 after it was accepted.
      await ends(waiting);
      const again = (await read(waiting)).payment;
      assert.notEqual(
        again.payment_id,
        former.payment_id,
        'accepted anew, under another payment_id',
      );
      assert.deepEqual(
        await books.query(
          'SELECT former_payment_ids FROM duebridge_platform.payments WHERE platform_payment_id = $1',
          [waiting],
        ),
        [{ former_payment_ids: [former.payment_id] }],
        'the old one is kept as evidence',
      );
      // What had ended is asked about no more; reconciliation names it, and the platform's export makes it known here again.
      const batch = again.platform_batch_id;
      const reconcile = async (): Promise<Reconciliation['differences']> =>
        (await ask<Reconciliation>('POST', `/batches/${batch}/reconcile`, {})).differences;
      assert.deepEqual(await reconcile(), [
        { platform_payment_id: lost, kind: 'missing_there', here: 'succeeded', there: null },
      ]);
      const exported = await fetch(
        `${platform.adminUrl}/admin/v1/payments/export?id=${batch}&status=succeeded&unmasked=true`,
        { headers: { authorization: `Bearer ${platform.adminKey}` } },
      );
      const exportedText = await exported.text();
      const database = openDatabase({
        url: await ensureDatabase(server.url, backup),
        applicationName: 'duebridge test',
        maxConnections: 1,
      });
      const imported = await importFormerPayments(database, () => [exportedText]);
      assert.deepEqual(imported, { imported: 1, known: 2, skipped: 0, differing: [] });
      assert.deepEqual(await reconcile(), []);
      const record = await call<{ status: string; payment_id: string }>(
        'PUT',
        `${kit.url}/biller/${partner_id}/account/A-2/payment/${lost}`,
        asPlatform,
        { amount_in_cents: 5_000, platform_batch_id: batch },
      );
      assert.deepEqual(
        [record.status, record.body.status, record.body.payment_id],
        [200, 'succeeded', (await read(lost)).payment.payment_id],
      );

      if (partner_id === 'core') {
        // It was not set back, so only what the kit forgot before it ended may be asked again, by the same id.
        assert.deepEqual(core.asked, [kept, lost, waiting, waiting]);
      } else {
        const [{ as_of } = { as_of: '' }] = await database.query<{ as_of: string }>(
          `SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS as_of`,
        );
        const due = async (): Promise<number[]> =>
          Promise.all(
            ['A-1', 'A-2', 'A-3'].map(async (id) => {
              const path = `${kit.url}/biller/ledger/account/${id}/balance`;
              const { body } = await call<{ amount_due_in_cents: number }>('GET', path, asPlatform);
              return body.amount_due_in_cents;
            }),
          );
        assert.deepEqual(await due(), [5_000, 10_000, 5_000], 'the lost posting is missing');
        await owe(5_000, as_of);
        assert.deepEqual(await due(), [5_000, 5_000, 5_000]);
      }
      await database.close();
      await stop(kit);
    });
  }
});
