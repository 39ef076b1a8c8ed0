import assert from 'node:assert/strict';
import test from 'node:test';
import { assertInTime, testInRealTime } from '@duebridge/runtime/testing';
import {
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
  withKey,
  type Answer,
  type TestPartner,
} from '../test/kit.ts';

/** A partner whose payments stay processing until they are canceled. */
const held = { holdMs: 600_000 };

function waitingRead(partner: TestPartner, id: string, prefer = 'wait=20'): Promise<Answer> {
  return partner.call('GET', paymentPath(id), { headers: { ...withKey, prefer } });
}

test('both reads and the PUT agree in every field, before and after the end [B3 B5 RU3 KT8]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database, held);
  const put = await partner.call('PUT', paymentPath('p'), { body: instruction() });
  assert.deepEqual((await partner.call('GET', paymentPath('p'))).body, put.body);
  assert.deepEqual((await partner.call('GET', '/payment/p')).body, put.body);
  await partner.app.partnerKit.cancel('p', 'operator', 'test');
  const after = await partner.call('GET', paymentPath('p'));
  assert.equal(after.body['status'], 'canceled');
  assert.deepEqual((await partner.call('GET', '/payment/p')).body, after.body);
});

test('under the path of another account or biller the payment does not exist [B5 PF2 ER3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const partner = await startKit(database, held);
  await partner.call('PUT', paymentPath('p'), { body: instruction() });
  for (const path of [
    paymentPath('p', 'A-2'),
    paymentPath('p', 'A-1', 'other'),
    paymentPath('q'),
    '/payment/q',
  ]) {
    // Even the duration of a waiting read must not reveal that the id is taken.
    const answer = await partner.call('GET', path, { headers: { ...withKey, prefer: 'wait=20' } });
    assert.deepEqual([answer.status, answer.body['code']], [404, 'PAYMENT_NOT_FOUND'], path);
  }
});

test('a payment is found right after its acknowledgement, at every replica [B5 ST1 KT3 KT9 F77]', async (t) => {
  const database = await kitDatabase(t);
  const [one, other] = [await startKit(database, held), await startKit(database, held)];
  for (let index = 0; index < 20; index += 1) {
    const put = await one.call('PUT', paymentPath(`p-${index}`), { body: instruction() });
    const get = await other.call('GET', paymentPath(`p-${index}`));
    assert.deepEqual(get.body, put.body);
  }
});

testInRealTime(
  'a waiting read is answered when the status changes, here or at another replica [RU3 B5]',
  async (t) => {
    const database = await kitDatabase(t);
    const [one, other] = [await startKit(database, held), await startKit(database, held)];
    await one.call('PUT', paymentPath('p'), { body: instruction() });
    const reads = [waitingRead(one, 'p'), waitingRead(other, 'p'), waitingRead(other, 'p')];
    const began = performance.now();
    await one.app.partnerKit.cancel('p', 'operator', 'test');
    for (const answer of await Promise.all(reads)) {
      assert.equal(answer.body['status'], 'canceled');
      assert.equal(answer.headers['preference-applied'], 'wait');
    }
    assertInTime(performance.now() - began < 10_000, 'it did not wait for its time to run out');
  },
);
