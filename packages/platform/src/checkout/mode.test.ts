/** Test and live (decision 160): over HTTP, with a sandbox and a processor on offer at once. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test, { after } from 'node:test';
import { TEST_AMOUNTS, type FlowPayment, type FlowSession } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import type { FundingAdapter } from '../funding/adapter.ts';
import { testReply } from '../partners/test-amounts.ts';
import { newCustomer } from '../../test/paying.ts';
import { bearer, startTestPartner, startTestPlatform, type Answer } from './testing.ts';

/** A processor of real money that this test must never reach from a test key. */
const asked: string[] = [];
const bank: FundingAdapter = {
  name: 'bank',
  methods: () => [{ funding_method: 'bank_account', label: 'Your bank', sandbox: false }],
  prepare({ platform_payment_id }) {
    asked.push(platform_payment_id);
    return Promise.resolve(platform_payment_id);
  },
  authorize: () => Promise.resolve({ kind: 'declined', reason: 'No.' }),
  capture: () => Promise.resolve({ kind: 'captured' }),
  void: () => Promise.resolve('released'),
  refund: () => Promise.resolve(),
};

const [testSystem, liveSystem] = [
  await startTestPartner({ after }),
  await startTestPartner({ after }),
];
const platform = await startTestPlatform({ after }, { fundingAdapters: [bank] });
const practice = await platform.register(testSystem);
const real = await platform.register(liveSystem, { mode: 'live' });
const keys = {
  test: await platform.credentials(practice.partner_id),
  live: await platform.credentials(real.partner_id),
};

const bill = async (session: string): Promise<FlowSession> =>
  (await platform.call('GET', '/v1/flow/session', { headers: bearer(session) }))
    .body as unknown as FlowSession;
const confirm = (session: string, funding_method: string): Promise<Answer> =>
  platform.confirm(session, { amount_in_cents: 4_200, funding_method });

test('a test key is offered sandboxes alone, a live key processors alone, and no other is accepted', async () => {
  for (const [mode, own, other] of [
    ['test', ['sandbox_bank', 'sandbox_declined'], 'bank_account'],
    ['live', ['bank_account'], 'sandbox_bank'],
  ] as const) {
    const { session } = await platform.session(keys[mode], 'a1', `${mode}@canary.example`);
    const shown = await bill(session);
    assert.equal(shown.mode, mode);
    const offered = shown.funding_methods.map((method) => method.funding_method);
    assert.deepEqual(offered, own, mode);
    const refused = await confirm(session, other);
    assert.equal(refused.status, 400, refused.text);
    assert.equal(refused.body['code'], 'INVALID_REQUEST');
  }
  assert.deepEqual(asked, [], 'the processor was never asked');
});

test('a payment of a test key goes to the test system of the partner, and its key says so', async () => {
  const { session } = await platform.session(keys.test, 'a2', 'system@canary.example');
  const before = liveSystem.asked.length;
  const made = await confirm(session, 'sandbox_bank');
  assert.equal(made.status, 200, made.text);
  const id = String(made.body['platform_payment_id']);
  await until('the test system has it', () => testSystem.payments.has(id));
  assert.equal(liveSystem.asked.length, before);
  assert.match(String(keys.test['x-api-key']), /^dbk_test_/);
  assert.match(String(keys.live['x-api-key']), /^dbk_live_/);
});

test('a token opens no page of the other mode, and the answer names both', async () => {
  for (const [mode, page] of [
    ['test', real.partner_id],
    ['live', practice.partner_id],
  ] as const) {
    const { body } = await platform.token(keys[mode]);
    const token = String(body['token']);
    const exchange = (partner_id: string): Promise<Answer> =>
      platform.call('POST', '/v1/flow/session', { headers: bearer(token), body: { partner_id } });
    const refused = await exchange(page);
    assert.equal(refused.status, 403, refused.text);
    assert.equal(refused.body['code'], 'MODE_MISMATCH');
    assert.match(
      refused.text,
      new RegExp(`${page}, which is ${mode === 'test' ? 'live' : 'test'}`),
    );
    const own = mode === 'test' ? practice : real;
    assert.equal((await exchange(own.partner_id)).status, 200);
  }
});

/** Pays an amount as a customer of its own; the payment as it becomes. */
async function pays(
  amount_in_cents: number,
  is: (payment: FlowPayment) => boolean,
): Promise<FlowPayment> {
  const place = { platform, partner: testSystem, credentials: keys.test };
  const customer = await newCustomer(place);
  const { read } = await customer.pay({ amount_in_cents, funding_method: 'sandbox_bank' });
  return until(`${amount_in_cents} becomes what it has to`, async () => {
    const payment = await read();
    return is(payment) && payment;
  });
}

test('each test amount of the guide ends as its row says, and never reaches the partner', async () => {
  const guide = await readFile(new URL('../../../../docs/embed.md', import.meta.url), 'utf8');
  const rows = [...guide.matchAll(/^\| \$(\d+)\.(\d\d) +\| (.*?) +\|/gm)].map(
    ([, dollars, cents, note]) => ({ amount_in_cents: Number(`${dollars}${cents}`), note }),
  );
  assert.deepEqual(
    rows,
    TEST_AMOUNTS.map(({ amount_in_cents, note }) => ({ amount_in_cents, note })),
  );
  // Above the account's limit of $500 on purpose; and the partner's system may even be down.
  const puts = testSystem.payments.size;
  const ends = await Promise.all(
    TEST_AMOUNTS.map(async ({ amount_in_cents, ending }) => {
      const stays = ending?.after_ms !== undefined;
      const wanted = stays ? 'accepted' : 'ended';
      const last = await pays(amount_in_cents, ({ progress }) => progress === wanted);
      return [amount_in_cents, last.status, last.failure ?? null, last.posted_at === null];
    }),
  );
  assert.deepEqual(ends, [
    [66_600, 'succeeded', null, false],
    [66_601, 'failed', 'account', true],
    [66_602, 'failed', 'amount', true],
    [66_603, 'failed', 'duplicate', true],
    [66_604, 'canceled', null, true],
    [66_605, 'processing', null, true],
    [66_606, 'processing', null, true],
    [66_607, 'failed', 'declined', true],
  ]);
  assert.equal(testSystem.payments.size, puts);
});

test('what a test amount answers follows from the id and the time, and live it answers nothing', () => {
  const made = Date.parse('2026-03-01T12:00:00.000Z');
  const id = made.toString(16).padStart(12, '0');
  const order = {
    platform_payment_id: `${id.slice(0, 8)}-${id.slice(8)}-7000-8000-000000000000`,
    platform_batch_id: 'b',
    biller_id: 'water',
    account_id: 'a1',
    amount_in_cents: 66_605,
  };
  const at = (ms: number, change: object = {}): unknown => {
    const json = testReply({ mode: 'test' }, { ...order, ...change }, made + ms)?.json;
    return typeof json === 'object' && json !== null && 'status' in json ? json['status'] : json;
  };
  assert.deepEqual(
    [at(0), at(29_999), at(30_000), at(1e12)],
    ['processing', 'processing', 'succeeded', 'succeeded'],
  );
  const stays = { amount_in_cents: 66_606 };
  assert.deepEqual([at(30_000, stays), at(3_600_000, stays)], ['processing', 'canceled']);
  assert.equal(at(0, { amount_in_cents: 4_200 }), undefined);
  assert.equal(testReply({ mode: 'live' }, order, made), undefined);
});
