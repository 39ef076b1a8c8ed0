import assert from 'node:assert/strict';
import test from 'node:test';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  Refusal,
  renderOpenApi,
  type Route,
} from '@duebridge/contract';
import { connect } from 'node:net';
import { createMetrics } from '../metrics.ts';
import { seededRandom } from '../../test/testing.ts';
import { mount } from './mount.ts';
import { mountOperations } from './operations.ts';
import { createServer, hostsOf } from './server.ts';
import {
  put,
  body,
  path,
  record,
  head,
  send,
  listening,
  raw,
  assertRefused,
  refused,
} from '../../test/http.ts';

test('an operation of the table is answered in the form of the table', async (t) => {
  const { base } = await listening(t);
  const response = await send(base, body);
  assert.equal(response.status, 200);
  assert.deepEqual(await response.json(), record);
  assert.equal(response.headers.get('cache-control'), 'no-store');
});

test('a time in another form than ours, and a null character, are refused in a sentence', async (t) => {
  let seen: unknown;
  const { base } = await listening(t, {}, (app) => {
    mount(app, platformAdminRoutes.list_payments, ({ query }) => {
      seen = query;
      throw new Refusal('NOT_FOUND');
    });
  });
  const list = (query: string): Promise<Response> => fetch(`${base}/admin/v1/payments?${query}`);
  for (const from of [
    '2026-03-01T10:30:00,5Z',
    '2026-03-01T10:30:00%2B00',
    '2026-03-01T10:30:00+00:00',
  ]) {
    const details = await refused(await list(`from=${from}`), 400, 'INVALID_REQUEST');
    assert.match(JSON.stringify(details), /query.from.*must be a time with its zone/, from);
  }
  const details = await refused(await list('id=a%00b'), 400, 'INVALID_REQUEST');
  assert.match(JSON.stringify(details), /"query".*null character/);
  await refused(await list('from=2026-03-01T10:30:00.5%2B02:00'), 404, 'NOT_FOUND');
  assert.deepEqual(seen, { from: '2026-03-01T08:30:00.500Z' });
});

test('every operation of every table can be mounted, served and described', async (t) => {
  for (const routes of [partnerRoutes, platformRoutes, platformAdminRoutes, partnerAdminRoutes]) {
    const app = createServer();
    t.after(() => app.close());
    for (const route of Object.values<Route>(routes)) {
      mount(app, route, () => {
        throw new Refusal('CONFLICT');
      });
    }
    const openapi = renderOpenApi(routes, { title: 'T <b>', description: 'd' });
    mountOperations(app, { openapi, metrics: createMetrics({ processFigures: false }) });
    await app.ready();
    assert.equal((await app.inject('/healthz')).statusCode, 200);
    assert.equal((await app.inject('/metrics')).statusCode, 200);
    assert.deepEqual(
      (await app.inject('/openapi.json')).json(),
      JSON.parse(JSON.stringify(openapi)),
    );
    const docs = await app.inject('/docs');
    assert.match(docs.body, /T &lt;b>/);
  }
});

test('duplicate headers with two meanings are refused [F100 F101]', async (t) => {
  const { port } = await listening(t, { singleHeaders: ['X-Biller-Key'] });
  for (const name of [
    'X-Api-Key',
    'X-Client-Id',
    'Authorization',
    'x-biller-key',
    'Content-Type',
  ]) {
    const twice = head('GET /payment/p1 HTTP/1.1', `${name}: a`, `${name.toLowerCase()}: b`);
    assertRefused(await raw(port, twice), 400, 'INVALID_REQUEST');
  }
  const lengths = head(`PUT ${path} HTTP/1.1`, 'Content-Length: 2', 'Content-Length: 3');
  assertRefused(await raw(port, lengths, '{}'), 400, 'INVALID_REQUEST');
  const both = head(`PUT ${path} HTTP/1.1`, 'Content-Length: 2', 'Transfer-Encoding: chunked');
  assertRefused(await raw(port, both, '{}'), 400, 'INVALID_REQUEST');
  assertRefused(
    await raw(port, head('GET /payment/p1 HTTP/1.1', `X-Long: ${'x'.repeat(20_000)}`)),
    431,
    'HEADERS_TOO_LARGE',
  );
  assertRefused(await raw(port, 'what is this\r\n\r\n'), 400, 'INVALID_REQUEST');
});

test('what a proxy in front may read as another request is refused [F101]', async (t) => {
  const { port } = await listening(t);
  const json = '{"amount_in_cents":1250,"platform_batch_id":"b1"}';
  const good = ['Host: x', 'Connection: close', 'Content-Type: application/json'];
  const length = `Content-Length: ${json.length}`;
  const sized = [...good, length];
  const chunked = [...good, 'Transfer-Encoding: chunked'];
  const size = json.length.toString(16);
  const chunks = `${size}\r\n${json}\r\n0\r\n\r\n`;
  const message = (lines: readonly string[], text: string, end = '\r\n'): string =>
    `${[`PUT ${path} HTTP/1.1`, ...lines].join(end)}${end}${end}${text}`;
  // Read as it is meant, the body reaches the handler: what is refused below is refused for its framing.
  for (const right of [message(sized, json), message(chunked, chunks)]) {
    assert.match(await raw(port, right), /^HTTP\/1.1 200 /);
  }
  const odd = {
    'a length and chunks': message([...sized, 'Transfer-Encoding: chunked'], chunks),
    'two lengths': message([...sized, 'Content-Length: 3'], json),
    'the same length twice': message([...sized, length], json),
    'a list of lengths': message([...good, `${length}, ${json.length}`], json),
    'a signed length': message([...good, length.replace(': ', ': +')], json),
    'a length before a space': message([...good, length.replace(':', ' :')], json),
    'bare line feeds': message(sized, json, '\n'),
    'bare line feeds between chunks': message(chunked, `${size}\n${json}\n0\n\n`),
    'chunked twice': message([...chunked, 'Transfer-Encoding: chunked'], chunks),
    'another coding': message([...good, 'Transfer-Encoding: gzip, chunked'], chunks),
    'chunks that are not last': message([...good, 'Transfer-Encoding: chunked, gzip'], chunks),
    'a folded header': message([...sized, 'X-Other: a\r\n b'], json),
  };
  for (const [what, bytes] of Object.entries(odd)) {
    const answer = await raw(port, bytes);
    assert.match(answer, /^HTTP\/1.1 400 /, `${what}: ${answer}`);
    assert.match(answer, /"INVALID_REQUEST"/, what);
  }
});

test('what Node would refuse by itself is refused in our form: no host, an unsupported expectation', async (t) => {
  const { port } = await listening(t);
  const get = 'GET /payment/p1 HTTP/1.1\r\nConnection: close\r\n';
  assertRefused(await raw(port, `${get}\r\n`), 400, 'INVALID_REQUEST');
  assertRefused(await raw(port, `${get}Host: x\r\nExpect: 200-ok\r\n\r\n`), 400, 'INVALID_REQUEST');
  // HTTP/1.0 has no Host header, and 100-continue is answered.
  assert.match(await raw(port, 'GET /payment/p1 HTTP/1.0\r\n\r\n'), /^HTTP\/1.1 200 /);
  const json = JSON.stringify(body);
  const expecting = head(
    `PUT ${path} HTTP/1.1`,
    'Expect: 100-Continue',
    'Content-Type: application/json',
    `Content-Length: ${json.length}`,
  );
  assert.match(await raw(port, expecting, json), /^HTTP\/1.1 100 .*\r\n\r\nHTTP\/1.1 200 /);
});

test('a path is decoded or refused; ids are judged by our pattern, whatever their length [F97 F99]', async (t) => {
  const { base } = await listening(t, {}, (app) =>
    mount(app, partnerAdminRoutes.list_kit_payments, () => ({ payments: [], next_cursor: null })),
  );
  for (const id of [
    '%',
    '%zz',
    '%ff',
    'a%00b',
    'a%2Fb',
    'x'.repeat(129),
    '%41'.repeat(200),
    'a b',
    'é',
  ]) {
    await refused(await fetch(`${base}/payment/${id}`), 400, 'INVALID_REQUEST');
  }
  await refused(await fetch(`${base}/%zz`), 400, 'INVALID_REQUEST');
  assert.equal((await fetch(`${base}/payment/p1`)).status, 200);
  // An operation without query fields ignores those that a proxy or a link has added. An operation with query fields must not
  // answer a misspelt filter with everything.
  for (const query of ['statsu=x', '__proto__=x', 'a=1&a=2']) {
    assert.equal((await fetch(`${base}/payment/p1?${query}`)).status, 200, query);
  }
  await refused(await fetch(`${base}/admin/v1/payments?statsu=x`), 400, 'INVALID_REQUEST');
});

test('an unknown path is 404; a known one with another method is 405 with Allow', async (t) => {
  const { base } = await listening(t);
  for (const other of ['/', '/payment', '/payment/p1/', '/Payment/p1', '/payment//p1']) {
    await refused(await fetch(base + other), 404, 'NOT_FOUND');
  }
  const text = { method: 'POST', body: 'x', headers: { 'content-type': 'text/plain' } };
  await refused(await fetch(`${base}/nowhere`, text), 404, 'NOT_FOUND');
  const response = await fetch(`${base}/payment/p1`, { method: 'DELETE' });
  assert.equal(response.headers.get('allow'), 'GET');
  await refused(response, 405, 'METHOD_NOT_ALLOWED');
  assert.equal((await fetch(`${base}/payment/p1`, { method: 'HEAD' })).status, 405);
});

test('an answer that lacks what the route table promises becomes a 500, not half an answer', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.get_payment, () => ({ payment_id: 'x' }) as unknown as typeof record);
  assert.equal((await app.inject('/payment/p1')).statusCode, 500);
});

test('the caller is authenticated before its body is read', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  mount(app, put, () => record, {
    onRequest: () => {
      throw new Refusal('UNAUTHORIZED', { headers: { 'WWW-Authenticate': 'Bearer' } });
    },
  });
  const response = await app.inject({
    method: 'PUT',
    url: path,
    payload: '{',
    headers: { 'content-type': 'application/json' },
  });
  assert.equal(response.statusCode, 401);
  assert.equal(response.headers['www-authenticate'], 'Bearer');
});

test('a request that arrives too slowly is ended with 408, whether in its headers or its body [F102]', async (t) => {
  const { port } = await listening(t, {
    limits: { requestTimeoutMs: 200, headersTimeoutMs: 100, checkIntervalMs: 20 },
  });
  const slow = head(`PUT ${path} HTTP/1.1`, 'Content-Type: application/json', 'Content-Length: 9');
  assertRefused(await raw(port, slow, '{'), 408, 'REQUEST_TIMEOUT');
  assertRefused(await raw(port, 'GET / HTTP/1.1\r\nHost: x\r\nX-A'), 408, 'REQUEST_TIMEOUT');
});

test('no bytes make the server fail [F101]', async (t) => {
  const { port, base } = await listening(t);
  const seed = 20_261;
  const random = seededRandom(seed);
  const pick = (length: number): number => Math.floor(random() * length);
  const good = `${head(`PUT ${path} HTTP/1.1`, 'Content-Type: application/json', 'Content-Length: 48')}{"amount_in_cents":1250,"platform_batch_id":"b1"}`;
  const answers = await Promise.all(
    Array.from({ length: 300 }, () => {
      const bytes = Buffer.from(good);
      for (let change = 0; change < 3; change += 1) bytes[pick(bytes.length)] = pick(256);
      return new Promise<string>((resolve) => {
        const socket = connect(port, '127.0.0.1');
        let answer = '';
        socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
        socket.on('error', () => undefined).on('close', () => resolve(answer));
        socket.end(bytes);
      });
    }),
  );
  for (const answer of answers) {
    assert.doesNotMatch(answer, /^HTTP\/1.1 5/, `seed ${seed}: ${answer}`);
  }
  assert.equal((await fetch(`${base}/payment/p1`)).status, 200);
});

test('requests are counted by pattern and error code, never by path', async (t) => {
  const metrics = createMetrics({ processFigures: false });
  const lines: object[] = [];
  const keep = (line: object): void => void lines.push(line);
  const log = { debug: keep, info: keep, warn: keep, error: keep };
  const { base } = await listening(t, { metrics, log });
  await fetch(`${base}/payment/canary-id`);
  await fetch(`${base}/canary-id`);
  const text = await metrics.text();
  assert.match(text, /method="GET",route="\/payment\/:platform_payment_id",status="200",code=""/);
  assert.match(text, /method="GET",route="none",status="404",code="NOT_FOUND"/);
  const logged = JSON.stringify(lines);
  assert.match(logged, /"status":404,"ms":\d+,"code":"NOT_FOUND"/, 'with the code of an error');
  assert.doesNotMatch(text + logged, /canary/);
});

test('a loopback listener answers only to local names, so that no web page reaches it under its own', async (t) => {
  assert.equal(hostsOf('0.0.0.0', undefined), undefined);
  for (const own of ['127.0.0.1', '127.8.9.10', '::1', 'localhost']) {
    assert.deepEqual(hostsOf(own, undefined), [], `${own}: its own names alone`);
  }
  // A listener that other machines reach, and that its operator has named, answers to that name only, too.
  assert.deepEqual(hostsOf('0.0.0.0', ['Admin.Example']), ['admin.example']);
  const { port } = await listening(t, { hosts: hostsOf('127.0.0.1', ['admin.example']) }, (app) =>
    mountOperations(app, { openapi: {} }),
  );
  const ask = (host: string): Promise<string> =>
    raw(port, `GET /docs HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  for (const host of [
    'localhost',
    `127.0.0.1:${port}`,
    '[::1]:4001',
    'Admin.Example',
    'LOCALHOST:1',
    // Like a scraper or a probe: a page in a browser cannot use an address as its own name.
    '10.0.0.7:4001',
    '[fd00::7]',
  ]) {
    assert.match(await ask(host), /^HTTP\/1\.1 200 /, host);
  }
  for (const host of [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '10.0.0.7.evil.example',
    '10.0.0',
    '',
  ]) {
    assert.match(await ask(host), /^HTTP\/1\.1 400 /, host);
  }
});
