import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { ERRORS, type ErrorCode } from '@duebridge/contract';
import { assertInTime, testInRealTime } from '@duebridge/runtime/testing';
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

/** So seldom that none is admitted meanwhile, however long the test takes. */
const SELDOM = 0.001;

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

testInRealTime(
  'an account unknown to its biller is 404; a silent biller costs two seconds, and the token is still issued [ER1 TR4]',
  async () => {
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
    assert.ok(took > 1_900, `${took} ms`);
    assertInTime(took < 8_000, `${took} ms`);
    partner.mode = 'ok';
  },
);

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
  const strict = await startTestPlatform(t, { clientRate: { perSecond: SELDOM, burst: 3 } });
  const one = await strict.register(partner);
  const busy = await strict.credentials(one.partner_id);
  const calm = await strict.credentials(one.partner_id);
  const answers = await Promise.all(Array.from({ length: 20 }, () => strict.token(busy)));
  const refused = answers.filter((answer) => answer.status === 429);
  assert.equal(refused.length, 17);
  assert.ok(answers.every((answer) => answer.status === 200 || answer.status === 429));
  for (const answer of refused) {
    assert.equal(answer.body['code'], 'TOO_MANY_REQUESTS');
    assert.ok(Number(answer.headers.get('retry-after')) >= 1);
  }
  assert.equal((await strict.token(calm)).status, 200);
});

test('a flood from one address is stopped before anything else is checked [LI1]', async (t) => {
  const strict = await startTestPlatform(t, { ipRate: { perSecond: SELDOM, burst: 5 } });
  const answers = await Promise.all(
    Array.from({ length: 15 }, () => strict.token({ 'x-client-id': 'x', 'x-api-key': 'y' })),
  );
  const count = (wanted: number): number =>
    answers.filter(({ status }) => status === wanted).length;
  assert.deepEqual([count(404), count(429)], [5, 10]);
});

test('an internal error is 500 and no database 503 with Retry-After: never a token that is not stored [ER2]', async (t) => {
  const cut = await startTestPlatform(t);
  const one = await cut.register(partner);
  const ofOne = await cut.credentials(one.partner_id);
  assert.equal((await cut.token(ofOne)).status, 200);
  await cut.database.query(
    'ALTER TABLE duebridge_platform.tokens ADD CONSTRAINT none CHECK (false) NOT VALID',
  );
  const broken = await cut.token(ofOne);
  assert.equal(broken.status, 500);
  assert.deepEqual(broken.body, {
    code: 'INTERNAL_ERROR',
    message: 'An unexpected error occurred',
  });
  assert.ok(cut.logged.some((line) => line.includes('a bug')));
  await cut.database.query('ALTER TABLE duebridge_platform.tokens DROP CONSTRAINT none');
  // What every session from now on gets: a server that went read-only under us.
  const [{ name }] = (await cut.database.query('SELECT current_database() AS name')) as [
    { name: string },
  ];
  await cut.database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  const endSessions = (): Promise<unknown> =>
    cut.database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = $1 AND application_name = 'duebridge platform'`,
      [name],
    );
  await endSessions();
  const refused = await cut.token(ofOne);
  assert.equal(refused.status, 503, refused.text);
  assert.equal(refused.body['code'], 'SERVICE_UNAVAILABLE');
  assert.ok(Number(refused.headers.get('retry-after')) >= 1);
  await cut.database.query(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  await endSessions();
  const later = await cut.token(ofOne);
  assert.ok([200, 503].includes(later.status), later.text);
});
