/** Valid and invalid answers of an AccountSystem, and how the kit handles them. */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { AccountRecord } from '@duebridge/contract';
import { createLogger, createMetrics } from '@duebridge/runtime';
import { freePort, until } from '@duebridge/runtime/testing';
import { accountsOverHttp } from './accounts-over-http.ts';
import type { AccountsInOwnSystem, AccountSystem, PostOutcome } from './account-system.ts';
import { instruction, kitDatabase, paymentPath, startKit } from '../test/kit.ts';

const record: AccountRecord = { biller_id: 'acme', account_id: 'A-1', status: 'active' };

/** An external account system with scripted answers. */
function ownSystem(
  post: () => PostOutcome,
  more: Partial<AccountsInOwnSystem> = {},
): AccountsInOwnSystem {
  return {
    posts: 'in_own_system',
    findAccount: () => Promise.resolve(record),
    post: (payments) => Promise.resolve(payments.map(post)),
    ...more,
  };
}

test('customer data in errors of the account system reaches no log line [PL15]', async (t) => {
  const database = await kitDatabase(t);
  const customer = 'Josephine Plantedname';
  const fail = (): Promise<never> => {
    const error = new TypeError(`no row for\n    at ${customer} (her:1:1)`);
    return Promise.reject(Object.assign(error, { code: 'E_CORE' }));
  };
  let inTransaction = 0;
  const systems: Record<string, AccountSystem> = {
    'own system': ownSystem(() => ({ outcome: 'posted' }), {
      findAccount: fail,
      post: fail,
      lookup: fail,
    }),
    'thrown text': ownSystem(() => ({ outcome: 'posted' }), {
      findAccount: () => {
        throw customer as unknown as Error;
      },
      post: fail,
    }),
    'a service that is down': accountsOverHttp({
      url: `http://127.0.0.1:${await freePort()}`,
      secret: 'a-secret-of-both-sides',
    }),
    // An error raised by a function in the biller's own database.
    'in the transaction': {
      posts: 'in_transaction',
      findAccount: fail,
      async post(_payments, tx) {
        inTransaction += 1;
        await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'no row for ${customer}'; END $$`);
        return [];
      },
    },
  };
  for (const [name, accounts] of Object.entries(systems)) {
    let written = '';
    const log = createLogger({
      name: 'test',
      level: 'debug',
      destination: { write: (line: string) => void (written += line) },
    });
    const partner = await startKit(database, { accounts, log });
    const read = await partner.call('GET', '/biller/acme/account/A-1');
    assert.equal(read.status, 503);
    const id = name.replaceAll(' ', '-');
    const put = await partner.call('PUT', paymentPath(id), { body: instruction() });
    assert.equal(put.status, 200);
    await until(`${name}: the failed post`, () => /not applied; will be retried/.test(written));
    await partner.close();
    assert.match(written, /the account system gave no valid answer/, name);
    assert.doesNotMatch(written, /plantedname/i, name);
    // The rest of the message tells the biller's engineer where to look.
    if (name === 'own system') assert.match(written, /TypeError E_CORE at/);
    if (name === 'a service that is down') assert.match(written, /TypeError ECONNREFUSED/);
    if (name === 'in the transaction') assert.match(written, /P0001/);
  }
  assert.ok(inTransaction > 0);
});

test('what is stuck is counted: processing, unsettled, the pool, refused callers, the core’s response time [RU3 S3 LV7]', async (t) => {
  const database = await kitDatabase(t);
  const metrics = createMetrics({ processFigures: false });
  const asked = Promise.withResolvers<void>();
  const accounts = ownSystem(() => ({ outcome: 'posted' }), {
    async post(payments) {
      asked.resolve();
      await Promise.resolve();
      return payments.map(() => ({ outcome: 'later' }) as const);
    },
  });
  const before = await startKit(database, { accounts });
  await before.call('PUT', paymentPath('p'), { body: instruction() });
  await asked.promise;
  await before.close();
  // The figures are counted when a kit starts, and every thirty seconds.
  const partner = await startKit(database, { accounts, metrics });
  await partner.call('GET', '/payment/p', { headers: {} });
  await partner.call('GET', '/biller/acme/account/A-1');
  const expected = [
    /^duebridge_kit_processing 1$/m,
    /^duebridge_kit_processing_oldest_seconds 0?\.?\d+/m,
    /^duebridge_kit_unsettled 1$/m,
    /^duebridge_kit_unsettled_oldest_seconds \d/m,
    /^duebridge_kit_pool_open [1-9]/m,
    /^duebridge_kit_pool_waiting 0$/m,
    /^duebridge_kit_auth_failures_total 1$/m,
    /^duebridge_kit_account_system_seconds_count\{operation="find_account"\} 1$/m,
  ];
  await until('the figures', async () => {
    const text = await metrics.text();
    return expected.every((line) => line.test(text));
  });
});
