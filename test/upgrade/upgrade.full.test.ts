/**
 * An upgrade, as docs/operations.md describes it: the present version continues from what earlier ones left in their tables while
 * they worked. Each recording is of a version that was killed with payments in flight (record.ts).
 *
 * The other direction, this version on tables that a newer one has migrated, is a fault of the rig (test/rig/faults.ts).
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import test from 'node:test';
import type { AuditVerification, PaymentDetail, Reconciliation } from '@duebridge/contract';
import { importAccounts, startPartner, type RunningPartner } from '@duebridge/partner';
import { startPlatform } from '@duebridge/platform';
import { openDatabase, silentLog, type Database } from '@duebridge/runtime';
import { emptyDatabase, testServer, until } from '@duebridge/runtime/testing';
import { Browser, call, createToken, openSession } from '../support/customer.ts';
import { movedToNow, PARTNER_KEY, restore, SECRETS, type Side } from './recording.ts';

const recordings = globSync('*.json', { cwd: import.meta.dirname }).toSorted();

for (const file of recordings) {
  const name = basename(file, '.json');
  test(`the tables of ${name} are migrated under their payments, and every payment ends once [PL2 RU2 PF2 EE1]`, async (t) => {
    const recording = movedToNow(readFileSync(join(import.meta.dirname, file), 'utf8'));
    const server = await testServer();
    const folder = await mkdtemp(join(tmpdir(), 'duebridge-upgrade-'));
    const closers: (() => Promise<unknown>)[] = [
      () => rm(folder, { recursive: true }),
      () => server.stop(),
    ];
    t.after(async () => {
      for (const close of closers.toReversed()) await close();
    });

    const restored = async (
      schema: 'duebridge_platform' | 'duebridge_partner',
      side: Side,
    ): Promise<{ url: string; books: Database }> => {
      const { url, drop } = await emptyDatabase(server.url, 'upgrade');
      const books = openDatabase({ url, applicationName: 'duebridge test', maxConnections: 2 });
      closers.push(async () => {
        await books.close();
        await drop();
      });
      await restore(books, schema, side);
      return { url, books };
    };
    const kitOn = async (databaseUrl: string): Promise<RunningPartner> => {
      const kit = await startPartner({
        port: 0,
        adminPort: 0,
        databaseUrl,
        dataDirectory: folder,
        adminKey: SECRETS.adminKey,
        auth: { method: 'key', header: 'x-api-key', keys: [PARTNER_KEY] },
        log: silentLog,
      });
      closers.push(() => kit.stop());
      return kit;
    };

    const gasBooks = await restored('duebridge_partner', recording.gas);
    const waterBooks = await restored('duebridge_partner', recording.water);
    const ours = await restored('duebridge_platform', recording.platform);
    const gas = await kitOn(gasBooks.url);
    const water = await kitOn(waterBooks.url);
    await importAccounts(
      gas.database,
      ['coal', 'oil'].map((biller_id) => ({
        biller_id,
        account_id: 'A-1',
        amount_due_in_cents: 10_000,
      })),
    );
    const platform = await startPlatform({
      port: 0,
      adminPort: 0,
      databaseUrl: ours.url,
      dataDirectory: folder,
      allowPrivateAddresses: true,
      ipRate: undefined,
      log: silentLog,
      ...SECRETS,
    });
    closers.push(() => platform.stop());
    const admin = async <T>(
      method: 'GET' | 'POST' | 'PATCH',
      path: string,
      body?: object,
    ): Promise<T> => {
      const headers = { authorization: `Bearer ${SECRETS.adminKey}` };
      const answer = await call<T>(method, `${platform.adminUrl}/admin/v1${path}`, headers, body);
      assert.equal(answer.status, 200, `${method} ${path}: ${JSON.stringify(answer.body)}`);
      return answer.body;
    };
    for (const partner of ['gas', 'water', 'coal', 'oil']) {
      await admin('PATCH', `/partners/${partner}`, {
        base_url: (partner === 'water' ? water : gas).url,
      });
    }
    const read = (id: string): Promise<PaymentDetail> => admin('GET', `/payments/${id}`);
    /** The status of a payment whose funds are captured or released. */
    const settled = (id: string): Promise<string> =>
      until(`${id} is settled`, async () => {
        const [row] = await ours.books.query<{ status: string; settled: boolean }>(
          'SELECT status, settled_at IS NOT NULL AS settled FROM duebridge_platform.payments WHERE platform_payment_id = $1',
          [id],
        );
        return row?.settled === true && row.status;
      });

    const { payments } = recording;
    assert.equal(
      (await read(payments.review)).payment.stage,
      'review',
      'a person decides, as before',
    );
    await admin('POST', `/payments/${payments.review}/resume`, {
      reason: 'the partner takes them now',
    });
    const succeeding = [
      payments.succeeded,
      ...payments.processing,
      payments.unknown,
      payments.review,
    ];
    for (const id of succeeding) assert.equal(await settled(id), 'succeeded', id);
    assert.equal(await settled(payments.failed), 'failed');

    // What customers and the partner's backend had in hand goes on: an open session, a token, an API key.
    const { client } = recording;
    const late = new Browser(platform.url, recording.session);
    await late.bill();
    const second = await openSession(platform.url, recording.token);
    const { body } = await createToken(
      { platformUrl: platform.url, ...client },
      { account_id: 'A-4' },
    );
    const third = await openSession(platform.url, body.token);
    for (const [index, browser] of [late, second, third].entries()) {
      const { platform_payment_id: id } = (await browser.confirm(1_000 + index)).body;
      assert.equal(await settled(id), 'succeeded');
      succeeding.push(id);
    }

    // Each was charged once, released if it failed, and posted once; and nobody disagrees.
    const inOrder = (ids: readonly string[]): string[] => ids.toSorted();
    // What the earlier version settled itself is in the list that its sandbox kept.
    const funds = await ours.books.query<{ id: string; state: string }>(
      `SELECT platform_payment_id AS id, state FROM duebridge_platform.funds
       UNION ALL SELECT platform_payment_id, CASE act WHEN 'capture' THEN 'captured' ELSE 'released' END
         FROM duebridge_platform.sandbox_funds WHERE phase = 'settle'`,
    );
    const idsIn = (state: string): string[] =>
      inOrder(funds.filter((row) => row.state === state).map(({ id }) => id));
    assert.deepEqual(idsIn('captured'), inOrder(succeeding));
    assert.deepEqual(idsIn('released'), [payments.failed]);
    const posted = await Promise.all(
      [gasBooks, waterBooks].map(({ books }) =>
        books.query<{ id: string }>(
          `SELECT platform_payment_id AS id FROM duebridge_partner.movement WHERE platform_payment_id IS NOT NULL`,
        ),
      ),
    );
    assert.deepEqual(inOrder(posted.flat().map(({ id }) => id)), inOrder(succeeding));
    for (const id of [
      payments.succeeded,
      payments.unknown,
      payments.review,
      ...payments.processing.slice(0, 1),
    ]) {
      const batch = (await read(id)).payment.platform_batch_id;
      const { differences } = await admin<Reconciliation>(
        'POST',
        `/batches/${batch}/reconcile`,
        {},
      );
      assert.deepEqual(differences, []);
    }
    const { broken } = await admin<AuditVerification>('GET', '/audit/verification');
    assert.equal(broken, null);
  });
}

test('there is a recording', () => assert.notEqual(recordings.length, 0));
