import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import test from 'node:test';
import { served } from '@duebridge/runtime/testing';
import {
  engineRig,
  reply,
  scriptedPartner,
  type Answer,
  type EngineRig,
} from '../../test/engine-rig.ts';
import { certificate } from '../../test/certificates.ts';
import { openPeer, type Reply } from './http-call.ts';
import { judgeAccount, judgeBalance } from './client.ts';
import type { Partner } from './registry.ts';

const asked = { biller_id: 'acme', account_id: 'ACC-1' };
const GET = { method: 'GET', path: '/', headers: {}, deadlineMs: 30_000 } as const;

test('an account is shown as far as it is readable, and never somebody else’s [AC1 B1 TR3]', () => {
  assert.deepEqual(judgeAccount(asked, reply(200, {})), {
    kind: 'found',
    account: { status: 'unknown' },
  });
  assert.deepEqual(
    judgeAccount(
      asked,
      reply(200, {
        ...asked,
        status: 'active',
        holder: { first_name: 'A', last_name: 'B' },
        balance: { amount_due_in_cents: 1_250, due_date: '2026-02-28', extra: 1 },
        payment_rules: { max_amount_in_cents: 5_000, min_amount_in_cents: '1' },
      }),
    ),
    {
      kind: 'found',
      account: {
        status: 'active',
        balance: { amount_due_in_cents: 1_250, due_date: '2026-02-28' },
        payment_rules: { max_amount_in_cents: 5_000 },
      },
    },
  );
  const odd = judgeAccount(
    asked,
    reply(200, { status: 'gone', balance: { amount_due_in_cents: 12.5 } }),
  );
  assert.deepEqual(odd, { kind: 'found', account: { status: 'unknown' } });
  for (const other of [{ account_id: 'ACC-2' }, { biller_id: 'other' }]) {
    assert.equal(judgeAccount(asked, reply(200, { ...asked, ...other })).kind, 'unreachable');
  }
});

test('only the partner’s own 404 says that there is no such account [B1 B2 ER3]', () => {
  assert.equal(judgeAccount(asked, reply(404, { code: 'ACCOUNT_NOT_FOUND' })).kind, 'not_found');
  assert.equal(judgeBalance(reply(404, { code: 'ACCOUNT_NOT_FOUND' })).kind, 'not_found');
  const page: Reply = { ...reply(404, undefined), problem: 'content_type' };
  assert.equal(judgeAccount(asked, page).kind, 'unreachable');
  assert.equal(judgeBalance(page).kind, 'unreachable');
  for (const status of [401, 403, 429, 500, 503, 302, 204]) {
    assert.equal(judgeAccount(asked, reply(status, {})).kind, 'unreachable');
    assert.equal(judgeBalance(reply(status, {})).kind, 'unreachable');
  }
  assert.equal(judgeAccount(asked, { kind: 'no_reply', reason: 'timeout' }).kind, 'unreachable');
  assert.deepEqual(judgeBalance(reply(200, { amount_due_in_cents: -5 })), {
    kind: 'found',
    balance: { amount_due_in_cents: -5 },
  });
  assert.equal(judgeBalance(reply(200, { amount_due_in_cents: '5' })).kind, 'unreachable');
});

async function partnerOf(rig: EngineRig, url: string): Promise<Partner> {
  await rig.register('acme', url, {
    paths: { get_account: '/v9/a/{account_id}', get_balance: '/v9/b/{biller_id}/{account_id}' },
  });
  const partner = await rig.registry.get('acme');
  assert(partner);
  return partner;
}

test('a partner’s own paths are used, and no id changes the rest of a path [B1 B2]', async (t) => {
  const rig = await engineRig(t);
  const scripted = await scriptedPartner(t);
  scripted.script = () => ({ json: {} });
  const partner = await partnerOf(rig, `${scripted.url}/base`);
  await rig.client.getAccount(partner, { biller_id: 'acme', account_id: 'a/../b?c#d' });
  await rig.client.getBalance(partner, { biller_id: '~', account_id: 'x' });
  assert.deepEqual(
    scripted.seen.map((seen) => seen.path),
    ['/base/v9/a/a%2F..%2Fb%3Fc%23d', '/base/v9/b/~/x'],
  );
});

test('the reads that customers wait for stay within the calls a second of their partner, and more are answered at once', async (t) => {
  const rig = await engineRig(t);
  const scripted = await scriptedPartner(t);
  scripted.script = () => ({ json: {} });
  await rig.register('acme', scripted.url, { budget: { max_calls_per_second: 5 } });
  const partner = await rig.registry.get('acme');
  assert(partner);
  const reads = Array.from({ length: 54 }, () => rig.client.getAccount(partner, asked));
  const kinds = (await Promise.all(reads)).map(({ kind }) => kind);
  const made = scripted.seen.length;
  assert.ok(made >= 5 && made < 54, `${made} calls`);
  assert.equal(kinds.filter((kind) => kind === 'found').length, made);
  assert.ok(kinds.every((kind) => kind === 'found' || kind === 'unreachable'));
});

test('a hanging, slow, endless or compressed answer costs a customer no more than the deadline', async (t) => {
  const rig = await engineRig(t);
  const scripted = await scriptedPartner(t);
  const partner = await partnerOf(rig, scripted.url);
  const answers: [string, Answer][] = [
    ['timeout', () => undefined],
    [
      'timeout',
      (response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        const drip = setInterval(() => response.write(' '), 10);
        response.on('close', () => clearInterval(drip));
      },
    ],
    [
      'too_large',
      (response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        const flood = (): void => {
          while (!response.destroyed && response.write('x'.repeat(65_536)));
        };
        response.on('drain', flood);
        flood();
      },
    ],
    [
      'status_200',
      (response) =>
        void response
          .writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' })
          .end('{}'),
    ],
    [
      'status_200',
      (response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('{}'),
    ],
    [
      'protocol',
      (response) =>
        void response.socket?.end(
          'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}',
        ),
    ],
    ['connection', (response) => void response.socket?.destroy()],
  ];
  for (const [reason, answer] of answers) {
    scripted.script = () => answer;
    // Long enough on any machine for what is answered.
    const deadlineMs = reason === 'timeout' ? 300 : 30_000;
    const outcome = await rig.client.getAccount(partner, asked, { deadlineMs });
    assert.deepEqual(outcome, { kind: 'unreachable', reason });
  }
});

test('a name is resolved without getaddrinfo, whose threads all partners would share', async (t) => {
  const scripted = await scriptedPartner(t);
  scripted.script = () => ({ json: {} });
  // getaddrinfo does not know this name; our own lookup does (RFC 6761).
  const url = scripted.url.replace('127.0.0.1', 'partner.localhost');
  const peer = openPeer(url, { connections: 1, allowPrivateAddresses: true });
  t.after(() => peer.close());
  assert.equal((await peer.exchange(GET)).kind, 'reply');
});

test('an untrusted certificate ends the call, whatever the environment says [F47]', async (t) => {
  const server = createServer(certificate('localhost'), (_request, response) => {
    response.end('{}');
  });
  const { port } = new URL(await served(t, server));
  const peer = openPeer(`https://localhost:${port}`, {
    connections: 1,
    allowPrivateAddresses: true,
  });
  const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
  process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
  try {
    assert.deepEqual(await peer.exchange(GET), { kind: 'no_reply', reason: 'certificate' });
  } finally {
    if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
    else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before;
    await peer.close();
  }
});
