/**
 * A working day for the operator console: a platform over real PostgreSQL, a partner that pays, refuses and reports as it is told,
 * payments of each kind, three operators, and one of the partner. For the tests and for the pictures.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { OperatorKeyGrant } from '@duebridge/contract';
import type { Cleanup } from '@duebridge/runtime/testing';
import { until } from '@duebridge/runtime/testing';
import {
  startTestPlatform,
  type TestPlatform,
} from '../../packages/platform/src/checkout/testing.ts';
import { listen } from '../support/listening.ts';

/** The partner's answers, by account: `pays` settles, `refuses` answers 422 to every PUT, `misbooks`
 * books a cent more, anything else stays in processing. */
async function startPartner(cleanup: Cleanup): Promise<string> {
  const payments = new Map<string, Record<string, unknown>>();
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => (text += String(chunk)));
    request.on('end', () => {
      const answer = (status: number, body: object): void => {
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(body));
      };
      const [, , biller_id, , account_id = '', rest, id = ''] = (request.url ?? '').split('/');
      if (rest === undefined) {
        if (!account_id.startsWith('duebridge-test'))
          return answer(200, { biller_id, account_id, status: 'active' });
        return answer(404, { code: 'ACCOUNT_NOT_FOUND', message: 'no' });
      }
      if (request.method === 'PUT' && account_id.startsWith('refuses')) {
        const message = 'This account takes no payments online.';
        return answer(422, { code: 'ACCOUNT_LOCKED', message });
      }
      if (request.method === 'PUT' && !payments.has(id)) {
        const pays = account_id.startsWith('pays');
        const order = JSON.parse(text) as { amount_in_cents: number };
        if (account_id.startsWith('misbooks')) order.amount_in_cents += 1;
        const now = new Date().toISOString();
        payments.set(id, {
          payment_id: `there-${id}`,
          platform_payment_id: id,
          biller_id,
          account_id,
          ...order,
          customer: 'Josephine Quimby',
          status: pays ? 'succeeded' : 'processing',
          initiated_at: now,
          posted_at: pays ? now : null,
        });
      }
      const payment = payments.get(id);
      if (payment === undefined) answer(404, { code: 'PAYMENT_NOT_FOUND', message: 'no' });
      else answer(200, payment);
    });
  });
  const port = await listen(server);
  cleanup.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return `http://127.0.0.1:${port}`;
}

/** What `partner report` sends of a run in which one check failed and one could not be judged. */
export const CONFORMANCE_REPORT = {
  base_url: 'https://pay.springfield-water.example',
  profile: 'contract',
  started_at: '2026-03-21T10:00:00.000Z',
  kit_version: '0.1.0',
  verdict: 'failed',
  passed: 33,
  others: [
    {
      check: 'P25',
      verdict: 'failed',
      title: 'The same PUT again is answered with the payment as it is',
      why: 'A PUT that comes again creates nothing and is answered 200.',
    },
    {
      check: 'P53',
      verdict: 'not_judged',
      title: 'A canceled payment stays canceled',
      why: 'the target declares no way to cancel',
    },
  ],
};

/** What the pages are tried on. */
export interface WorkingDay {
  readonly platform: TestPlatform;
  readonly keys: Readonly<Record<'ada' | 'bob' | 'vic' | 'wen', string>>;
  /** The partner's own, for Create Token. */
  readonly credentials: Record<string, string>;
  token: TestPlatform['token'];
  /** Confirms a payment and waits until it is where its account leads it. */
  pay(account_id: string, amount_in_cents: number, email: string): Promise<string>;
}

/** Starts it. `dist` is the folder of the built pages, with a slash at its end. */
export async function startWorkingDay(cleanup: Cleanup, dist: URL): Promise<WorkingDay> {
  const payer = {
    name: 'Duebridge Payments',
    routing_number: '021000021',
    account_number: '1234567890',
    company_id: '1234567890',
  };
  const platform = await startTestPlatform(cleanup, { webDist: dist, payer });
  const added = await platform.admin('POST', '/admin/v1/partners', {
    partner_id: 'springfield-water',
    name: 'Springfield Water',
    kind: 'biller',
    biller_id: 'water',
    base_url: await startPartner(cleanup),
    origins: [],
    budget: { wait_seconds: 0 },
    auth: { method: 'key', header: 'x-partner-key', key: 'partner-key-of-the-console' },
  });
  assert.equal(added.status, 200, added.text);
  const keys = { ada: 'admin', bob: 'operator', vic: 'viewer', wen: 'partner' };
  for (const [operator_id, role] of Object.entries(keys)) {
    const name = operator_id[0]?.toUpperCase() + operator_id.slice(1);
    const of = role === 'partner' ? { partner_id: 'springfield-water' } : {};
    await platform.admin('POST', '/admin/v1/operators', { operator_id, name, role, ...of });
    const grant = await platform.admin('POST', `/admin/v1/operators/${operator_id}/keys`, {});
    Object.assign(keys, {
      [operator_id]: (grant.body as unknown as OperatorKeyGrant).operator_key,
    });
  }
  const credentials = await platform.credentials('springfield-water');
  return {
    platform,
    keys,
    credentials,
    token: (headers) => platform.token(headers),
    async pay(account_id, amount_in_cents, email) {
      const { session } = await platform.session(credentials, account_id, email);
      const made = await platform.confirm(session, { amount_in_cents });
      assert.equal(made.status, 200, made.text);
      const id = String(made.body['platform_payment_id']);
      const wanted = account_id.startsWith('pays')
        ? 'settled_at IS NOT NULL'
        : "stage IN ('review', 'accepted')";
      await until(`${account_id} is where it leads`, async () => {
        const rows = await platform.database.query(
          `SELECT 1 FROM duebridge_platform.payments WHERE platform_payment_id = $1 AND ${wanted}`,
          [id],
        );
        return rows.length === 1;
      });
      return id;
    },
  };
}
