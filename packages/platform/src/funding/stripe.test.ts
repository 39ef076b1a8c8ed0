/**
 * Payments through Stripe from the confirm to the captured funds, against an imitation of its API (testing.ts), with a real
 * platform, engine, partner and PostgreSQL; and each failure that Stripe's documentation names.
 */
import assert from 'node:assert/strict';
import { suite, test, after } from 'node:test';
import type { FlowPayment, FlowSession } from '@duebridge/contract';
import { silentLog, systemClock } from '@duebridge/runtime';
import { bearer, startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';
import { openSealer } from '../partners/seal.ts';
import { registerDomains } from './domains.ts';
import { openFunds, type Funds } from './funds.ts';
import { stripeAdapter } from './stripe.ts';
import {
  BANK_ASKS,
  BANK_CLOSED,
  BANK_CONFIRMS,
  BANK_REFUSED,
  NUMBERS,
  startStripe,
} from '../../test/stripe.ts';

const SEAL_KEY = Buffer.alloc(32, 9).toString('base64');
const stripe = await startStripe({ after });
const partner = await startTestPartner({ after });
const platform = await startTestPlatform(
  { after },
  {
    funding: ['sandbox', 'stripe'],
    stripe: { ...stripe.settings, bankMaxCents: 50_000 },
    sealKey: SEAL_KEY,
  },
);
const biller = await platform.register(partner);
const credentials = await platform.credentials(biller.partner_id);
const { database } = platform;

const posted = (): object => ({ status: 'succeeded', posted_at: new Date().toISOString() });
const failed = { status: 'failed', posted_at: null, failure_reason: 'Account closed' };

let accounts = 0;
/** A session for a new account; without an ending its payments stay processing at the partner. */
async function newSession(ending?: object): Promise<{ session: string; account: string }> {
  accounts += 1;
  const account = `s${accounts}`;
  partner.accounts.set(account, { ...partner.accounts.get('a1'), account_id: account });
  if (ending !== undefined) partner.endings.set(account, ending);
  const { session } = await platform.session(credentials, account, `${account}@canary.example`);
  return { session, account };
}

function confirm(session: string, change: object = {}): Promise<Answer> {
  return platform.call('POST', '/v1/flow/payments', {
    headers: bearer(session),
    body: { amount_in_cents: 12_345, funding_method: 'stripe_card', ...change },
  });
}

async function pay(session: string, number: string, change: object = {}): Promise<FlowPayment> {
  const answer = await confirm(session, { instrument: stripe.token(number), ...change });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowPayment;
}

const BANK = { funding_method: 'stripe_us_bank_account' };

async function read(
  session: string,
  { platform_payment_id: id }: FlowPayment,
): Promise<FlowPayment> {
  const answer = await platform.call('GET', `/v1/flow/payments/${id}`, {
    headers: bearer(session),
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowPayment;
}

async function bill(session: string): Promise<FlowSession> {
  const answer = await platform.call('GET', '/v1/flow/session', { headers: bearer(session) });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowSession;
}

/** Polls until `holds` returns a value, for at most 30 s. */
async function until<T>(what: string, holds: () => Promise<T | undefined | false>): Promise<T> {
  const end = Date.now() + 120_000;
  for (;;) {
    const found = await holds();
    if (found !== undefined && found !== false) return found;
    assert.ok(Date.now() < end, `never: ${what}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
}

const ended = (session: string, payment: FlowPayment): Promise<FlowPayment> =>
  until('the payment ends', async () => {
    const now = await read(session, payment);
    return now.status !== 'processing' && now;
  });

/** The audit lines of a payment once its funds are settled. */
const settled = ({ platform_payment_id: id }: FlowPayment): Promise<string[]> =>
  until('the funds are settled', async () => {
    const [row] = await database.query<{ settled: boolean }>(
      'SELECT settled_at IS NOT NULL AS settled FROM duebridge_platform.payments WHERE platform_payment_id = $1',
      [id],
    );
    return row?.settled === true && (await trail(id));
  });

async function trail(id: string): Promise<string[]> {
  const lines = await database.query<{ event: string }>(
    `SELECT event FROM duebridge_platform.audit WHERE platform_payment_id = $1 ORDER BY at, event`,
    [id],
  );
  return lines.map(({ event }) => event);
}

async function stateOf({ platform_payment_id: id }: FlowPayment): Promise<string | undefined> {
  const [row] = await database.query<{ state: string }>(
    'SELECT state FROM duebridge_platform.funds WHERE platform_payment_id = $1',
    [id],
  );
  return row?.state;
}

const acting = (session: string, payment: FlowPayment): Promise<FlowPayment['action'] & object> =>
  until('the customer is asked', async () => (await read(session, payment)).action);

function webhook(type: string, object: object, change = {}): Promise<Answer> {
  const { raw, headers } = stripe.webhook(type, object, change);
  return platform.call('POST', '/v1/funding/stripe/events', { raw, headers });
}

/** The port over the same rows, to sweep immediately. */
function funds(): Funds {
  return openFunds({
    database,
    sealer: openSealer(SEAL_KEY),
    clock: systemClock,
    log: silentLog,
    adapters: [stripeAdapter(stripe.settings)],
  });
}

function customerOf(of: { readonly customer: unknown } | undefined) {
  assert.ok(typeof of?.customer === 'string');
  return stripe.customers.get(of.customer);
}

/** Changes the result of some calls, selected by idempotency key, object or amount of what they create; the first turn is 1. */
type Fate = ReturnType<typeof stripe.script>;
const fates = new Map<string, (turn: number) => Fate>();
const turns = new Map<string, number>();
stripe.script = (call) => {
  for (const place of [
    call.key?.replace(/:\d+$/, ''),
    `${call.method} ${call.id}`,
    `amount ${call.form.get('amount')}`,
  ]) {
    const fate = fates.get(place ?? '');
    if (place === undefined || fate === undefined) continue;
    const turn = (turns.get(place) ?? 0) + 1;
    turns.set(place, turn);
    return fate(turn);
  }
  return undefined;
};

after(() => {
  assert.deepEqual(stripe.departures, [], "what departs from Stripe's description");
});

suite('payments by Stripe', { concurrency: true }, () => {
  test('a card is authorized before the PUT, and captured once after the biller has posted [S4 S5 PL7]', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.good);
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    const intent = stripe.intentOf(id);
    assert.equal(intent.status, 'requires_capture');
    assert.equal(intent.amount, 12_345);
    assert.equal(intent.currency, 'usd');
    assert.equal(stripe.taken.get(intent.id), undefined);
    partner.endings.set(account, posted());
    assert.equal((await ended(session, payment)).status, 'succeeded');
    assert.ok((await settled(payment)).includes('funds_captured'));
    assert.equal(stripe.taken.get(intent.id), 1);
    assert.equal(stripe.intentOf(id).amount_received, 12_345);
    const keys = stripe.calls.filter((call) => call.key?.startsWith(id)).map((call) => call.key);
    assert.deepEqual(keys, [`${id}:create`, `${id}:confirm`, `${id}:capture`]);
    assert.ok(platform.logged.every((line) => !line.includes(NUMBERS.good)));
  });

  test('both methods are offered beside the sandbox, with their limits and what the customer agrees to', async () => {
    const { session } = await newSession();
    const { funding_methods } = await bill(session);
    assert.deepEqual(
      funding_methods.map((method) => method.funding_method),
      ['sandbox_bank', 'sandbox_declined', 'stripe_card', 'stripe_us_bank_account'],
    );
    const bank = funding_methods.at(-1);
    assert.equal(bank?.max_amount_in_cents, 50_000);
    assert.match(bank?.authorization_text?.['en'] ?? '', /\{biller\}.*\{amount\}/);
    assert.equal(bank?.frame, `flow/v1/${biller.partner_id}/fund/stripe_us_bank_account`);
    for (const [change, code] of [
      [{ amount_in_cents: 50_001, ...BANK, instrument: 'ctoken_x' }, 'AMOUNT_OUT_OF_RANGE'],
      [{}, 'INVALID_REQUEST'],
      [{ instrument: '4242424242424242' }, 'INVALID_REQUEST'],
      [{ instrument: 'acct-000123456789' }, 'INVALID_REQUEST'],
      [{ instrument: 'ctoken_x', funding_method: 'sandbox_bank' }, 'INVALID_REQUEST'],
      [{ instrument: 'ctoken_x', funding_method: 'stripe_cash' }, 'INVALID_REQUEST'],
    ] as const) {
      const refused = await confirm(session, change);
      assert.equal(refused.body['code'], code, `${JSON.stringify(change)} ${refused.text}`);
      assert.ok(!refused.text.includes('4242'));
    }
    assert.equal((await bill(session)).payment, null);
  });

  for (const [number, reason] of [
    [NUMBERS.declined, 'The funding method was declined.'],
    ['4000000000009995', 'There are insufficient funds.'],
    ['4000000000000069', 'The card has expired.'],
    ['4000000000000127', 'The security code is incorrect.'],
    ['4242424242424241', 'The card number is incorrect.'],
    // Which of these it is stays with Stripe: a thief would learn from it.
    ['4000000000009987', 'The funding method was declined.'],
    ['4000000000009979', 'The funding method was declined.'],
    ['4000000000006975', 'The funding method was declined.'],
    ['4000000000000119', 'The funding method was declined.'],
  ] as const) {
    test(`a declined card ends the payment before the PUT: ${number}, ${reason}`, async () => {
      const { session } = await newSession(posted());
      const payment = await pay(session, number);
      const end = await ended(session, payment);
      assert.equal(end.status, 'failed');
      assert.equal(end.failure, 'declined');
      assert.equal(end.failure_reason, reason);
      // Canceled, so that nothing is held when a page confirms it again.
      assert.equal(stripe.intentOf(payment.platform_payment_id).status, 'canceled');
      assert.ok(!partner.payments.has(payment.platform_payment_id));
      const again = await pay(session, NUMBERS.good, { replaces: payment.platform_payment_id });
      assert.equal((await ended(session, again)).status, 'succeeded');
    });
  }

  test('a card that asks for a confirmation is paid once the customer has given it', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.asks);
    const action = await acting(session, payment);
    const intent = stripe.intentOf(payment.platform_payment_id);
    assert.deepEqual(action, { kind: 'step_up', data: intent.client_secret });
    // A reloaded page starts with it, too.
    assert.deepEqual((await bill(session)).payment?.action, action);
    const [row] = await database.query<{ action: string }>(
      'SELECT action FROM duebridge_platform.funds WHERE platform_payment_id = $1',
      [payment.platform_payment_id],
    );
    assert.ok(!row?.action.includes('secret'), 'sealed');
    assert.ok(!partner.payments.has(payment.platform_payment_id));
    stripe.act(intent.id, true);
    const end = await ended(session, payment);
    assert.equal(end.status, 'succeeded');
    assert.equal(end.action, undefined);
    await settled(payment);
    assert.equal(stripe.taken.get(intent.id), 1);
  });

  test('a confirmation that fails at the bank declines the payment', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.asks);
    await acting(session, payment);
    const intent = stripe.intentOf(payment.platform_payment_id);
    stripe.act(intent.id, false);
    const end = await ended(session, payment);
    assert.equal(end.failure, 'declined');
    assert.equal(end.failure_reason, 'The bank could not confirm that it is you.');
    assert.equal(intent.status, 'canceled');
  });

  test('a confirmation that nobody gives in time is canceled at Stripe before the payment fails', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.asks);
    await acting(session, payment);
    await database.query(
      `UPDATE duebridge_platform.funds SET act_by = now() - interval '1 second' WHERE platform_payment_id = $1`,
      [payment.platform_payment_id],
    );
    const end = await ended(session, payment);
    assert.equal(end.failure, 'declined');
    assert.equal(end.failure_reason, 'The payment was not approved in time.');
    const intent = stripe.intentOf(payment.platform_payment_id);
    assert.equal(intent.status, 'canceled');
    // The customer approves anyway: nothing is left to approve.
    stripe.act(intent.id, true);
    assert.equal(intent.status, 'canceled');
  });

  test('an operator withdraws a payment while the customer is asked to confirm: its authorization is canceled', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.asks);
    await acting(session, payment);
    const { status, text } = await platform.admin(
      'POST',
      `/admin/v1/payments/${payment.platform_payment_id}/withdraw`,
      { reason: 'asked by telephone' },
    );
    assert.equal(status, 200, text);
    assert.ok((await settled(payment)).includes('funds_released'));
    assert.equal(stripe.intentOf(payment.platform_payment_id).status, 'canceled');
    assert.equal(await stateOf(payment), 'released');
  });

  test('the answer of a capture is lost: the repeat carries the same key, and the card is charged once [PL7]', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.good);
    const key = `${payment.platform_payment_id}:capture`;
    fates.set(key, (turn) => (turn === 1 ? { kind: 'lose' } : undefined));
    partner.endings.set(account, posted());
    await settled(payment);
    const captures = stripe.calls.filter((call) => call.key?.startsWith(key));
    assert.ok(captures.length >= 2);
    assert.deepEqual(new Set(captures.map((call) => call.key)), new Set([key]));
    assert.equal(stripe.taken.get(stripe.intentOf(payment.platform_payment_id).id), 1);
    await until('the capture', async () => (await stateOf(payment)) === 'captured');
  });

  test('Stripe limits, fails and stays silent at every call: the payment continues and is charged once [PL7]', async () => {
    const { session } = await newSession(posted());
    /** An error that Stripe stores with the key and would repeat for a day. */
    const stored: Fate = { kind: 'fail', status: 500, keepsKey: true };
    // Refused until the fates below are set: they need the payment's id, and the engine does not wait for it.
    let isReady = false;
    let failures = 0;
    fates.set('amount 23456', () => {
      if (!isReady) return { kind: 'fail', status: 429 };
      failures += 1;
      return failures === 1 ? stored : undefined;
    });
    const payment = await pay(session, NUMBERS.good, { amount_in_cents: 23_456 });
    const id = payment.platform_payment_id;
    fates.set(`${id}:confirm`, (turn) =>
      turn === 1 ? { kind: 'hang' } : turn === 2 ? stored : undefined,
    );
    fates.set(`${id}:capture`, (turn) =>
      turn === 1 ? { kind: 'fail', status: 429 } : turn === 2 ? stored : undefined,
    );
    isReady = true;
    await settled(payment);
    assert.equal((await read(session, payment)).status, 'succeeded');
    assert.equal(stripe.taken.get(stripe.intentOf(id).id), 1);
    for (const act of ['create', 'confirm', 'capture']) {
      const keys = stripe.calls.filter(({ key }) => key?.startsWith(`${id}:${act}`));
      assert.equal(keys.at(-1)?.key, `${id}:${act}:2`, act);
    }
  });

  test('the authorization expired: the payment stays succeeded, and an operator learns that the funds are missing', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.good);
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    stripe.expire(stripe.intentOf(id).id);
    partner.endings.set(account, posted());
    assert.equal((await ended(session, payment)).status, 'succeeded');
    const events = await settled(payment);
    assert.ok(events.includes('funds_uncollected') && !events.includes('funds_captured'));
    assert.equal(await stateOf(payment), 'uncollected');
    assert.ok(
      platform.logged.some((line) => line.includes(id) && line.includes('cannot be collected')),
    );
  });

  test('the payment fails at the biller: the card is released', async () => {
    const { session } = await newSession(failed);
    const payment = await pay(session, NUMBERS.good);
    assert.ok((await settled(payment)).includes('funds_released'));
    assert.equal(stripe.intentOf(payment.platform_payment_id).status, 'canceled');
    // An event from before the release arrives after it and changes nothing.
    const intent = stripe.intentOf(payment.platform_payment_id);
    const late = await webhook('payment_intent.amount_capturable_updated', intent);
    assert.deepEqual(late.body, { applied: true });
    await funds().sweep();
    // A sweep of another test may have claimed it.
    await until('the release', async () => (await stateOf(payment)) === 'released');
    assert.equal(
      stripe.refunds.some((one) => one.payment_intent === intent.id),
      false,
    );
  });

  test('an authorization that expires soon is captured early, and refunded once if the payment fails later [PL7]', async () => {
    const { session, account } = await newSession();
    stripe.holdSeconds.set(34_567, 3_600);
    const payment = await pay(session, NUMBERS.good, { amount_in_cents: 34_567 });
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    const intent = stripe.intentOf(id);
    await Promise.all([funds().sweep(), funds().sweep()]);
    assert.equal(stripe.taken.get(intent.id), 1);
    await until('the capture', async () => (await stateOf(payment)) === 'captured');
    const key = `${id}:refund`;
    fates.set(key, (turn) => (turn === 1 ? { kind: 'lose' } : undefined));
    partner.endings.set(account, failed);
    assert.equal((await ended(session, payment)).status, 'failed');
    const events = await settled(payment);
    assert.ok(events.includes('funds_captured_early') && events.includes('funds_refunded'));
    assert.ok(!events.includes('funds_released'));
    assert.equal(stripe.refunds.filter((one) => one.payment_intent === intent.id).length, 1);
    assert.equal(await stateOf(payment), 'refunded');
  });

  test('funds that somebody captured at Stripe are refunded when the payment fails', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.good);
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    const intent = stripe.intentOf(id);
    stripe.captureByHand(intent.id);
    await webhook('payment_intent.succeeded', intent);
    partner.endings.set(account, failed);
    assert.ok((await settled(payment)).includes('funds_refunded'));
    assert.equal(stripe.refunds.filter((one) => one.payment_intent === intent.id).length, 1);
  });

  test('a dispute is recorded once however often it is reported, and a forged or old webhook is refused', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.good);
    await settled(payment);
    const intent = stripe.intentOf(payment.platform_payment_id);
    const dispute = stripe.dispute(intent, 'needs_response');
    const disputes = async (): Promise<number> =>
      (await trail(payment.platform_payment_id)).filter((event) => event === 'funds_disputed')
        .length;
    const forged = await webhook('charge.dispute.created', dispute, { secret: 'whsec_other' });
    assert.equal(forged.status, 400);
    const old = await webhook('charge.dispute.created', dispute, {
      at: Math.floor(Date.now() / 1_000) - 3_600,
    });
    assert.equal(old.status, 400);
    const { raw, headers } = stripe.webhook('charge.dispute.created', dispute);
    const altered = await platform.call('POST', '/v1/funding/stripe/events', {
      raw: raw.replace('fraudulent', 'duplicate!'),
      headers,
    });
    assert.equal(altered.status, 400);
    assert.equal(await disputes(), 0);
    const answers = await Promise.all(
      Array.from({ length: 5 }, () =>
        platform.call('POST', '/v1/funding/stripe/events', { raw, headers }),
      ),
    );
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(answers.filter(({ body }) => body['applied'] === true).length, 1);
    assert.equal(await disputes(), 1);
    // What Stripe prevents has taken the money, or has not: the dispute's own transactions say which. A closed inquiry took none.
    const withdrawn = ['cut out'] as unknown as typeof dispute.balance_transactions;
    for (const [status, balance_transactions, about] of [
      ['prevented', withdrawn, 'lost'],
      ['prevented', [], 'ended'],
      ['warning_closed', [], 'ended'],
    ] as const) {
      const id = `dp_${status}_${about}`;
      const one = { ...dispute, id, status, balance_transactions: [...balance_transactions] };
      await webhook('charge.dispute.closed', one);
      const [row] = await database.query<{ state: string }>(
        'SELECT state FROM duebridge_platform.cases WHERE case_id LIKE $1',
        [`stripe-${id}%`],
      );
      assert.equal(row?.state, about, id);
    }
    // Stripe may tell one occurrence in two events; and the end of a dispute may come before its beginning.
    assert.deepEqual((await webhook('charge.dispute.created', dispute)).body, { applied: false });
    const other = await newSession(posted());
    const second = await pay(other.session, NUMBERS.good);
    await settled(second);
    const charged = stripe.intentOf(second.platform_payment_id);
    for (const [type, status] of [
      ['charge.dispute.closed', 'lost'],
      ['charge.dispute.created', 'needs_response'],
    ] as const) {
      const told = await webhook(type, stripe.dispute(charged, status));
      assert.deepEqual(told.body, { applied: true });
    }
    const noted = await database.query<{ detail: { status: string } }>(
      `SELECT detail FROM duebridge_platform.audit WHERE platform_payment_id = $1 AND event = 'funds_disputed' ORDER BY at`,
      [second.platform_payment_id],
    );
    assert.deepEqual(
      noted.map(({ detail }) => detail.status),
      ['lost', 'needs_response'],
    );
    // Events of other systems that share the account, and event types that are not relevant here.
    for (const foreign of [
      await webhook('payment_intent.succeeded', { ...intent, metadata: {} }),
      await webhook('payment_intent.succeeded', {
        ...intent,
        metadata: { platform_payment_id: 'of-another-system' },
      }),
      await webhook('customer.created', [...stripe.customers.values()][0] ?? {}),
    ]) {
      assert.deepEqual(foreign.body, { applied: false });
    }
    const nobody = await platform.call('POST', '/v1/funding/sandbox/events', { raw, headers });
    assert.equal(nobody.status, 404);
  });

  test('a refund made at Stripe is recorded once, and the payment stays succeeded', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.good);
    await settled(payment);
    const charge = stripe.refundByHand(stripe.intentOf(payment.platform_payment_id).id);
    await webhook('charge.refunded', charge);
    await webhook('charge.refunded', charge);
    const events = await trail(payment.platform_payment_id);
    assert.equal(events.filter((event) => event === 'funds_refunded').length, 1);
    assert.equal((await read(session, payment)).status, 'succeeded');
  });

  test('parts of a card payment are refunded at Stripe, each once, also after it has forgotten its keys', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, NUMBERS.good);
    await settled(payment);
    const id = payment.platform_payment_id;
    const refund = async (amount_in_cents: number, refund_id: string) => {
      const body = { amount_in_cents, reason_code: 'other', reason: 'a test', refund_id };
      return (await platform.admin('POST', `/admin/v1/payments/${id}/refund`, body)).body;
    };
    assert.equal((await refund(100, 'one'))['state'], 'done');
    assert.equal((await refund(100, 'one'))['state'], 'done');
    assert.equal((await refund(50, 'two'))['state'], 'done');
    // As after a crash before the note, a day later.
    stripe.forgetKeys();
    const order = {
      platform_payment_id: id,
      funding_method: payment.funding_method,
      amount_in_cents: payment.amount_in_cents,
    };
    const part = { refund_id: 'two', amount_in_cents: 50 };
    const call = { signal: AbortSignal.timeout(10_000) };
    assert.deepEqual(await funds().refundPart(order, part, call), { kind: 'refunded' });
    const made = stripe.refunds.filter((one) => one.payment_intent === stripe.intentOf(id).id);
    assert.deepEqual(
      made.map(({ amount }) => amount),
      [100, 50],
    );
    const all = { refund_id: 'three', amount_in_cents: payment.amount_in_cents };
    const refused = await funds().refundPart(order, all, call);
    assert.equal(refused.kind, 'refused');
    // One that Stripe has not made yet may still fail: the customer has nothing, and it is asked for again.
    const [, two] = made;
    assert.ok(two);
    for (const status of ['pending', 'requires_action'] as const) {
      Object.assign(two, { status });
      await assert.rejects(funds().refundPart(order, part, call), {
        message: `the refund ${two.id} is ${status}`,
      });
    }
    Object.assign(two, { status: 'failed' });
    assert.equal((await funds().refundPart(order, part, call)).kind, 'refused');
    // Whoever cancels a PaymentIntent leaves nothing to refund, today or later.
    Object.assign(stripe.intentOf(id), { status: 'canceled' });
    assert.deepEqual(await funds().refundPart(order, { ...part, refund_id: 'four' }, call), {
      kind: 'refused',
      reason: 'Stripe has no money of this payment',
    });
  });

  test('authorization and capture webhooks arrive in the wrong order and twice: the card is captured once [PL7]', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.good);
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    const held = structuredClone(stripe.intentOf(id));
    partner.endings.set(account, posted());
    await settled(payment);
    for (let turn = 0; turn < 2; turn += 1) {
      await webhook('payment_intent.succeeded', stripe.intentOf(id), { id: `evt_taken_${id}` });
      await webhook('payment_intent.amount_capturable_updated', held, { id: `evt_held_${id}` });
      await webhook('payment_intent.requires_action', held, { id: `evt_asked_${id}` });
    }
    await funds().sweep();
    await until('the capture', async () => (await stateOf(payment)) === 'captured');
    assert.equal(stripe.taken.get(held.id), 1);
    assert.ok(!stripe.refunds.some((one) => one.payment_intent === held.id));
  });

  for (const [status, code] of [
    [409, 'idempotency_key_in_use'],
    [429, 'lock_timeout'],
  ] as const) {
    test(`a call that conflicts with another (${code}) is repeated, and declines nothing`, async () => {
      const { session } = await newSession(posted());
      const amount = 40_000 + status;
      let refusals = 0;
      fates.set(`amount ${amount}`, () => {
        refusals += 1;
        return refusals < 3 ? { kind: 'fail', status, code } : undefined;
      });
      const payment = await pay(session, NUMBERS.good, { amount_in_cents: amount });
      await settled(payment);
      assert.ok(refusals >= 3);
      assert.equal(stripe.intentOf(payment.platform_payment_id).amount_received, amount);
    });
  }

  test('a closed bank account is declined before the PUT', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, BANK_CLOSED, BANK);
    const end = await ended(session, payment);
    assert.equal(end.failure, 'declined');
    assert.ok(!partner.payments.has(payment.platform_payment_id));
  });

  for (const approves of [true, false]) {
    test(`a bank that wants the account confirmed is ${approves ? 'answered' : 'refused'} in the page`, async () => {
      const { session } = await newSession(posted());
      const payment = await pay(session, BANK_CONFIRMS, BANK);
      const action = await acting(session, payment);
      const id = (action.kind === 'step_up' ? action.data : '').replace('_secret_imitation', '');
      stripe.act(id, approves);
      await webhook(
        approves ? 'setup_intent.succeeded' : 'setup_intent.setup_failed',
        stripe.setups.get(id) ?? {},
      );
      const end = await ended(session, payment);
      assert.equal(end.status, approves ? 'succeeded' : 'failed');
      assert.equal(
        end.failure_reason,
        approves ? undefined : 'The bank could not confirm that it is you.',
      );
    });
  }

  test('a bank account is debited once, after the biller has posted, even if Stripe has forgotten the key [PL7]', async () => {
    const { session, account } = await newSession();
    const payment = await pay(session, NUMBERS.bank, BANK);
    const id = payment.platform_payment_id;
    await until('the partner has it', () => Promise.resolve(partner.payments.has(id)));
    assert.throws(() => stripe.intentOf(id), 'no debit yet');
    const key = `${id}:capture`;
    fates.set(key, (turn) => {
      if (turn > 1) return undefined;
      setImmediate(() => stripe.forgetKeys());
      return { kind: 'lose' };
    });
    partner.endings.set(account, posted());
    await settled(payment);
    const debit = stripe.intentOf(id);
    assert.equal(stripe.taken.get(debit.id), 1);
    assert.equal(debit.amount, 12_345);
    const customer = customerOf(debit);
    assert.ok(customer !== undefined && customer.deleted !== true && customer.email === null);
    // Days later the bank returns it.
    const returned = {
      ...debit,
      status: 'requires_payment_method',
      last_payment_error: { type: 'card_error', code: 'insufficient_funds' },
    };
    await webhook('payment_intent.payment_failed', returned);
    assert.ok((await trail(id)).includes('funds_returned'));
    assert.equal(await stateOf(payment), 'uncollected');
  });

  test('a bank debit that is refused at once is left to an operator', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, BANK_REFUSED, BANK);
    assert.ok((await settled(payment)).includes('funds_uncollected'));
    assert.equal((await read(session, payment)).status, 'succeeded');
  });

  test('a debit that the bank has not taken yet is not counted as captured [PL7]', async () => {
    const { session } = await newSession(posted());
    const payment = await pay(session, BANK_ASKS, BANK);
    const id = payment.platform_payment_id;
    await until('the payment has ended', async () => {
      return (await read(session, payment)).status === 'succeeded';
    });
    await until('a debit was made', () =>
      Promise.resolve(
        [...stripe.intents.values()].some((one) => one.metadata['platform_payment_id'] === id),
      ),
    );
    const debit = stripe.intentOf(id);
    const asked = stripe.calls.length;
    await until('it is asked about again', () => Promise.resolve(stripe.calls.length > asked));
    assert.equal(await stateOf(payment), 'authorized');
    debit.status = 'processing';
    await settled(payment);
    await until('the capture', async () => (await stateOf(payment)) === 'captured');
  });

  test('a failed bank payment debits nothing, and the account is deleted at Stripe', async () => {
    const { session } = await newSession(failed);
    const payment = await pay(session, NUMBERS.bank, BANK);
    await settled(payment);
    assert.throws(() => stripe.intentOf(payment.platform_payment_id));
    const setup = [...stripe.setups.values()].find(
      ({ metadata }) => metadata?.['platform_payment_id'] === payment.platform_payment_id,
    );
    assert.equal(customerOf(setup)?.deleted, true);
    assert.equal(await stateOf(payment), 'released');
  });
});

test('domains are registered for wallets once, and each says what is missing there', async () => {
  const at = {
    origins: ['https://pay.acme.example', 'https://acme.example', 'http://localhost:80'],
  };
  const adapters = [stripeAdapter(stripe.settings)];
  for (const _ of ['first', 'again'])
    assert.deepEqual(
      (await registerDomains(adapters, at, 'https://pay.acme.example/')).map(
        ({ domain, problem }) => [domain, problem],
      ),
      [
        ['pay.acme.example', null],
        ['acme.example', null],
        ['localhost', 'The domain is not public.'],
      ],
    );
  assert.equal(stripe.domains.size, 3);
});

test('what a person has saved is found and erased when nothing else is held about them any more', async () => {
  const { session, account } = await newSession();
  const opened = await platform.call('POST', '/v1/flow/saved-methods', {
    headers: bearer(session),
    body: { funding_method: 'stripe_card' },
  });
  assert.equal(opened.status, 200, opened.text);
  const email = `${account}@canary.example`;
  // As the retention sweep leaves it.
  await database.query(
    `UPDATE duebridge_platform.customers SET sealed = NULL, email_digest = NULL, erased_at = now()
      WHERE email_digest IN (SELECT email_digest FROM duebridge_platform.saved_customers)`,
  );
  const ask = (act: 'show' | 'erase'): Promise<Answer> =>
    platform.admin('POST', `/admin/v1/people/${act}`, { email, reason: 'asked for it' });
  const shown = await ask('show');
  assert.deepEqual([shown.status, shown.body['saved_methods']], [200, 1]);
  const erased = await ask('erase');
  assert.deepEqual([erased.status, erased.body['saved_methods']], [200, 1]);
  assert.equal((await ask('erase')).status, 404);
});

test('what a person has saved is forgotten at Stripe when the person is erased, however often that fails', async () => {
  const { session, account } = await newSession();
  const open = (funding_method: string): Promise<Answer> =>
    platform.call('POST', '/v1/flow/saved-methods', {
      headers: bearer(session),
      body: { funding_method },
    });
  const data = async (funding_method: string): Promise<string | null> =>
    ((await open(funding_method)).body as { data: string | null }).data;
  const secret = await data('stripe_card');
  const id = secret?.replace('_secret_session', '') ?? '';
  assert.ok(stripe.customers.has(id));
  // Another page of the same person gets the same; a method that saves nothing gets nothing.
  assert.equal(await data('stripe_card'), secret);
  assert.equal(await data('stripe_us_bank_account'), null);
  const erased = await platform.admin('POST', '/admin/v1/people/erase', {
    email: `${account}@canary.example`,
    reason: 'asked for it',
  });
  assert.equal(erased.status, 200, erased.text);
  assert.equal(await data('stripe_card'), null, 'nobody is left to find it by');
  let answers = false;
  fates.set(`DELETE ${id}`, () => (answers ? undefined : { kind: 'fail', status: 500 }));
  await funds().sweep();
  assert.ok(!('deleted' in (stripe.customers.get(id) ?? {})), 'Stripe did not answer');
  answers = true;
  await funds().sweep();
  assert.deepEqual(stripe.customers.get(id), { id, object: 'customer', deleted: true });
  const rows = await database.query(
    'SELECT 1 FROM duebridge_platform.saved_customers WHERE reference = $1',
    [id],
  );
  assert.deepEqual(rows, []);
});
