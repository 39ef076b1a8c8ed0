import assert from 'node:assert/strict';
import test from 'node:test';
import { address, flag, integer, oneOf, readConfig, secret, text } from './config.ts';
import { ConfigurationError } from './errors.ts';

const spec = {
  host: { name: 'HOST', parse: text, description: 'address to listen on', default: '127.0.0.1' },
  port: { name: 'PORT', parse: integer(0, 65_535), description: 'port', default: 4000 },
  key: { name: 'DUEBRIDGE_ADMIN_KEY', parse: secret, description: 'admin key' },
  url: { name: 'DATABASE_URL', parse: address('postgres:'), description: 'database' },
  mode: { name: 'DUEBRIDGE_MODE', parse: oneOf('a', 'b'), description: 'mode', default: 'a' },
  open: { name: 'DUEBRIDGE_OPEN', parse: flag, description: 'open', default: false },
} as const;

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

test('all that is wrong is told at once, by name, and no value is told', () => {
  const env = {
    PORT: '70000',
    DUEBRIDGE_ADMIN_KEY: 'canary',
    DUEBRIDGE_MODE: 'canary',
    DUEBRIDGE_OPEN: 'canary',
  };
  assert.throws(
    () => readConfig(spec, env),
    (error) => {
      assert.ok(error instanceof ConfigurationError);
      assert.equal(error.exitCode, 2);
      for (const name of [...Object.keys(env), 'DATABASE_URL'])
        assert.ok(error.message.includes(name));
      assert.doesNotMatch(error.message, /canary|70000/);
      return true;
    },
  );
  for (const port of ['1e2', '0x10', '1.5', ' 1', '-1', '99999999999999999999']) {
    assert.throws(() => readConfig({ port: spec.port }, { PORT: port }), ConfigurationError, port);
  }
});

test('a misspelt variable of ours is warned of, others are none of our business', () => {
  const warned: object[] = [];
  const keep = (details: object): void => void warned.push(details);
  const log = { debug: keep, info: keep, warn: keep, error: keep };
  const env = { DUEBRIDGE_POTR: '1', DUEBRIDGE_DATA_DIR: 'x', DUEBRIDGE_OTHER: '1', PATH: 'x' };
  readConfig({ port: spec.port }, env, { log, alsoKnown: ['DUEBRIDGE_OTHER'] });
  assert.deepEqual(warned, [{ variable: 'DUEBRIDGE_POTR' }]);
});
