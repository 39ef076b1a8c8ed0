import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal, type PartnerRegistration } from '@duebridge/contract';
import { ConfigurationError } from '@duebridge/runtime';
import { manualClock, testDatabase } from '@duebridge/runtime/testing';
import { isPublicAddress, urlProblem } from './address-guard.ts';
import { certificate } from '../../test/certificates.ts';
import { SEAL_KEY } from '../../test/engine-rig.ts';
import { png } from '../../test/png.ts';
import { migrations } from '../migrations.ts';
import { headerProblem, registrationProblems } from './registration-problems.ts';
import { billerLogo, openPartnerRegistry, type PartnerRegistry } from './registry.ts';
import { openSealer } from './seal.ts';

const registration: PartnerRegistration = {
  partner_id: 'acme',
  name: 'Acme Water',
  kind: 'biller',
  biller_id: 'acme',
  base_url: 'https://pay.acme.example/api/',
  origins: ['https://www.acme.example'],
  auth: { method: 'key', header: 'x-api-key', key: 'the-very-secret-key' },
};

async function registries(t: { after(hook: () => Promise<void>): unknown }, count = 1) {
  const database = await testDatabase(t, { migrations, name: 'partners' });
  const clock = manualClock();
  const open = (sealKey = SEAL_KEY): PartnerRegistry =>
    openPartnerRegistry({ database, sealKey, allowPrivateAddresses: false, clock });
  return { database, clock, open, all: Array.from({ length: count }, () => open()) };
}

async function pathsRefused(work: Promise<unknown>): Promise<string[]> {
  const refusal = await work.catch((error: unknown) => error);
  assert(refusal instanceof Refusal && refusal.code === 'INVALID_REQUEST', String(refusal));
  return (refusal.details ?? []).map((detail) => detail.path);
}

test('a logo and a colour are shown until they are taken away, and a picture that was shown stays at its address', async (t) => {
  const registry = (await registries(t)).open();
  const logo = png(48, 48).toString('base64');
  const view = await registry.add({ ...registration, colour: '#0b7a75', logo }, 'test');
  assert.equal(view.colour, '#0b7a75');
  const name = view.logo ?? '';
  assert.equal((await registry.get('acme'))?.logo, name);
  assert.deepEqual(await registry.logo(name), png(48, 48));
  assert.deepEqual(await pathsRefused(registry.change('acme', { logo: 'AAAA' }, 'test')), [
    'body.logo',
  ]);
  // A change of something else leaves both.
  assert.equal((await registry.change('acme', { name: 'Acme' }, 'test')).logo, name);
  const bare = await registry.change('acme', { colour: null, logo: null }, 'test');
  assert.deepEqual([bare.colour, bare.logo], [undefined, undefined]);
  assert.deepEqual(await registry.logo(name), png(48, 48));
  assert.equal(await registry.logo('0'.repeat(32)), undefined);
});

test('a biller of an aggregator has a logo of its own, until it is taken away, and else that of the aggregator', async (t) => {
  const registry = (await registries(t)).open();
  const { biller_id: _, ...aggregator } = registration;
  const picture = (size: number): string => png(size, size).toString('base64');
  const own = { logo: picture(40), biller_logos: { gas: picture(48), water: picture(64) } };
  await registry.add({ ...aggregator, kind: 'aggregator', ...own }, 'test');
  const shown = async (biller_id: string): Promise<Buffer | undefined> => {
    const partner = await registry.get('acme');
    assert(partner);
    return registry.logo(billerLogo(partner, biller_id) ?? '');
  };
  assert.deepEqual(await shown('gas'), png(48, 48));
  assert.deepEqual(await shown('power'), png(40, 40));
  const wrong = registry.change('acme', { biller_logos: { gas: 'AAAA' } }, 'test');
  assert.deepEqual(await pathsRefused(wrong), ['body.biller_logos.gas']);
  await registry.change('acme', { biller_logos: { gas: null } }, 'test');
  assert.deepEqual([await shown('gas'), await shown('water')], [png(40, 40), png(64, 64)]);
});

test('a registration that would misdirect a secret or a payment is refused [PL14]', async (t) => {
  const registry = (await registries(t)).open();
  const own = certificate('platform');
  const wrong: [Partial<PartnerRegistration>, string][] = [
    [{ base_url: 'http://pay.acme.example' }, 'body.base_url'],
    [{ base_url: 'https://user:pass@pay.acme.example' }, 'body.base_url'],
    [{ base_url: 'https://pay.acme.example/?a=1' }, 'body.base_url'],
    [{ base_url: 'https://pay.acme.example/#a' }, 'body.base_url'],
    [{ base_url: 'https://127.1/' }, 'body.base_url'],
    [{ base_url: 'https://2130706433/' }, 'body.base_url'],
    [{ base_url: 'https://[::1]/' }, 'body.base_url'],
    [{ base_url: 'https://１２７.０.０.１/' }, 'body.base_url'],
    [{ base_url: 'https://localhost/' }, 'body.base_url'],
    [{ base_url: 'https://localhost./' }, 'body.base_url'],
    [{ base_url: 'https://pay.localhost./' }, 'body.base_url'],
    [{ base_url: 'https://metadata./' }, 'body.base_url'],
    [{ base_url: 'https://pay;acme.example/' }, 'body.base_url'],
    [{ base_url: 'https://pay..acme.example/' }, 'body.base_url'],
    [{ base_url: 'not a url' }, 'body.base_url'],
    [{ origins: ['https://www.acme.example/'] }, 'body.origins.0'],
    [{ origins: ['https://*.acme.example'] }, 'body.origins.0'],
    [{ origins: ['https://www.acme.example;sandbox'] }, 'body.origins.0'],
    [{ origins: ['https://www.acme.example,www.evil.example'] }, 'body.origins.0'],
    [{ origins: ["https://'unsafe-inline'.example"] }, 'body.origins.0'],
    [{ origins: ['https://www.acme.example"'] }, 'body.origins.0'],
    [{ origins: ['http://www.acme.example'] }, 'body.origins.0'],
    [{ origins: ['null'] }, 'body.origins.0'],
    [{ auth: { method: 'key', header: 'Host', key: 'k' } }, 'body.auth.header'],
    [{ auth: { method: 'key', header: 'x key', key: 'k' } }, 'body.auth.header'],
    [{ auth: { method: 'key', header: 'x-api-key', key: 'Bearer k' } }, 'body.auth.key'],
    [{ auth: { method: 'key', header: 'x-api-key', key: 'k\r\nx: y' } }, 'body.auth.key'],
    [{ auth: { method: 'key', header: 'x-api-key', key: 'schlüssel' } }, 'body.auth.key'],
    [
      {
        auth: {
          method: 'oauth',
          token_url: 'http://a.example/t',
          client_id: 'c',
          client_secret: 's',
        },
      },
      'body.auth.token_url',
    ],
    [{ paths: { get_payment: '/payments' } }, 'body.paths.get_payment'],
    [
      { paths: { get_payment: '/x/{platform_payment_id}?a={account_id}' } },
      'body.paths.get_payment',
    ],
    [{ paths: { get_account: '/x/{account_id}/{secret}' } }, 'body.paths.get_account'],
    [{ paths: { get_account: '/../{account_id}' } }, 'body.paths.get_account'],
    [
      { paths: { put_account_payment: '/a/{account_id}/pay/{platform_payment_id}' } },
      'body.paths.put_account_payment',
    ],
    [{ batch_time_zone: 'Mars/Base' }, 'body.batch_time_zone'],
    [{ connection: { authority: 'no PEM' } }, 'body.connection.authority'],
    [{ connection: { certificate: own.cert } }, 'body.connection.private_key'],
    [
      { connection: { certificate: own.cert, private_key: certificate('other').key } },
      'body.connection.private_key',
    ],
    [{ connection: { proxy_url: 'socks5://proxy.example' } }, 'body.connection.proxy_url'],
    [{ connection: { proxy_url: 'http://10.0.0.7:3128' } }, 'body.connection.proxy_url'],
    [{ connection: { proxy_url: 'http://proxy.example/path' } }, 'body.connection.proxy_url'],
    [{ connection: { proxy_url: 'http://us:100%@proxy.example' } }, 'body.connection.proxy_url'],
    // The second certificate is broken.
    [{ connection: { authority: own.cert + own.cert.slice(0, 200) } }, 'body.connection.authority'],
    [
      { connection: { certificate: own.cert + own.cert.slice(0, 200), private_key: own.key } },
      'body.connection.certificate',
    ],
  ];
  assert.deepEqual(registrationProblems({ base_url: '' }, { mode: 'test', allowPrivate: false }), [
    { path: 'body.base_url', problem: 'must be a URL' },
  ]);
  for (const [change, path] of wrong) {
    assert.deepEqual(
      await pathsRefused(registry.add({ ...registration, ...change }, 'test')),
      [path],
      JSON.stringify(change),
    );
  }
  await registry.add(
    {
      ...registration,
      origins: ['https://www.acme.example:8443', 'http://localhost:4200'],
      paths: {
        put_account_payment: '/v2/acct/{account_id}/payment/{platform_payment_id}',
        get_payment: '/p/{platform_payment_id}',
      },
      batch_time_zone: 'America/New_York',
    },
    'test',
  );
});

test('headers that control the connection or have another meaning cannot carry a key [KY1 KY2]', () => {
  const denied =
    'content-length Transfer-Encoding COOKIE x-forwarded-for forwarded prefer a:b é'.split(' ');
  for (const name of ['', ...denied]) {
    assert.notEqual(headerProblem(name), undefined, name);
  }
  for (const name of ['x-api-key', 'Authorization', 'X-Biller-Key', 'apikey'])
    assert.equal(headerProblem(name), undefined);
});

test('a change reaches other processes within five seconds, and its own process at once', async (t) => {
  const { all, clock } = await registries(t, 2);
  const [here, there] = all as [PartnerRegistry, PartnerRegistry];
  await here.add(registration, 'test');
  await here.get('acme');
  await there.get('acme');
  await here.change('acme', { paused: true, name: 'Acme' }, 'operator');
  assert.equal((await here.get('acme'))?.paused, true);
  assert.equal((await there.get('acme'))?.paused, false);
  await clock.advance(5_000);
  const read = await there.get('acme');
  assert.deepEqual([read?.paused, read?.name], [true, 'Acme']);
  await here.hold('acme', 'the engine met something', 'worker');
  assert.equal((await here.get('acme'))?.pause_reason, 'paused by an operator');
  const resumed = await here.change('acme', { paused: false }, 'operator');
  assert.equal(resumed.pause_reason, null);
  await assert.rejects(here.change('nobody', { name: 'x' }, 'operator'), { code: 'NOT_FOUND' });
});

test('changes of one partner at the same moment all stay', async (t) => {
  const { all, database } = await registries(t, 2);
  const [here, there] = all as [PartnerRegistry, PartnerRegistry];
  await here.add(registration, 'test');
  const auth = { method: 'key', header: 'x-api-key', key: 'the-new-key' } as const;
  let changed: Promise<unknown[]> | undefined;
  await database.transaction(async (tx) => {
    await tx.query(
      "SELECT 1 FROM duebridge_platform.partners WHERE partner_id = 'acme' FOR UPDATE",
    );
    changed = Promise.all([
      here.change('acme', { name: 'Acme', budget: { wait_seconds: 5 } }, 'one'),
      there.change('acme', { budget: { call_timeout_ms: 9_000 } }, 'two'),
      here.change('acme', { connection: { proxy_url: 'https://proxy.example' } }, 'three'),
      there.change('acme', { auth, support_contact: '+1 555 0100' }, 'four'),
    ]);
    // All four wait for the row before any of them is written.
    for (let waiting = 0; waiting < 4;) {
      const rows = await database.query<{ count: number }>(
        `SELECT count(*)::int FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      waiting = rows[0]?.count ?? 0;
    }
  });
  await changed;
  const partner = await there.get('acme');
  assert(partner);
  const { name, support_contact, budget, connection } = partner;
  assert.deepEqual([name, support_contact], ['Acme', '+1 555 0100']);
  assert.deepEqual([budget.wait_seconds, budget.call_timeout_ms], [5, 9_000]);
  assert.equal(connection?.proxy, 'proxy.example');
  assert.deepEqual(there.credentials(partner).auth, auth);
});

test('a sealed secret opens only with its key, at its place, unaltered', () => {
  const sealer = openSealer(SEAL_KEY);
  const sealed = sealer.seal('secret é', 'partners/a/auth');
  assert.equal(sealer.open(sealed, 'partners/a/auth'), 'secret é');
  assert.notEqual(sealer.seal('secret é', 'partners/a/auth'), sealed);
  const other = Buffer.alloc(32, 9).toString('base64');
  const altered = `${sealed.slice(0, -2)}${sealed.endsWith('AA') ? 'BB' : 'AA'}`;
  assert.throws(() => sealer.open(sealed, 'partners/b/auth'), ConfigurationError);
  assert.throws(() => sealer.open(altered, 'partners/a/auth'), ConfigurationError);
  assert.throws(() => openSealer(other).open(sealed, 'partners/a/auth'), ConfigurationError);
  assert.equal(openSealer(`${other},${SEAL_KEY}`).open(sealed, 'partners/a/auth'), 'secret é');
  for (const keys of ['', 'short', `${SEAL_KEY},x`])
    assert.throws(() => openSealer(keys), ConfigurationError);
});

test('addresses outside the public internet are recognised in every notation [PL14]', () => {
  const local =
    '127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 ' +
    '::1 :: fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 2002:7f00:1:: ::7f00:1 ' +
    '2001:db8::1 2001::1 ' +
    // Outside the one prefix that is given out: unassigned, so whoever routes it is no partner.
    '1::1 4000::1 64:ff9b:1::7f00:1 fec0::1 5f00::1 x';
  for (const address of ['', ...local.split(' ')])
    assert.equal(isPublicAddress(address), false, address);
  for (const address of [
    '8.8.8.8',
    '93.184.216.34',
    '2606:4700::1111',
    '2a00:1450:4001:81b::200e',
  ]) {
    assert.equal(isPublicAddress(address), true, address);
  }
  for (const host of ['0x7f.1', '0177.0.0.1', '127.1', '[::ffff:7f00:1]']) {
    assert.notEqual(urlProblem(`https://${host}/`, false), undefined, host);
  }
  assert.equal(urlProblem('http://127.0.0.1:4100', true), undefined);
  assert.notEqual(urlProblem('ftp://a.example', true), undefined);
});

test('a registration is test or live for good, and neither calls the endpoint of the other', async (t) => {
  const { open } = await registries(t);
  const registry = open();
  const test = await registry.add({ ...registration, origins: ['http://localhost:4300'] }, 'test');
  assert.equal(test.mode, 'test', 'without a word no money moves');
  const live = { ...registration, partner_id: 'acme-live', mode: 'live' } as const;
  assert.deepEqual(await pathsRefused(registry.add(live, 'test')), ['body.base_url']);
  // However it is written, it is the same endpoint.
  const { origin, host, pathname } = new URL(registration.base_url);
  for (const same of [
    `${origin}${pathname}/`,
    `https://${host.toUpperCase()}${pathname}`,
    `${origin}:443${pathname}`,
  ]) {
    const refused = await pathsRefused(registry.add({ ...live, base_url: same }, 'test'));
    assert.deepEqual(refused, ['body.base_url'], same);
  }
  const base_url = 'https://pay.acme.example/live';
  const unsafe = { ...live, base_url, origins: ['https://a.example', 'http://localhost:4300'] };
  assert.deepEqual(await pathsRefused(registry.add(unsafe, 'test')), ['body.origins.1']);
  assert.equal((await registry.add({ ...live, base_url }, 'test')).mode, 'live');
  for (const [id, change, path] of [
    ['acme', { base_url }, 'body.base_url'],
    ['acme-live', { base_url: registration.base_url }, 'body.base_url'],
  ] as const) {
    assert.deepEqual(await pathsRefused(registry.change(id, change, 'test')), [path]);
  }
  const unsafeChange = registry.change('acme-live', { origins: ['http://localhost:1'] }, 'test');
  assert.deepEqual(await pathsRefused(unsafeChange), ['body.origins.0']);
  assert.equal((await registry.get('acme'))?.mode, 'test');
  // The page of an app: Android's has an origin that a policy can name, that of iOS and a file have none.
  const app = await registry.change('acme-live', { origins: ['https://localhost'] }, 'test');
  assert.deepEqual(app.origins, ['https://localhost']);
  for (const origin of ['capacitor://localhost', 'file://', 'null']) {
    const refused = await pathsRefused(registry.change('acme-live', { origins: [origin] }, 'test'));
    assert.deepEqual(refused, ['body.origins.0'], origin);
  }
});
