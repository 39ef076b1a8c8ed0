import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { ConfigurationError, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import * as openidClient from 'openid-client';
import { openAuthenticator, type AuthOptions, type OAuthOptions } from './auth.ts';
import {
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
  TEST_KEY,
  type Answer,
  type TestPartner,
} from '../test/kit.ts';

// Characters that a form and a header encode differently, so that a wrong decoding shows.
const client: OAuthOptions = {
  method: 'oauth',
  client_id: 'platform:1/a+b',
  secrets: ['s3cret+with%and:&=/chars'],
};
const accountPath = '/biller/acme/account/A-1';

async function oauthPartner(t: TestContext, auth = client): Promise<TestPartner> {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  return startKit(database, { auth });
}

function askToken(
  partner: TestPartner,
  fields: Record<string, string> | string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return partner.call('POST', '/oauth/token', {
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body: typeof fields === 'string' ? fields : new URLSearchParams(fields).toString(),
  });
}

function formOf(scope: string | undefined, from = client, secret = from.secrets[0]!) {
  return {
    grant_type: 'client_credentials',
    client_id: from.client_id,
    client_secret: secret,
    ...(scope === undefined ? {} : { scope }),
  };
}

async function tokenOf(partner: TestPartner, scope?: string): Promise<string> {
  const answer = await askToken(partner, formOf(scope));
  assert.equal(answer.status, 200, answer.text);
  return String(answer.body['access_token']);
}

function bearer(token: string): { headers: Record<string, string> } {
  return { headers: { authorization: `Bearer ${token}` } };
}

test('the token endpoint answers the fields of the interface, and each call carries the token [OA1 OA2 OA3 OA4 S3]', async (t) => {
  const partner = await oauthPartner(t);
  const answer = await askToken(partner, formOf('read write'));
  assert.equal(answer.status, 200, answer.text);
  const { access_token, ...rest } = answer.body;
  assert.deepEqual(rest, { token_type: 'Bearer', expires_in: 3600, scope: 'read write' });
  assert.match(String(access_token), /^dbp_[A-Za-z0-9_-]{43}$/);
  assert.equal(answer.headers['cache-control'], 'no-store');
  const account = await partner.call('GET', accountPath, bearer(String(access_token)));
  assert.equal(account.status, 200);
  const put = await partner.call('PUT', paymentPath('p'), {
    ...bearer(String(access_token)),
    body: instruction(),
  });
  assert.equal(put.status, 200);
});

test('openid-client gets a token, calls with it, and is told that a secret is wrong, unmodified [OA2 OA3 OA4]', async (t) => {
  const partner = await oauthPartner(t);
  const server = { issuer: partner.url, token_endpoint: `${partner.url}/oauth/token` };
  const as = (secret: string): openidClient.Configuration => {
    const method = openidClient.ClientSecretPost(secret);
    const it = new openidClient.Configuration(server, client.client_id, undefined, method);
    openidClient.allowInsecureRequests(it);
    return it;
  };
  const right = as(client.secrets[0] ?? '');
  const tokens = await openidClient.clientCredentialsGrant(right, { scope: 'read' });
  assert.equal(tokens.expires_in, 3600);
  const url = new URL(`${partner.url}${accountPath}`);
  const { access_token } = tokens;
  const response = await openidClient.fetchProtectedResource(right, access_token, url, 'GET');
  assert.equal(response.status, 200);
  await response.arrayBuffer();
  await assert.rejects(openidClient.clientCredentialsGrant(as('not-the-right-secret')), {
    error: 'invalid_client',
    status: 400,
  });
});

test('a wrong, unknown, duplicate or malformed client gets an RFC 6749 error and no token [OA1 OA2]', async (t) => {
  const partner = await oauthPartner(t);
  const { grant_type, ...right } = formOf(undefined);
  const grant = { grant_type };
  const twice = `grant_type=x&${new URLSearchParams(formOf('read')).toString()}`;
  const cases: [string, Record<string, string> | string, string][] = [
    ['wrong secret', formOf('read', client, 'wrong-secret-here'), 'invalid_client'],
    ['unknown client', { ...formOf('read'), client_id: 'nobody' }, 'invalid_client'],
    ['no client', grant, 'invalid_client'],
    ['no secret', { ...grant, client_id: client.client_id }, 'invalid_client'],
    ['field twice', twice, 'invalid_request'],
    ['no grant type', right, 'invalid_request'],
    ['another grant', { ...right, grant_type: 'password' }, 'unsupported_grant_type'],
    ['unknown scope', formOf('read admin'), 'invalid_scope'],
    ['scope in capitals', formOf('READ'), 'invalid_scope'],
  ];
  for (const [what, fields, error] of cases) {
    const answer = await askToken(partner, fields);
    assert.deepEqual(
      [answer.status, answer.body['error']],
      [400, error],
      `${what}: ${answer.text}`,
    );
    assert.equal(answer.headers['cache-control'], 'no-store', what);
    assert.equal('access_token' in answer.body, false);
  }
  const json = await askToken(partner, '{}', { 'content-type': 'application/json' });
  assert.equal(json.status, 415);
  const pair = Buffer.from(`${client.client_id}:${client.secrets[0]!}`).toString('base64');
  const basic = await askToken(partner, grant, { authorization: `Basic ${pair}` });
  assert.equal(basic.body['error'], 'invalid_client', 'the form has the credentials, and it alone');
});

test('scope read does not allow writes, and scope write does not allow reads [SC1 KT11]', async (t) => {
  const partner = await oauthPartner(t);
  const [read, write] = [await tokenOf(partner, 'read'), await tokenOf(partner, 'write')];
  const put = await partner.call('PUT', paymentPath('p'), { ...bearer(read), body: instruction() });
  assert.deepEqual([put.status, put.body['code']], [403, 'INSUFFICIENT_SCOPE']);
  assert.match(String(put.headers['www-authenticate']), /insufficient_scope.*scope="write"/);
  for (const path of [
    accountPath,
    `${accountPath}/balance`,
    paymentPath('p'),
    '/payment/p',
    '/batch/b',
  ]) {
    const get = await partner.call('GET', path, bearer(write));
    assert.deepEqual([get.status, get.body['code']], [403, 'INSUFFICIENT_SCOPE'], path);
  }
  // The scope is checked before the body is parsed, and nothing was created.
  const missing = await partner.call('GET', paymentPath('p'), bearer(read));
  assert.equal(missing.body['code'], 'PAYMENT_NOT_FOUND');
});

test('a client gets the scopes that it asks for, or both [SC1 OA3]', async (t) => {
  const partner = await oauthPartner(t);
  const granted = async (scope?: string) => (await askToken(partner, formOf(scope))).body['scope'];
  assert.equal(await granted(), 'read write');
  assert.equal(await granted(''), 'read write');
  assert.equal(
    await granted(' '),
    'read write',
    'a scope of spaces asks for nothing in particular',
  );
  assert.equal(await granted('write read write'), 'read write');
  assert.equal(await granted('write'), 'write');
});

test('a request without a credential, or with a garbled or unknown one, reaches no handler [S3 OA4 KT11]', async (t) => {
  const partner = await oauthPartner(t);
  const good = await tokenOf(partner);
  const headers: Record<string, string>[] = [
    {},
    { authorization: '' },
    { authorization: 'Bearer' },
    { authorization: `Bearer ${good}x` },
    { authorization: `Bearer ${good.slice(0, -1)}${good.endsWith('A') ? 'Q' : 'A'}` },
    { authorization: good },
    { authorization: `Basic ${good}` },
    { 'x-api-key': good },
    { authorization: `Bearer ${good}, Bearer ${good}` },
  ];
  for (const one of headers) {
    const answer = await partner.call('GET', accountPath, { headers: one });
    assert.deepEqual([answer.status, answer.body['code']], [401, 'UNAUTHORIZED']);
    assert.match(String(answer.headers['www-authenticate']), /^Bearer/);
    assert.doesNotMatch(answer.text, /Ada/);
  }
  const query = await partner.call('GET', `${accountPath}?access_token=${good}`, { headers: {} });
  assert.equal(query.status, 401);
  // RFC 6750 section 3.1: a caller that sent no credential is told the method, and of no error.
  const { headers: told } = await partner.call('GET', accountPath, { headers: {} });
  assert.equal(told['www-authenticate'], 'Bearer');
});

test('a token ends with the secret for which it was issued; one of the version before ends by itself [OA4 KT11 F67]', async (t) => {
  const database = await kitDatabase(t);
  const open = (...secrets: string[]) =>
    openAuthenticator({ auth: { ...client, secrets }, database, clock: manualClock() });
  const [old, next] = ['first-secret-1234', 'second-secret-123'];
  const both = open(next, old);
  const headersOf = async (secret: string): Promise<{ authorization: string }> => {
    const { access_token } = await both.issue!(formOf('read', client, secret));
    return { authorization: `Bearer ${access_token}` };
  };
  const [ofOld, ofNext] = [await headersOf(old), await headersOf(next)];
  for (const headers of [ofOld, ofNext]) await both.authenticate(headers, 'read');
  await open(next).authenticate(ofNext, 'read');
  await assert.rejects(open(next).authenticate(ofOld, 'read'), { code: 'UNAUTHORIZED' });
  await database.query('UPDATE duebridge_partner.access_token SET secret_sha256 = NULL');
  await open(next).authenticate(ofOld, 'read');
});

test('tokens and secrets are not stored in the clear, and old tokens are forgotten [OA1]', async (t) => {
  const database = await kitDatabase(t);
  const authenticator = openAuthenticator({ auth: client, database, clock: manualClock() });
  const { access_token } = await authenticator.issue!(formOf('read'));
  const stored = JSON.stringify(
    await database.query('SELECT t::text FROM duebridge_partner.access_token AS t'),
  );
  const hex = Buffer.from(access_token).toString('hex');
  for (const text of [access_token, hex, client.secrets[0]!]) assert.ok(!stored.includes(text));
  await database.query(
    `UPDATE duebridge_partner.access_token SET expires_at = expires_at - interval '2 days'`,
  );
  await authenticator.issue!(formOf('read'));
  assert.equal((await database.query('SELECT 1 FROM duebridge_partner.access_token')).length, 1);
});

test('a change of credentials does not cut the platform off from its payments [PF2 RU5 KY1 OA1]', async (t) => {
  const database = await kitDatabase(t);
  const keyed = await startKit(database, { holdMs: 600_000 });
  const put = await keyed.call('PUT', paymentPath('p'), { body: instruction() });
  await keyed.close();
  const partner = await startKit(database, { auth: client, holdMs: 600_000 });
  const headers = bearer(await tokenOf(partner));
  const again = await partner.call('PUT', paymentPath('p'), { ...headers, body: instruction() });
  assert.deepEqual([again.status, again.body], [200, put.body]);
  assert.deepEqual((await partner.call('GET', '/payment/p', headers)).body, put.body);
  assert.equal((await partner.call('GET', '/batch/batch-1', headers)).status, 200);
});

test('the whole static key is compared, in either form of header [KY1 KY2 S3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  for (const header of ['x-api-key', 'Authorization', 'X-Acme-Pay']) {
    const partner = await startKit(database, { auth: { method: 'key', header, keys: [TEST_KEY] } });
    const right = await partner.call('GET', accountPath, { headers: { [header]: TEST_KEY } });
    assert.equal(right.status, 200, header);
    const otherHeader = header === 'x-api-key' ? 'x-other-key' : 'x-api-key';
    for (const headers of [
      {},
      { [header]: `${TEST_KEY}x` },
      { [header]: TEST_KEY.slice(0, -1) },
      { [header]: TEST_KEY.toUpperCase() },
      { [header]: `Bearer ${TEST_KEY}` },
      { [header]: `ApiKey ${TEST_KEY}` },
      { [otherHeader]: TEST_KEY },
    ] as Record<string, string>[]) {
      const answer = await partner.call('GET', accountPath, { headers });
      assert.equal(answer.status, 401, JSON.stringify(headers));
      assert.ok(answer.headers['www-authenticate']);
      assert.doesNotMatch(answer.text, /Ada/);
    }
    const token = await askToken(partner, formOf('read'));
    assert.equal(token.status, 404, 'a deployment with a key has no token endpoint');
    await partner.close();
  }
});

test('a key or client that would be weak or ambiguous is refused at the start [KY2 OA1]', async (t) => {
  const database = await kitDatabase(t);
  const keyed = (header: string, ...keys: string[]): AuthOptions => ({
    method: 'key',
    header,
    keys,
  });
  const oauth = (client_id: string, ...secrets: string[]): AuthOptions => ({
    method: 'oauth',
    client_id,
    secrets,
  });
  const wrong: AuthOptions[] = [
    keyed('x-api-key', 'a key with spaces in it'),
    keyed('x-api-key', 'short'),
    keyed('x-api-key'),
    keyed('x-api-key', TEST_KEY, TEST_KEY, TEST_KEY),
    keyed('x-api-key', 'schlüssel-schlüssel'),
    keyed('x api key', TEST_KEY),
    keyed('Content-Type', TEST_KEY),
    keyed('Host', TEST_KEY),
    keyed('X-Forwarded-For', TEST_KEY),
    oauth('', ...client.secrets),
    oauth('a'),
    oauth('a', 'short'),
    oauth('a', 'x'.repeat(15)),
  ];
  for (const auth of wrong) {
    assert.throws(
      () => openAuthenticator({ auth, database, clock: manualClock() }),
      ConfigurationError,
    );
  }
  // From JavaScript, of a variable that is not set.
  const unset = undefined as unknown as string;
  for (const [auth, option] of [
    [keyed('x-api-key', unset), 'auth.keys'],
    [{ method: 'key', header: 'x-api-key', keys: unset as unknown as string[] }, 'auth.keys'],
    [oauth('a', unset), 'auth.secrets'],
  ] as const) {
    assert.throws(
      () => openAuthenticator({ auth, database, clock: manualClock() }),
      (error: Error) => error.message.endsWith(`is not set (${option})`),
    );
  }
  const shortest = keyed('x-api-key', 'x'.repeat(16));
  openAuthenticator({ auth: shortest, database, clock: manualClock() });
});

test('a client that requests a token for each call gets 429 with Retry-After, and its tokens keep working [OA2 LI1]', async (t) => {
  const partner = await oauthPartner(t);
  const ask = (): Promise<Answer> => askToken(partner, formOf('read'));
  const first = await ask();
  let limited = first;
  // Ten per second are added, so a slow machine needs more than the burst.
  for (let asked = 0; asked < 20 && limited.status === 200; asked += 1) {
    const answers = await Promise.all(Array.from({ length: 50 }, ask));
    assert.ok(answers.every(({ status }) => status === 200 || status === 429));
    limited = answers.find(({ status }) => status === 429) ?? limited;
  }
  assert.equal(limited.status, 429);
  assert.ok(Number(limited.headers['retry-after']) >= 1);
  const headers = bearer(String(first.body['access_token']));
  assert.equal((await partner.call('GET', '/payment/none', headers)).status, 404);
});

test('twenty wrong secrets, then one a second; the right one is not held up, and a client that left is refused [OA1 LI1 S3]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const open = (auth: AuthOptions) => openAuthenticator({ auth, database, clock });
  const { issue } = open(client);
  const wrong = (): Promise<string> =>
    issue!(formOf(' ', client, 'a-wrong-secret-here')).then(
      () => 'a token',
      (error: { error?: string; code?: string }) => error.error ?? error.code ?? '',
    );
  for (let tried = 0; tried < 20; tried += 1) assert.equal(await wrong(), 'invalid_client');
  assert.equal(await wrong(), 'TOO_MANY_REQUESTS');
  const { access_token } = await issue!(formOf('read'));
  await clock.advance(1_000);
  assert.deepEqual([await wrong(), await wrong()], ['invalid_client', 'TOO_MANY_REQUESTS']);
  // A client that is no longer configured is refused with its tokens that have not expired.
  const headers = { authorization: `Bearer ${access_token}` };
  const other = open({ ...client, client_id: 'other' });
  await assert.rejects(other.authenticate(headers, 'read'), { code: 'UNAUTHORIZED' });
});

test('a token ends with its time, also between two lookups [OA3 LI1]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const authenticator = openAuthenticator({ auth: client, database, clock });
  const { access_token } = await authenticator.issue!(formOf('read'));
  await database.query(
    `UPDATE duebridge_partner.access_token SET expires_at = clock_timestamp() + interval '2 seconds'`,
  );
  const headers = { authorization: `Bearer ${access_token}` };
  await authenticator.authenticate(headers, 'read');
  await clock.advance(2_000);
  await assert.rejects(authenticator.authenticate(headers, 'read'), { code: 'UNAUTHORIZED' });
});

test('invented tokens push no token out of memory that is in use [OA4 LI1]', async (t) => {
  const database = await kitDatabase(t);
  let reads = 0;
  const query: Database['query'] = (...args: Parameters<Database['query']>) => {
    reads += 1;
    return database.query(...args);
  };
  const authenticator = openAuthenticator({
    auth: client,
    database: { ...database, query },
    clock: manualClock(),
  });
  const call = (token: string) =>
    authenticator.authenticate({ authorization: `Bearer ${token}` }, 'read');
  const { access_token } = await authenticator.issue!(formOf('read'));
  await call(access_token);
  // As many as are remembered, in two halves: only so many may wait for the database.
  for (const half of ['a', 'b']) {
    const invented = Array.from(
      { length: 5_000 },
      (_, n) => `dbp_${half}${`${n}`.padStart(42, '0')}`,
    );
    await Promise.allSettled(invented.map(call));
  }
  reads = 0;
  await call(access_token);
  assert.equal(reads, 0, 'it was looked up again');
});
