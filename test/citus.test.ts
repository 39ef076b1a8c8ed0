/**
 * A customer pays on a sharded PostgreSQL: the same two servers over the same HTTP, with the platform's tables on a coordinator and two
 * workers of Citus. It runs where Citus is installed and says so where it is not.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { PaymentDetail, PaymentRecord } from '@duebridge/contract';
import { BothSides } from './support/both-sides.ts';
import { citusServers } from './support/citus.ts';
import { call, createToken, openSession } from './support/customer.ts';

test('a bill is paid on a Citus cluster, from token to receipt [S1 S2 S3 S4]', async (t) => {
  const servers = citusServers();
  if (servers === undefined) {
    t.diagnostic('Citus is not installed');
    return;
  }
  const sides = new BothSides();
  try {
    const { url } = await servers.cluster();
    const key = { 'x-api-key': 'the-key-that-the-biller-chose' };
    const partner = await sides.partner({
      auth: { method: 'key', header: 'x-api-key', keys: [key['x-api-key']] },
      billers: [{ biller_id: 'gas', max_amount_in_cents: 10_000 }],
    });
    await partner.importAccounts('biller_id,account_id,status,amount_due\ngas,A-1,active,120.50\n');
    const { platform, admin, register } = await sides.platform({ databaseUrl: url });
    const client = await register({
      partner_id: 'gas',
      name: 'Gas Company',
      kind: 'biller',
      biller_id: 'gas',
      base_url: partner.server.url,
      auth: { method: 'key', header: 'x-api-key', key: key['x-api-key'] },
    });

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
  } finally {
    await sides.stop();
    await servers.stop();
  }
});
