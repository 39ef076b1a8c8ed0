/** What a partner is told about its own calls: each answer counted with its cause, and nothing of a customer. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { Refusal, type PartnerCallAnswer } from '@duebridge/contract';
import { silentLog, systemClock } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { openAnswers } from './answers.ts';
import { startTestPartner, startTestPlatform, tokenRequest } from './testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const { partner_id } = await platform.register(partner);
const credentials = await platform.credentials(partner_id);

const answers = async (): Promise<PartnerCallAnswer[]> =>
  (
    (await platform.admin('GET', `/admin/v1/partners/${partner_id}/answers`)).body as unknown as {
      answers: PartnerCallAnswer[];
    }
  ).answers;

test('each answer of Create Token is counted with its code and cause, and names its last request', async () => {
  const wrongKey = { ...credentials, 'x-api-key': `dbk_live_${'x'.repeat(43)}` };
  const sent = [
    await platform.token(credentials),
    await platform.token(credentials),
    await platform.token(credentials, tokenRequest('no-such-account')),
    await platform.token(credentials, { ...tokenRequest(), email: 7 }),
    await platform.token(wrongKey),
    // A client that was never issued belongs to no partner.
    await platform.token({ ...credentials, 'x-client-id': `dbc_${'0'.repeat(32)}` }),
  ];
  assert.deepEqual(
    sent.map(({ status }) => status),
    [200, 200, 404, 400, 401, 404],
  );
  await until('all are counted', async () => (await answers()).length === 4);
  const listed = new Map((await answers()).map((one) => [one.status, one]));
  assert.deepEqual(
    [200, 404, 400, 401].map((status) => {
      const { count, code, cause } = listed.get(status) ?? {};
      return [status, count, code, cause];
    }),
    [
      [200, 2, '', ''],
      [404, 1, 'NOT_FOUND', 'Get Account says that the account does not exist.'],
      [400, 1, 'INVALID_REQUEST', 'body.email must be string'],
      [401, 1, 'UNAUTHORIZED', 'X-Api-Key is missing, wrong, expired or revoked.'],
    ],
  );
  assert.equal(listed.get(404)?.request_id, sent[2]?.headers.get('x-request-id'));
  assert.equal(listed.get(404)?.client_id, credentials['x-client-id']);
  const [ofOther] = [await platform.admin('GET', '/admin/v1/partners/nobody/answers')];
  assert.equal(ofOther?.status, 404);
});

test('answers of many kinds cost bounded memory, and a cause keeps no customer', async () => {
  const written: unknown[][] = [];
  const database = {
    query: (_statement: unknown, values: unknown[]) => {
      written.push(values);
      return Promise.resolve([]);
    },
  } as unknown as Parameters<typeof openAnswers>[0]['database'];
  const counted = openAnswers({ database, clock: systemClock, log: silentLog });
  const refusal = new Refusal('INVALID_REQUEST', {
    details: [{ path: 'body.jo@example.com', problem: 'is not known' }],
  });
  const noteOf = (client_id: string, isVerified: boolean): void =>
    counted.note({ client_id, isVerified, status: 400, request_id: 'r', refusal });
  for (let client = 0; client < 5_000; client += 1) noteOf(`stranger${client}`, false);
  for (let client = 0; client < 5_000; client += 1) noteOf(`c${client}`, true);
  await counted.flush();
  await counted.flush();
  assert.equal(written.length, 1);
  assert.doesNotMatch(JSON.stringify(written), /jo@|c900\b|stranger100\b/);
  assert.match(JSON.stringify(written), /c899\b/, 'strangers leave room for our clients');
});
