/** Test and live (decision 160): over HTTP, with a sandbox and a processor on offer at once. */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import type { FlowSession } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import type { FundingAdapter } from '../funding/adapter.ts';
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

const testSystem = await startTestPartner({ after });
const liveSystem = await startTestPartner({ after });
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
    assert.ok(refused.text.includes(`${page}, which is ${mode === 'test' ? 'live' : 'test'}`));
    const own = mode === 'test' ? practice : real;
    assert.equal((await exchange(own.partner_id)).status, 200);
  }
});
