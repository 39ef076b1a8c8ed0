import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import test from 'node:test';
import { createMetrics, type Database } from '@duebridge/runtime';
import { insertPayments } from './store.ts';
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

/** One turn of the event loop, in which sockets and timers run. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 1);
  });
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

test('a payment is found right after its acknowledgement, at every replica [B5 ST1 KT9 F77]', async (t) => {
  const database = await kitDatabase(t);
  const [one, other] = [await startKit(database, held), await startKit(database, held)];
  for (let index = 0; index < 20; index += 1) {
    const put = await one.call('PUT', paymentPath(`p-${index}`), { body: instruction() });
    const get = await other.call('GET', paymentPath(`p-${index}`));
    assert.deepEqual(get.body, put.body);
  }
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

test('a poll without a preference is answered at once and changes nothing [EV1 B5]', async (t) => {
  const database = await kitDatabase(t);
  const partner = await startKit(database, held);
  const put = await partner.call('PUT', paymentPath('p'), { body: instruction() });
  for (let poll = 0; poll < 30; poll += 1) {
    const answer = await partner.call('GET', paymentPath('p'));
    assert.deepEqual(answer.body, put.body);
    assert.equal(answer.headers['preference-applied'], undefined);
  }
});

test('a waiting read is answered when the status changes, here or at another replica [RU3 B5]', async (t) => {
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
  assert.ok(performance.now() - began < 10_000, 'it did not wait for its time to run out');
});

test('waiting reads end when the server stops, each with an answer [B5]', async (t) => {
  const database = await kitDatabase(t);
  const metrics = createMetrics({ processFigures: false });
  const partner = await startKit(database, { ...held, metrics });
  await partner.call('PUT', paymentPath('p'), { body: instruction() });
  const { port, hostname } = new URL(partner.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(
    `GET ${paymentPath('p')} HTTP/1.1\r\nHost: x\r\nx-api-key: ${withKey['x-api-key']}\r\nPrefer: wait=20\r\n\r\n`,
  );
  while (!(await metrics.text()).includes('duebridge_kit_waiting_reads 1')) await turn();
  const answered = once(socket, 'data');
  const began = performance.now();
  await partner.app.close();
  const [bytes] = (await answered) as [Buffer];
  assert.match(bytes.toString(), /^HTTP\/1\.1 200 /);
  assert.match(bytes.toString(), /"status":"processing"/);
  assert.ok(performance.now() - began < 7_000);
  socket.destroy();
});

test('a client that disconnects during its token lookup takes no place among the waiting reads [LI1 B5]', async (t) => {
  const database = await kitDatabase(t);
  const asked = Promise.withResolvers<void>();
  const looked = Promise.withResolvers<void>();
  const read = Promise.withResolvers<void>();
  const slow: Database = {
    ...database,
    async query(statement, values) {
      if (typeof statement !== 'string' && statement.name === 'kit_find_token') {
        asked.resolve();
        await looked.promise;
      }
      if (typeof statement !== 'string' && statement.name === 'kit_find_payments') read.resolve();
      return database.query(statement, values);
    },
  };
  const metrics = createMetrics({ processFigures: false });
  const client = { client_id: 'platform', secrets: ['a-secret-of-the-client'] };
  const partner = await startKit(slow, {
    ...held,
    metrics,
    auth: { method: 'oauth', clients: [client] },
  });
  const form = `grant_type=client_credentials&client_id=platform&client_secret=${client.secrets[0]}`;
  const { body } = await partner.call('POST', '/oauth/token', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: form,
  });
  await insertPayments(database, [
    {
      platform_payment_id: 'p',
      platform_batch_id: 'b',
      biller_id: 'acme',
      account_id: 'A-1',
      client_id: 'platform',
      amount_in_cents: 1,
    },
  ]);
  const { port, hostname } = new URL(partner.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(
    `GET ${paymentPath('p')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${String(body['access_token'])}\r\nPrefer: wait=25\r\n\r\n`,
  );
  await asked.promise;
  const server = partner.app.server;
  socket.destroy();
  const connections = (): Promise<number> =>
    new Promise((resolve, reject) => {
      server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
    });
  while ((await connections()) > 1) await turn();
  const began = performance.now();
  looked.resolve();
  // A read counts as waiting before its first look.
  await read.promise;
  while (!(await metrics.text()).includes('duebridge_kit_waiting_reads 0')) await turn();
  assert.ok(performance.now() - began < 15_000, 'it waited as if somebody were there');
});
