/**
 * Customers pay on a sharded PostgreSQL: the same servers over the same HTTP, with the platform's tables on a coordinator and two
 * workers of Citus. It runs where Citus is installed and says so where it is not.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  BatchPage,
  FailureReasons,
  PaymentDetail,
  PaymentPage,
  PaymentRecord,
  PersonErasure,
  Reconciliation,
} from '@duebridge/contract';
import { openDatabase } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { citusServers } from './support/citus.ts';
import { Browser, call, createToken, openSession } from './support/customer.ts';
import { Server } from './support/processes.ts';

/** Customers who pay at once while platform processes are killed, and the payments that they make at least meanwhile. */
const CUSTOMERS = 4;
const LEAST_PAYMENTS = 40;
const ACCOUNTS = 1_000;

test('on a Citus cluster', async (t) => {
  const servers = citusServers();
  if (servers === undefined) {
    t.diagnostic('Citus is not installed');
    return;
  }
  const sides = new BothSides();
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-citus-test-'));
  const killed: Server[] = [];
  try {
    const { url: databaseUrl } = await servers.cluster();
    const key = { 'x-api-key': 'the-key-that-the-biller-chose' };
    const partner = await sides.partner({
      auth: { method: 'key', header: 'x-api-key', keys: [key['x-api-key']] },
      billers: [{ biller_id: 'gas', max_amount_in_cents: 10_000 }],
    });
    const others = Array.from({ length: ACCOUNTS }, (_, index) => `gas,acc-${index},active,50.00`);
    await partner.importAccounts(
      ['biller_id,account_id,status,amount_due', 'gas,A-1,active,120.50', ...others, ''].join('\n'),
    );
    const secrets = {
      sealKey: Buffer.alloc(32, 's').toString('base64'),
      keyPepper: Buffer.alloc(32, 'p').toString('base64'),
    };
    const { platform, admin, register } = await sides.platform({ databaseUrl, ...secrets });
    const client = await register(gasCompany(partner.server.url, key['x-api-key']));

    await t.test(
      'a bill is paid, from token to receipt; a failed payment is replaced [S1 S2 S3 S4]',
      async () => {
        const { status, body } = await createToken(client, { account_id: 'A-1' });
        assert.equal(status, 200, JSON.stringify(body));
        const browser = await openSession(platform.url, body.token);
        const bill = await browser.bill();
        assert.equal(bill.status, 200, JSON.stringify(bill.body));
        assert.equal(bill.body.account.balance?.amount_due_in_cents, 12_050);
        assert.equal(bill.body.payment, null);

        // The customer presses twice, in two tabs: one payment.
        const tab = await openSession(platform.url, body.token);
        const pressed = await Promise.all([browser.confirm(5_000), tab.confirm(5_000)]);
        for (const one of pressed) assert.equal(one.status, 200, JSON.stringify(one.body));
        const [id, again] = pressed.map((one) => one.body.platform_payment_id);
        assert.ok(id !== undefined);
        assert.equal(again, id);
        const paid = await browser.ended(id);
        assert.equal(paid.status, 'succeeded');

        const record = await call<PaymentRecord>(
          'GET',
          `${partner.server.url}/biller/gas/account/A-1/payment/${id}`,
          key,
        );
        assert.equal(record.body.payment_id, paid.payment_id);
        assert.equal(record.body.amount_in_cents, 5_000);

        const receipt = await browser.bill();
        assert.equal(receipt.body.payment?.platform_payment_id, id);
        assert.equal(receipt.body.receipt?.payer_name, 'Ada Lovelace');
        assert.equal(receipt.body.account.balance?.amount_due_in_cents, 7_050);

        // A reload with a fresh token begins after that payment and pays another part.
        const later = await createToken(client, { account_id: 'A-1' });
        const reloaded = await openSession(platform.url, later.body.token);
        assert.equal((await reloaded.bill()).body.payment, null);
        const tooMuch = await reloaded.confirm(10_001);
        const failed = await reloaded.ended(tooMuch.body.platform_payment_id);
        assert.equal(failed.status, 'failed');
        // A failed payment is replaced once, however often that is asked.
        const replaces = { replaces: failed.platform_payment_id };
        const replaced = await reloaded.confirm(7_050, replaces);
        assert.equal(replaced.status, 200, JSON.stringify(replaced.body));
        assert.equal(
          (await reloaded.confirm(7_050, replaces)).body.platform_payment_id,
          replaced.body.platform_payment_id,
        );
        assert.equal((await reloaded.ended(replaced.body.platform_payment_id)).status, 'succeeded');

        const { payment, audit } = await admin<PaymentDetail>('GET', `/payments/${id}`);
        assert.equal(payment.stage, 'ended');
        assert.deepEqual(
          audit.map((entry) => entry.event).filter((event) => event.startsWith('payment_')),
          ['payment_created', 'payment_dispatching', 'payment_accepted', 'payment_ended'],
        );
      },
    );

    await t.test(
      'every payment ends, once, when platform processes are killed [S4 PF2 EE1]',
      async (inner) => {
        for (const name of ['one', 'two']) {
          const [port, adminPort] = [await freePort(), await freePort()];
          killed.push(
            new Server({
              args: ['platform', 'serve'],
              port,
              env: {
                ADMIN_PORT: String(adminPort),
                DATABASE_URL: databaseUrl,
                DUEBRIDGE_ADMIN_KEY: platform.adminKey,
                DUEBRIDGE_DATA_DIR: folder,
                DUEBRIDGE_SEAL_KEY: secrets.sealKey,
                DUEBRIDGE_KEY_PEPPER: secrets.keyPepper,
                DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
                DUEBRIDGE_IP_RATE: '0',
                LOG_LEVEL: 'warn',
              },
              logFile: join(folder, `${name}.log`),
            }),
          );
        }
        await Promise.all(killed.map((server) => server.start()));

        const urls = [...killed.map((server) => server.url), platform.url];
        const acknowledged = new Map<string, string>();
        const closing = new AbortController();
        let next = 0;
        let retries = 0;
        /** Repeats a step, at another platform each time, until it gets its 200; throws after a minute without one. */
        const insist = async <T>(
          first: number,
          step: (url: string) => Promise<{ status: number; body: T }>,
        ): Promise<T> => {
          const until = performance.now() + 60_000;
          for (let tried = first; ; tried += 1) {
            const answer = await step(urls[tried % urls.length]!).catch(() => undefined);
            if (answer?.status === 200) return answer.body;
            if (answer !== undefined && ![429, 500, 503].includes(answer.status))
              throw new Error(`refused: ${answer.status} ${JSON.stringify(answer.body)}`);
            assert.ok(performance.now() < until, `no 200 for a minute: ${answer?.status}`);
            retries += 1;
            await delay(50);
          }
        };
        const customer = async (): Promise<void> => {
          while (!closing.signal.aborted && next < ACCOUNTS) {
            const at = next++;
            const account_id = `acc-${at}`;
            const { token } = await insist(at, (platformUrl) =>
              createToken({ ...client, platformUrl }, { account_id }),
            );
            const { session } = await insist(at, (url) =>
              call<{ session: string }>(
                'POST',
                `${url}/v1/flow/session`,
                { authorization: `Bearer ${token}` },
                {},
              ),
            );
            // A customer who gets no answer presses again: at another process, and it is the same payment.
            const made = await insist(at, (url) => new Browser(url, session).confirm(100 + at));
            acknowledged.set(made.platform_payment_id, account_id);
            const again = await insist(at + 1, (url) =>
              new Browser(url, session).confirm(100 + at),
            );
            assert.equal(again.platform_payment_id, made.platform_payment_id);
          }
        };
        const load = Promise.all(Array.from({ length: CUSTOMERS }, customer));
        load.catch(() => undefined);
        const underLoad = async (payments: number): Promise<void> => {
          const target = acknowledged.size + payments;
          for (const until = performance.now() + 60_000; acknowledged.size < target;) {
            assert.ok(performance.now() < until, `${acknowledged.size} of ${target} payments`);
            await delay(10);
          }
        };
        for (const victim of killed) {
          await underLoad(LEAST_PAYMENTS / 4);
          await victim.kill();
          await underLoad(LEAST_PAYMENTS / 4);
        }
        closing.abort();
        await load;

        const books = openDatabase({ url: databaseUrl, applicationName: 'duebridge test' });
        try {
          const open = `SELECT platform_payment_id, stage, review_reason FROM duebridge_platform.payments WHERE settled_at IS NULL`;
          const until = performance.now() + 90_000;
          for (
            let left = await books.query(open);
            left.length > 0;
            left = await books.query(open)
          ) {
            assert.ok(performance.now() < until, `not ended: ${JSON.stringify(left.slice(0, 5))}`);
            await delay(100);
          }
          const here = await books.query<{ id: string; account_id: string; status: string }>(
            `SELECT platform_payment_id AS id, account_id, status FROM duebridge_platform.payments WHERE account_id <> 'A-1' ORDER BY 1`,
          );
          const there = await partner.books.query(
            `SELECT platform_payment_id AS id, account_id, status FROM duebridge_partner.payment WHERE account_id <> 'A-1' ORDER BY 1`,
          );
          assert.deepEqual(here, there, 'the two sides differ');
          assert.deepEqual([...new Set(here.map((row) => row.status))], ['succeeded']);
          assert.equal(new Set(here.map((row) => row.account_id)).size, here.length, 'paid twice');
          const stored = new Map(here.map((row) => [row.id, row.account_id]));
          for (const [id, account_id] of acknowledged) assert.equal(stored.get(id), account_id);
          const captures = await books.query<{ id: string }>(
            `SELECT platform_payment_id AS id FROM duebridge_platform.sandbox_funds WHERE act = 'capture'`,
          );
          for (const { id } of here)
            assert.equal(
              captures.filter((one) => one.id === id).length,
              1,
              `${id} was not captured once`,
            );
          inner.diagnostic(
            `${acknowledged.size} payments acknowledged, ${killed.length} kills, ${retries} retries`,
          );
        } finally {
          await books.close();
        }
      },
    );

    await t.test(
      'a batch is reconciled; failures are listed; a person is found and erased',
      async () => {
        const { batches } = await admin<BatchPage>('GET', '/batches');
        for (const { platform_batch_id } of batches) {
          const path = `/batches/${platform_batch_id}/reconcile`;
          assert.deepEqual((await admin<Reconciliation>('POST', path, {})).differences, []);
        }
        const lost = await admin<PaymentPage>('GET', '/payments?status=failed');
        assert.equal(lost.payments.length, 1);
        const { reasons } = await admin<FailureReasons>('GET', '/failures');
        assert.equal(reasons.length, 1);
        assert.equal(reasons[0]?.count, 1);
        const person = { email: 'ada@example.com' };
        const found = await admin<PaymentPage>('POST', '/payments/search', person);
        assert.ok(found.payments.length > 1);
        const reason = 'the customer asked';
        const erased = await admin<PersonErasure>('POST', '/people/erase', { ...person, reason });
        assert.ok(erased.customers > 1);
        assert.equal(erased.kept_for_payments, 0);
      },
    );

    await t.test('a client’s access and its key are revoked', async () => {
      const { body } = await createToken(client, { account_id: 'A-1' });
      const browser = await openSession(platform.url, body.token);
      const path = `/partners/gas/clients/${client.client_id}/revoke-access`;
      const revoked = await admin<{ sessions: number; tokens: number }>('POST', path, {
        reason: 'the key leaked',
      });
      assert.ok(revoked.sessions >= 1, JSON.stringify(revoked));
      assert.equal((await browser.confirm(100)).status, 401);
      const { keys } = await admin<{ keys: { key_id: string; client_id: string }[] }>(
        'GET',
        '/partners/gas/keys',
      );
      for (const { key_id } of keys) await admin('DELETE', `/partners/gas/keys/${key_id}`);
      assert.equal((await createToken(client, { account_id: 'A-1' })).status, 401);
    });
  } finally {
    await Promise.all(killed.map((server) => server.kill()));
    await sides.stop();
    await servers.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
