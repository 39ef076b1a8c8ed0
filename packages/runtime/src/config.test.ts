import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import {
  address,
  flag,
  integer,
  names,
  oneOf,
  readConfig,
  secret,
  text,
  unknownVariables,
  type Variables,
} from './config.ts';

const spec = {
  host: { name: 'HOST', parse: text, description: 'address to listen on', default: '127.0.0.1' },
  port: { name: 'PORT', parse: integer(0, 65_535), description: 'port', default: 4000 },
  key: { name: 'DUEBRIDGE_ADMIN_KEY', parse: secret, description: 'admin key' },
  url: { name: 'DATABASE_URL', parse: address('postgres:'), description: 'database' },
  mode: { name: 'DUEBRIDGE_MODE', parse: oneOf('a', 'b'), description: 'mode', default: 'a' },
  open: { name: 'DUEBRIDGE_OPEN', parse: flag, description: 'open', default: false },
} as const;

/** Refuses a configuration in these words, as an error of the configuration. */
const refused = (of: Variables, env: Record<string, string>, message: RegExp): void =>
  assert.throws(() => readConfig(of, env), { name: 'ConfigurationError', message });

test('configuration is read into its types, with defaults where nothing or an empty text is given', () => {
  const config = readConfig(spec, {
    PORT: '4001',
    HOST: '',
    DUEBRIDGE_ADMIN_KEY: 'k'.repeat(16),
    DATABASE_URL: 'postgres://x/y',
    DUEBRIDGE_OPEN: 'true',
  });
  assert.deepEqual(config, {
    host: '127.0.0.1',
    port: 4001,
    key: 'k'.repeat(16),
    url: 'postgres://x/y',
    mode: 'a',
    open: true,
  });
});

test('a comma too many among names stops no start, and no name at all does', () => {
  assert.deepEqual(names('a.example, b.example,'), ['a.example', 'b.example']);
  assert.throws(() => names(' , '), /must be names separated by commas/);
});

test('all problems are reported at once, by name and without values', () => {
  const env = {
    PORT: '70000',
    DUEBRIDGE_ADMIN_KEY: 'canary',
    DUEBRIDGE_MODE: 'canary',
    DUEBRIDGE_OPEN: 'canary',
  };
  assert.throws(() => readConfig(spec, env), { name: 'ConfigurationError', exitCode: 2 });
  for (const name of [...Object.keys(env), 'DATABASE_URL']) refused(spec, env, new RegExp(name));
  refused(spec, env, /^(?!.*(canary|70000))/);
  for (const port of ['1e2', '0x10', '1.5', ' 1', '-1', '99999999999999999999']) {
    refused({ port: spec.port }, { PORT: port }, /PORT must be a whole number/);
  }
});

test('a misspelt variable of ours is refused with the right name; other variables are ignored', () => {
  const spec2 = { port: spec.port, days: { ...spec.port, name: 'DUEBRIDGE_RETENTION_DAYS' } };
  for (const slip of [
    'DUEBRIDGE_RETENTON_DAYS',
    'DUEBRIDGE_RETENTION_DYAS',
    'DUEBRIDGE_RETENTION_DAY',
  ]) {
    const sentence = `${slip} is not known: did you mean DUEBRIDGE_RETENTION_DAYS\\?`;
    refused(spec2, { [slip]: '7' }, new RegExp(sentence));
  }
  // From a newer version, from another program, from another product.
  const env = { DUEBRIDGE_SOMETHING_NEW: '1', DUEBRIDGE_OTHER: '1', RETENTON_DAYS: '1', PATH: 'x' };
  assert.deepEqual(readConfig(spec2, env), { port: 4000, days: 4000 });
  assert.deepEqual(unknownVariables(spec2, env, /^OTHER/), ['DUEBRIDGE_SOMETHING_NEW']);
});

test('a secret may come from a file; both at once, or a missing file, is reported', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'duebridge-secret-'));
  t.after(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'key');
  await writeFile(file, 'a-key-from-a-file-1\n');
  const secrets = { key: { ...spec.key, secret: true } } as const;
  assert.equal(readConfig(secrets, { DUEBRIDGE_ADMIN_KEY_FILE: file }).key, 'a-key-from-a-file-1');
  const both = { DUEBRIDGE_ADMIN_KEY: 'a-key-from-here-12', DUEBRIDGE_ADMIN_KEY_FILE: file };
  refused(secrets, both, /both set/);
  const none = path.join(folder, 'none');
  refused(secrets, { DUEBRIDGE_ADMIN_KEY_FILE: none }, /cannot be read \(ENOENT\)/);
  refused(secrets, { DUEBRIDGE_ADMIN_KEY_FILE: folder }, /cannot be read \(EISDIR\)/);
  // Only secrets have a file variant.
  const days = { ...spec.port, name: 'DUEBRIDGE_DAYS' };
  refused({ days }, { DUEBRIDGE_DAYS_FIL: '7', DUEBRIDGE_DAY: '1' }, /DUEBRIDGE_DAY is not known/);
});
