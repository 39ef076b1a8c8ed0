import { platformAdminRoutes, Refusal } from '@duebridge/contract';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import test, { type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { mount } from './mount.ts';
import { body, path, head, send, listening, raw, assertRefused, refused } from '../../test/http.ts';

test('an amount is never coerced, and what is wrong is named', async (t) => {
  const { base } = await listening(t);
  for (const amount of [
    '"100"',
    '1e2',
    '100.0',
    'true',
    'null',
    '[100]',
    '0',
    '-5',
    '9007199254740993',
  ]) {
    const sent = `{"amount_in_cents":${amount},"platform_batch_id":"b1"}`;
    const details = await refused(await send(base, sent), 400, 'INVALID_REQUEST');
    assert.equal((details as { path: string }[])[0]?.path, 'body.amount_in_cents', amount);
  }
});

test('a body that is not what it claims is refused, never a failure of ours [F96]', async (t) => {
  const { base, port } = await listening(t);
  const bad = [
    '',
    '{',
    'NaN',
    '\uFEFF{}',
    '{"a":1,"a":2}',
    '{"__proto__":{}}',
    '['.repeat(30_000),
    String.raw`{"platform_batch_id":"\ud800"}`,
    Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]),
  ];
  for (const one of bad) await refused(await send(base, one), 400, 'INVALID_REQUEST');
  await refused(await send(base, 'x'.repeat(65_537)), 413, 'PAYLOAD_TOO_LARGE');
  const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  const chunked = head(
    `PUT ${path} HTTP/1.1`,
    'Content-Type: application/json',
    'Transfer-Encoding: chunked',
  );
  assertRefused(await raw(port, chunked, chunk.repeat(16)), 413, 'PAYLOAD_TOO_LARGE');
});

/** Sends a head and the halves of its body, reads only then, and returns the answer. */
async function inHalves(
  t: TestContext,
  port: number,
  headers: string,
  half: string,
): Promise<string> {
  const socket = connect(port, '127.0.0.1').pause();
  t.after(() => socket.destroy());
  socket.on('error', () => undefined);
  await new Promise((sent) => socket.write(headers + half, sent));
  // Time in which a server that no longer reads would close, and the second half would reset the connection.
  await setTimeout(50);
  await new Promise((sent) => socket.write(half, sent));
  await setTimeout(50);
  let answer = '';
  for await (const chunk of socket.setEncoding('utf8')) answer += String(chunk);
  return answer;
}

test('a client that sends its whole body before it reads gets the refusal of a body that is too large [LI1]', async (t) => {
  const { port } = await listening(t);
  const half = 'x'.repeat(512 * 1024);
  const large = head(
    `PUT ${path} HTTP/1.1`,
    'Content-Type: application/json',
    `Content-Length: ${2 * half.length}`,
  );
  assertRefused(await inHalves(t, port, large, half), 413, 'PAYLOAD_TOO_LARGE');
});

test('a file that its reader refuses in the middle is answered, and its connection is free again', async (t) => {
  let sent: IncomingMessage | undefined;
  const { base } = await listening(t, {}, (app) =>
    mount(app, platformAdminRoutes.reconcile_batch_file, async ({ request }) => {
      sent = request.raw;
      for await (const _chunk of request.body as AsyncIterable<Uint8Array>) {
        throw new Refusal('INVALID_REQUEST', { details: [{ path: 'body', problem: 'no' }] });
      }
      throw new Error('the file had no chunk');
    }),
  );
  for (const bytes of [10, 300_000, 3_000_000]) {
    const response = await fetch(`${base}/admin/v1/batches/b1/reconcile-file`, {
      method: 'POST',
      headers: { 'content-type': 'text/csv' },
      body: Buffer.alloc(bytes, 0xff),
    });
    await refused(response, 400, 'INVALID_REQUEST');
    // Else the connection stays blocked until the time for the request is over.
    assert.ok(sent);
    if (!sent.complete) await once(sent, 'end', { signal: AbortSignal.timeout(120_000) });
  }
});

test('a file where none belongs gets its 415, also while it is still arriving', async (t) => {
  const { port } = await listening(t);
  const large = head(`PUT ${path} HTTP/1.1`, 'Content-Type: text/csv', 'Content-Length: 400000');
  assertRefused(await inHalves(t, port, large, 'x'.repeat(200_000)), 415, 'UNSUPPORTED_MEDIA_TYPE');
});

test('a body of another type, charset or encoding is refused, and one where none belongs', async (t) => {
  const { base, port } = await listening(t);
  const types = [
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/json; charset=latin1',
    'nonsense',
  ];
  for (const type of types) {
    const response = await send(base, body, { headers: { 'content-type': type } });
    await refused(response, 415, 'UNSUPPORTED_MEDIA_TYPE');
  }
  const zipped = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
  await refused(await send(base, body, { headers: zipped }), 415, 'UNSUPPORTED_MEDIA_TYPE');
  await refused(await fetch(base + path, { method: 'PUT' }), 415, 'UNSUPPORTED_MEDIA_TYPE');
  const get = head(
    'GET /payment/p1 HTTP/1.1',
    'Content-Type: application/json',
    'Content-Length: 2',
  );
  assertRefused(await raw(port, get, '{}'), 400, 'INVALID_REQUEST');
});

test('a body in an unsupported content encoding is refused, not read as it came', async (t) => {
  const { port } = await listening(t);
  const chunked = `${JSON.stringify(body).length.toString(16)}\r\n${JSON.stringify(body)}\r\n0\r\n\r\n`;
  const put = (coding: string): string =>
    head(`PUT ${path} HTTP/1.1`, 'Content-Type: application/json', `Transfer-Encoding: ${coding}`);
  for (const coding of ['gzip, chunked', 'chunked, chunked', 'identity, chunked']) {
    assertRefused(await raw(port, put(coding), chunked), 400, 'INVALID_REQUEST');
  }
  assert.match(await raw(port, put('Chunked'), chunked), /^HTTP\/1.1 200 /);
});
