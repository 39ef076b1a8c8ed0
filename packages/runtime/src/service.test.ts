import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test, { type TestContext } from 'node:test';
import { ConfigurationError } from './errors.ts';
import {
  address,
  createLogger,
  createMetrics,
  flag,
  integer,
  oneOf,
  readConfig,
  secret,
  text,
} from './service.ts';

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

test('no secret and no name of a customer reaches the log, however deep or in whatever case', () => {
  let written = '';
  const log = createLogger({
    name: 'test',
    level: 'debug',
    privateKeys: ['X-Biller-Key'],
    destination: { write: (line: string) => void (written += line) },
  });
  const hidden = { Authorization: 'canary', 'x-biller-key': 'canary', email: 'canary' };
  log.info({ headers: hidden, list: [{ access_token: 'canary' }] }, 'one');
  log.info({ a: { b: { c: { customer: { first_name: 'canary' } } } }, token: 'canary' }, 'two');
  log.warn(
    { url: 'postgres://user:canary@host/db', at: new URL('https://u:canary@h/canary') },
    'three',
  );
  log.error({ error: new Error('no way to postgres://user:canary@host/db') }, 'four');
  log.error({ err: new Error('no way to postgres://user:canary@host/db') }, 'five');
  log.error(new Error('no way to postgres://user:canary@host/db'));
  log.info('to postgres://user:canary@host/db');
  log.child({ token: 'canary' }).info({}, 'six');
  const database = Object.assign(new Error('invalid input: "canary"'), {
    severity: 'ERROR',
    code: '22P02',
    detail: 'canary',
  });
  log.error({ error: database, cause: new Error('x', { cause: database }) }, 'seven');
  assert.doesNotMatch(written, /canary/);
  assert.match(written, /22P02/);
  const lines = written.trim().split('\n');
  assert.equal(lines.length, 9);
  for (const line of lines) assert.doesNotThrow(() => JSON.parse(line) as unknown);
});

test('a line break in a value cannot forge a log line', () => {
  let written = '';
  const destination = { write: (line: string) => void (written += line) };
  createLogger({ name: 'test', destination }).info({ id: 'a\n{"level":"error"}' }, 'b\nc');
  assert.equal(written.trim().split('\n').length, 1);
});

test('figures come in the form Prometheus reads', async () => {
  const metrics = createMetrics();
  metrics.counter('duebridge_things_total', 'Things', ['kind']).inc({ kind: 'x' });
  metrics.gauge('duebridge_level', 'Level', [], () => 7);
  metrics.histogram('duebridge_time_seconds', 'Time').observe(0.002);
  const printed = await metrics.text();
  assert.match(printed, /duebridge_things_total\{kind="x"\} 1/);
  assert.match(printed, /duebridge_level 7/);
  assert.match(printed, /duebridge_time_seconds_bucket\{le="0.0025"\} 1/);
  assert.match(printed, /process_resident_memory_bytes/);
});

/** Runs a service in its own process; `body` is the code of its start. Gives its exit code and what it printed. */
async function life(
  t: TestContext,
  body: string,
  act: (signal: (name: NodeJS.Signals) => void, line: string) => void = () => undefined,
): Promise<{ code: number | null; printed: string }> {
  const href = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
  const program = `
    import { runService } from ${href('./service.ts')};
    import { ConfigurationError } from ${href('./errors.ts')};
    const say = (_details, message) => console.log(message);
    const hold = setInterval(() => undefined, 1000);
    await runService({ log: { debug: say, info: say, warn: say, error: say }, stopTimeoutMs: 200,
      start: async () => { ${body} } });`;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    printed += chunk;
    for (const line of chunk.trim().split('\n')) act((name) => child.kill(name), line);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, printed };
}

const up = `console.log('up');`;

test('a signal stops once and gracefully; a second one ends at once', async (t) => {
  const stopOnUp = (signal: (name: NodeJS.Signals) => void, line: string): void => {
    if (line === 'up' || line === 'halfway') signal('SIGTERM');
  };
  const good = await life(t, `${up} return { stop: async () => console.log('closed') };`, stopOnUp);
  assert.equal(good.code, 0);
  assert.match(good.printed, /closed/);
  const forced = await life(
    t,
    `${up} return { stop: () => { console.log('halfway'); return new Promise(() => {}); } };`,
    stopOnUp,
  );
  assert.equal(forced.code, 1);
  assert.match(forced.printed, /second signal/);
});

test('a stop that hangs or fails ends with 1, a wrong configuration with 2, an uncaught error with 1', async (t) => {
  const stopOnUp = (signal: (name: NodeJS.Signals) => void, line: string): void => {
    if (line === 'up') signal('SIGINT');
  };
  const codes = await Promise.all([
    life(t, `${up} return { stop: () => new Promise(() => {}) };`, stopOnUp),
    life(t, `${up} return { stop: () => Promise.reject(new Error('x')) };`, stopOnUp),
    life(t, `throw new ConfigurationError('set X');`),
    life(t, `throw new Error('x');`),
    life(
      t,
      `setTimeout(() => Promise.reject(new Error('x')), 1); return { stop: async () => {} };`,
    ),
  ]);
  assert.deepEqual(
    codes.map(({ code }) => code),
    [1, 1, 2, 1, 1],
  );
});
