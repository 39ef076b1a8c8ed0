import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { inspect } from 'node:util';
import { columns } from '@duebridge/runtime/cli';
import { served } from '@duebridge/runtime/testing';
import { startTestPartner, startTestPlatform } from './checkout/testing.ts';
import { certificate } from '../test/certificates.ts';
import { png } from '../test/png.ts';
import { outcomeOf } from './cli/testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const env = {
  DUEBRIDGE_ADMIN_URL: platform.adminUrl,
  DUEBRIDGE_DATA_DIR: platform.dataDirectory,
};

interface Outcome {
  readonly out: string;
  /** 0, or the exit code of bin/duebridge.ts: 3 for commander's own errors. */
  readonly code: number;
  readonly said: string;
}

/** Runs a command as bin/duebridge.ts does; the words are split at spaces. */
async function run(
  words: string,
  given: { env?: Record<string, string>; stdin?: string } = {},
): Promise<Outcome> {
  const { out, said, error } = await outcomeOf({ ...env, ...given.env }, words, given.stdin);
  if (error === undefined) return { out, code: 0, said };
  assert.ok(error instanceof Error && 'exitCode' in error, inspect(error));
  const isUsage = error.constructor.name === 'CommanderError';
  const code = isUsage ? (error.exitCode === 0 ? 0 : 3) : Number(error.exitCode);
  return { out, code, said: said + error.message };
}

/** What `--json` printed: one JSON value and nothing else. */
async function json(words: string): Promise<unknown> {
  const { out, code, said } = await run(`${words} --json`);
  assert.equal(code, 0, said);
  return JSON.parse(out);
}

const addWater =
  `partner add --id water --name Water --kind biller --biller water --base-url ${partner.url} ` +
  '--auth key --header x-partner-key --origin https://water.example https://www.water.example';

test('a partner is added with a key from standard input, the environment or a flag, each the same', async () => {
  const fromStdin = await run(`${addWater} --key -`, { stdin: 'partner-key-canary-5f2c\n' });
  assert.equal(fromStdin.code, 0, fromStdin.said);
  assert.ok(!fromStdin.out.includes('canary'));
  const fromEnv = await run(addWater.replace('--id water', '--id water-2'), {
    env: { DUEBRIDGE_PARTNER_KEY: 'partner-key-canary-5f2c' },
  });
  assert.equal(fromEnv.code, 0, fromEnv.said);
  // The partner's server reads the same variable, and may have been given two keys.
  const two = await run(addWater.replace('--id water', '--id water-3'), {
    env: { DUEBRIDGE_PARTNER_KEY: 'partner-key-canary-5f2c,partner-key-canary-old' },
  });
  assert.equal(two.code, 2);
  assert.match(two.said, /DUEBRIDGE_PARTNER_KEY lists several .*: give the new one alone/);
  assert.ok(!two.said.includes('canary'));
  const gas = await run(
    `partner add --id gas --name Gas --kind aggregator --base-url ${partner.url} --auth oauth ` +
      `--token-url ${partner.url}/oauth/token --client-id us --client-secret - --json`,
    { stdin: 'secret-canary' },
  );
  assert.equal(gas.code, 0, gas.said);
  assert.ok(!gas.out.includes('canary'));
  const { partners: list } = (await json('partner list')) as {
    partners: { partner_id: string; origins: string[] }[];
  };
  assert.deepEqual(
    list.map((one) => one.partner_id),
    ['gas', 'water', 'water-2'],
  );
  assert.deepEqual(list[1]?.origins, ['https://water.example', 'https://www.water.example']);
});

test('a change replaces a connection as a whole, and another calls the partner directly again', async () => {
  const change = async (words: string): Promise<unknown> =>
    ((await json(`partner ${words}`)) as { connection?: unknown }).connection;
  const directory = await mkdtemp(path.join(tmpdir(), 'duebridge-pem-'));
  const authority = path.join(directory, 'authority.pem');
  await writeFile(authority, certificate('Authority of the City').cert);
  const both = { private_authority: true, proxy: '127.0.0.1:3128' };
  const words = `change water-2 --authority ${authority} --proxy-url http://127.0.0.1:3128`;
  assert.deepEqual(await change(words), both);
  const proxy = { private_authority: false, proxy: '127.0.0.1:3129' };
  assert.deepEqual(await change('change water-2 --proxy-url http://127.0.0.1:3129'), proxy);
  assert.equal(await change('direct water-2 --reason moved'), undefined);
  await rm(directory, { recursive: true });
});

test('the billers of an aggregator get the names that customers read, and a name without a biller is refused', async () => {
  const named = (await json(
    'partner change gas --biller-name lakeside-energy=Lakeside --biller-name metro=Metro',
  )) as { biller_names: Record<string, string> };
  assert.deepEqual(named.biller_names, { 'lakeside-energy': 'Lakeside', metro: 'Metro' });
  const wrong = await run('partner change gas --biller-name Lakeside');
  assert.equal(wrong.code, 3, wrong.said);
  assert.match(wrong.said, /write it as ID=TEXT, such as lakeside-energy=/);
  assert.equal((await run('partner change gas --biller-name metro=')).code, 3);
});

test('a logo of a biller is registered from a file, and removed', async () => {
  const directory = await mkdtemp(path.join(tmpdir(), 'duebridge-logo-'));
  const file = path.join(directory, 'metro.png');
  await writeFile(file, png(48, 48));
  const change = async (words: string): Promise<unknown> =>
    ((await json(`partner change gas ${words}`)) as { biller_logos?: object }).biller_logos;
  assert.deepEqual(
    Object.keys((await change(`--biller-logo metro=${file} --biller-logo lake=${file}`)) as object),
    ['lake', 'metro'],
  );
  assert.deepEqual(Object.keys((await change('--biller-logo lake=')) as object), ['metro']);
  assert.equal(await change('--biller-logo metro='), undefined);
  assert.match((await run('partner change gas --biller-logo metro')).said, /write it as ID=FILE/);
  await rm(directory, { recursive: true });
});

test('a key that one command issues works until another revokes it', async () => {
  const grant = (await json('key issue --partner water')) as Record<string, string>;
  const credentials = { 'x-client-id': grant['client_id']!, 'x-api-key': grant['api_key']! };
  assert.equal((await platform.token(credentials)).status, 200);
  const { keys } = (await json('key list --partner water')) as { keys: { key_id: string }[] };
  assert.equal(keys[0]?.key_id, grant['key_id']);
  assert.equal((await run(`key revoke ${grant['key_id']} --partner water`)).code, 0);
  assert.equal((await platform.token(credentials)).status, 401);
});

test('everything that is missing is named in one sentence, and so is what does not belong together', async () => {
  const sentences: [string, RegExp][] = [
    ['partner add --id x', /^give --name, --kind, --base-url, and --auth; .*partner add --help/],
    ['payment pause', /^give <platform_payment_id> and --reason;/],
    ['partner change water --auth key --header x', /^give --key, or DUEBRIDGE_PARTNER_KEY;/],
    ['partner change water --token-url https://x.example', /^give --auth;/],
    ['review close x --reason y --outcome failed', /^give --evidence;/],
    [`${addWater} --key k --scope read`, /^--scope cannot be given here;/],
    ['batch close . --reason y', /^none of platform_batch_id may be empty, "\." or "\.\."$/],
    ['archive', /^give --before and --to; /],
  ];
  for (const [words, sentence] of sentences) {
    const { code, said } = await run(words);
    assert.equal(code, 3, words);
    assert.match(said, sentence);
  }
});

test('wrong usage exits with 3, a wrong setting with 2, a refusal with 1, each with one sentence', async () => {
  const cases: [string, number, Record<string, string>?][] = [
    ['nonsense', 3],
    [addWater, 3],
    [`${addWater.replace('--header x-partner-key ', '')} --key k`, 3],
    ['key issue', 3],
    ['key issue --partner water --days 0', 3],
    ['key issue --partner water --days 3651', 3],
    ['payments --colour red', 3],
    ['archive --before 2027-13 --to a', 3],
    ['partner list', 2, { DUEBRIDGE_ADMIN_KEY: 'another-key-of-somebody' }],
    ['partner list', 2, { DUEBRIDGE_DATA_DIR: '/nowhere' }],
    ['partner list', 2, { DUEBRIDGE_ADMIN_URL: 'nonsense' }],
    ['partner list', 1, { DUEBRIDGE_ADMIN_URL: 'http://127.0.0.1:1' }],
    [`${addWater} --key k`, 1],
    // What names nothing is a wrong argument; with `reconcile`, 1 would say that the two sides differ.
    ['payments never', 3],
    ['reconcile nope', 3],
    ['payments --status done', 3],
    ['payment withdraw never --reason x', 3],
    ['batch never', 3],
    ['key revoke key_none --partner water', 3],
  ];
  for (const [words, code, given] of cases) {
    const outcome = await run(words, given === undefined ? {} : { env: given });
    assert.equal(outcome.code, code, `${words}: ${outcome.said}`);
    assert.equal(outcome.out, '', words);
    assert.ok(outcome.said.length > 10, words);
    assert.ok(!outcome.said.includes('    at '), words);
  }
});

test('a program at the admin address that is not a platform is reported as such', async (t) => {
  const other = createServer((_request, response) => response.end('<html>hello</html>'));
  const DUEBRIDGE_ADMIN_URL = await served(t, other);
  const outcome = await run('partner list', { env: { DUEBRIDGE_ADMIN_URL } });
  assert.equal(outcome.code, 1);
  assert.match(outcome.said, /DUEBRIDGE_ADMIN_URL/);
});

test('an answer that begins late, and takes its time, is written to its end', async (t) => {
  // With fetch these are the limits, in place of five minutes.
  const limits = { headersTimeout: 100, bodyTimeout: 100 };
  const name = Symbol.for('undici.globalDispatcher.1');
  const former = Reflect.get(globalThis, name) as { constructor: new (of: object) => object };
  Reflect.set(globalThis, name, new former.constructor(limits));
  t.after(() => Reflect.set(globalThis, name, former));
  const slow = createServer((_request, response) => {
    setTimeout(() => response.write('first,'), 1_500);
    setTimeout(() => response.end('last'), 3_000);
  });
  const { out, said } = await run('export', {
    env: { DUEBRIDGE_ADMIN_URL: await served(t, slow) },
  });
  assert.equal(out, 'first,last', said);
});

test('text from a partner cannot send control codes to the terminal', () => {
  assert.equal(columns([['failed', 'gone\u001b[2J\u0007']]), 'failed  gone [2J');
});
