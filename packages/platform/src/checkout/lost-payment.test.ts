/** The database may lose the latest commits (an asynchronous standby took over): nobody pays twice, and nothing is lost silently. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test, { after } from 'node:test';
import type { FlowPayment } from '@duebridge/contract';
import {
  createLogger,
  createMetrics,
  systemClock,
  type Database,
  type Statement,
} from '@duebridge/runtime';
import fc from 'fast-check';
import type { Services } from '../services.ts';
import { flowPaymentId, madeAt, placeInFlow } from '../payment-id.ts';
import { paymentsWithCases } from '../store/cases.ts';
import { findPayments } from '../store/payments.ts';
import type { PayableSession } from './flow.ts';
import { LostPayments } from './lost-payments.ts';
import { startTestPartner, startTestPlatform, type Answer } from './testing.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const biller = await platform.register(partner);
const credentials = await platform.credentials(biller.partner_id);
partner.endings.set('a1', { status: 'succeeded', posted_at: new Date().toISOString() });

const confirm = (session: string, change: object): Promise<Answer> =>
  platform.confirm(session, { amount_in_cents: 1_000, ...change });

async function pay(session: string, change: object): Promise<FlowPayment> {
  const answer = await confirm(session, change);
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowPayment;
}

const next = (session: string): Promise<string> => platform.next(session);

const ended = (session: string, id: string): Promise<FlowPayment> => platform.ended(session, id);

/** The database forgets every row that was written since the named tables were empty, as a standby does that never had them. */
async function lose(...tables: readonly string[]): Promise<void> {
  await platform.database.transaction(async (tx) => {
    for (const table of tables) {
      await tx.query(`ALTER TABLE duebridge_platform.${table} DISABLE TRIGGER USER`);
      await tx.query(`DELETE FROM duebridge_platform.${table}`);
      await tx.query(`ALTER TABLE duebridge_platform.${table} ENABLE TRIGGER USER`);
    }
  });
}
const everything = ['payments', 'funds', 'flow_payments', 'flows', 'sessions', 'tokens'];

/** What the partner posted for an account. */
const posted = (account_id: string): string[] =>
  [...partner.payments].flatMap(([id, payment]) =>
    'account_id' in payment && payment.account_id === account_id ? [id] : [],
  );

let accounts = 0;
async function customer(): Promise<{ account_id: string; email: string; session: string }> {
  accounts += 1;
  const account_id = `lost${accounts}`;
  const email = `lost${accounts}@canary.example`;
  partner.accounts.set(account_id, { ...partner.accounts.get('a1'), account_id });
  partner.endings.set(account_id, partner.endings.get('a1') ?? {});
  const { session } = await platform.session(credentials, account_id, email);
  return { account_id, email, session };
}

/** A customer whose payment has ended. */
async function paid() {
  const one = await customer();
  const id = await next(one.session);
  await pay(one.session, { platform_payment_id: id });
  await ended(one.session, id);
  return { ...one, id };
}

test('the ids of a flow are a fixed sequence of UUIDv7, each of another flow, place and instant [PF2]', () => {
  const ids = new Set<string>();
  fc.assert(
    fc.property(fc.nat({ max: 20 }), fc.integer({ min: 0, max: 2 ** 48 - 1 }), (place, ms) => {
      const flow = randomBytes(32);
      const id = flowPaymentId(flow, place, ms);
      assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      assert.equal(madeAt(id), ms);
      assert.equal(flowPaymentId(flow, place, ms), id);
      assert.equal(placeInFlow(flow, id, place + 1), place);
      assert.equal(placeInFlow(flow, id, place), undefined);
      assert.equal(placeInFlow(randomBytes(32), id, place + 1), undefined);
      ids.add(id);
    }),
    { seed: 1 },
  );
  assert.ok(ids.size >= 100);
  assert.equal(placeInFlow(randomBytes(32), 'no uuid', 20), undefined);
});

test('a confirm that is repeated after the database lost everything of it posts once [RU5 PL3]', async () => {
  const { account_id, email, session, id } = await paid();
  await lose(...everything);
  // The page renews its session, and repeats what it had sent.
  assert.equal((await confirm(session, { platform_payment_id: id })).status, 401);
  const renewed = await platform.session(credentials, account_id, email);
  const again = await pay(renewed.session, { platform_payment_id: id });
  assert.equal(again.platform_payment_id, id);
  assert.equal((await ended(renewed.session, id)).status, 'succeeded');
  assert.deepEqual(posted(account_id), [id]);
  assert.notEqual(await next(renewed.session), id);
});

test('a page that is opened anew after the payment was lost, but not its flow, gets the same id', async () => {
  const { account_id, email, session } = await customer();
  const id = await next(session);
  const flows = await platform.database.query<{ flow_id: Buffer; minted_at: string }>(
    'SELECT flow_id, minted_at FROM duebridge_platform.flows WHERE account_id = $1',
    [account_id],
  );
  await pay(session, { platform_payment_id: id });
  await ended(session, id);
  await lose('payments', 'funds', 'flow_payments');
  await platform.database.query(
    'UPDATE duebridge_platform.flows SET made = 0, latest_payment_id = NULL, minted_at = $2 WHERE account_id = $1',
    [account_id, flows[0]?.minted_at],
  );
  const { bill } = await platform.session(credentials, account_id, email);
  assert.equal(bill?.next_payment_id, id);
});

test('a page that is opened anew after everything of a payment was lost is shown that payment, which is put back', async () => {
  const { account_id, email, id } = await paid();
  await lose(...everything);
  const renewed = await platform.session(credentials, account_id, email);
  assert.equal((await pay(renewed.session, {})).platform_payment_id, id);
  await ended(renewed.session, id);
  assert.deepEqual(posted(account_id), [id]);
});

test('payments that are gone after another server has answered are told and put back, once each', async () => {
  const { account_id, email, id } = await paid();
  const [payment] = await findPayments(platform.database, [id]);
  assert.ok(payment);
  let server = 1;
  const answering: Database = {
    ...platform.database,
    query: <Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> =>
      typeof statement !== 'string' && statement.text.includes('pg_postmaster_start_time')
        ? Promise.resolve([{ started: server }] as Row[])
        : platform.database.query<Row>(statement, values),
  };
  const lines: string[] = [];
  const metrics = createMetrics();
  const lost = new LostPayments({
    database: answering,
    registry: { get: () => Promise.resolve(biller) },
    funding: { keep: () => Promise.resolve() },
    clock: systemClock,
    log: createLogger({ name: 'test', destination: { write: (line) => void lines.push(line) } }),
    metrics,
  } as unknown as Services);
  const flow = await platform.database.query<PayableSession>(
    'SELECT * FROM duebridge_platform.sessions WHERE account_id = $1',
    [account_id],
  );
  assert.ok(flow[0]);
  lost.keep({ payment, session: flow[0], place: 0, instrument: undefined });
  await lost.look();
  await lose(...everything);
  await lost.look();
  assert.deepEqual(await findPayments(platform.database, [id]), [], 'the same server is trusted');
  server = 2;
  await lost.look();
  await lost.look();
  assert.match(await metrics.text(), /duebridge_payments_lost_total 1\n/);
  assert.match(await metrics.text(), /duebridge_payments_lost 0\n/);
  assert.equal(lines.filter((line) => line.includes(id) && line.includes('has lost')).length, 1);
  assert.ok((await paymentsWithCases(platform.database)).includes(id));
  const renewed = await platform.session(credentials, account_id, email);
  assert.equal(renewed.bill?.payment?.platform_payment_id, id);
  assert.equal((await ended(renewed.session, id)).status, 'succeeded');
  assert.deepEqual(posted(account_id), [id]);
});

test('a payment after a failed one that the database lost makes the lost one again, and its partner tells how that ended', async () => {
  const { account_id, email, session } = await customer();
  partner.endings.set(account_id, { status: 'failed', posted_at: null, failure_reason: 'no' });
  const first = await next(session);
  await pay(session, { platform_payment_id: first });
  await ended(session, first);
  const second = await next(session);
  await lose(...everything);
  const renewed = await platform.session(credentials, account_id, email);
  const request = { platform_payment_id: second };
  assert.equal((await pay(renewed.session, request)).platform_payment_id, first);
  assert.equal((await ended(renewed.session, first)).status, 'failed');
  assert.equal((await pay(renewed.session, request)).platform_payment_id, second);
  await ended(renewed.session, second);
  assert.deepEqual(posted(account_id), [first, second]);
});

for (const way of ['put back', 'confirmed again'] as const) {
  test(`a payment ${way} after a loss may have been sent, so that a decline does not end it [PL5]`, async () => {
    const { account_id, email, session } = await customer();
    partner.endings.set(account_id, { status: 'failed', posted_at: null, failure_reason: 'no' });
    const id = await next(session);
    let request: object = { platform_payment_id: id, repeated: true };
    // Confirmed again: the process that knew of the payment has died, so that only its page does.
    if (way !== 'confirmed again') {
      await pay(session, { platform_payment_id: id });
      await ended(session, id);
      request = {};
      await lose(...everything);
    }
    await platform.database.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, state, reason)
       VALUES ($1, 'sandbox', 'declined', 'not enough')`,
      [id],
    );
    const renewed = await platform.session(credentials, account_id, email);
    assert.equal((await pay(renewed.session, request)).platform_payment_id, id);
    const withdrawn = await platform.admin('POST', `/admin/v1/payments/${id}/withdraw`, {
      reason: 'a test',
    });
    assert.equal(withdrawn.status, 409, withdrawn.text);
    const [row] = await findPayments(platform.database, [id]);
    assert.deepEqual([row?.stage, row?.maybe_sent], ['created', true]);
  });
}

test('no id but the next one makes a payment', async () => {
  const { session } = await customer();
  const id = await next(session);
  const stranger = await next((await customer()).session);
  const old = flowPaymentId(randomBytes(32), 0, Date.now());
  for (const platform_payment_id of [stranger, old, 'mine']) {
    const answer = await confirm(session, { platform_payment_id });
    assert.equal(answer.status, 409, answer.text);
  }
  await pay(session, { platform_payment_id: id });
});
