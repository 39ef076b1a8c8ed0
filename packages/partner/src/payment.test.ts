import assert from 'node:assert/strict';
import test from 'node:test';
import { compileCheck, PaymentRecord } from '@duebridge/contract';
import {
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
} from '../test/kit.ts';

const record = compileCheck(PaymentRecord);

test('a payment is accepted as processing and ends succeeded, posted once [S2 B4 B5 PF1 PF2 PF3 PF4 PF6 PF7 PF8 ST1 ST2 RU1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database);

  const put = await partner.call('PUT', paymentPath('pay-1'), { body: instruction(2_500) });
  assert.equal(put.status, 200);
  assert.deepEqual(record.problems(put.body, 'body'), []);
  assert.equal(put.body['status'], 'processing');
  assert.equal(put.body['posted_at'], null);
  assert.equal(put.body['platform_payment_id'], 'pay-1');
  assert.equal(put.body['platform_batch_id'], 'batch-1');
  assert.equal(put.body['amount_in_cents'], 2_500);

  const end = await ended(partner, 'pay-1');
  assert.deepEqual(record.problems(end.body, 'body'), []);
  const { status, posted_at } = end.body;
  assert.deepEqual(end.body, { ...put.body, status: 'succeeded', posted_at });
  assert.ok(Date.parse(String(posted_at)) >= Date.parse(String(put.body['initiated_at'])));
  assert.equal(status, 'succeeded');
});
