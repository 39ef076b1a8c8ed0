/**
 * Both servers are set up in the same way, so whatever is set up wrongly is told by both in the same words: in one sentence that
 * names what to change, with exit code 2, without a stack and without a secret.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { ConfigurationError, ensureDatabase, openDatabase } from '@duebridge/runtime';
import { environmentHelp, readConfig, unknownVariables } from '@duebridge/runtime/cli';
import { testServer } from '@duebridge/runtime/testing';
import { readPartnerConfig } from '../packages/partner/src/config.ts';
import { startPartner } from '../packages/partner/src/server.ts';
import * as partner from '../packages/partner/src/variables.ts';
import { readPlatformConfig } from '../packages/platform/src/config.ts';
import { startPlatform } from '../packages/platform/src/server.ts';
import * as platform from '../packages/platform/src/variables.ts';

type Env = Record<string, string>;
const entryPoint = path.join(import.meta.dirname, '..', 'bin', 'duebridge.ts');
const secrets: Env = {
  DUEBRIDGE_SEAL_KEY: Buffer.alloc(32, 1).toString('base64'),
  DUEBRIDGE_KEY_PEPPER: Buffer.alloc(32, 2).toString('base64'),
  DUEBRIDGE_PARTNER_KEY: 'canary-static-key-of-the-test',
  DUEBRIDGE_ADMIN_KEY: 'canary-admin-key-of-the-test',
};

const sides = {
  platform: {
    schema: 'duebridge_platform',
    start: (env: Env) => startPlatform({ ...readPlatformConfig(env), log: silent }),
  },
  partner: {
    schema: 'duebridge_partner',
    start: (env: Env) => startPartner(readPartnerConfig(env)),
  },
} as const;
type Side = keyof typeof sides;
const both = ['platform', 'partner'] as const;
const silent = { debug: ignore, info: ignore, warn: ignore, error: ignore };

function ignore(): void {
  // What is tested is what a person at the terminal reads.
}

let folder: string;
let admin: ReturnType<typeof openDatabase>;
let server: Awaited<ReturnType<typeof testServer>>;
const made: string[] = [];
/** A database that each side has started on once, and one that is empty and stays so. Few, because a drop costs a checkpoint. */
let own: Record<Side, string>;
let empty: string;

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'duebridge-front-door-'));
  server = await testServer();
  admin = openDatabase({
    url: server.url,
    applicationName: 'front door',
    statementTimeoutMs: 60_000,
  });
  own = { platform: await newDatabase(), partner: await newDatabase() };
  empty = await newDatabase();
  for (const side of both) await (await sides[side].start(good(own[side]))).stop();
});
after(async () => {
  for (const name of made) await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  await admin.query(`DROP ROLE IF EXISTS ${role}`);
  await admin.close();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

/** A role that may do nothing. */
const role = `front_door_${randomBytes(5).toString('hex')}`;

async function newDatabase(): Promise<string> {
  const name = `front_door_${randomBytes(5).toString('hex')}`;
  made.push(name);
  return ensureDatabase(server.url, name);
}

/** Runs one statement on a database as its owner. */
async function owner(url: string, statement: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'owner' });
  try {
    await database.query(statement);
  } finally {
    await database.close();
  }
}

function good(DATABASE_URL: string): Env {
  return {
    ...secrets,
    HOST: '127.0.0.1',
    PORT: '0',
    ADMIN_PORT: '0',
    DATABASE_URL,
    DUEBRIDGE_DATA_DIR: folder,
    DUEBRIDGE_DATABASE_WAIT: '0',
  };
}

/** The sentence with which a side refuses to start; fails where it starts, or ends in any other way. */
async function refusal(side: Side, env: Env): Promise<string> {
  const started = await Promise.resolve()
    .then(() => sides[side].start(env))
    .catch((error: unknown) => error);
  if (started instanceof ConfigurationError) return started.message;
  if (started instanceof Error) throw started;
  await (started as { stop(): Promise<void> }).stop();
  assert.fail(`the ${side} started with ${JSON.stringify(env)}`);
}

/** What a sentence says whichever side it is about. */
function neutral(sentence: string, side: Side): string {
  return sentence
    .replaceAll(side, 'SERVER')
    .replaceAll(side === 'platform' ? 'partner' : 'platform', 'OTHER')
    .replaceAll(/front_door_[0-9a-f]+/g, 'DATABASE');
}

/** Starts both sides with a setting changed, and compares what they say with each other and with what a person needs to read. */
async function compare(
  about: string,
  change: (url: string, side: Side) => Env,
  words: RegExp,
): Promise<void> {
  const said: string[] = [];
  for (const side of both) {
    const url = own[side];
    const sentence = await refusal(side, { ...good(url), ...change(url, side) });
    assert.match(sentence, words, `${about}: ${side}`);
    assert.doesNotMatch(sentence, /canary|\n|    at /, `${about}: ${side}`);
    said.push(neutral(sentence, side));
  }
  assert.equal(said[0], said[1], about);
}

function withUrl(url: string, change: (parts: URL) => void): Env {
  const parts = new URL(url);
  change(parts);
  return { DATABASE_URL: parts.href };
}

test('both report an unavailable address or port alike, with the variable to change', async (t) => {
  const taken = createServer();
  await new Promise<void>((resolve) => {
    taken.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => taken.close());
  const port = String((taken.address() as AddressInfo).port);
  await compare(
    'taken',
    () => ({ PORT: port }),
    /^port \d+ of 127\.0\.0\.1 is taken: .* set PORT /,
  );
  await compare(
    'taken for operators',
    () => ({ ADMIN_PORT: port }),
    /is taken: .* set ADMIN_PORT /,
  );
  // TEST-NET-1: no machine has it.
  await compare('not ours', () => ({ HOST: '192.0.2.1' }), /no address 192\.0\.2\.1: set HOST /);
});

test('both report a database that refuses or does not exist alike, never with the password', async () => {
  await compare(
    'nobody listens',
    () => ({ DATABASE_URL: 'postgres://someone:canary@127.0.0.1:1/x' }),
    /the database at 127\.0\.0\.1:1 does not answer \(.*ECONNREFUSED.*\): start it, or correct DATABASE_URL/,
  );
  await compare(
    'wrong password',
    (url) => withUrl(url, (parts) => (parts.password = 'canary')),
    /does not let duebridge in: correct the user and the password in DATABASE_URL/,
  );
  await compare(
    'no such database',
    (url) => withUrl(url, (parts) => (parts.pathname = '/no_such_database')),
    /there is no database no_such_database at .* correct DATABASE_URL/,
  );
  await compare(
    'no TLS there',
    (url) => withUrl(url, (parts) => parts.searchParams.set('sslmode', 'verify-full')),
    /does not answer \(.*SSL.*\)/,
  );
});

test('both report an unusable database alike: not durable, read only, too new, without rights, of another [F75]', async () => {
  const whileSet = async (setting: string, about: string, words: RegExp): Promise<void> => {
    const [name = ''] = setting.split(' ');
    for (const side of both) {
      await admin.query(`ALTER DATABASE ${nameOf(own[side])} SET ${setting}`);
    }
    await compare(about, () => ({}), words);
    for (const side of both) {
      await admin.query(`ALTER DATABASE ${nameOf(own[side])} RESET ${name}`);
    }
  };
  await whileSet(
    'synchronous_commit = off',
    'not durable',
    /would lose payments it acknowledged: synchronous_commit is off/,
  );
  await whileSet(
    'default_transaction_read_only = on',
    'standby',
    /the database is read-only, as a standby is: give the address of the primary in DATABASE_URL/,
  );
  for (const side of both) {
    await owner(
      own[side],
      `INSERT INTO ${sides[side].schema}.migrations (name, sha256, additive) VALUES ('999-new.sql', 'x', false)`,
    );
  }
  await compare(
    'newer',
    () => ({}),
    /the database is newer than this program: it has migration 999-new\.sql/,
  );
  for (const side of both) {
    await owner(
      own[side],
      `UPDATE ${sides[side].schema}.migrations SET additive = true WHERE name = '999-new.sql'`,
    );
    // Additive: the version before goes on.
    await (await sides[side].start(good(own[side]))).stop();
    await owner(
      own[side],
      `DELETE FROM ${sides[side].schema}.migrations WHERE name = '999-new.sql'`,
    );
  }
  await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD 'canary'`);
  await compare(
    'no rights',
    () =>
      withUrl(empty, (parts) => {
        parts.username = role;
        parts.password = 'canary';
      }),
    /front_door_\S+ lacks a right in the database .* "duebridge \S+ migrate"/,
  );
  await compare(
    'of the other side',
    (_url, side) => ({ DATABASE_URL: own[side === 'platform' ? 'partner' : 'platform'] }),
    /DATABASE_URL leads to the database of a \S+, which has no tables of the \S+: correct it, or run/,
  );
});

function nameOf(url: string): string {
  return new URL(url).pathname.slice(1);
}

test('both report an unusable data directory alike, and an empty variable means the default', async () => {
  const file = path.join(folder, 'a-file');
  await writeFile(file, '');
  for (const unusable of [file, path.join(file, 'data')]) {
    await compare(
      unusable,
      () => ({ DUEBRIDGE_DATA_DIR: unusable, DUEBRIDGE_ADMIN_KEY: '' }),
      new RegExp(`${unusable}.* set DUEBRIDGE_DATA_DIR`),
    );
  }
  const [one, other] = [
    readPlatformConfig({ DUEBRIDGE_DATA_DIR: '' }).dataDirectory,
    readPartnerConfig({ ...secrets, DUEBRIDGE_DATA_DIR: '' }).dataDirectory,
  ];
  assert.equal(one, path.resolve('.duebridge'));
  assert.equal(other, one);
});

test('a wrong seal key or pepper is reported at the start, by name; a rotated one is accepted', async () => {
  const url = own.platform;
  const another = Buffer.alloc(32, 9).toString('base64');
  for (const [wrong, words] of [
    [{ DUEBRIDGE_SEAL_KEY: another }, /^DUEBRIDGE_SEAL_KEY is not the one that this database/],
    [{ DUEBRIDGE_KEY_PEPPER: another }, /^DUEBRIDGE_KEY_PEPPER is not the one/],
    [
      { DUEBRIDGE_SEAL_KEY: another, DUEBRIDGE_KEY_PEPPER: another },
      /^DUEBRIDGE_SEAL_KEY and DUEBRIDGE_KEY_PEPPER are not those .* or correct DATABASE_URL/,
    ],
  ] as const) {
    const sentence = await refusal('platform', { ...good(url), ...wrong });
    assert.match(sentence, words);
    assert.ok(!sentence.includes(another));
  }
  const start = async (DUEBRIDGE_SEAL_KEY: string): Promise<void> =>
    (await sides.platform.start({ ...good(url), DUEBRIDGE_SEAL_KEY })).stop();
  const former = secrets['DUEBRIDGE_SEAL_KEY'] ?? '';
  await start(former);
  await start(`${another},${former}`);
  await start(another);
  assert.match(
    await refusal('platform', { ...good(url), DUEBRIDGE_SEAL_KEY: former }),
    /^DUEBRIDGE_SEAL_KEY /,
  );
  await start(`${former},${another}`);
});

test('both sides share one database when the migrate command was told to', async () => {
  const url = await newDatabase();
  await (await sides.platform.start(good(url))).stop();
  const migrated = await run('partner', ['migrate'], good(url));
  assert.equal(migrated.code, 0, migrated.err);
  for (const side of both) await (await sides[side].start(good(url))).stop();
});

test('serve --no-migrate refuses a database that lacks a migration, and takes a role that may only read and write', async () => {
  for (const side of both) {
    const refused = await run(side, ['serve', '--no-migrate'], good(empty));
    assert.equal(refused.code, 2, refused.err);
    assert.match(refused.err, /^duebridge: the database lacks migration 001-baseline\.sql .*\n$/);
  }
  for (const side of both) {
    const url = own[side];
    const { schema } = sides[side];
    await owner(url, `GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
    await owner(
      url,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`,
    );
    const env = withUrl(url, (parts) => {
      parts.username = role;
      parts.password = 'canary';
    });
    await (await sides[side].start({ ...good(url), ...env })).stop();
    await owner(url, `DROP OWNED BY ${role}`);
  }
});

test('on the command line a bad setting is one sentence on standard error and exit code 2, for both servers', async () => {
  for (const side of both) {
    // A database that is down comes back: units restart on 1, and not on 2.
    for (const [url, code, words] of [
      [withUrl(own[side], (parts) => (parts.password = 'canary')), 2, /does not let duebridge in/],
      [{ DATABASE_URL: 'postgres://someone:canary@127.0.0.1:1/x' }, 1, /does not answer/],
    ] as const) {
      const ended = await run(side, ['serve'], { ...good(''), ...url, LOG_LEVEL: 'error' });
      assert.equal(ended.code, code, ended.err);
      assert.match(ended.err, /^duebridge: the database at .*\n$/);
      assert.match(ended.err, words);
      assert.doesNotMatch(ended.err, /canary/);
    }
  }
});

test('the doctor finds fault with a database that the servers refuse', async () => {
  await admin.query(`ALTER DATABASE ${nameOf(empty)} SET default_transaction_read_only = on`);
  const { code, out } = await run('doctor', ['--json'], good(empty));
  await admin.query(`ALTER DATABASE ${nameOf(empty)} RESET default_transaction_read_only`);
  assert.equal(code, 1);
  const { findings } = JSON.parse(out) as { findings: { check: string; says: string }[] };
  assert.match(findings.find(({ check }) => check === 'database')?.says ?? '', /is read-only/);
});

test('each server lists its variables with --help, and knows those of the other', async () => {
  for (const [own, other] of [
    [platform, partner],
    [partner, platform],
  ]) {
    assert.ok(own && other);
    const names = Object.values(own.variables).map(({ name }) => name);
    const help = environmentHelp(own.variables);
    for (const name of names) assert.match(help, new RegExp(`^  ${name} +\\S`, 'm'));
    const foreign = Object.values(other.variables).flatMap((row) =>
      'secret' in row ? [row.name, `${row.name}_FILE`] : [row.name],
    );
    const env = Object.fromEntries(
      foreign.filter((name) => !names.includes(name)).map((name) => [name, '']),
    );
    assert.deepEqual(unknownVariables(own.variables, env, own.variablesOfOthers), []);
    readConfig(own.variables, env);
  }
});

async function run(
  side: Side | 'doctor',
  args: readonly string[],
  env: Env,
): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [entryPoint, side, ...args], {
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (out += part));
  child.stderr.setEncoding('utf8').on('data', (part: string) => (err += part));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, out, err };
}
