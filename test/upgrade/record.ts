/**
 * Records what a version leaves in its tables while it works, for the versions after it: payments of every kind in flight, on both
 * sides. upgrade.full.test.ts lets the present version continue from each recording.
 *
 *   node test/upgrade/record.ts test/upgrade/0.1.0.json
 *
 * Run it at each release, and keep the file. It holds rows alone: the tables are made by the migrations that the version had, which
 * never change. All names and secrets are invented.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { FlowSessionGrant, PaymentDetail } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { BothSides } from '../support/both-sides.ts';
import { call, createToken, openSession, type Client } from '../support/customer.ts';
import { PARTNER_KEY, SECRETS, type Recording, type Side } from './recording.ts';

const [, , file] = process.argv;
if (file === undefined) throw new Error('say which file to write: test/upgrade/VERSION.json');

const HOUR_MS = 3_600_000;
const auth = { method: 'key', header: 'x-api-key', keys: [PARTNER_KEY] } as const;
const both = new BothSides();
const { platform, books, admin, register } = await both.platform(SECRETS);
const prompt = await both.partner({
  auth,
  billers: [{ biller_id: 'gas', duplicate_window_seconds: 3_600 }],
});
const holding = await both.partner({ auth, holdMs: HOUR_MS });
const accounts = (biller: string): string =>
  `biller_id,account_id,amount_due\n${[1, 2, 3, 4].map((n) => `${biller},A-${n},100.00\n`).join('')}`;
await prompt.importAccounts(accounts('gas'));
await holding.importAccounts(accounts('water'));
/** Knows every account, and takes no payment: below /coal it is unavailable, below /oil it refuses. */
const refusing = createServer((request, response) => {
  request.resume();
  const { method, url = '' } = request;
  const account = /account\/([^/]+)$/.exec(url);
  const [status, body] = account
    ? [200, { biller_id: url.split('/')[3], account_id: account[1], status: 'active' }]
    : url.startsWith('/coal')
      ? [503, { code: 'UNAVAILABLE', message: 'later' }]
      : method === 'PUT'
        ? [400, { code: 'INVALID_REQUEST', message: 'no' }]
        : [404, { code: 'PAYMENT_NOT_FOUND', message: 'no' }];
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}).listen(0, '127.0.0.1');
await once(refusing, 'listening');
const bases = {
  gas: prompt.server.url,
  water: holding.server.url,
  coal: `http://127.0.0.1:${(refusing.address() as AddressInfo).port}/coal`,
  oil: `http://127.0.0.1:${(refusing.address() as AddressInfo).port}/oil`,
};
const clients = new Map<string, Client>();
for (const [partner_id, base_url] of Object.entries(bases)) {
  const registration = {
    partner_id,
    name: partner_id,
    kind: 'biller',
    biller_id: partner_id,
  } as const;
  const theirs = { method: 'key', header: 'x-api-key', key: PARTNER_KEY } as const;
  clients.set(partner_id, await register({ ...registration, base_url, auth: theirs }));
}
const clientOf = (partner: string): Client => {
  const client = clients.get(partner);
  assert(client !== undefined);
  return client;
};

async function pay(partner: string, account_id: string, stage: string): Promise<string> {
  const { body } = await createToken(clientOf(partner), { account_id });
  const browser = await openSession(platform.url, body.token);
  const id = (await browser.confirm(2_500)).body.platform_payment_id;
  return until(`${partner} ${account_id} is ${stage}`, async () => {
    const { payment } = await admin<PaymentDetail>('GET', `/payments/${id}`);
    return payment.stage === stage && id;
  });
}

const payments = {
  succeeded: await pay('gas', 'A-1', 'ended'),
  // The same amount on the same account again, which its biller takes for a duplicate.
  failed: await pay('gas', 'A-1', 'ended'),
  processing: [await pay('water', 'A-1', 'accepted'), await pay('water', 'A-2', 'accepted')],
  unknown: await pay('coal', 'A-1', 'dispatching'),
  review: await pay('oil', 'A-1', 'review'),
};
const { token } = (await createToken(clientOf('gas'), { account_id: 'A-3' })).body;
const opened = (await createToken(clientOf('gas'), { account_id: 'A-2' })).body.token;
const { body: grant } = await call<FlowSessionGrant>(
  'POST',
  `${platform.url}/v1/flow/session`,
  { authorization: `Bearer ${opened}` },
  {},
);

async function rowsOf(schema: string, database: Database): Promise<Side> {
  const applied = await database.query<{ name: string }>(
    `SELECT name FROM ${schema}.migrations ORDER BY name`,
  );
  const tables = await database.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class
      WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname NOT IN ('migrations', 'slots', 'audit_seals') ORDER BY 1`,
    [schema],
  );
  const rows: Record<string, unknown[]> = {};
  for (const { name } of tables) {
    const [all] = await database.query<{ rows: unknown[] | null }>(
      `SELECT json_agg(row_to_json(t)) AS rows FROM ${schema}.${name} t`,
    );
    if (all?.rows) rows[name] = all.rows;
  }
  return { migrations: applied.map(({ name }) => name), rows };
}

const [now] = await books.query<{ at: string }>(`SELECT to_json(now()) #>> '{}' AS at`);
const recording: Recording = {
  recorded_at: now?.at ?? '',
  payments,
  client: { client_id: clientOf('gas').client_id, api_key: clientOf('gas').api_key },
  token,
  session: grant.session,
  platform: await rowsOf('duebridge_platform', books),
  gas: await rowsOf('duebridge_partner', prompt.books),
  water: await rowsOf('duebridge_partner', holding.books),
};
writeFileSync(file, `${JSON.stringify(recording, undefined, 1)}\n`);
refusing.close();
await both.stop();
