import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { adminKeyFile, ConfigurationError } from '@duebridge/runtime';
import { readPlatformConfig, readSecrets, settled, type PlatformConfig } from './config.ts';

const root = await mkdtemp(path.join(tmpdir(), 'duebridge-config-'));
after(() => rm(root, { recursive: true }));
const key = Buffer.alloc(32, 3).toString('base64');

test('a first start without settings generates its secrets, readable by their owner only, and keeps them', async () => {
  const dataDirectory = path.join(root, 'first');
  const made = await readSecrets({ dataDirectory });
  assert.ok((await readSecrets({ dataDirectory })).pepper.equals(made.pepper));
  assert.equal(
    (await readFile(adminKeyFile(dataDirectory, 'platform'), 'utf8')).trim(),
    made.adminKey,
  );
  const files = await readdir(dataDirectory);
  assert.equal(files.length, 3);
  for (const file of files) {
    assert.equal((await stat(path.join(dataDirectory, file))).mode & 0o777, 0o600, file);
  }
});

test('twenty processes that start at once agree on the secrets', async () => {
  const dataDirectory = path.join(root, 'race');
  const all = await Promise.all(Array.from({ length: 20 }, () => readSecrets({ dataDirectory })));
  assert.equal(
    new Set(
      all.map(
        ({ sealKey, adminKey, pepper }) =>
          `${sealKey} ${adminKey} ${pepper.export().toString('hex')}`,
      ),
    ).size,
    1,
  );
  assert.equal((await readdir(dataDirectory)).length, 3);
});

test('with DATABASE_URL a replica must be given its secrets: it generates none that others lack', async () => {
  const config = { databaseUrl: 'postgres://x/y', dataDirectory: path.join(root, 'replica') };
  await assert.rejects(readSecrets(config), /DUEBRIDGE_SEAL_KEY/);
  await assert.rejects(readSecrets({ ...config, sealKey: key }), /DUEBRIDGE_KEY_PEPPER/);
  const secrets = await readSecrets({ ...config, sealKey: key, keyPepper: key, adminKey: 'k' });
  assert.equal(secrets.pepper.symmetricKeySize, 32);
});

test('an unusable secret is refused at the start, without being quoted', async () => {
  const dataDirectory = path.join(root, 'weak');
  for (const [name, value] of [
    ['DUEBRIDGE_KEY_PEPPER', 'c2hvcnQtY2FuYXJ5'],
    ['DUEBRIDGE_ADMIN_KEY', 'short-canary'],
    ['DUEBRIDGE_ADMIN_KEY', 'with a space-canary'],
    ['PORT', '70000'],
    ['DATABASE_URL', 'mysql://canary'],
  ] as const) {
    const refused = { name: 'ConfigurationError', message: new RegExp(`^(?!.*canary).*${name}`) };
    assert.throws(() => readPlatformConfig({ [name]: value }), refused);
  }
  await assert.rejects(readSecrets({ dataDirectory, sealKey: 'short' }), ConfigurationError);
  await writeFile(path.join(root, 'file'), '');
  const inside = path.join(root, 'file', 'inside');
  await assert.rejects(readSecrets({ dataDirectory: inside }), ConfigurationError);
});

test('the account that pays is whole, and its company id fits a NACHA file', () => {
  const payer = {
    name: 'Payments Inc',
    routing_number: '011000015',
    account_number: '123456789',
    company_id: '1234567890',
  };
  const read = (more: object) =>
    readPlatformConfig({ DUEBRIDGE_PAYER: JSON.stringify({ ...payer, ...more }) }).payer;
  assert.deepEqual(read({}), payer);
  for (const wrong of [{ company_id: '12345678901' }, { routing_number: '011000016' }]) {
    assert.throws(() => read(wrong), ConfigurationError);
  }
});

test('the admin listener stays on loopback when the public one is opened to the world', () => {
  const config = readPlatformConfig({ HOST: '0.0.0.0' });
  assert.equal(config.host, '0.0.0.0');
  assert.equal(config.adminHost, '127.0.0.1');
  assert.equal(config.port, 4000);
  assert.equal(config.adminPort, 4001);
  assert.equal(config.allowPrivateAddresses, false);
});

test('rate limits are the documented ones unless the deployment sets others [LI1]', () => {
  const usual = readPlatformConfig({});
  assert.deepEqual(usual.ipRate, { perSecond: 200, burst: 400 });
  const other = readPlatformConfig({ DUEBRIDGE_IP_RATE: '0' });
  assert.equal(other.ipRate, undefined);
  // A client's tokens stay limited: no variable raises that.
  assert.equal(other.clientRate, undefined);
});

test('a setting that a program gives as undefined has its default, as one that is left out', () => {
  const nothing = { adminHost: undefined, port: undefined, secondPersonAboveCents: undefined };
  // Not every program is compiled with exactOptionalPropertyTypes.
  assert.deepEqual(settled(nothing as unknown as PlatformConfig), settled({}));
  assert.equal(settled({ ipRate: undefined }).ipRate, undefined, 'as behind a proxy');
});
