import {
  ERRORS,
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
  Refusal,
  renderOpenApi,
  type Route,
} from '@duebridge/contract';
import type { FastifyInstance } from 'fastify';
import assert from 'node:assert/strict';
import { connect, type AddressInfo } from 'node:net';
import test, { type TestContext } from 'node:test';
import { DatabaseUnavailable } from './errors.ts';
import {
  createServer,
  mount,
  mountOperations,
  OAuthRefusal,
  rateLimiter,
  type ServerOptions,
} from './http.ts';
import { createMetrics } from './service.ts';
import { manualClock, seededRandom } from './testing.ts';

const put = partnerRoutes.put_account_payment;
const body = { amount_in_cents: 1250, platform_batch_id: 'b1' };
const path = '/biller/b/account/a/payment/p1';
const record = {
  payment_id: 'x1',
  platform_payment_id: 'p1',
  platform_batch_id: 'b1',
  biller_id: 'b',
  account_id: 'a',
  status: 'processing' as const,
  amount_in_cents: 1250,
  initiated_at: '2026-03-01T09:30:00.000Z',
  posted_at: null,
};

async function listening(
  t: TestContext,
  options: ServerOptions = {},
  more: (app: FastifyInstance) => void = () => undefined,
): Promise<{ app: FastifyInstance; port: number; base: string }> {
  const app = createServer(options);
  t.after(() => app.close());
  mount(app, put, ({ params, body }) => ({
    ...record,
    ...params,
    amount_in_cents: body.amount_in_cents,
  }));
  mount(app, partnerRoutes.get_payment, () => record);
  more(app);
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  return { app, port, base: `http://127.0.0.1:${port}` };
}

/** Sends raw bytes and gives everything that came back until the other side closed the connection. */
function raw(port: number, ...pieces: (string | Buffer)[]): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let answer = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
    socket.on('error', () => undefined).on('close', () => resolve(answer));
    for (const piece of pieces) socket.write(piece);
  });
}

const head = (line: string, ...headers: string[]): string =>
  [line, 'Host: x', 'Connection: close', ...headers, '', ''].join('\r\n');

function assertRefused(answer: string, status: number, code: keyof typeof ERRORS): void {
  assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), answer);
  assert.match(answer, /\r\nx-request-id: \S+\r\n/i);
  const sent: unknown = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4));
  assert.equal((sent as { code: string }).code, code);
}

async function refused(response: Response, status: number, code: string): Promise<unknown> {
  const sent = (await response.json()) as { code: string; message: string; details?: unknown };
  assert.deepEqual([response.status, sent.code], [status, code], JSON.stringify(sent));
  assert.ok(response.headers.get('x-request-id'));
  return sent.details;
}

const send = (base: string, what: unknown, init: RequestInit = {}): Promise<Response> =>
  fetch(base + path, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: typeof what === 'string' || what instanceof Uint8Array ? what : JSON.stringify(what),
    ...init,
  });

test('an operation of the table is answered in the form of the table', async (t) => {
  const { base } = await listening(t);
  const response = await send(base, body);
  assert.equal(response.status, 200);
  assert.deepEqual(await response.json(), record);
  assert.equal(response.headers.get('cache-control'), 'no-store');
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
    const openapi = renderOpenApi(routes, {
      title: 'T <b>',
      description: 'd',
      version: '1',
      servers: [],
    });
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

test('a body that is not what it claims is refused, never a failure of ours', async (t) => {
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

test('headers that say two things are refused', async (t) => {
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

test('what Node would refuse by itself is refused in our form: no host, an expectation nobody can meet', async (t) => {
  const { port } = await listening(t);
  const get = 'GET /payment/p1 HTTP/1.1\r\nConnection: close\r\n';
  assertRefused(await raw(port, `${get}\r\n`), 400, 'INVALID_REQUEST');
  assertRefused(await raw(port, `${get}Host: x\r\nExpect: 200-ok\r\n\r\n`), 400, 'INVALID_REQUEST');
  // HTTP/1.0 knows no Host, and 100-continue is met.
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

test('a body coded in a way that we do not undo is refused, not read as it came', async (t) => {
  const { port } = await listening(t);
  const chunked = `${JSON.stringify(body).length.toString(16)}\r\n${JSON.stringify(body)}\r\n0\r\n\r\n`;
  const put = (coding: string): string =>
    head(`PUT ${path} HTTP/1.1`, 'Content-Type: application/json', `Transfer-Encoding: ${coding}`);
  for (const coding of ['gzip, chunked', 'chunked, chunked', 'identity, chunked']) {
    assertRefused(await raw(port, put(coding), chunked), 400, 'INVALID_REQUEST');
  }
  assert.match(await raw(port, put('Chunked'), chunked), /^HTTP\/1.1 200 /);
});

test('every answer forbids guessing its type, even one to bytes that are no request', async (t) => {
  const { port } = await listening(t);
  for (const bytes of [
    'what is this\r\n\r\n',
    head('GET / HTTP/1.1'),
    head('GET /payment/p1 HTTP/1.1'),
  ]) {
    assert.match(await raw(port, bytes), /\r\nx-content-type-options: nosniff\r\n/i);
  }
});

test('the page of the API is in nobody’s frame, has no form and tells nobody where it was', async (t) => {
  const { base } = await listening(t, {}, (app) => mountOperations(app, { openapi: {} }));
  const { headers } = await fetch(`${base}/docs`);
  const policy = headers.get('content-security-policy')?.split('; ') ?? [];
  for (const directive of [
    "default-src 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ]) {
    assert.ok(policy.includes(directive), directive);
  }
  assert.equal(headers.get('referrer-policy'), 'no-referrer');
});

test('a path is decoded or refused; ids are judged by our pattern, whatever their length', async (t) => {
  const { base } = await listening(t);
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
  await refused(await fetch(`${base}/payment/p1?statsu=x`), 400, 'INVALID_REQUEST');
  await refused(await fetch(`${base}/payment/p1?__proto__=x`), 400, 'INVALID_REQUEST');
});

test('an unknown path is 404; a known one with another method is 405 and says which it takes', async (t) => {
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

test('what a handler throws is answered by the catalogue, and tells nothing of the inside', async (t) => {
  const thrown: [unknown, number, string, string | null][] = [
    [
      new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': '7' } }),
      429,
      'TOO_MANY_REQUESTS',
      '7',
    ],
    [new DatabaseUnavailable('secret host', 'unknown'), 503, 'SERVICE_UNAVAILABLE', '2'],
    [new Error('secret host'), 500, 'INTERNAL_ERROR', null],
    [Object.assign(new Error('secret host'), { statusCode: 400 }), 500, 'INTERNAL_ERROR', null],
    ['secret host', 500, 'INTERNAL_ERROR', null],
  ];
  for (const [error, status, code, retryAfter] of thrown) {
    const app = createServer();
    t.after(() => app.close());
    mount(app, partnerRoutes.get_payment, () => {
      throw error;
    });
    const response = await app.inject('/payment/p1');
    assert.equal(response.statusCode, status);
    assert.equal(response.json<{ code: string }>().code, code);
    assert.equal(response.headers['retry-after'] ?? null, retryAfter);
    assert.doesNotMatch(response.body, /secret/);
  }
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.get_payment, () => {
    throw new Error('x');
  });
  const response = await app.inject('/payment/p1');
  assert.deepEqual(response.json(), {
    code: 'INTERNAL_ERROR',
    message: 'An unexpected error occurred',
  });
});

test('an answer that lacks what the table promises is a failure of ours, not half an answer', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.get_payment, () => ({ payment_id: 'x' }) as unknown as typeof record);
  assert.equal((await app.inject('/payment/p1')).statusCode, 500);
});

test('the caller is known before its body is read', async (t) => {
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

test('the token endpoint takes a form, refuses one in two meanings, and errs in the form of RFC 6749', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.access_token, ({ body }) => {
    if (body.grant_type === 'x') throw new OAuthRefusal('unsupported_grant_type', 'no');
    if (body.grant_type === 'y') throw new Refusal('UNAUTHORIZED');
    assert.equal(body.client_secret, 'a+b%c&é');
    return { access_token: 't', token_type: 'Bearer' as const, expires_in: 1, scope: 'read' };
  });
  const ask = (payload: string, type = 'application/x-www-form-urlencoded') =>
    app.inject({ method: 'POST', url: '/oauth/token', payload, headers: { 'content-type': type } });
  const secret = encodeURIComponent('a+b%c&é');
  const good = await ask(`grant_type=client_credentials&client_secret=${secret}&scope=`);
  assert.equal(good.statusCode, 200);
  const cases: [Awaited<ReturnType<typeof ask>>, number, string][] = [
    [await ask('grant_type=x'), 400, 'unsupported_grant_type'],
    [await ask('grant_type=y'), 401, 'invalid_client'],
    [await ask('grant_type=a&grant_type=b'), 400, 'invalid_request'],
    [await ask('scope=read'), 400, 'invalid_request'],
    [await ask('grant_type=%ff'), 400, 'invalid_request'],
    [await ask('{"grant_type":"x"}', 'application/json'), 415, 'invalid_request'],
  ];
  for (const [response, status, error] of cases) {
    const body = response.json<{ error: string; error_description: string }>();
    assert.equal(response.statusCode, status);
    assert.equal(body.error, error);
    // RFC 6749 section 5.2: printable ASCII without double quotes and backslashes.
    assert.match(body.error_description, /^[\u0020-\u0021\u0023-\u005b\u005d-\u007e]+$/);
  }
  const { error_description } = cases[3]![0].json<{ error_description: string }>();
  assert.ok(error_description.includes('body.grant_type is required'), error_description);
});

test('a harmless request id is kept, any other is replaced', async (t) => {
  const { base } = await listening(t);
  const idOf = async (given: string): Promise<string | null> => {
    const response = await fetch(`${base}/healthz`, { headers: { 'x-request-id': given } });
    return response.headers.get('x-request-id');
  };
  assert.equal(await idOf('abc-1'), 'abc-1');
  assert.match((await idOf('a b"c')) ?? '', /^[0-9a-f-]{36}$/);
  assert.match((await idOf('x'.repeat(65))) ?? '', /^[0-9a-f-]{36}$/);
});

test('a request that drips in is ended with 408, whether in its headers or its body', async (t) => {
  const { port } = await listening(t, {
    limits: { requestTimeoutMs: 200, headersTimeoutMs: 100, checkIntervalMs: 20 },
  });
  const slow = head(`PUT ${path} HTTP/1.1`, 'Content-Type: application/json', 'Content-Length: 9');
  assertRefused(await raw(port, slow, '{'), 408, 'REQUEST_TIMEOUT');
  assertRefused(await raw(port, 'GET / HTTP/1.1\r\nHost: x\r\nX-A'), 408, 'REQUEST_TIMEOUT');
});

test('a close answers what is under way and wakes those that wait, then refuses connections', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const { app, base } = await listening(t, {}, (app) => {
    mount(app, partnerRoutes.get_balance, async () => {
      arrived.resolve();
      await release.promise;
      return { amount_due_in_cents: 1 };
    });
    mount(app, partnerRoutes.get_account_payment, async ({ signal }) => {
      if (!signal.aborted)
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return record;
    });
    mountOperations(app);
  });
  const waits = fetch(base + path);
  const slow = fetch(`${base}/biller/b/account/a/balance`);
  await arrived.promise;
  const closed = app.close();
  assert.equal((await waits).status, 200);
  release.resolve();
  const answer = await slow;
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('connection'), 'close');
  await closed;
  await assert.rejects(fetch(`${base}/healthz`));
});

test('a close is bounded: a request that never ends is cut', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const { app, base } = await listening(t, { limits: { closeTimeoutMs: 50 } }, (app) => {
    mount(app, partnerRoutes.get_balance, () => {
      arrived.resolve();
      return new Promise(() => undefined);
    });
  });
  const never = assert.rejects(fetch(`${base}/biller/b/account/a/balance`));
  await arrived.promise;
  await app.close();
  await never;
});

test('a handler learns that its client has gone', async (t) => {
  const gone = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const { base } = await listening(t, {}, (app) => {
    mount(app, partnerRoutes.get_balance, async ({ signal }) => {
      signal.addEventListener('abort', () => gone.resolve());
      arrived.resolve();
      await gone.promise;
      return {};
    });
  });
  const abort = new AbortController();
  const call = fetch(`${base}/biller/b/account/a/balance`, { signal: abort.signal });
  const failed = assert.rejects(call);
  await arrived.promise;
  abort.abort();
  await gone.promise;
  await failed;
});

test('readiness says what is missing', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  let database = true;
  mountOperations(app, { ready: () => Promise.resolve({ database }) });
  assert.equal((await app.inject('/readyz')).statusCode, 200);
  database = false;
  const response = await app.inject('/readyz');
  assert.equal(response.statusCode, 503);
  assert.deepEqual(response.json(), { ready: false, checks: { database: false } });
});

test('bytes of any kind never make the server fail', async (t) => {
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

test('a bucket gives its burst, then its rate, and keeps no more keys than allowed', async () => {
  const clock = manualClock();
  const limiter = rateLimiter({ perSecond: 2, burst: 3, maxKeys: 2, clock });
  assert.deepEqual(
    [1, 2, 3].map(() => limiter.take('a').ok),
    [true, true, true],
  );
  assert.deepEqual(limiter.take('a'), { ok: false, retryAfterSeconds: 1 });
  assert.equal(limiter.take('b').ok, true);
  await clock.advance(500);
  assert.deepEqual([limiter.take('a').ok, limiter.take('a').ok], [true, false]);
  for (let key = 0; key < 100; key += 1) limiter.take(`k${key}`);
  assert.equal(limiter.size, 2);
});

test('requests are counted by pattern, never by path', async (t) => {
  const metrics = createMetrics({ processFigures: false });
  const lines: object[] = [];
  const keep = (line: object): void => void lines.push(line);
  const log = { debug: keep, info: keep, warn: keep, error: keep };
  const { base } = await listening(t, { metrics, log });
  await fetch(`${base}/payment/canary-id`);
  const text = await metrics.text();
  assert.match(text, /method="GET",route="\/payment\/:platform_payment_id",status="200"/);
  assert.doesNotMatch(text + JSON.stringify(lines), /canary/);
});
