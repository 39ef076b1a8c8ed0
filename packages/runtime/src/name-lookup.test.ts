import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import type { LookupAddress } from 'node:dns';
import { readFile } from 'node:fs/promises';
import type { LookupFunction } from 'node:net';
import test, { type TestContext } from 'node:test';
import { openNameLookup } from './name-lookup.ts';

/** A DNS server: `answers` has the IPv4 address of a name, null for a name that does not exist; other questions are never answered, and none for IPv6 of old.example. */
async function dnsServer(t: TestContext, answers: Record<string, string | null>) {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  socket.on('message', (message, peer) => {
    const labels: string[] = [];
    let at = 12;
    for (let length = message[at]!; length > 0; length = message[at]!) {
      labels.push(message.subarray(at + 1, at + 1 + length).toString());
      at += length + 1;
    }
    const name = labels.join('.');
    const isForIPv4 = message.readUInt16BE(at + 1) === 1;
    if (isForIPv4) asked.push(name);
    const answer = answers[name];
    if (answer === undefined || (!isForIPv4 && name === 'old.example')) return;
    const isAnswered = isForIPv4 && answer !== null;
    const header = Buffer.from(message.subarray(0, 12));
    header.writeUInt16BE(answer === null ? 0x8183 : 0x8180, 2);
    header.writeUInt16BE(isAnswered ? 1 : 0, 6);
    header.writeUInt32BE(0, 8);
    const record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...(answer ?? '').split('.')];
    const parts = [header, message.subarray(12, at + 5)];
    socket.send(
      Buffer.concat(isAnswered ? [...parts, Buffer.from(record.map(Number))] : parts),
      peer.port,
      peer.address,
    );
  });
  await new Promise<void>((resolve) => {
    socket.bind(0, '127.0.0.1', resolve);
  });
  t.after(() => socket.close());
  return { asked, servers: [`127.0.0.1:${socket.address().port}`] };
}

/** The addresses of a name, or the code of the error. */
function addresses(lookup: LookupFunction, name: string): Promise<readonly string[] | string> {
  return new Promise((resolve) => {
    lookup(name, { all: true }, (error, found) => {
      if (error !== null) resolve(String(error.code));
      else resolve((found as LookupAddress[]).map(({ address }) => address));
    });
  });
}

test('names whose DNS is silent delay nobody: neither another name nor a file', async (t) => {
  const { servers } = await dnsServer(t, { 'healthy.example': '192.0.2.7' });
  const dead = Array.from({ length: 20 }, (_, index) =>
    addresses(openNameLookup({ servers, deadlineMs: 1_500 }), `dead-${index}.example`),
  );
  const first = await Promise.race([
    Promise.all([
      addresses(openNameLookup({ servers }), 'healthy.example'),
      readFile('/etc/hosts'),
    ]),
    Promise.race(dead),
  ]);
  assert.deepEqual(first[0], ['192.0.2.7']);
  assert.deepEqual(new Set(await Promise.all(dead)), new Set(['EAI_AGAIN']));
});

test('a DNS server that ignores the question for IPv6 addresses, as some do, makes nobody wait for it', async (t) => {
  const { servers } = await dnsServer(t, { 'old.example': '192.0.2.7' });
  const dead = addresses(openNameLookup({ servers, deadlineMs: 2_000 }), 'dead.example');
  const found = addresses(openNameLookup({ servers }), 'old.example');
  assert.deepEqual(await Promise.race([found, dead]), ['192.0.2.7']);
});

test('a name in any case has its addresses, and one that DNS does not know is said not to exist', async (t) => {
  const { servers } = await dnsServer(t, { 'healthy.example': '192.0.2.7', 'gone.example': null });
  const lookup = openNameLookup({ servers });
  assert.deepEqual(await addresses(lookup, 'Healthy.example'), ['192.0.2.7']);
  assert.equal(await addresses(lookup, 'gone.example'), 'ENOTFOUND');
});

test('/etc/hosts comes before DNS, and localhost is this machine', async (t) => {
  const { servers, asked } = await dnsServer(t, { localhost: '192.0.2.7' });
  const lookup = openNameLookup({ servers });
  for (const name of ['localhost', 'partner.localhost', 'localhost.']) {
    const found = await addresses(lookup, name);
    assert.ok(found.includes('127.0.0.1'), `${name}: ${String(found)}`);
  }
  assert.deepEqual(asked, []);
});
