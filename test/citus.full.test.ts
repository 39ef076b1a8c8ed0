/**
 * Customers pay on a sharded PostgreSQL: the same servers over the same HTTP, with the platform's tables on a coordinator and two
 * workers of Citus. It runs where Citus is installed and says so where it is not.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import {
  platformAdminRoutes,
  type BatchPage,
  type BatchView,
  type ClientKeyGrant,
  type Overview,
  type PaymentDetail,
  type PaymentPage,
  type PaymentRecord,
  type PersonErasure,
  type Reconciliation,
  type ReviewClose,
} from '@duebridge/contract';
import { freePort, until } from '@duebridge/runtime/testing';
import { SMTPServer } from 'smtp-server';
import { request } from 'undici';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { citusServers } from './support/citus.ts';
import { call, createToken, openSession, type Client } from './support/customer.ts';
import { listen } from './support/listening.ts';
import { ACCOUNTS, judge, startLoad, withBooks } from './support/paying-load.ts';
import { Server } from './support/processes.ts';

/** Payments that customers make at least while processes are killed. */
const LEAST_PAYMENTS = 40;

test('on a Citus cluster', async (t) => {
  const servers = citusServers();
  if (servers === undefined) {
    t.diagnostic('Citus is not installed');
    return;
  }
  const sides = new BothSides();
  const mails = await startMailServer();
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-citus-test-'));
  const killed: Server[] = [];
  try {
    const cluster = await servers.cluster();
    const databaseUrl = cluster.url;
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
    const { platform, admin, register } = await sides.platform({
      databaseUrl,
      ...secrets,
      mail: { url: mails.url, from: 'Payments <pay@duebridge.example>' },
    });
    const client = await register(gasCompany(partner.server.url, key['x-api-key']));

    await t.test(
      'a bill is paid, from token to receipt; a failed payment is followed by another [S1 S2 S3 S4]',
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
        assert.equal(receipt.body.account.balance?.amount_due_in_cents, 7_050);

        // A reload with a fresh token begins after that payment and pays another part.
        const later = await createToken(client, { account_id: 'A-1' });
        const reloaded = await openSession(platform.url, later.body.token);
        assert.equal((await reloaded.bill()).body.payment, null);
        const tooMuch = await reloaded.confirm(10_001);
        const failed = await reloaded.ended(tooMuch.body.platform_payment_id);
        assert.equal(failed.status, 'failed');
        // A failed payment is followed by one, however often that is asked.
        await reloaded.bill();
        const replaced = await reloaded.confirm(7_050);
        assert.equal(replaced.status, 200, JSON.stringify(replaced.body));
        assert.equal(
          (await reloaded.confirm(7_050)).body.platform_payment_id,
          replaced.body.platform_payment_id,
        );
        assert.equal((await reloaded.ended(replaced.body.platform_payment_id)).status, 'succeeded');

        const { payment, audit } = await admin<PaymentDetail>('GET', `/payments/${id}`);
        assert.equal(payment.stage, 'ended');
        assert.deepEqual(
          audit.map((entry) => entry.event).filter((event) => event.startsWith('payment_')),
          ['payment_created', 'payment_accepted', 'payment_ended'],
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

        const load = startLoad([...killed.map((server) => server.url), platform.url], client);
        for (const victim of killed) {
          await load.payments(LEAST_PAYMENTS / 4);
          await victim.kill();
          await load.payments(LEAST_PAYMENTS / 4);
        }
        const { acknowledged, retries } = await load.stop();
        await judge({ platform: databaseUrl, partner: partner.url }, acknowledged);
        inner.diagnostic(
          `${acknowledged.size} payments acknowledged, ${killed.length} kills, ${retries} retries`,
        );
      },
    );

    await t.test(
      'every payment ends, once, when a node is killed, and when one is cut off [S4 PF2 EE1]',
      async (inner) => {
        const load = startLoad([platform.url], client);
        const [first, second] = cluster.nodes;
        assert.ok(first !== undefined && second !== undefined);
        /** Waits until the worker has lost its lease, or has registered again. */
        const ready = (isReady: boolean): Promise<boolean> =>
          until(`/readyz says ${isReady ? 'ready' : 'not ready'}`, async () => {
            const { status } = await call('GET', `${platform.adminUrl}/readyz`, {});
            return (status === 200) === isReady;
          });
        await load.payments(LEAST_PAYMENTS / 4);
        first.kill();
        await ready(false);
        await first.start();
        await ready(true);
        await load.payments(LEAST_PAYMENTS / 4);
        second.cut(true);
        await ready(false);
        second.cut(false);
        await ready(true);
        await load.payments(LEAST_PAYMENTS / 4);
        const { acknowledged, retries } = await load.stop();
        await judge({ platform: databaseUrl, partner: partner.url }, acknowledged);
        inner.diagnostic(`${acknowledged.size} payments acknowledged, ${retries} retries`);
      },
    );

    await t.test('customers get their mails, each once', async () => {
      const texts = mails.texts;
      await until('a receipt and a notice', () =>
        ['Receipt', 'was not made'].every((part) => texts.some((text) => text.includes(part))),
      );
      const ids = texts.map(
        (text) => /<([^>]+)@/.exec(/^Message-I[dD]: .*$/m.exec(text)?.[0] ?? '')?.[1],
      );
      assert.equal(new Set(ids).size, ids.length, 'a mail came twice');
    });

    await t.test('a batch is reconciled; a person is found and erased', async () => {
      const { batches } = await admin<BatchPage>('GET', '/batches');
      for (const { platform_batch_id } of batches) {
        const path = `/batches/${platform_batch_id}/reconcile`;
        assert.deepEqual((await admin<Reconciliation>('POST', path, {})).differences, []);
      }
      const lost = await admin<PaymentPage>('GET', '/payments?status=failed');
      assert.equal(lost.payments.length, 1);
      const person = { email: 'ada@example.com' };
      const found = await admin<PaymentPage>('POST', '/payments/search', person);
      assert.ok(found.payments.length > 1);
      const reason = 'the customer asked';
      const erased = await admin<PersonErasure>('POST', '/people/erase', { ...person, reason });
      assert.ok(erased.customers > 1);
      assert.equal(erased.kept_for_payments, 0);
    });

    await t.test(
      'a declined payment fails; one in review is closed, its funds released',
      async () => {
        const declined = await pay(client, 'A-1', 4_000, 'sandbox_declined');
        const { payment } = await admin<PaymentDetail>('GET', `/payments/${declined}`);
        assert.equal(payment.status, 'failed');

        const refuser = await startRefuser();
        try {
          const partner_id = 'refuser';
          await admin('POST', '/partners', {
            ...gasCompany(refuser.url, key['x-api-key']),
            partner_id,
            origins: [],
          });
          const grant = await admin<ClientKeyGrant>('POST', `/partners/${partner_id}/keys`, {});
          const theirs = { ...grant, platformUrl: platform.url };
          const { body } = await createToken(theirs, { account_id: 'A-1' });
          const browser = await openSession(platform.url, body.token);
          const { platform_payment_id: id } = (await browser.confirm(2_500)).body;
          const detail = async (): Promise<PaymentDetail> =>
            admin<PaymentDetail>('GET', `/payments/${id}`);
          await until('the review', async () => (await detail()).payment.stage === 'review');
          const overview = await admin<Overview>('GET', '/overview');
          assert.equal(overview.reviews.length, 1, JSON.stringify(overview.reviews));
          const reason = 'the biller will never take it';
          const closed = await admin<ReviewClose>('POST', `/payments/${id}/close`, { reason });
          assert.equal(closed.outcome, 'done');
          assert.equal((await browser.ended(id)).status, 'failed');
          await withBooks(databaseUrl, (books) =>
            until('the release of its funds', async () => {
              const [row] = await books.query<{ state: string; settled: boolean }>(
                `SELECT (SELECT state FROM duebridge_platform.funds WHERE platform_payment_id = $1) AS state,
                      settled_at IS NOT NULL AS settled
                 FROM duebridge_platform.payments WHERE platform_payment_id = $1`,
                [id],
              );
              return row?.state === 'released' && row.settled;
            }),
          );
          await browser.bill();
          const again = await browser.confirm(2_400);
          assert.equal(again.status, 200, JSON.stringify(again.body));
        } finally {
          await refuser.stop();
        }
      },
    );

    await t.test('a batch closes after its cut-off, once its payments have ended', async () => {
      const platform_batch_id = 'yesterday';
      await withBooks(databaseUrl, async (books) => {
        await books.query(
          `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ($1, 'gas', $2)`,
          [platform_batch_id, new Date(Date.now() - 3_600_000)],
        );
        await books.query(
          `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, funding_method, slot, stage)
           VALUES ('of-yesterday', 'gas', 'gas', 'A-1', $1, 777, 'sandbox_bank', -1, 'created')`,
          [platform_batch_id],
        );
      });
      const path = `/batches/${platform_batch_id}`;
      await until('the payment’s end', async () => {
        const { payment } = await admin<PaymentDetail>('GET', '/payments/of-yesterday');
        return payment.status === 'succeeded';
      });
      // A worker may be quicker.
      await admin('POST', `${path}/close`, { reason: 'end of day' }).catch((error: unknown) =>
        assert.match(String(error), /closed already/),
      );
      const batch = await admin<BatchView>('GET', path);
      assert.ok(batch.closed_at !== null);
      assert.equal(batch.statement.count, 1);
      assert.deepEqual(
        (await admin<Reconciliation>('POST', `${path}/reconcile`, {})).differences,
        [],
      );
    });

    await t.test(
      'every page of the console is answered, and conflicts are told as such',
      async () => {
        const { payments } = await admin<PaymentPage>('GET', '/payments');
        const { batches } = await admin<BatchPage>('GET', '/batches');
        assert.ok(payments[0] !== undefined && batches[0] !== undefined);
        const operator = { operator_id: 'ada', name: 'Ada', role: 'operator' };
        await admin('POST', '/operators', operator);
        await assert.rejects(admin('POST', '/operators', operator), /: 409 /);
        for (const expected of [undefined, undefined, /: 409 /]) {
          const issued = admin('POST', '/operators/ada/keys', {});
          await (expected === undefined ? issued : assert.rejects(issued, expected));
        }
        await assert.rejects(
          admin('POST', '/partners', { ...gasCompany(partner.server.url, 'x'), origins: [] }),
          /: 409 /,
        );
        const ids: Readonly<Record<string, string>> = {
          partner_id: 'gas',
          platform_payment_id: payments[0].platform_payment_id,
          platform_batch_id: batches[0].platform_batch_id,
          operator_id: 'ada',
        };
        const authorization = `Bearer ${platform.adminKey}`;
        let pages = 0;
        for (const { method, path } of Object.values(platformAdminRoutes)) {
          if (method !== 'GET') continue;
          const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? '');
          const answer = await request(`${platform.adminUrl}${filled}`, {
            headers: { authorization },
          });
          assert.equal(answer.statusCode, 200, `${path}: ${await answer.body.text()}`);
          pages += 1;
        }
        assert.ok(pages >= 15, `${pages} pages`);
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
    assert.deepEqual(cluster.refused(), [], 'what Citus refused');
  } finally {
    await Promise.all(killed.map((server) => server.kill()));
    await sides.stop();
    await servers.stop();
    await mails.stop();
    await rm(folder, { recursive: true, force: true });
  }
});

/** A customer pays; resolves with the payment's id when it has ended. */
async function pay(
  client: Client,
  account_id: string,
  amount_in_cents: number,
  funding_method: string,
): Promise<string> {
  const { body } = await createToken(client, { account_id });
  const { platformUrl } = client;
  const page = await openSession(platformUrl, body.token);
  const made = await page.confirm(amount_in_cents, funding_method);
  assert.equal(made.status, 200, JSON.stringify(made.body));
  const { platform_payment_id } = made.body;
  await page.ended(platform_payment_id);
  return platform_payment_id;
}

/** A partner that knows every account, refuses every payment and remembers none. */
async function startRefuser(): Promise<{ url: string; stop(): Promise<void> }> {
  const server = createServer((request, response) => {
    request.resume();
    const [status, body] = !request.url?.includes('/payment/')
      ? [200, { biller_id: 'gas', account_id: 'A-1', status: 'active' }]
      : request.method === 'PUT'
        ? [422, { code: 'AMOUNT_TOO_HIGH', message: 'too high' }]
        : [404, { code: 'PAYMENT_NOT_FOUND', message: 'no' }];
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  });
  const port = await listen(server);
  return {
    url: `http://127.0.0.1:${port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A mail server that takes everything. */
async function startMailServer(): Promise<{ url: string; texts: string[]; stop(): Promise<void> }> {
  const texts: string[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    onData(stream, _session, done) {
      let text = '';
      stream.on('data', (chunk: Buffer) => (text += chunk.toString('utf8')));
      stream.on('end', () => {
        texts.push(text);
        done();
      });
    },
  });
  const port = await listen(server.server);
  return {
    url: `smtp://127.0.0.1:${port}`,
    texts,
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}
