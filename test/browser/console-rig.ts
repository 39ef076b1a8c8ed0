/**
 * A working day for the operator console: a platform over real PostgreSQL, a partner that pays, refuses and reports as it is told,
 * payments of each kind, three operators, and one of the partner. For the tests and for the pictures.
 */
import assert from 'node:assert/strict';
import type { Cleanup } from '@duebridge/runtime/testing';
import { until } from '@duebridge/runtime/testing';
import {
  startTestPartner,
  startTestPlatform,
} from '../../packages/platform/src/checkout/testing.ts';

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
      why: 'the target declares no account whose payments are canceled',
    },
  ],
};

/** What the pages are tried on. */
export type WorkingDay = Awaited<ReturnType<typeof startWorkingDay>>;

/** Starts it. `dist` is the folder of the built pages, with a slash at its end. */
export async function startWorkingDay(cleanup: Cleanup, dist: URL) {
  const platform = await startTestPlatform(cleanup, { webDist: dist });
  const partner = await startTestPartner(cleanup);
  const partner_id = 'springfield-water';
  const budget = { wait_seconds: 0 };
  await platform.register(partner, { partner_id, name: 'Springfield Water', budget });
  const keys = { ada: 'admin', bob: 'operator', vic: 'viewer', wen: 'partner' };
  for (const [operator_id, role] of Object.entries(keys)) {
    const name = operator_id[0]?.toUpperCase() + operator_id.slice(1);
    const of = role === 'partner' ? { partner_id } : {};
    const { operator_key } = await platform.operator(operator_id, role, { name, ...of });
    Object.assign(keys, { [operator_id]: operator_key });
  }
  const credentials = await platform.credentials(partner_id);
  // Ended earlier in the day: ends are counted a minute later, for which no test waits.
  await platform.database.query(
    `INSERT INTO duebridge_platform.ended_counts (hour, partner_id, status, class, count)
     SELECT date_trunc('hour', now()), of, 'succeeded', 25, 30 FROM unnest(ARRAY['', $1]) AS of`,
    [partner_id],
  );
  return {
    platform,
    keys,
    /** The partner's own, for Create Token. */
    credentials,
    token: (headers: Record<string, string>) => platform.token(headers),
    /**
     * Confirms a payment and waits until it is where its account leads it: of `pays-…` it settles, `refuses-…` is answered 422 to every PUT,
     * of `misbooks-…` a cent more is booked, and any other stays in processing.
     */
    async pay(account_id: string, amount_in_cents: number, email: string): Promise<string> {
      partner.accounts.set(account_id, { biller_id: 'water', account_id, status: 'active' });
      const now = new Date().toISOString();
      const [kind] = account_id.split('-');
      if (kind === 'refuses')
        partner.refusals.set(account_id, {
          code: 'ACCOUNT_LOCKED',
          message: 'This account takes no payments online.',
        });
      if (kind === 'pays') partner.endings.set(account_id, { status: 'succeeded', posted_at: now });
      if (kind === 'misbooks')
        partner.endings.set(account_id, {
          amount_in_cents: amount_in_cents + 1,
          customer: 'Josephine Quimby',
          status: 'processing',
          posted_at: null,
        });
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
