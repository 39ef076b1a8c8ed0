/** Test support: customers who pay at a whole platform, and what becomes of their payments and of the money. */
import assert from 'node:assert/strict';
import type { FlowPayment } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import {
  bearer,
  type Answer,
  type TestPartner,
  type TestPlatform,
} from '../src/checkout/testing.ts';
import { auditOfPayment } from '../src/store/audit.ts';
import { stateOfFunds } from './engine-rig.ts';

/** How a payment may end at the test partner. */
export const posted = (): object => ({ status: 'succeeded', posted_at: new Date().toISOString() });
export const failed = { status: 'failed', posted_at: null, failure_reason: 'Account closed' };

/** Where they pay. */
export interface Place {
  readonly platform: TestPlatform;
  readonly partner: TestPartner;
  readonly credentials: Record<string, string>;
}

let accounts = 0;
/** A customer with an account of their own; without an ending, payments stay processing at the partner. */
export async function newCustomer({ platform, partner, credentials }: Place, ending?: object) {
  accounts += 1;
  const account = `s${accounts}`;
  const email = `${account}@canary.example`;
  partner.accounts.set(account, { ...partner.accounts.get('a1'), account_id: account });
  const ends = (how: object): void => void partner.endings.set(account, how);
  if (ending !== undefined) ends(ending);
  const { session } = await platform.session(credentials, account, email);
  const headers = bearer(session);
  const call = (method: string, path: string, body?: object): Promise<Answer> =>
    platform.call(method, path, { headers, ...(body && { body }) });
  return {
    email,
    ends,
    call,
    confirm: (body: object) => platform.confirm(session, body),
    next: () => platform.next(session),
    async pay(body: object): Promise<Paid> {
      const answer = await platform.confirm(session, body);
      assert.equal(answer.status, 200, answer.text);
      return paid(platform, partner, call, answer.body as unknown as FlowPayment);
    },
  };
}

export type Paid = ReturnType<typeof paid>;

function paid(
  { database }: TestPlatform,
  partner: TestPartner,
  call: (method: string, path: string) => Promise<Answer>,
  { platform_payment_id: id }: FlowPayment,
) {
  const read = async (): Promise<FlowPayment> => {
    const answer = await call('GET', `/v1/flow/payments/${id}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body as unknown as FlowPayment;
  };
  const trail = async (): Promise<string[]> =>
    (await auditOfPayment(database, id)).map(({ event }) => event);
  return {
    id,
    read,
    /** The events of its audit. */
    trail,
    arrived: () => until('the partner has it', () => partner.payments.has(id)),
    asked: () => until('the customer is asked', async () => (await read()).action),
    becomes: (funds: string) =>
      until(`funds ${funds}`, async () => (await stateOfFunds(database, id)) === funds),
    ended: () =>
      until('the payment ends', async () => {
        const now = await read();
        return now.status !== 'processing' && now;
      }),
    /** Its audit once its funds are settled. */
    settled: () =>
      until('the funds are settled', async () => {
        const [row] = await database.query<{ settled: boolean }>(
          'SELECT settled_at IS NOT NULL AS settled FROM duebridge_platform.payments WHERE platform_payment_id = $1',
          [id],
        );
        return row?.settled === true && trail();
      }),
  };
}
