import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import { createServer as nodeServer, Agent, type RequestListener } from 'node:http';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { createMetrics } from '@duebridge/runtime';
import {
  assertInTime,
  served,
  testInRealTime,
  type Cleanup,
  type TestDatabase,
} from '@duebridge/runtime/testing';
import { fastify } from 'fastify';
import { partnerFetch, partnerHandler, type PartnerHandler } from './handler.ts';
import type { PartnerKitOptions } from './kit.ts';
import { partnerKit } from './plugin.ts';
import {
  callsTo,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  TEST_KEY,
  withKey,
  type Answer,
  type TestPartner,
} from '../test/kit.ts';

const auth = { method: 'key', header: 'x-api-key', keys: [TEST_KEY] } as const;

/** A URL where the kit is served, by any kind of server. */
type Host = Pick<TestPartner, 'url' | 'call'>;

function hostAt(t: TestContext, url: string): Host {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  return { url, call: callsTo(url, agent) };
}

/** A server is there until the database closes: the kit behind it ends first. */
const whenClosing = (database: TestDatabase): Cleanup => ({
  after: (hook) => database.closing(hook),
});

/** Serves a listener over node:http until the test ends, with the kit behind it. */
async function onNode(
  t: TestContext,
  database: TestDatabase,
  around: (kit: PartnerHandler) => RequestListener,
  options: Partial<PartnerKitOptions> = {},
): Promise<Host> {
  const kit = await partnerHandler({ database, auth, ...options });
  const url = await served(whenClosing(database), nodeServer(around(kit)));
  database.closing(() => kit.close());
  return hostAt(t, url);
}

/** A partner's app with conventions of its own: an envelope around its answers, its own errors, a lenient JSON parser. */
async function inOwnFastify(
  t: TestContext,
  database: TestDatabase,
  options: Partial<PartnerKitOptions> = {},
): Promise<Host> {
  const app = fastify();
  app.setReplySerializer((payload) => JSON.stringify({ data: payload }));
  app.setErrorHandler((_error, _request, reply) => reply.code(418).send({ teapot: true }));
  app.post('/orders', (request) => ({ got: request.body }));
  await app.register(partnerKit, { database, auth, ...options });
  database.closing(() => app.close());
  return hostAt(t, await app.listen({ host: '127.0.0.1', port: 0 }));
}

/** A server of web requests and responses, as Bun, Deno, Hono and Next.js have one: each request is made from what Node received. */
async function onFetch(t: TestContext, database: TestDatabase): Promise<Host> {
  const answer = await partnerFetch({ database, auth });
  const server = nodeServer((request, response) => {
    const hasBody = request.method !== 'GET';
    const asked = new Request(`http://biller.example${request.url ?? ''}`, {
      method: request.method ?? 'GET',
      headers: Object.entries(request.headersDistinct)
        .filter(([name]) => name !== 'connection')
        .flatMap(([name, values = []]) => values.map((value): [string, string] => [name, value])),
      ...(hasBody ? { body: Readable.toWeb(request), duplex: 'half' } : {}),
    });
    const written = async (): Promise<void> => {
      const given = await answer(asked);
      response.writeHead(given.status, [...given.headers].flat());
      response.end(Buffer.from(await given.arrayBuffer()));
    };
    written().catch((error: unknown) => response.destroy(error as Error));
  });
  const url = await served(whenClosing(database), server);
  database.closing(() => answer.close());
  return hostAt(t, url);
}

const hosts = {
  'node:http': (t: TestContext, database: TestDatabase) => onNode(t, database, (kit) => kit),
  'a Fastify app of the partner': inOwnFastify,
  'web requests and responses': onFetch,
} as const;

for (const [name, start] of Object.entries(hosts)) {
  test(`${name}: a payment is accepted, posted and read as on a server of the kit [B1 B4 B5 ST2]`, async (t) => {
    const database = await kitDatabase(t);
    const longest = 'L'.repeat(128);
    await haveAccounts(database, {}, { account_id: longest });
    const host = await start(t, database);
    assert.equal((await host.call('GET', '/biller/acme/account/A-1')).body['status'], 'active');
    for (const account of ['A-1', longest]) {
      const path = paymentPath(`p-${account.length}`, account);
      const put = await host.call('PUT', path, { body: instruction() });
      assert.equal(put.status, 200, put.text);
      const end = await host.call('GET', path, { headers: { ...withKey, prefer: 'wait=20' } });
      assert.deepEqual([end.body['status'], end.body['amount_in_cents']], ['succeeded', 2_500]);
      assert.match(String(end.headers['x-request-id']), /^[0-9a-f-]{36}$/);
    }
  });

  test(`${name}: it refuses what a server of the kit refuses, in the same words, and stores nothing [S3 S5 PF6 ER3]`, async (t) => {
    const database = await kitDatabase(t);
    await haveAccounts(database);
    const host = await start(t, database);
    const put = (body: string, headers: Record<string, string> = {}): Promise<Answer> =>
      host.call('PUT', paymentPath('p'), { body, headers: { ...withKey, ...headers } });
    const badBodies = [
      '{"amount_in_cents":9.9e3,"platform_batch_id":"b"}',
      '{"amount_in_cents":100.0,"platform_batch_id":"b"}',
      '{"amount_in_cents":1,"amount_in_cents":900,"platform_batch_id":"b"}',
      '{"amount_in_cents":"100","platform_batch_id":"b"}',
      '{"amount_in_cents":9007199254740993,"platform_batch_id":"b"}',
      '{"__proto__":{},"amount_in_cents":100,"platform_batch_id":"b"}',
      '',
    ];
    for (const body of badBodies) {
      const answer = await put(body);
      assert.deepEqual(
        [answer.status, answer.body['code']],
        [400, 'INVALID_REQUEST'],
        `${body} ${answer.text}`,
      );
    }
    const expected: [Answer, number, string][] = [
      [await put(instruction(), { 'content-type': 'text/plain' }), 415, 'UNSUPPORTED_MEDIA_TYPE'],
      [await put(`{"x":"${'x'.repeat(70_000)}"}`), 413, 'PAYLOAD_TOO_LARGE'],
      [await put(instruction(), { 'x-api-key': 'wrong' }), 401, 'UNAUTHORIZED'],
      [await host.call('POST', paymentPath('p'), { body: '{}' }), 405, 'METHOD_NOT_ALLOWED'],
      [await host.call('GET', '/biller/acme/else'), 404, 'NOT_FOUND'],
    ];
    for (const [answer, status, code] of expected) {
      assert.deepEqual([answer.status, answer.body['code']], [status, code], answer.text);
    }
    const twice = await rawExchange(host.url, [
      'GET /biller/acme/account/A-1 HTTP/1.1',
      'Host: x',
      `X-Api-Key: ${TEST_KEY}`,
      `X-Api-Key: ${TEST_KEY}`,
      'Connection: close',
    ]);
    // A web request has joined them to one text, which is no key.
    assert.match(twice, /^HTTP\/1\.1 (400 [\s\S]*appears more than once|401 )/);
    // A client that sends its whole body before it reads: the rest is discarded, so that no reset takes the refusal away.
    const half = 'x'.repeat(500_000);
    const large = await rawExchange(
      host.url,
      [
        `PUT ${paymentPath('p')} HTTP/1.1`,
        'Host: x',
        `X-Api-Key: ${TEST_KEY}`,
        'Content-Type: application/json',
        `Content-Length: ${2 * half.length}`,
      ],
      [half, half],
    );
    assert.match(large, /^HTTP\/1\.1 413 [\s\S]*PAYLOAD_TOO_LARGE/);
    assert.deepEqual(await database.query('SELECT 1 FROM duebridge_partner.payment'), []);
  });
}

/** Sends header lines unchanged, then the pieces of a body with pauses, and returns the whole answer. */
async function rawExchange(
  url: string,
  lines: readonly string[],
  pieces: readonly string[] = [],
): Promise<string> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1').pause();
  const closed = once(socket, 'close');
  let answer = '';
  socket.on('data', (part: Buffer) => (answer += part.toString()));
  socket.write([...lines, '', ''].join('\r\n'));
  for (const piece of pieces) {
    await new Promise((sent) => socket.write(piece, sent));
    await setTimeout(50);
  }
  socket.resume().end();
  await closed;
  return answer;
}

test('a partner’s app keeps its own routes, body parser and errors beside the kit [S2]', async (t) => {
  const host = await inOwnFastify(t, await kitDatabase(t), { prefix: '/pay' });
  const own = await host.call('POST', '/orders', { body: '{"n":9.9e3,"n":1e2}' });
  assert.deepEqual(own.body, { data: { got: { n: 100 } } });
  const broken = await host.call('POST', '/orders', { body: '{' });
  assert.deepEqual([broken.status, broken.body], [418, { data: { teapot: true } }]);
  const kit = await host.call('GET', '/pay/biller/acme/account/none');
  assert.deepEqual([kit.status, kit.body['code']], [404, 'ACCOUNT_NOT_FOUND']);
  const elsewhere = await host.call('GET', '/biller/acme/account/none');
  assert.notEqual(elsewhere.body['code'], 'ACCOUNT_NOT_FOUND');
});

test('in a scope of a Fastify app, its prefix comes before the kit’s, which issues its own access tokens [S2 OA1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const app = fastify();
  const secret = 'the-secret-of-the-platform';
  const client = { method: 'oauth', client_id: 'platform', secrets: [secret] } as const;
  await app.register(
    async (scope) => {
      await scope.register(partnerKit, { database, auth: client, prefix: '/pay' });
      scope.get('/payment/:id', () => 'own');
    },
    { prefix: '/api' },
  );
  database.closing(() => app.close());
  const host = hostAt(t, await app.listen({ host: '127.0.0.1', port: 0 }));
  const asked = { grant_type: 'client_credentials', client_id: 'platform', client_secret: secret };
  const { body } = await host.call('POST', '/api/pay/oauth/token', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams(asked).toString(),
  });
  const headers = { authorization: `Bearer ${String(body['access_token'])}` };
  const account = await host.call('GET', '/api/pay/biller/acme/account/A-1', { headers });
  assert.equal(account.status, 200);
  assert.equal((await host.call('GET', '/api/payment/x')).text, 'own');
});

test('a host that begins its responses as 404, as Koa does, sends the kit’s status [B1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const host = await onNode(t, database, (kit) => (request, response) => {
    response.statusCode = 404;
    kit(request, response);
  });
  assert.equal((await host.call('GET', '/biller/acme/account/A-1')).status, 200);
});

test('a web request whose body was read is refused, and its signal ends a waiting read [PF6 B5]', async (t) => {
  const database = await kitDatabase(t);
  const answer = await partnerFetch({ database, auth, holdMs: 600_000 });
  database.closing(() => answer.close());
  const put = (): Request =>
    new Request(`https://biller.example${paymentPath('p')}`, {
      method: 'PUT',
      headers: { ...withKey, 'content-type': 'application/json' },
      body: instruction(),
    });
  const read = put();
  await read.json();
  await assert.rejects(answer(read), /parsed before the partner kit got it/);
  assert.deepEqual(await database.query('SELECT 1 FROM duebridge_partner.payment'), []);
  const first = put();
  const taken = await answer(first);
  assert.equal(taken.status, 200);
  assert.equal(getEventListeners(first.signal, 'abort').length, 0, 'it holds the answer no longer');
  for (const name of ['connection', 'keep-alive', 'transfer-encoding', 'content-length']) {
    assert.equal(taken.headers.get(name), null, `${name} is about the host's connection`);
  }
  const bare = { method: 'PUT', headers: withKey, body: new TextEncoder().encode(instruction()) };
  const untyped = await answer(new Request(`https://biller.example${paymentPath('q')}`, bare));
  assert.equal(untyped.status, 415, 'a body that no header announces is one all the same');

  const leaving = new AbortController();
  const waiting = answer(
    new Request(`https://biller.example${paymentPath('p')}`, {
      headers: { ...withKey, prefer: 'wait=25' },
      signal: leaving.signal,
    }),
  );
  leaving.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  const left = new Request(`https://biller.example${paymentPath('p')}`, {
    headers: { ...withKey, prefer: 'wait=25' },
    signal: AbortSignal.abort(),
  });
  await assert.rejects(answer(left), { name: 'AbortError' });
});

test('an app whose own route would take the kit’s requests fails to start, and the error says what to do [S2]', async (t) => {
  const database = await kitDatabase(t);
  const app = fastify();
  await app.register(partnerKit, { database, auth });
  app.get('/payment/:id', () => 'mine');
  await assert.rejects(async () => app.ready(), /own at GET \/payment\/.*prefix/);
  database.closing(() => app.close());
});

testInRealTime('closing the app answers waiting reads [B5]', async (t) => {
  const database = await kitDatabase(t);
  const metrics = createMetrics({ processFigures: false });
  const app = fastify();
  await app.register(partnerKit, { database, auth, metrics, holdMs: 600_000 });
  const host = hostAt(t, await app.listen({ host: '127.0.0.1', port: 0 }));
  database.closing(() => app.close());
  await host.call('PUT', paymentPath('p'), { body: instruction() });
  const began = performance.now();
  const reading = host.call('GET', paymentPath('p'), {
    headers: { ...withKey, prefer: 'wait=25' },
  });
  while (!(await metrics.text()).includes('duebridge_kit_waiting_reads 1')) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
  await app.close();
  assert.equal((await reading).body['status'], 'processing');
  assertInTime(performance.now() - began < 20_000, 'the close waited for the read');
});

test('a prefix that is not a path is refused, and the error shows a right one [S2]', async (t) => {
  const database = await kitDatabase(t);
  for (const prefix of ['pay', '/pay/', '/:x', '//']) {
    await assert.rejects(partnerHandler({ database, auth, prefix }), /prefix must be .*\/pay/);
  }
});

/** Reads the body like express.json(), and keeps its bytes when asked to. */
function parsedBefore(kit: PartnerHandler, keeps: 'bytes' | 'text' | undefined): RequestListener {
  return (request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const rawBody = Buffer.concat(parts);
      const parsed = Object.assign(request, {
        body: rawBody.length === 0 ? undefined : (JSON.parse(rawBody.toString()) as unknown),
        ...(keeps === undefined
          ? undefined
          : { rawBody: keeps === 'bytes' ? rawBody : rawBody.toString() }),
      });
      kit(parsed, response);
    });
  };
}

test('a body that the host parsed is read strictly from its raw bytes, and refused without them [PF6 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on('warning', onWarning);
  t.after(() => process.off('warning', onWarning));
  const blind = await onNode(t, database, (kit) => parsedBefore(kit, undefined));
  const refused = await blind.call('PUT', paymentPath('p'), { body: instruction() });
  assert.deepEqual([refused.status, refused.body['code']], [500, 'INTERNAL_ERROR']);
  assert.deepEqual(await database.query('SELECT 1 FROM duebridge_partner.payment'), []);
  assert.equal((await blind.call('GET', '/biller/acme/account/A-1')).status, 200);
  assert.match(String(warnings[0]?.message), /before express\.json\(\)/);
  assert.equal((warnings[0] as NodeJS.ErrnoException).code, 'BODY_WAS_READ');

  const keeping = await onNode(t, database, (kit) => parsedBefore(kit, 'bytes'));
  for (const body of [
    '{"amount_in_cents":9.9e3,"platform_batch_id":"b"}',
    '{"amount_in_cents":1,"amount_in_cents":9,"platform_batch_id":"b"}',
  ]) {
    assert.equal((await keeping.call('PUT', paymentPath('p'), { body })).status, 400);
  }
  const good = await keeping.call('PUT', paymentPath('p'), { body: instruction(700) });
  assert.deepEqual([good.status, good.body['amount_in_cents']], [200, 700]);
  const asText = await onNode(t, database, (kit) => parsedBefore(kit, 'text'));
  const also = await asText.call('PUT', paymentPath('q'), { body: instruction(800) });
  assert.deepEqual([also.status, also.body['amount_in_cents']], [200, 800]);
});

test('requests for other paths pass to the next handler, and the mount path is not part of ours [S2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  // Like Express: `url` holds the path below the mount, and `next` is the third argument.
  const host = await onNode(t, database, (kit) => (request, response) => {
    request.url = (request.url ?? '').replace(/^\/pay/, '');
    kit(request, response, () => response.writeHead(299).end('next'));
  });
  assert.equal((await host.call('GET', '/pay/biller/acme/account/A-1')).status, 200);
  assert.equal((await host.call('GET', '/pay/')).status, 299);
  assert.equal((await host.call('GET', '/pay/biller/acme/account/A-1/else')).status, 299);
  // What follows the path does not make it another one.
  assert.notEqual((await host.call('GET', '/pay/biller/acme/account/A-1?x=1')).status, 299);
});

test('the route of the Next.js page answers once the database is there, though it was not at its first request', async (t) => {
  const page = await readFile(new URL('../../../docs/partner-kit.md', import.meta.url), 'utf8');
  const route = /^```js app\/pay\/\S+\n([\s\S]*?)^```$/m.exec(page)?.[1] ?? '';
  const database = await kitDatabase(t);
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-route-'));
  t.after(() => rm(folder, { recursive: true }));
  const own = route.replace('@duebridge/partner', import.meta.resolve('./index.ts'));
  await writeFile(join(folder, 'route.mjs'), own);
  // In a process of its own: the route never closes what it opens.
  const asks = `import { GET } from './route.mjs';
    const url = 'http://biller.example/pay/biller/my-biller/account/A-1';
    const get = () => GET(new Request(url, { headers: { 'x-api-key': process.env.DUEBRIDGE_PARTNER_KEY } }));
    const there = process.env.DATABASE_URL;
    process.env.DATABASE_URL += '-which-is-not-there';
    const first = await get().then(({ status }) => status, () => 'none');
    process.env.DATABASE_URL = there;
    const { status } = await get();
    console.log(JSON.stringify([first, status]));
    process.exit();`;
  await writeFile(join(folder, 'asks.mjs'), asks);
  const env = { ...process.env, DATABASE_URL: database.url, DUEBRIDGE_PARTNER_KEY: TEST_KEY };
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, [join(folder, 'asks.mjs')], { env });
  assert.deepEqual(JSON.parse(stdout.trim().split('\n').at(-1) ?? ''), ['none', 404]);
});
