import assert from 'node:assert/strict';
import { connect } from 'node:net';
import test, { after } from 'node:test';
import { ERRORS, type ErrorCode } from '@duebridge/contract';
import { startTestPartner, startTestPlatform, tokenRequest, type Answer } from './testing.ts';
import { hashSecret } from './secrets.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const biller = await platform.register(partner);
const credentials = await platform.credentials(biller.partner_id);

async function rows(table: 'tokens' | 'customers'): Promise<number> {
  const [row] = await platform.database.query<{ count: number }>(
    `SELECT count(*) FROM duebridge_platform.${table}`,
  );
  return row!.count;
}

/** A refusal in the catalogue's form, and nothing stored. */
async function assertRefused(sending: Promise<Answer>, ...codes: ErrorCode[]): Promise<Answer> {
  const before = await rows('tokens');
  const answer = await sending;
  const code = String(answer.body['code']) as ErrorCode;
  assert.ok(codes.includes(code), `${answer.status} ${answer.text}`);
  assert.equal(answer.status, ERRORS[code].status);
  assert.equal(typeof answer.body['message'], 'string');
  assert.ok(answer.headers.get('x-request-id'));
  assert.equal(await rows('tokens'), before);
  return answer;
}

test('a customer in, a token out: 200, JSON, the one field, an expiry in the header [S1 A1 A2 TK1 VE1 LI1]', async () => {
  const before = await rows('tokens');
  const answer = await platform.token(credentials);
  assert.equal(answer.status, 200);
  assert.match(answer.headers.get('content-type') ?? '', /^application\/json\b/);
  assert.equal(answer.headers.get('cache-control'), 'no-store');
  assert.deepEqual(Object.keys(answer.body), ['token']);
  assert.match(String(answer.body['token']), /^dbt_[A-Za-z0-9_-]{43}$/);
  const left = Date.parse(answer.headers.get('token-expires-at') ?? '') - Date.now();
  assert.ok(left > 28 * 60_000 && left < 32 * 60_000, `${left} ms`);
  assert.equal(await rows('tokens'), before + 1);
});

test('a 200 means that the row is stored, under a hash, with personal data encrypted [TK1 PL11]', async () => {
  const { body } = await platform.token(credentials);
  const hash = hashSecret(String(body['token']));
  const [row] = await platform.database.query(
    'SELECT * FROM duebridge_platform.tokens JOIN duebridge_platform.customers USING (customer_id) WHERE token_hash = $1',
    [hash],
  );
  assert.equal(row?.['account_id'], 'a1');
  assert.equal(row['biller_id'], 'water');
  assert.deepEqual(row['balance'], {
    amount_due_in_cents: 4_200,
    due_date: '2026-04-30',
    last_updated_at: '2026-04-01T08:00',
  });
  assert.ok(!/canary/i.test(JSON.stringify(row)));
  const tables = await platform.database.query<{ line: string }>(
    `SELECT tokens::text AS line FROM duebridge_platform.tokens UNION ALL SELECT customers::text FROM duebridge_platform.customers`,
  );
  for (const { line } of tables) {
    assert.ok(!line.includes(String(body['token'])));
    assert.ok(!/canary/i.test(line));
  }
});

test('nothing optional is demanded: no balance, no identifiers, no second address line [TR1 TR2 TR3 TR4]', async () => {
  const { balance: _balance, external_identifiers: _ids, ...least } = tokenRequest();
  assert.equal((await platform.token(credentials, least)).status, 200);
  assert.equal((await platform.token(credentials, { ...least, balance: {} })).status, 200);
  const unknown = { ...least, loyalty_number: '7', balance: { currency: 'USD' } };
  assert.equal((await platform.token(credentials, unknown)).status, 200);
});

test('any required field that is missing is named, and nothing is stored [TR1 TR2 TR4]', async () => {
  for (const path of [
    'first_name',
    'last_name',
    'email',
    'phone_number',
    'address',
    'address.address_line_1',
    'address.city',
    'address.state',
    'address.zip',
    'external_identifiers.account_id',
  ]) {
    const body = structuredClone(tokenRequest());
    const [field = '', inner] = path.split('.');
    if (inner === undefined) delete body[field];
    else delete (body[field] as Record<string, unknown>)[inner];
    const { body: error } = await assertRefused(
      platform.token(credentials, body),
      'INVALID_REQUEST',
    );
    const details = error['details'] as { path: string }[];
    assert.ok(
      details.some((detail) => detail.path === `body.${path}`),
      `${path}: ${JSON.stringify(details)}`,
    );
  }
});

test('no invalid value is coerced into a valid one [TR1 TR2 TR3 S5]', async () => {
  const whole = tokenRequest();
  const address = whole['address'] as object;
  for (const body of [
    { ...whole, address: { ...address, state: 'Texas' } },
    { ...whole, address: { ...address, state: 'T1' } },
    { ...whole, balance: { amount_due_in_cents: 12.5 } },
    { ...whole, balance: { amount_due_in_cents: '1250' } },
    { ...whole, balance: { amount_due_in_cents: null } },
    { ...whole, balance: { due_date: '2026-13-01' } },
    { ...whole, balance: { due_date: '2026-02-30' } },
    { ...whole, balance: { last_updated_at: 'yesterday' } },
    { ...whole, first_name: '' },
    { ...whole, first_name: 7 },
    { ...whole, last_name: 'x'.repeat(257) },
    { ...whole, email: 'nobody' },
    { ...whole, external_identifiers: { account_id: 'a\u0000' } },
    { ...whole, external_identifiers: { account_id: '' } },
    [whole],
    null,
    'text',
  ]) {
    await assertRefused(platform.token(credentials, body), 'INVALID_REQUEST');
  }
});

test('a body that is not strict JSON is refused as such [A1]', async () => {
  const text = JSON.stringify(tokenRequest());
  const post = (raw: string, headers: Record<string, string> = {}): Promise<Answer> =>
    platform.call('POST', '/v1/sbi/token', { raw, headers: { ...credentials, ...headers } });
  for (const raw of ['', '{', `${text}x`, text.replace('"zip"', '"zip":"1","zip"'), '\uFEFF{}']) {
    await assertRefused(post(raw), 'INVALID_REQUEST');
  }
  await assertRefused(post(text.replace('4200', '4200.0')), 'INVALID_REQUEST');
  await assertRefused(post(text.replace('4200', '1e3')), 'INVALID_REQUEST');
  await assertRefused(post(text, { 'content-type': 'text/plain' }), 'UNSUPPORTED_MEDIA_TYPE');
  await assertRefused(post(text, { 'content-encoding': 'gzip' }), 'UNSUPPORTED_MEDIA_TYPE');
});

test('a body of a mebibyte is cut off, and a wrong method gets the right one in Allow [LI1 A1 F96]', async () => {
  const big = { ...tokenRequest(), notes: 'x'.repeat(1024 * 1024) };
  await assertRefused(platform.token(credentials, big), 'PAYLOAD_TOO_LARGE');
  const get = await platform.call('GET', '/v1/sbi/token', { headers: credentials });
  assert.equal(get.status, 405);
  assert.equal(get.headers.get('allow'), 'POST');
});

test('a caller that sends its body very slowly delays nobody else [LI1 F102]', async () => {
  const { port } = new URL(platform.url);
  const slow = connect(Number(port), '127.0.0.1');
  await new Promise((resolve) => {
    slow.once('connect', resolve);
  });
  slow.write(
    `POST /v1/sbi/token HTTP/1.1\r\nHost: x\r\nX-Client-Id: ${credentials['x-client-id']}\r\n` +
      `X-Api-Key: ${credentials['x-api-key']}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"fi`,
  );
  const before = await rows('tokens');
  assert.equal((await platform.token(credentials)).status, 200);
  slow.destroy();
  assert.equal(await rows('tokens'), before + 1);
});

test('an unknown client is 404 in the words of the interface, a wrong or missing credential 401 [ER1 AU1]', async () => {
  const unknown = { ...credentials, 'x-client-id': `dbc_${'f'.repeat(32)}` };
  const answer = await assertRefused(platform.token(unknown), 'NOT_FOUND');
  assert.deepEqual(answer.body, { code: 'NOT_FOUND', message: 'Resource not found' });
  assert.equal(answer.headers.get('duebridge-not-found'), 'client');
  const live = { ...unknown, 'x-api-key': 'dbk_live_unknown' };
  const hidden = await assertRefused(platform.token(live), 'NOT_FOUND');
  assert.equal(hidden.headers.get('duebridge-not-found'), null, 'in test mode alone');
  for (const wrong of [
    { ...credentials, 'x-api-key': 'dbk_wrong' },
    { 'x-client-id': credentials['x-client-id']! },
    { 'x-api-key': credentials['x-api-key']! },
    {},
  ]) {
    await assertRefused(platform.token(wrong), 'UNAUTHORIZED');
  }
});

test('an unauthenticated caller is refused before its body is read [AU1]', async () => {
  const answer = platform.call('POST', '/v1/sbi/token', { raw: '{', headers: {} });
  await assertRefused(answer, 'UNAUTHORIZED');
});

test('an account unknown to its biller is 404; a silent biller costs two seconds, and the token is still issued [ER1 TR4]', async () => {
  const answer = await assertRefused(
    platform.token(credentials, tokenRequest('nobody')),
    'NOT_FOUND',
  );
  assert.deepEqual(answer.body, { code: 'NOT_FOUND', message: 'Resource not found' });
  assert.equal(answer.headers.get('duebridge-not-found'), 'account');
  partner.mode = 'broken';
  assert.equal((await platform.token(credentials)).status, 200);
  partner.mode = 'silent';
  const start = performance.now();
  assert.equal((await platform.token(credentials)).status, 200);
  const took = performance.now() - start;
  assert.ok(took > 1_900 && took < 8_000, `${took} ms`);
  partner.mode = 'ok';
});

test('with account checks required no token is issued unchecked, and with checks off the biller is not asked [TR4]', async () => {
  const required = await platform.register(partner, { account_check: 'required' });
  const off = await platform.register(partner, { account_check: 'off' });
  const ofRequired = await platform.credentials(required.partner_id);
  const ofOff = await platform.credentials(off.partner_id);
  partner.mode = 'broken';
  const answer = await assertRefused(platform.token(ofRequired), 'SERVICE_UNAVAILABLE');
  assert.ok(Number(answer.headers.get('retry-after')) >= 1);
  partner.mode = 'ok';
  assert.equal((await platform.token(ofRequired)).status, 200);
  partner.asked.length = 0;
  assert.equal((await platform.token(ofOff, tokenRequest('nobody'))).status, 200);
  assert.deepEqual(partner.asked, []);
});

test('an aggregator names the biller, a plain biller need not and cannot name another [TR4]', async () => {
  const aggregator = await platform.register(partner, { kind: 'aggregator' });
  const ofAggregator = await platform.credentials(aggregator.partner_id);
  const named = (biller_id: string): object => ({
    ...tokenRequest(),
    external_identifiers: { biller_id, account_id: 'a1' },
  });
  await assertRefused(platform.token(ofAggregator), 'INVALID_REQUEST');
  assert.equal((await platform.token(ofAggregator, named('gas'))).status, 200);
  assert.ok(partner.asked.includes('GET /biller/gas/account/a1'));
  assert.equal((await platform.token(credentials, named('water'))).status, 200);
  await assertRefused(platform.token(credentials, named('gas')), 'INVALID_REQUEST');
});

test('a client that asks too often is told when to come back; its neighbour is not slowed [LI1]', async (t) => {
  const strict = await startTestPlatform(t, { clientRate: { perSecond: 1, burst: 3 } });
  const one = await strict.register(partner, { account_check: 'off' });
  const [busy, calm] = [
    await strict.credentials(one.partner_id),
    await strict.credentials(one.partner_id),
  ];
  const answers = await Promise.all(Array.from({ length: 20 }, () => strict.token(busy)));
  const refused = answers.filter((answer) => answer.status === 429);
  assert.ok(refused.length >= 10, `${refused.length} of 20 refused`);
  assert.ok(answers.every((answer) => answer.status === 200 || answer.status === 429));
  for (const answer of refused) {
    assert.equal(answer.body['code'], 'TOO_MANY_REQUESTS');
    assert.ok(Number(answer.headers.get('retry-after')) >= 1);
  }
  assert.equal((await strict.token(calm)).status, 200);
});

test('a flood from one address is stopped before anything else is checked [LI1]', async (t) => {
  const strict = await startTestPlatform(t, { ipRate: { perSecond: 1, burst: 5 } });
  const answers = await Promise.all(
    Array.from({ length: 15 }, () => strict.token({ 'x-client-id': 'x', 'x-api-key': 'y' })),
  );
  assert.ok(answers.some((answer) => answer.status === 404));
  assert.ok(answers.filter((answer) => answer.status === 429).length >= 5);
});

test('a thousand equal requests get a thousand different tokens, none of which contains customer data [TK1]', async () => {
  const before = await rows('tokens');
  const answers: Awaited<ReturnType<typeof platform.token>>[] = [];
  // In waves: a thousand connections at once are as many as one address may have.
  for (let wave = 0; wave < 5; wave += 1) {
    const some = Array.from({ length: 200 }, () => platform.token(credentials));
    answers.push(...(await Promise.all(some)));
  }
  const tokens = answers.map((answer) => String(answer.body['token']));
  assert.ok(answers.every((answer) => answer.status === 200));
  assert.equal(new Set(tokens).size, 1_000);
  assert.equal(await rows('tokens'), before + 1_000);
});

test('no other site can read an answer in a browser: no permissive CORS on any answer [AU1]', async () => {
  for (const origin of ['https://water.example', 'https://evil.example']) {
    const answer = await platform.call('POST', '/v1/sbi/token', {
      headers: { ...credentials, origin },
      body: tokenRequest(),
    });
    assert.equal(answer.headers.get('access-control-allow-origin'), null);
    const preflight = await platform.call('OPTIONS', '/v1/sbi/token', { headers: { origin } });
    assert.equal(preflight.headers.get('access-control-allow-origin'), null);
    assert.ok(preflight.status >= 400);
  }
});

test('an internal error is 500 INTERNAL_ERROR with the interface’s message and nothing else [ER2]', async (t) => {
  const broken = await startTestPlatform(t);
  const one = await broken.register(partner, { account_check: 'off' });
  const ofOne = await broken.credentials(one.partner_id);
  await broken.database.query(
    'ALTER TABLE duebridge_platform.tokens RENAME COLUMN client_id TO lost',
  );
  const answer = await broken.token(ofOne);
  assert.equal(answer.status, 500);
  assert.deepEqual(answer.body, {
    code: 'INTERNAL_ERROR',
    message: 'An unexpected error occurred',
  });
  assert.ok(broken.logged.some((line) => line.includes('a bug')));
});

test('without a database the answer is 503 with Retry-After, never a token that is not stored', async (t) => {
  const cut = await startTestPlatform(t);
  const one = await cut.register(partner, { account_check: 'off' });
  const ofOne = await cut.credentials(one.partner_id);
  assert.equal((await cut.token(ofOne)).status, 200);
  await cut.database.query(
    'ALTER TABLE duebridge_platform.tokens ADD CONSTRAINT none CHECK (false) NOT VALID',
  );
  assert.equal((await cut.token(ofOne)).status, 500);
  await cut.database.query('ALTER TABLE duebridge_platform.tokens DROP CONSTRAINT none');
  // What every session from now on gets: a server that went read-only under us.
  const [{ name }] = (await cut.database.query('SELECT current_database() AS name')) as [
    { name: string },
  ];
  await cut.database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  await cut.database.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = $1 AND application_name = 'duebridge platform'`,
    [name],
  );
  const refused = await cut.token(ofOne);
  assert.equal(refused.status, 503, refused.text);
  assert.equal(refused.body['code'], 'SERVICE_UNAVAILABLE');
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  await cut.database.query(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  await cut.database.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = $1 AND application_name = 'duebridge platform'`,
    [name],
  );
  const later = await cut.token(ofOne);
  assert.ok([200, 503].includes(later.status), later.text);
});

test('no log line contains a name, address, key or token [S1]', async () => {
  const made = await platform.token(credentials);
  await platform.token(credentials, { ...tokenRequest(), email: 'broken canary' });
  await platform.token({ ...credentials, 'x-api-key': 'canary-key' });
  assert.ok(platform.logged.length > 0);
  for (const secret of [
    'canary',
    'Canary',
    String(made.body['token']),
    credentials['x-api-key']!,
    platform.adminKey,
  ]) {
    assert.deepEqual(
      platform.logged.filter((line) => line.includes(secret)),
      [],
      `${secret} was logged`,
    );
  }
});
