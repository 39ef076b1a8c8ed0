import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { ConfigurationError } from './errors.ts';
import { keptSecret, readKeptSecret } from './kept-secret.ts';

test('two starts at once keep one secret, for its owner alone, and leave nothing beside it', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-secret-'));
  t.after(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'data', 'key');
  assert.equal(await readKeptSecret(file), undefined);
  const secrets = await Promise.all(Array.from({ length: 20 }, () => keptSecret(file)));
  assert.equal(new Set(secrets).size, 1);
  assert.equal(Buffer.from(secrets[0]!, 'base64').length, 32);
  assert.equal((await stat(file)).mode & 0o077, 0);
  assert.deepEqual(await readdir(path.dirname(file)), ['key']);
  assert.equal(await readKeptSecret(file), secrets[0]);
});

test('a folder where a file should be is reported as a configuration error', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-secret-'));
  t.after(() => rm(folder, { recursive: true }));
  await chmod(folder, 0o700);
  await assert.rejects(keptSecret(folder), ConfigurationError);
  await keptSecret(path.join(folder, 'file'));
  await assert.rejects(keptSecret(path.join(folder, 'file', 'key')), ConfigurationError);
  // Where Node's recursive mkdir never returns.
  await assert.rejects(keptSecret('/proc/none/key'), ConfigurationError);
});
