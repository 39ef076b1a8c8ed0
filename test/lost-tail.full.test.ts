/**
 * An asynchronous standby takes over that never had the last payments: nobody pays twice, and each of them is named. Real servers, a real
 * standby, and two replicas of the platform, one of which dies with the database.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { FlowPayment, Reconciliation } from '@duebridge/contract';
import { asynchronousStandbys, ensureDatabase, openDatabase } from '@duebridge/runtime';
import { testServer, until } from '@duebridge/runtime/testing';
import {
  startTestPartner,
  startTestPlatform,
  type TestPlatform,
} from '../packages/platform/src/checkout/testing.ts';
import { PostgresProxy } from './rig/postgres-proxy.ts';
import { startStandby } from './support/standby.ts';

const folder = await mkdtemp(join(tmpdir(), 'duebridge-tail-'));
const server = await testServer(join(folder, 'data'));
const primaryUrl = await ensureDatabase(server.url, 'tail');
const { port, hostname } = new URL(primaryUrl);
const proxy = new PostgresProxy({ host: hostname, port: Number(port) }, Math.random);
const databaseUrl = new URL(primaryUrl);
databaseUrl.port = String(await proxy.listen());
const partner = await startTestPartner({ after });
const secrets = {
  databaseUrl: databaseUrl.href,
  sealKey: randomBytes(32).toString('base64'),
  keyPepper: randomBytes(32).toString('base64'),
};

interface Customer {
  readonly account_id: string;
  readonly session: string;
  readonly platform_payment_id: string;
}

async function answer<T>(asked: ReturnType<TestPlatform['call']>): Promise<T> {
  const { status, text, body } = await asked;
  assert.equal(status, 200, text);
  return body as T;
}

const confirm = (on: TestPlatform, session: string, platform_payment_id: string) =>
  on.confirm(session, { amount_in_cents: 1_000, platform_payment_id });

/** Repeats what fails while the database is away. */
const untilDone = <T>(what: string, attempt: () => Promise<T | undefined>) =>
  until(what, () => attempt().catch(() => delay(250, undefined)));

const posted = (account_id: string): string[] =>
  [...partner.payments].flatMap(([id, payment]) =>
    'account_id' in payment && payment.account_id === account_id ? [id] : [],
  );

test('a standby takes over that never had the last payments: none is posted twice, and each is named [PL2 RU5 EE3 EE6 F76 F79]', async (t) => {
  const stays = await startTestPlatform(t, secrets);
  // It cannot close what the database took with it.
  const dying = {
    after: (hook: () => Promise<void>) => t.after(() => hook().catch(() => undefined)),
  };
  const dies = await startTestPlatform(dying, secrets);
  const { partner_id } = await stays.register(partner);
  const credentials = await stays.credentials(partner_id);
  const account = (n: number): string => {
    const account_id = `tail${n}`;
    partner.accounts.set(account_id, { ...partner.accounts.get('a1'), account_id });
    partner.endings.set(account_id, { status: 'succeeded', posted_at: new Date().toISOString() });
    return account_id;
  };
  const standby = await startStandby(primaryUrl, false);
  t.after(() => standby.stop());
  const primary = openDatabase({ url: primaryUrl, applicationName: 'test', maxConnections: 1 });
  assert.match((await asynchronousStandbys(primary)) ?? '', /asynchronously/);
  await primary.close();

  // The window's batch and one payment reach the standby; nothing that follows does.
  const visit = async (on: TestPlatform, account_id: string): Promise<Customer> => {
    const { session, bill } = await on.session(credentials, account_id, `${account_id}@x.example`);
    const id = bill?.next_payment_id ?? bill?.payment?.platform_payment_id ?? '';
    return { account_id, session, platform_payment_id: id };
  };
  const before = await visit(stays, account(0));
  await answer(confirm(stays, before.session, before.platform_payment_id));
  await delay(1_000);
  await standby.cutOff();
  const [here, there] = [
    [1, 2, 3, 4, 5, 6],
    [7, 8, 9],
  ];
  const customers: Customer[] = [];
  for (const [on, numbers] of [
    [stays, here],
    [dies, there],
  ] as const) {
    for (const n of numbers) {
      const customer = await visit(on, account(n));
      customers.push(customer);
      await answer(confirm(on, customer.session, customer.platform_payment_id));
    }
  }
  await untilDone('all are posted', async () =>
    customers.every(({ account_id }) => posted(account_id).length === 1) ? true : undefined,
  );

  // One replica dies with the machine of the database; the other lives on.
  proxy.faults.cut = true;
  proxy.drop();
  await dies.stop().catch(() => undefined);
  await standby.takeOver();
  proxy.upstream = { host: '127.0.0.1', port: standby.port };
  proxy.faults.cut = false;
  proxy.drop();

  // Pages that are still open repeat what they sent; the customers of the first three have opened the page anew, which knows its id no more.
  const again = async (n: number, fresh: boolean): Promise<void> => {
    const customer = customers[n - 1]!;
    const payment = await untilDone(`confirm ${n}`, async () => {
      const { session, platform_payment_id } = await visit(stays, customer.account_id);
      const id = fresh ? platform_payment_id : customer.platform_payment_id;
      return answer<FlowPayment>(confirm(stays, session, id));
    });
    assert.equal(payment.platform_payment_id, customer.platform_payment_id);
    assert.deepEqual(posted(customer.account_id), [customer.platform_payment_id]);
  };
  for (const n of [1, 2, 3]) await again(n, true);
  for (const n of [4, 7]) await again(n, false);

  // Five and six were not touched by anybody: their process puts them back.
  const lines = (): string[] => stays.logged.filter((line) => line.includes('has lost a payment'));
  await untilDone('every lost payment that a process knows is told', async () =>
    here.every((n) => lines().some((line) => line.includes(customers[n - 1]!.platform_payment_id)))
      ? true
      : undefined,
  );
  assert.equal(lines().length, here.length);
  const metrics = await (await fetch(new URL('/metrics', stays.adminUrl))).text();
  assert.match(metrics, new RegExp(`^duebridge_payments_lost_total ${here.length}$`, 'm'));

  // Eight and nine died with their process: the partner's file names them.
  const [first] = partner.payments.values();
  const batch = (first as { platform_batch_id: string }).platform_batch_id;
  const csv = [...partner.payments.keys()].map((id) => `${id},succeeded,1000`).join('\n');
  const result = await untilDone('all others have ended', async () => {
    const { body } = await stays.admin('POST', `/admin/v1/batches/${batch}/reconcile-file`, csv);
    const found = body as unknown as Reconciliation;
    return found.differences.length === 2 ? found : undefined;
  });
  assert.deepEqual(
    new Set(result.differences.map((one) => `${one.kind} ${one.platform_payment_id}`)),
    new Set([8, 9].map((n) => `missing_here ${customers[n - 1]!.platform_payment_id}`)),
  );
  for (const { account_id } of customers) assert.equal(posted(account_id).length, 1, account_id);
});

after(async () => {
  await proxy.close();
  await server.stop().catch(() => undefined);
  await rm(folder, { recursive: true, force: true });
});
