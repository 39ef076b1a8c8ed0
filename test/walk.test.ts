/**
 * One payment, from token to reconciliation: the best place to start reading. Everything here is real: two servers, two databases,
 * HTTP between them. The comments name the file in which each step happens.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type {
  AccountRecord,
  BatchPage,
  BatchStatement,
  BatchView,
  PaymentDetail,
  PaymentRecord,
  Reconciliation,
} from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import { BothSides } from './support/both-sides.ts';
import { call, createToken, openSession } from './support/customer.ts';

const sides = new BothSides();
after(() => sides.stop());

test('a bill is paid once, and both sides agree to the cent [S1 S2 S3 S4 ST1 ST2 RU1 PF3 EV1 EE2 EE3]', async () => {
  // A biller mounts the partner kit on its accounts. (packages/partner)
  const key = { 'x-api-key': 'the-key-that-the-biller-chose' };
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [key['x-api-key']] },
  });
  await partner.importAccounts(
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date\n' +
      'gas,A-1,active,Ada,Lovelace,120.50,2026-12-01\n',
  );
  const account = `${partner.server.url}/biller/gas/account/A-1`;
  const before = await call<AccountRecord>('GET', account, key);
  assert.equal(before.body.balance?.amount_due_in_cents, 12_050);

  // The operator registers the biller at the platform and gives it a key. (platform: registry.ts, keys.ts)
  const { platform, admin, register } = await sides.platform();
  const client = await register({
    partner_id: 'gas',
    name: 'Gas Company',
    kind: 'biller',
    biller_id: 'gas',
    base_url: partner.server.url,
    auth: { method: 'key', header: 'x-api-key', key: key['x-api-key'] },
  });

  // 1. The biller's backend posts its customer's details and gets a token. (token.ts)
  const { status, body } = await createToken(client, { account_id: 'A-1' });
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(body), ['token']);

  // 2. The payment page exchanges it for a session and shows the bill, read from the biller just now. (session.ts)
  const browser = await openSession(platform.url, body.token);
  const bill = await browser.bill();
  assert.equal(bill.body.account.balance?.amount_due_in_cents, 12_050);
  assert.equal(bill.body.account.balance_source, 'partner');
  assert.equal(bill.body.payment, null);

  // 3. The customer pays a part, and presses twice. (confirm.ts)
  const [confirmed, again] = await Promise.all([browser.confirm(5_000), browser.confirm(5_000)]);
  assert.equal(confirmed.status, 200);
  assert.equal(confirmed.body.status, 'processing');
  assert.equal(again.body.platform_payment_id, confirmed.body.platform_payment_id);
  const id = confirmed.body.platform_payment_id;

  // 4. The engine reserves the funds, puts the payment, and polls until the biller has posted it. (funding.ts, engine/payment-steps.ts)
  const paid = await browser.ended(id);
  assert.equal(paid.status, 'succeeded');

  // 5. The biller's record is what the customer sees. (partner: accept.ts, apply.ts, status.ts)
  const record = await call<PaymentRecord>('GET', `${account}/payment/${id}`, key);
  assert.equal(record.body.payment_id, paid.payment_id);
  assert.equal(record.body.posted_at, paid.posted_at);
  assert.equal(record.body.amount_in_cents, 5_000);

  // 6. The balance moved by the amount, and the payment is the entry that says so. (ledger.ts)
  const balance = await call<AccountRecord>('GET', account, key);
  assert.equal(balance.body.balance?.amount_due_in_cents, 7_050);
  const entries = await partner.books.query<{ amount_in_cents: number }>(
    'SELECT amount_in_cents FROM duebridge_partner.movement WHERE platform_payment_id = $1',
    [id],
  );
  assert.deepEqual(entries, [{ amount_in_cents: -5_000 }]);

  // 7. The same PUT, days later, by whatever proxy: the payment as it is, and nothing moves. (RU5)
  const repeated = await call<PaymentRecord>('PUT', `${account}/payment/${id}`, key, {
    amount_in_cents: 5_000,
    platform_batch_id: record.body.platform_batch_id,
  });
  assert.deepEqual(repeated, record);
  const unmoved = await call<AccountRecord>('GET', account, key);
  assert.deepEqual(unmoved.body, balance.body);

  // 8. The operator explains the payment from its audit trail. (store/audit.ts)
  const { payment, audit } = await admin<PaymentDetail>('GET', `/payments/${id}`);
  assert.equal(payment.stage, 'ended');
  assert.equal(payment.masked_account_id.includes('A-1'), false);
  assert.deepEqual(
    audit.map((entry) => entry.event).filter((event) => event.startsWith('payment_')),
    ['payment_created', 'payment_accepted', 'payment_ended'],
  );

  // 9. Both sides say the same about the batch: the same lines give the same digest. (batch.ts, statement.ts)
  const { batches } = await admin<BatchPage>('GET', '/batches');
  assert.equal(batches.length, 1);
  const { statement: ours } = await admin<BatchView>(
    'GET',
    `/batches/${batches[0]!.platform_batch_id}`,
  );
  assert.equal(ours.platform_batch_id, record.body.platform_batch_id);
  const theirs = await call<BatchStatement>(
    'GET',
    `${partner.server.url}/batch/${ours.platform_batch_id}`,
    key,
  );
  assert.deepEqual(theirs.body, ours);

  // 10. And reconciliation finds nothing to say. (reconcile.ts)
  const reconciled = await admin<Reconciliation>(
    'POST',
    `/batches/${ours.platform_batch_id}/reconcile`,
    {},
  );
  assert.deepEqual(reconciled.differences, []);
  assert.equal(reconciled.compared, 1);
});

test('a payment the biller cannot take ends failed with its reason, and the funds go back [ST3 PF5 FR1]', async () => {
  const { platform, books, register } = await sides.platform();
  const auth = { client_id: 'platform', client_secret: 'a-long-s3cret+%&:;=/?#' };
  const partner = await sides.partner({
    auth: {
      method: 'oauth',
      client_id: auth.client_id,
      secrets: [auth.client_secret],
    },
    billers: [{ biller_id: 'water', max_amount_in_cents: 10_000 }],
  });
  await partner.importAccounts('biller_id,account_id,status,amount_due\nwater,W-1,active,500.00\n');
  const client = await register({
    partner_id: 'city',
    name: 'City',
    kind: 'aggregator',
    base_url: partner.server.url,
    auth: { method: 'oauth', token_url: `${partner.server.url}/oauth/token`, ...auth },
  });
  const { body } = await createToken(client, { biller_id: 'water', account_id: 'W-1' });
  const browser = await openSession(platform.url, body.token);

  const tooMuch = await browser.confirm(10_001);
  const failed = await browser.ended(tooMuch.body.platform_payment_id);
  assert.equal(failed.status, 'failed');
  assert.match(failed.failure_reason ?? '', /maximum/);
  assert.equal(failed.posted_at, null);

  // A second try is another payment, and only a page that has seen how the first ended makes it.
  const same = await browser.confirm(10_000);
  assert.equal(same.body.platform_payment_id, failed.platform_payment_id);
  await browser.bill();
  const second = await browser.confirm(10_000);
  const paid = await browser.ended(second.body.platform_payment_id);
  assert.equal(paid.status, 'succeeded');

  const fundsOf = async (id: string): Promise<string | undefined> => {
    const [row] = await books.query<{ state: string }>(
      'SELECT state FROM duebridge_platform.funds WHERE platform_payment_id = $1',
      [id],
    );
    return row?.state;
  };
  await settled(books);
  assert.equal(await fundsOf(failed.platform_payment_id), 'released');
  assert.equal(await fundsOf(paid.platform_payment_id), 'captured');
});

test('a payment that the biller cancels ends canceled, and nothing is posted [ST4]', async () => {
  const { platform, register } = await sides.platform();
  const partner = await sides.partner({
    auth: { method: 'key', header: 'Authorization', keys: ['a-key-without-a-scheme-word'] },
    holdMs: 60_000,
  });
  await partner.importAccounts('biller_id,account_id,status,amount_due\ngas,A-9,active,10.00\n');
  const client = await register({
    partner_id: 'gas',
    name: 'Gas',
    kind: 'biller',
    biller_id: 'gas',
    base_url: partner.server.url,
    auth: { method: 'key', header: 'Authorization', key: 'a-key-without-a-scheme-word' },
  });
  const { body } = await createToken(client, { account_id: 'A-9' });
  const browser = await openSession(platform.url, body.token);
  const { platform_payment_id: id } = (await browser.confirm(1_000)).body;
  const cancelPath = `${partner.server.adminUrl}/admin/v1/payments/${id}/cancel`;
  const operator = { authorization: `Bearer ${partner.server.adminKey}` };
  for (;;) {
    const canceled = await call('POST', cancelPath, operator, { reason: 'the customer called' });
    if (canceled.status === 200) break;
    assert.equal(canceled.status, 404, 'until the PUT arrives there is nothing to cancel');
  }
  const ended = await browser.ended(id);
  assert.equal(ended.status, 'canceled');
  assert.equal(ended.posted_at, null);
  assert.deepEqual(
    await partner.books.query(`SELECT 1 FROM duebridge_partner.payment WHERE in_ledger`),
    [],
  );
});

/** Waits until the funds of every ended payment have been captured or released. */
function settled(books: { query(sql: string): Promise<unknown[]> }): Promise<unknown> {
  const open = `SELECT 1 FROM duebridge_platform.payments WHERE settled_at IS NULL`;
  return until('the funds are settled', async () => (await books.query(open)).length === 0);
}
