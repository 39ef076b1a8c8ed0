/** Partners behind gateways: a client certificate, an authority of their own, a proxy. */
import assert from 'node:assert/strict';
import { createServer as createProxy } from 'node:http';
import { createServer } from 'node:https';
import { connect } from 'node:net';
import test, { type TestContext } from 'node:test';
import type { PartnerRegistration } from '@duebridge/contract';
import { silentLog } from '@duebridge/runtime';
import { manualClock, served, testDatabase } from '@duebridge/runtime/testing';
import { certificate } from '../../test/certificates.ts';
import { SEAL_KEY } from '../../test/engine-rig.ts';
import { migrations } from '../migrations.ts';
import { createPartnerClient } from './client.ts';
import { openPeer } from './http-call.ts';
import { openPartnerRegistry } from './registry.ts';

const authority = certificate('Authority of the City');
const own = certificate('platform', authority);
const connection = {
  certificate: own.cert,
  private_key: own.key,
  authority: authority.cert,
};

/** A gateway that admits only who shows a certificate of its authority, and a registry that calls it. */
async function gateway(t: TestContext) {
  const server = createServer(
    {
      ...certificate('localhost', authority),
      ca: authority.cert,
      requestCert: true,
      rejectUnauthorized: true,
    },
    (_request, response) => {
      response.setHeader('content-type', 'application/json');
      response.end('{"status":"active"}');
    },
  );
  const { port } = new URL(await served(t, server));
  const database = await testDatabase(t, { migrations });
  const on = { clock: manualClock(), allowPrivateAddresses: true };
  const registry = openPartnerRegistry({ ...on, database, sealKey: SEAL_KEY });
  const client = createPartnerClient({ ...on, registry, log: silentLog });
  t.after(() => client.close());
  const registration: PartnerRegistration = {
    partner_id: 'city',
    name: 'City Water',
    kind: 'biller',
    biller_id: 'city',
    base_url: `https://localhost:${port}`,
    origins: [],
    auth: { method: 'key', header: 'x-api-key', key: 'k' },
  };
  const read = async (): Promise<string> => {
    const partner = await registry.get('city');
    assert.ok(partner);
    const outcome = await client.getAccount(partner, { biller_id: 'city', account_id: 'a' });
    return outcome.kind === 'unreachable' ? outcome.reason : outcome.kind;
  };
  return { port, database, registry, registration, read };
}

test('a partner that demands a client certificate of a private authority is called with it, and its key is shown to nobody', async (t) => {
  const { database, registry, registration, read } = await gateway(t);
  await registry.add(registration, 'test');
  assert.equal(await read(), 'certificate', 'without it');
  const view = await registry.change('city', { connection }, 'test');
  assert.deepEqual(view.connection, {
    certificate_expires_at: '2049-01-01T00:00:00.000Z',
    private_authority: true,
  });
  assert.equal(await read(), 'found');
  const rows = JSON.stringify(await database.query('SELECT * FROM duebridge_platform.partners'));
  assert.ok(!rows.includes('BEGIN'), 'sealed');
  const withoutKey = { certificate: own.cert, authority: authority.cert };
  await assert.rejects(registry.change('city', { connection: withoutKey }, 'test'));
  const alone = { authority: authority.cert };
  const shown = await registry.change('city', { connection: alone }, 'test');
  assert.deepEqual(shown.connection, { private_authority: true }, 'replaced as a whole');
  // TLS 1.3 lets the gateway refuse after the handshake, by an alert or by closing.
  assert.match(await read(), /^(certificate|connection)$/, 'the gateway asks for a certificate');
  await registry.change('city', { name: 'City' }, 'test');
  assert.match(await read(), /^(certificate|connection)$/, 'it stays while it is not given');
  for (const connection of [null, {}]) {
    await registry.change('city', { connection: alone }, 'test');
    const direct = await registry.change('city', { connection }, 'test');
    assert.equal(direct.connection, undefined);
  }
});

test('a partner behind a proxy is called through it, with TLS from end to end', async (t) => {
  const { port, registry, registration, read } = await gateway(t);
  const asked: string[] = [];
  const proxy = createProxy().on('connect', (request, socket) => {
    asked.push(`${request.url} ${request.headers['proxy-authorization']}`);
    if (asked.length > 5) {
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
      return;
    }
    const onward = connect(Number(port), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [socket, onward]) end.on('error', () => onward.destroy());
    t.after(() => onward.destroy());
  });
  const { port: proxyPort } = new URL(await served(t, proxy));
  const proxy_url = `http://user:pass%21@127.0.0.1:${proxyPort}`;
  const view = await registry.add(
    { ...registration, connection: { ...connection, proxy_url } },
    'test',
  );
  assert.equal(view.connection?.proxy, `127.0.0.1:${proxyPort}`, 'without its password');
  assert.equal(await read(), 'found');
  const basic = `Basic ${Buffer.from('user:pass!').toString('base64')}`;
  assert.deepEqual(asked, [`localhost:${port} ${basic}`]);

  // The guard holds for the proxy as for everybody, and a proxy that refuses or is away is a failed connection.
  const call = { method: 'GET', path: '/', headers: {}, deadlineMs: 5_000 } as const;
  const outcome = async (allowPrivateAddresses: boolean, uri: string): Promise<string> => {
    const peer = openPeer(registration.base_url, {
      connections: 1,
      allowPrivateAddresses,
      connection: { proxy_url: uri },
    });
    const answer = await peer.exchange(call);
    await peer.close();
    return answer.kind === 'no_reply' ? answer.reason : answer.kind;
  };
  assert.equal(await outcome(false, `http://partner.localhost:${proxyPort}`), 'address');
  assert.equal(asked.length, 1);
  asked.push('', '', '', '');
  assert.equal(await outcome(true, proxy_url), 'connection');
  assert.equal(await outcome(true, 'http://127.0.0.1:1'), 'connection');
});
