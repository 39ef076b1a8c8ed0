/** The calls to a biller's own HTTP service: what is sent and signed, and which answers count. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import test from 'node:test';
import { SIGNATURE_HEADER } from '@duebridge/contract';
import { manualClock } from '@duebridge/runtime/testing';
import { toPosting } from './account-system.ts';
import { accountsOverHttp } from './accounts-over-http.ts';
import { processing } from '../test/kit.ts';

const secret = 'sixteen letters.';
const payment = toPosting(processing('p/1'));
const never = new AbortController().signal;

interface Asked {
  readonly method: string;
  readonly url: string;
  readonly body: string;
  readonly headers: IncomingHttpHeaders;
}
/** An answer: its status and body, or none. */
type Scripted = { readonly status: number; readonly body: string | Buffer } | 'cut' | 'silence';

/** Runs `work` against a service in this process with scripted answers. */
async function withService<T>(
  answer: (asked: Asked) => Scripted,
  work: (url: string, asked: readonly Asked[]) => Promise<T>,
): Promise<T> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part: Buffer) => (body += part.toString()));
    request.on('end', () => {
      const { method = '', url = '', headers } = request;
      const one = { method, url, headers, body };
      asked.push(one);
      const reply = answer(one);
      if (reply === 'silence') return;
      if (reply === 'cut') request.socket.destroy();
      else response.writeHead(reply.status, { location: '/elsewhere' }).end(reply.body);
    });
  });
  // A client on a busy machine would write into a connection that was closed at the same moment.
  server.keepAliveTimeout = 0;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}/base/`, asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test('each request is signed over its second, method, path and body, and says what it is [S2 S3 PF2]', async () => {
  const clock = manualClock(Date.UTC(2026, 0, 1) + 999);
  await withService(
    () => ({ status: 200, body: '{"outcome":"posted"}' }),
    async (url, asked) => {
      const accounts = accountsOverHttp({ url, secret, clock });
      assert.deepEqual(await accounts.post([payment], never), [{ outcome: 'posted' }]);
      await accounts.lookup?.('p/1', never);
      await accounts.findAccount('ac me', 'A/1');
      assert.deepEqual(
        asked.map((one) => [one.method, one.url, one.body, one.headers['content-type']]),
        [
          ['POST', '/base/payments', JSON.stringify(payment), 'application/json'],
          ['GET', '/base/payments/p%2F1', '', undefined],
          ['GET', '/base/accounts/ac%20me/A%2F1', '', undefined],
        ],
      );
      for (const { method, url: path, body, headers } of asked) {
        const seconds = Date.UTC(2026, 0, 1) / 1_000;
        const signed = createHmac('sha256', secret)
          .update(`${seconds}.${method}.${path}.${body}`)
          .digest('hex');
        assert.equal(headers[SIGNATURE_HEADER.toLowerCase()], `t=${seconds},v1=${signed}`);
        assert.equal(headers.accept, 'application/json');
      }
      // A payment's id is in the path as it is, in whatever mount the service has.
      const atRoot = accountsOverHttp({ url: url.replace('/base/', ''), secret });
      await atRoot.lookup?.('p', never);
      assert.equal(asked.at(-1)?.url, '/payments/p');
    },
  );
});

test('an account or a payment that the service does not know is none; a 404 to a posting says nothing [B1 PF2]', async () => {
  await withService(
    // As a framework words it: longer than an answer may be, and not in UTF-8.
    () => ({
      status: 404,
      body: Buffer.from(`{"outcome":"posted"}${'é'.repeat(70_000)}`, 'latin1'),
    }),
    async (url) => {
      const accounts = accountsOverHttp({ url, secret });
      assert.equal(await accounts.findAccount('acme', 'A-9'), undefined);
      assert.equal(await accounts.lookup?.('p', never), undefined);
      await assert.rejects(accounts.post([payment], never), {
        name: 'WrongAnswer',
        message: 'the account service answered post_payment with 404',
      });
    },
  );
});

test('only a 200 with an outcome counts as an answer, and no redirect is followed [PF2 ST3]', async () => {
  const filled = (bytes: number): string => `"${'x'.repeat(bytes - 2)}"`;
  const answers: readonly [Scripted, RegExp | { name: string }][] = [
    [{ status: 302, body: '' }, /post_payment with 302/],
    [{ status: 201, body: '{"outcome":"posted"}' }, /with 201/],
    [{ status: 422, body: '{"outcome":"failed","reason":"x"}' }, /with 422/],
    [{ status: 500, body: 'oh' }, /with 500/],
    [{ status: 200, body: '{"outcome":"posted","outcome":"failed"}' }, /appears twice/],
    [{ status: 200, body: '' }, { name: 'JsonProblem' }],
    [{ status: 200, body: '\uFEFF{"outcome":"posted"}' }, { name: 'JsonProblem' }],
    [{ status: 200, body: filled(64 * 1024 + 1) }, /longer than 65536 bytes/],
    [
      { status: 200, body: Buffer.from('{"outcome":"failed","reason":"für"}', 'latin1') },
      /encoding|encoded/,
    ],
    ['cut', { name: 'TypeError' }],
  ];
  for (const [answer, error] of answers) {
    await withService(
      () => answer,
      async (url, asked) => {
        await assert.rejects(accountsOverHttp({ url, secret }).post([payment], never), error);
        assert.equal(asked.length, 1, 'not followed, not repeated');
      },
    );
  }
  await withService(
    () => ({ status: 200, body: filled(64 * 1024) }),
    async (url) => {
      assert.equal((await accountsOverHttp({ url, secret }).post([payment], never)).length, 1);
    },
  );
});

test('a reason that cannot be stored as it is ends its payment all the same [ST3 PF5]', async () => {
  await withService(
    () => ({ status: 200, body: String.raw`{"outcome":"failed","reason":"a\u0000b\ud800"}` }),
    async (url) => {
      const accounts = accountsOverHttp({ url, secret });
      const failed = { outcome: 'failed', reason: 'a\uFFFDb\uFFFD' };
      assert.deepEqual(await accounts.post([payment], never), [failed]);
      assert.deepEqual(await accounts.lookup?.('p', never), failed);
    },
  );
});

test('a posting that is given up ends its request [PF2]', async () => {
  await withService(
    () => 'silence',
    async (url, asked) => {
      const accounts = accountsOverHttp({ url, secret });
      const giveUp = new AbortController();
      const posting = accounts.post([payment], giveUp.signal);
      while (asked.length === 0) await new Promise((resolve) => setImmediate(resolve));
      giveUp.abort();
      await assert.rejects(posting, { name: 'AbortError' });
    },
  );
});

test('a read that the service does not answer ends after five seconds, with its request [B1]', async () => {
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  const limits: number[] = [];
  AbortSignal.timeout = (ms) => {
    limits.push(ms);
    return timeout(1);
  };
  try {
    await withService(
      () => 'silence',
      (url) =>
        assert.rejects(accountsOverHttp({ url, secret }).findAccount('acme', 'A-1'), {
          name: 'TimeoutError',
        }),
    );
  } finally {
    AbortSignal.timeout = timeout;
  }
  assert.deepEqual(limits, [5_000]);
});

test('an address that would show payments or the secret to others is refused, and a short secret [S3]', () => {
  for (const url of [
    'http://example.com/',
    'http://127.0.0.1.example.com/',
    'ftp://localhost/',
    'file:///etc',
    'billing',
    'https://u:p@x/',
    'https://u@x/',
    'https://x/?a=1',
    'https://x/#a',
  ]) {
    assert.throws(() => accountsOverHttp({ url, secret }), /must be https/, url);
  }
  for (const url of [
    'https://x/',
    'http://localhost:1/',
    'http://127.0.0.1/',
    'http://[::1]/',
    'https://localhost/',
  ]) {
    assert.ok(accountsOverHttp({ url, secret }), url);
  }
  assert.throws(
    () => accountsOverHttp({ url: 'https://x/', secret: secret.slice(1) }),
    /16 characters/,
  );
});
