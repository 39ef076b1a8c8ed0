// @ts-check
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { judgePartner, partnerTarget } from '@duebridge/conformance';
import { startPartner } from '@duebridge/partner';
import { accounts as accountSystem } from '../src/accounts.js';
import { settings } from '../src/settings.js';
import { makeAccounts } from '../src/setup.js';

const PARTNER_KEY = 'a-key-for-the-tests-only';

/** 4 of 4: target.json, at the address of the server under test. */
const target = JSON.parse(await readFile(new URL('../target.json', import.meta.url), 'utf8'));
const { biller_id, accounts } = target;

/** @type {import('@duebridge/partner').RunningPartner} */
let partner;
/** @type {string} */
let folder;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'partner-test-'));
  partner = await startPartner({
    ...settings({
      PARTNER_KEY,
      PORT: '0',
      ADMIN_PORT: '0',
      DATABASE_URL: process.env.TEST_DATABASE_URL,
    }),
    accounts: accountSystem,
    dataDirectory: folder,
  });
  await makeAccounts(partner.database);
});

after(async () => {
  await partner?.stop();
  await rm(folder, { recursive: true, force: true });
});

/**
 * What these tests read of the kit's answers: of a balance, and of a payment.
 * @typedef {{ amount_due_in_cents: number, payment_id: string, status: string }} Body
 */

/**
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<{ status: number, body: Body }>}
 */
async function call(path, init) {
  const headers = { 'x-api-key': PARTNER_KEY, 'content-type': 'application/json' };
  const response = await fetch(`${partner.url}/biller/${biller_id}/account/${path}`, {
    headers,
    ...init,
  });
  return { status: response.status, body: await response.json() };
}

/** @param {string} id */
const paymentPath = (id) => `${accounts.payable}/payment/${id}`;

/** @param {string} id @param {number} amount_in_cents */
function put(id, amount_in_cents) {
  const body = JSON.stringify({ amount_in_cents, platform_batch_id: 'batch-1' });
  return call(paymentPath(id), { method: 'PUT', body });
}

test('a payment that arrives twice lowers the balance once', async () => {
  const before = (await call(`${accounts.payable}/balance`)).body.amount_due_in_cents;
  const [first, second] = await Promise.all([put('test-1', 1_000), put('test-1', 1_000)]);
  assert.equal(first.status, 200);
  assert.equal(second.body.payment_id, first.body.payment_id);
  let payment = first.body;
  while (payment.status === 'processing') {
    payment = (
      await call(paymentPath('test-1'), { headers: { 'x-api-key': PARTNER_KEY, prefer: 'wait=5' } })
    ).body;
  }
  assert.equal(payment.status, 'succeeded');
  const balance = (await call(`${accounts.payable}/balance`)).body.amount_due_in_cents;
  assert.equal(balance, before - 1_000);
});

test('an account of nobody is not found', async () => {
  assert.equal((await call(accounts.unknown)).status, 404);
});

test('the server keeps the interface', async () => {
  const report = await judgePartner(
    partnerTarget({ ...target, base_url: partner.url }, { PARTNER_KEY }),
  );
  const failed = report.results.filter(({ verdict }) => verdict === 'FAIL');
  assert.deepEqual(failed, []);
  assert.equal(report.verdict, 'passed');
});
