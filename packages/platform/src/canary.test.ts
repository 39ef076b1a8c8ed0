/**
 * Secrets and personal data are planted at every entrance of a platform, and every place that something can come out of is searched
 * (PL15): the log at its most talkative, the figures, each answer with its headers, each row of each table.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import test, { type TestContext } from 'node:test';
import { platformAdminRoutes } from '@duebridge/contract';
import { served } from '@duebridge/runtime/testing';
import {
  bearer,
  startTestPartner,
  startTestPlatform,
  tokenRequest,
  type Answer,
} from './checkout/testing.ts';

/** Every secret and every personal word planted here holds it, in whatever case, and nothing else does. */
const canary = /canary/i;
/** Stands in a failure reason: that is for the customer's eyes and an operator's, and for no log. */
const reason = 'The account of Josephine Plantedname is closed.';

/** A partner that says in every corner of its answers what it was told, and what nobody should be. */
async function startTellTale(
  t: TestContext,
): Promise<{ url: string; heard: string[]; gives: 'tokens' | 'no tokens' }> {
  const self = { url: '', heard: [] as string[], gives: 'no tokens' as 'tokens' | 'no tokens' };
  const server = createServer((request, response) => {
    let told = `${request.url} ${request.headers.authorization}`;
    request.on('data', (chunk) => (told += ` ${String(chunk)}`));
    request.on('end', () => {
      self.heard.push(told);
      response.setHeader('content-type', 'application/json');
      response.setHeader('retry-after', 'canary');
      response.setHeader('location', 'https://canary.example/');
      if (request.url === '/token' && self.gives === 'tokens') {
        response.end('{"access_token":"canary-access","token_type":"Bearer","expires_in":60}');
        return;
      }
      response.statusCode = request.url === '/token' ? 400 : 502;
      response.end(JSON.stringify({ code: 'CANARY', message: `canary ${told}` }));
    });
  });
  self.url = await served(t, server);
  return self;
}

test('secrets and personal data planted in every input leave through no output [PL15]', async (t) => {
  const partner = await startTestPartner(t);
  const tellTale = await startTellTale(t);
  const adminKey = 'canary-admin-key-of-many-characters';
  const platform = await startTestPlatform(t, { adminKey });
  const answers: Answer[] = [];
  const expect = async (status: number, asked: Promise<Answer>): Promise<Answer> => {
    const answer = await asked;
    assert.equal(answer.status, status, answer.text);
    answers.push(answer);
    return answer;
  };

  // Registrations: taken, refused for whatever reason.
  const { partner_id } = await platform.register(partner);
  const oauth = {
    method: 'oauth',
    token_url: `${tellTale.url}/token`,
    client_id: 'platform',
    client_secret: 'canary-client-secret',
  } as const;
  const talking = await platform.register(partner, { base_url: tellTale.url, auth: oauth });
  const registration = {
    partner_id,
    name: 'Acme',
    kind: 'biller',
    biller_id: 'acme',
    base_url: partner.url,
    origins: [],
  };
  const partners = '/admin/v1/partners';
  for (const auth of [
    { method: 'key', header: 'x-api-key', key: 'canary with spaces' },
    { method: 'key', header: 'host', key: 'canary' },
    { method: 'key', header: 'x-api-key', key: ['canary'] },
    { ...oauth, token_url: 'https://canary:canary@a.example/' },
    { method: 'basic', password: 'canary' },
  ]) {
    await expect(400, platform.admin('POST', partners, { ...registration, auth }));
  }
  await expect(409, platform.admin('POST', partners, { ...registration, auth: oauth }));

  // Tokens: refused for each field and each header, and while the database takes none.
  const credentials = await platform.credentials(partner_id);
  const request = tokenRequest();
  for (const field of Object.keys(request)) {
    await expect(400, platform.token(credentials, { ...request, [field]: ['canary'] }));
    await expect(400, platform.token(credentials, { ...request, [field]: 'canary\0' }));
  }
  await expect(401, platform.token({ ...credentials, 'x-api-key': 'dbk_canary' }));
  await expect(404, platform.token({ ...credentials, 'x-client-id': 'dbc_canary' }));
  for (const raw of ['{"email":"canary', '{"canary":1,"canary":2}', '{"__proto__":"canary"}']) {
    const sending = { headers: credentials, raw };
    await expect(400, platform.call('POST', '/v1/sbi/token', sending));
  }
  for (const [spoil, repair] of [
    [
      'ALTER TABLE duebridge_platform.customers RENAME TO elsewhere',
      'ALTER TABLE duebridge_platform.elsewhere RENAME TO customers',
    ],
    [
      `ALTER TABLE duebridge_platform.customers ADD CONSTRAINT spoilt CHECK (sealed = '') NOT VALID`,
      'ALTER TABLE duebridge_platform.customers DROP CONSTRAINT spoilt',
    ],
  ] as const) {
    await platform.database.query(spoil);
    await expect(500, platform.token(credentials));
    await platform.database.query(repair);
  }

  // A partner that cannot be read: without an access token, and with one, which new credentials bring.
  const ofTalking = await platform.credentials(talking.partner_id);
  await platform.token(ofTalking);
  tellTale.gives = 'tokens';
  const anew = { auth: { ...oauth, client_secret: 'canary-rotated-secret' } };
  await expect(200, platform.admin('PATCH', `${partners}/${talking.partner_id}`, anew));
  const unread = await platform.session(ofTalking, 'a1');
  await expect(503, platform.call('GET', '/v1/flow/session', { headers: bearer(unread.session) }));

  // The flow: secrets that are none, in places where none belongs, and a payment to its end.
  const payments = '/v1/flow/payments';
  for (const path of ['/v1/flow/session', `${payments}/canary`]) {
    await expect(401, platform.call('GET', path, { headers: bearer('dbs_canary') }));
  }
  await expect(404, platform.call('GET', '/nowhere/canary?token=canary'));
  const origin = { origin: 'https://canary.example' };
  const asStranger = { headers: bearer('dbt_canary'), body: origin };
  await expect(401, platform.call('POST', '/v1/flow/session', asStranger));
  partner.endings.set('a2', { status: 'failed', posted_at: null, failure_reason: reason });
  const grant = await platform.session(credentials, 'a2');
  const elsewhere = { headers: bearer(grant.token), body: origin };
  await expect(403, platform.call('POST', '/v1/flow/session', elsewhere));
  const card = { funding_method: 'canary-4111111111111111' };
  await expect(400, platform.confirm(grant.session, card));
  const made = await expect(200, platform.confirm(grant.session));
  const id = String(made.body['platform_payment_id']);
  const ended = await platform.ended(grant.session, id);
  assert.equal(ended.failure_reason, reason, 'the customer is told why');

  // Everything that an operator can read.
  for (const { method, path } of Object.values(platformAdminRoutes)) {
    const filled = path
      .replace('{partner_id}', talking.partner_id)
      .replace('{platform_payment_id}', id);
    if (method !== 'GET' || filled.includes('{')) continue;
    await expect(200, platform.admin('GET', filled));
  }
  const figures = await expect(200, platform.admin('GET', '/metrics'));
  const audit = await expect(200, platform.admin('GET', '/admin/v1/audit'));

  const tables = await platform.database.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'duebridge_platform'`,
  );
  const rows: string[] = [];
  for (const { name } of tables) {
    const found = await platform.database.query<{ row: string }>(
      `SELECT $1 || ' ' || to_jsonb(kept)::text AS row FROM duebridge_platform."${name}" kept`,
      [name],
    );
    rows.push(...found.map(({ row }) => row));
  }
  // What was searched is not nothing.
  assert.ok(tellTale.heard.some((line) => line.includes('canary-rotated-secret')));
  assert.ok(tellTale.heard.some((line) => line.includes('Bearer canary-access')));
  for (const table of ['customers', 'tokens', 'sessions', 'partners', 'payments', 'audit']) {
    assert.ok(
      rows.some((row) => row.startsWith(`${table} `)),
      table,
    );
  }
  assert.ok(platform.logged.some((line) => line.includes('a bug')));

  const secrets = [
    grant.token,
    grant.session,
    unread.token,
    unread.session,
    String(credentials['x-api-key']),
    String(ofTalking['x-api-key']),
    'partner-key-',
  ];
  const outlets = [
    ...platform.logged,
    ...rows,
    ...answers.flatMap((answer) => [answer.text, JSON.stringify([...answer.headers])]),
  ];
  for (const outlet of outlets) {
    assert.doesNotMatch(outlet, canary);
    for (const secret of secrets) assert.ok(!outlet.includes(secret), outlet);
  }
  for (const outlet of [...platform.logged, figures.text, audit.text]) {
    assert.doesNotMatch(outlet, /plantedname/i);
  }
});
