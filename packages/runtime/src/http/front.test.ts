import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import test, { type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { addressKey, believing, shutOut } from './front.ts';
import { isSecure } from './server.ts';
import { systemClock } from '../clock.ts';
import { listening } from '../../test/http.ts';

/** A connection from an address of this machine that sends and does not read. `cut` resolves when the server has ended it. */
function stranger(t: TestContext, port: number, localAddress: string, text: string) {
  const socket = net.connect({ port, host: '127.0.0.1', localAddress });
  t.after(() => socket.destroy());
  const cut = new Promise<void>((resolve) => {
    socket.on('error', () => undefined).on('close', () => resolve());
  });
  socket.write(text);
  return { socket, cut };
}

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;

test('forwarding headers are read from the named proxies alone', async (t) => {
  const { app } = await listening(t, { trustedProxies: ['127.0.0.1', '10.0.0.0/8'] }, (app) => {
    app.get('/who', (request) => ({ ip: request.ip, secure: isSecure(request) }));
  });
  const who = async (headers: Record<string, string>, remoteAddress = '127.0.0.1') => {
    const answer = await app.inject({ url: '/who', headers, remoteAddress });
    return answer.json<{ ip: string; secure: boolean }>();
  };
  const forwarded = { 'x-forwarded-for': '192.0.2.1', 'x-forwarded-proto': 'HTTPS' };
  assert.deepEqual(await who(forwarded), { ip: '192.0.2.1', secure: true });
  assert.deepEqual(await who(forwarded, '127.0.0.2'), { ip: '127.0.0.2', secure: false });
  // What the caller has written before the proxies is not believed.
  assert.deepEqual(
    await who({
      'x-forwarded-for': '198.51.100.9, 192.0.2.1, 10.1.2.3',
      'x-forwarded-proto': 'x, https',
    }),
    { ip: '192.0.2.1', secure: true },
  );
  assert.deepEqual(await who({ forwarded: 'for=192.0.2.1;proto=https' }), {
    ip: '127.0.0.1',
    secure: false,
  });
  for (const wrong of ['', 'proxy', '10.0.0.0/33', '10.0.0.0/8/8', '::1/129', '10.0.0.0/x']) {
    assert.throws(() => believing([wrong]), /must be addresses or networks/, wrong);
  }
});

test('an address is counted by what one person has of it', () => {
  assert.equal(addressKey('192.0.2.1'), '192.0.2.1');
  assert.equal(addressKey('::ffff:192.0.2.1'), '192.0.2.1');
  assert.equal(addressKey('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2::/64');
  assert.equal(addressKey('2001:db8::6'), '2001:db8:0:0::/64');
  assert.equal(addressKey('::1'), '0:0:0:0::/64');
});

test('an answer that nobody reads is given up', async (t) => {
  const { app, port } = await listening(t, { limits: { idleMs: 200 } }, (app) => {
    app.get('/large', () => Buffer.alloc(50_000_000));
    app.get('/late', () => delay(600, 'late'));
  });
  const late = await fetch(`http://127.0.0.1:${port}/late`);
  assert.equal(await late.text(), 'late', 'whoever waits for an answer is not idle');
  const closed = new Promise<void>((resolve) => {
    app.server.once('connection', (one: net.Socket) => one.once('close', () => resolve()));
  });
  stranger(t, port, '127.0.0.1', get('/large')).socket.pause();
  await closed;
});

test('a connection above the limit of its address is closed before it is a socket', async (t) => {
  const options = { trustedProxies: ['127.0.0.1'], limits: { connectionsPerAddress: 2 } };
  const { app, port } = await listening(t, options, () => undefined);
  let sockets = 0;
  app.server.on('connection', () => (sockets += 1));
  const first = stranger(t, port, '127.0.0.2', '');
  await once(app.server, 'connection');
  stranger(t, port, '127.0.0.2', '');
  await once(app.server, 'connection');
  await Promise.all([
    stranger(t, port, '127.0.0.2', '').cut,
    stranger(t, port, '127.0.0.2', '').cut,
  ]);
  assert.equal(sockets, 2);
  // One that leaves makes room.
  first.socket.destroy();
  await first.cut;
  const letIn = once(app.server, 'connection');
  const trying = setInterval(() => stranger(t, port, '127.0.0.2', ''), 5);
  await letIn;
  clearInterval(trying);
});

test('who pipelines loses the connections of that address, and nobody else does', async (t) => {
  const limits = { pipelined: 2, connectionsPerAddress: 2, shutOutMs: 200 };
  // It stands still, so that the address stays shut out.
  const clock = { ...systemClock, monotonic: () => 0 };
  const options = { trustedProxies: ['127.0.0.1'], limits, clock };
  const { port } = await listening(t, options, (app) => {
    app.get('/', (_request, reply) => void setImmediate(() => void reply.send('hello')));
  });
  const other = stranger(t, port, '127.0.0.3', get('/').repeat(2));
  const answered = new Promise<string>((resolve) => {
    other.socket.once('data', (data) => resolve(String(data)));
  });
  const proxy = stranger(t, port, '127.0.0.1', '');
  const first = stranger(t, port, '127.0.0.2', '');
  const second = stranger(t, port, '127.0.0.2', '');
  // One more than the address may have.
  await stranger(t, port, '127.0.0.2', '').cut;
  second.socket.write(get('/').repeat(3));
  await Promise.all([first.cut, second.cut]);
  const opened = performance.now();
  const held = stranger(t, port, '127.0.0.2', get('/').repeat(3));
  held.socket.once('data', () => assert.fail('an address that is shut out is answered'));
  await held.cut;
  assert.ok(performance.now() - opened > 150, 'a connection that is cut at once is opened again');
  assert.match(await answered, /^HTTP\/1.1 200/);
  proxy.socket.write(get('/'));
  const [data] = (await once(proxy.socket, 'data')) as [Buffer];
  assert.match(data.toString(), /^HTTP\/1.1 200/);
});

test('an address that is shut out loses its connections, one behind a proxy does not', async (t) => {
  // Longer than any test: the close of the server ends what is held.
  const limits = { shutOutMs: 600_000 };
  const { app, port } = await listening(t, { trustedProxies: ['127.0.0.1'], limits }, (app) => {
    app.get('/', (request, reply) => {
      shutOut(app.server, request.socket);
      void reply.send('hello');
    });
  });
  const idle = stranger(t, port, '127.0.0.2', '');
  await once(app.server, 'connection');
  const flooding = stranger(t, port, '127.0.0.2', get('/'));
  await Promise.all([idle.cut, flooding.cut]);
  const proxy = stranger(t, port, '127.0.0.1', get('/'));
  const [data] = (await once(proxy.socket, 'data')) as [Buffer];
  assert.match(data.toString(), /^HTTP\/1.1 200/);
  const held = stranger(t, port, '127.0.0.2', get('/'));
  await once(app.server, 'connection');
  await Promise.all([app.close(), held.cut]);
});
