/**
 * Payments through Stripe from the confirm to the captured funds, against an imitation of its API (test/stripe.ts), with a real
 * platform, engine, partner and PostgreSQL; and each failure that Stripe's documentation names.
 */
import assert from 'node:assert/strict';
import { after, suite, test } from 'node:test';
import type { FlowSession, RefundMade } from '@duebridge/contract';
import { silentLog, systemClock } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { startTestPartner, startTestPlatform, type Answer } from '../checkout/testing.ts';
import { findFaults } from '../money/check.ts';
import { openSealer } from '../partners/seal.ts';
import { listCases } from '../store/cases.ts';
import { failed, newCustomer, posted, type Paid } from '../../test/paying.ts';
import {
  BANK_ASKS,
  BANK_CLOSED,
  BANK_CONFIRMS,
  BANK_REFUSED,
  NUMBERS,
  startStripe,
} from '../../test/stripe.ts';
import { registerDomains } from './domains.ts';
import { Funds } from './funds.ts';
import { stripeAdapter } from './stripe.ts';

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

const BANK = { funding_method: 'stripe_us_bank_account' };
const CARD = { funding_method: 'stripe_card', amount_in_cents: 12_345 };
const customer = (ending?: object) => newCustomer({ platform, partner, credentials }, ending);

/** A payment by this card or account; `ends` says later how it ends at the partner. */
async function pay(number: string, ending?: object, change: object = {}) {
  const one = await customer(ending);
  const paid = await one.pay({ ...CARD, instrument: stripe.token(number), ...change });
  return { ...paid, ends: one.ends, customer: one, intent: () => stripe.intentOf(paid.id) };
}

function webhook(type: string, object: object, change = {}): Promise<Answer> {
  const { raw, headers } = stripe.webhook(type, object, change);
  return platform.call('POST', '/v1/funding/stripe/events', { raw, headers });
}

/** The port over the same rows, to sweep immediately. */
function funds(): Funds {
  return new Funds({
    database,
    sealer: openSealer(SEAL_KEY),
    clock: systemClock,
    log: silentLog,
    adapters: [stripeAdapter(stripe.settings)],
  });
}

const refundsOf = ({ intent }: { intent: () => { id: string } }) =>
  stripe.refunds.filter((one) => one.payment_intent === intent().id);

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
/** The idempotency keys of the calls for a payment, in their order. */
const keysOf = (id: string): string =>
  stripe.calls.flatMap(({ key }) => (key?.startsWith(id) === true ? [key] : [])).join(', ');
const once = (fate: Fate) => (turn: number) => (turn === 1 ? fate : undefined);

suite('payments by Stripe', { concurrency: true }, () => {
  test('a card is authorized before the PUT, and captured once after the biller has posted [S4 S5 PL7]', async () => {
    const payment = await pay(NUMBERS.good);
    const { id } = payment;
    await payment.arrived();
    const { status, amount, currency, id: reference } = payment.intent();
    assert.deepEqual([status, amount, currency], ['requires_capture', 12_345, 'usd']);
    assert.equal(stripe.taken.get(reference), undefined);
    payment.ends(posted());
    assert.equal((await payment.ended()).status, 'succeeded');
    assert.ok((await payment.settled()).includes('funds_captured'));
    assert.equal(stripe.taken.get(reference), 1);
    const keys = stripe.calls.filter((call) => call.key?.startsWith(id)).map((call) => call.key);
    assert.deepEqual(keys, [`${id}:create`, `${id}:confirm`, `${id}:capture`]);
    assert.ok(platform.logged.every((line) => !line.includes(NUMBERS.good)));
  });

  test('both methods are offered beside the sandbox, with their limits and what the customer agrees to', async () => {
    const one = await customer();
    const answer = await one.call('GET', '/v1/flow/session');
    const { funding_methods } = answer.body as unknown as FlowSession;
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
    ] as const) {
      const refused = await one.confirm({ ...CARD, ...change });
      assert.equal(refused.body['code'], code, `${JSON.stringify(change)} ${refused.text}`);
      assert.ok(!refused.text.includes('4242'));
    }
  });

  test('a declined card ends the payment before the PUT, with a reason that tells a thief nothing', async () => {
    for (const [number, reason] of [
      [NUMBERS.declined, 'The funding method was declined.'],
      ['4000000000009995', 'There are insufficient funds.'],
      ['4242424242424241', 'The card number is incorrect.'],
      ['4000000000009979', 'The funding method was declined.'],
    ] as const) {
      const payment = await pay(number, posted());
      const { status, failure, failure_reason } = await payment.ended();
      assert.deepEqual([status, failure, failure_reason], ['failed', 'declined', reason]);
      // Canceled, so that nothing is held when a page confirms it again.
      assert.equal(payment.intent().status, 'canceled');
      assert.ok(!partner.payments.has(payment.id));
      const good = { ...CARD, instrument: stripe.token(NUMBERS.good) };
      await payment.customer.next();
      const again = await payment.customer.pay(good);
      assert.equal((await again.ended()).status, 'succeeded');
    }
  });

  for (const [how, act, reason] of [
    [
      'that fails at the bank',
      ({ intent }) => stripe.act(intent().id, false),
      'The bank could not confirm that it is you.',
    ],
    [
      'that nobody gives in time',
      ({ id }) =>
        database.query(
          `UPDATE duebridge_platform.funds SET act_by = now() - interval '1 second' WHERE platform_payment_id = $1`,
          [id],
        ),
      'The payment was not approved in time.',
    ],
    [
      'of a payment that an operator withdraws',
      ({ id }) =>
        platform.admin('POST', `/admin/v1/payments/${id}/withdraw`, { reason: 'by telephone' }),
      undefined,
    ],
  ] as readonly (readonly [string, (of: Awaited<ReturnType<typeof pay>>) => unknown, unknown])[]) {
    test(`a confirmation ${how} leaves nothing to approve at Stripe`, async () => {
      const payment = await pay(NUMBERS.asks, posted());
      const action = await payment.asked();
      assert.deepEqual(action, { kind: 'step_up', data: payment.intent().client_secret });
      assert.ok(!partner.payments.has(payment.id));
      await act(payment);
      const end = await payment.ended();
      assert.deepEqual([end.failure, end.failure_reason], [reason && 'declined', reason]);
      await until('the cancellation', () => payment.intent().status === 'canceled');
      if (reason === undefined) await payment.becomes('released');
      stripe.act(payment.intent().id, true);
      assert.equal(payment.intent().status, 'canceled');
    });
  }

  test('the answer of a capture is lost: the repeat carries the same key, and the card is charged once [PL7]', async () => {
    const payment = await pay(NUMBERS.good);
    const key = `${payment.id}:capture`;
    fates.set(key, once({ kind: 'lose' }));
    payment.ends(posted());
    await payment.settled();
    const captures = stripe.calls.filter((call) => call.key?.startsWith(key));
    assert.ok(captures.length >= 2);
    assert.deepEqual(new Set(captures.map((call) => call.key)), new Set([key]));
    assert.equal(stripe.taken.get(payment.intent().id), 1);
    await payment.becomes('captured');
  });

  test('Stripe limits, fails and stays silent at every call: the payment continues and is charged once [PL7]', async () => {
    /** An error that Stripe stores with the key and would repeat for a day. */
    const stored: Fate = { kind: 'fail', status: 500, keepsKey: true };
    // Refused until the fates below are set: they need the payment's id, and the engine does not wait for it.
    let isReady = false;
    let failures = 0;
    fates.set('amount 23456', () => {
      if (!isReady) return { kind: 'fail', status: 409, code: 'idempotency_key_in_use' };
      failures += 1;
      return failures === 1 ? stored : undefined;
    });
    const payment = await pay(NUMBERS.good, posted(), { amount_in_cents: 23_456 });
    const { id } = payment;
    const twice =
      (first: Fate) =>
      (turn: number): Fate =>
        turn === 1 ? first : turn === 2 ? stored : undefined;
    fates.set(`${id}:confirm`, twice({ kind: 'hang' }));
    fates.set(`${id}:capture`, twice({ kind: 'fail', status: 429 }));
    isReady = true;
    await payment.settled();
    assert.equal((await payment.read()).status, 'succeeded');
    assert.equal(stripe.taken.get(payment.intent().id), 1);
    for (const act of ['create', 'confirm', 'capture']) {
      // Not the last one: a retry that Stripe's library has begun under the first key may arrive after it.
      assert.ok(
        stripe.calls.some(({ key }) => key === `${id}:${act}:2`),
        `${act} goes on under another key: ${keysOf(id)}`,
      );
    }
  });

  test('the authorization expired: the payment stays succeeded, and an operator learns that the funds are missing', async () => {
    const payment = await pay(NUMBERS.good);
    await payment.arrived();
    stripe.expire(payment.intent().id);
    payment.ends(posted());
    assert.equal((await payment.ended()).status, 'succeeded');
    const events = await payment.settled();
    assert.ok(events.includes('funds_uncollected') && !events.includes('funds_captured'));
    await payment.becomes('uncollected');
    assert.ok(
      platform.logged.some(
        (line) => line.includes(payment.id) && line.includes('cannot be collected'),
      ),
    );
  });

  test('an authorization for another amount is never confirmed: the customer approved the other one [S5]', async () => {
    const adapter = stripeAdapter(stripe.settings);
    const order = {
      ...CARD,
      platform_payment_id: 'another-amount',
      return_url: undefined,
      instrument: stripe.token(NUMBERS.good),
    };
    const signal = AbortSignal.timeout(120_000);
    const reference = await adapter.prepare?.(order, { signal });
    assert.ok(reference);
    const other = { ...order, reference, amount_in_cents: CARD.amount_in_cents + 1 };
    await assert.rejects(async () => adapter.authorize(other, { signal }), /another amount/);
    assert.equal(stripe.intentOf(order.platform_payment_id).status, 'requires_payment_method');
  });

  test('the payment fails at the biller: the card is released, and a late event changes nothing', async () => {
    const payment = await pay(NUMBERS.good, failed);
    assert.ok((await payment.settled()).includes('funds_released'));
    assert.equal(payment.intent().status, 'canceled');
    const late = await webhook('payment_intent.amount_capturable_updated', payment.intent());
    assert.deepEqual(late.body, { applied: true });
    await funds().sweep();
    // A sweep of another test may have claimed it.
    await payment.becomes('released');
    assert.deepEqual(refundsOf(payment), []);
  });

  test('an authorization that expires soon is captured early, and refunded once if the payment fails later; if that fails, a person is told [PL7]', async () => {
    stripe.holdSeconds.set(34_567, 3_600);
    const payment = await pay(NUMBERS.good, undefined, { amount_in_cents: 34_567 });
    await payment.arrived();
    await Promise.all([funds().sweep(), funds().sweep()]);
    assert.equal(stripe.taken.get(payment.intent().id), 1);
    await payment.becomes('captured');
    fates.set(`${payment.id}:refund`, once({ kind: 'lose' }));
    payment.ends(failed);
    assert.equal((await payment.ended()).status, 'failed');
    const events = await payment.settled();
    assert.ok(events.includes('funds_captured_early') && events.includes('funds_refunded'));
    assert.ok(!events.includes('funds_released'));
    const [refund] = refundsOf(payment);
    assert.equal(refundsOf(payment).length, 1);
    await payment.becomes('refunded');
    // It comes back to the platform: the book owes nobody this money, and its customer has nothing.
    await webhook('refund.failed', { ...refund, status: 'failed', failure_reason: 'declined' });
    const cases = await listCases(database, { platform_payment_id: payment.id });
    assert.deepEqual(
      cases.map((one) => [one.state, one.amount_in_cents, /declined/.test(one.note)]),
      [['open', 0, true]],
    );
  });

  test('a dispute is recorded once however often it is reported, and a forged or old webhook is refused', async () => {
    const payment = await pay(NUMBERS.good, posted());
    await payment.settled();
    const intent = payment.intent();
    const dispute = stripe.dispute(intent, 'needs_response');
    const disputes = async (of: Paid): Promise<number> =>
      (await of.trail()).filter((event) => event === 'funds_disputed').length;
    const hour = { at: Math.floor(Date.now() / 1_000) - 3_600 };
    for (const change of [{ secret: 'whsec_other' }, hour]) {
      assert.equal((await webhook('charge.dispute.created', dispute, change)).status, 400);
    }
    const { raw, headers } = stripe.webhook('charge.dispute.created', dispute);
    const send = (body: string, to = 'stripe') =>
      platform.call('POST', `/v1/funding/${to}/events`, { raw: body, headers });
    assert.equal((await send(raw.replace('fraudulent', 'duplicate!'))).status, 400);
    assert.equal((await send(raw, 'sandbox')).status, 404);
    assert.equal(await disputes(payment), 0);
    const answers = await Promise.all(Array.from({ length: 5 }, () => send(raw)));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(answers.filter(({ body }) => body['applied'] === true).length, 1);
    // Stripe may tell one occurrence in two events.
    assert.deepEqual((await webhook('charge.dispute.created', dispute)).body, { applied: false });
    assert.equal(await disputes(payment), 1);
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
  });

  test('a refund made at Stripe is recorded once, and the payment stays succeeded', async () => {
    const payment = await pay(NUMBERS.good, posted());
    await payment.settled();
    const charge = stripe.refundByHand(payment.intent().id);
    for (const _ of ['first', 'again']) await webhook('charge.refunded', charge);
    const events = await payment.trail();
    assert.equal(events.filter((event) => event === 'funds_refunded').length, 1);
    assert.equal((await payment.read()).status, 'succeeded');
  });

  test('a refund that fails after it was made is with the platform again, and a person is told [PL17]', async () => {
    const payment = await pay(NUMBERS.good, posted());
    await payment.settled();
    const body = { amount_in_cents: 100, reason_code: 'other', reason: 'a test' };
    const made = await platform.admin('POST', `/admin/v1/payments/${payment.id}/refund`, body);
    assert.equal(made.body['outcome'], 'done', made.text);
    const [refund] = refundsOf(payment);
    const failed = { ...refund, status: 'failed', failure_reason: 'lost_or_stolen_card' };
    for (const _ of ['first', 'again']) await webhook('refund.failed', failed);
    const rows = await database.query<{ state: string; debit: string; credit: string }>(
      `SELECT r.state, t.debit, t.credit FROM duebridge_platform.refunds r JOIN duebridge_platform.transfers t ON t.id = r.refund_id
        WHERE r.platform_payment_id = $1 AND t.act = 'refund_failed'`,
      [payment.id],
    );
    assert.deepEqual(rows, [{ state: 'refused', debit: 'refunded', credit: 'borne' }]);
    const cases = await listCases(database, { platform_payment_id: payment.id });
    assert.deepEqual(
      cases.map((one) => [one.state, /lost_or_stolen_card/.test(one.note)]),
      [['open', true]],
    );
    // Other tests of this file pay meanwhile.
    const faults = await findFaults(database, Date.now() - 3_600_000);
    const own = [payment.id, refund?.metadata?.['refund_id'] ?? ''];
    assert.deepEqual(
      faults.filter((fault) => own.some((id) => fault.includes(id))),
      [],
    );
    // All of it can be refunded again.
    const all = await platform.admin('POST', `/admin/v1/payments/${payment.id}/refund`, {
      ...body,
      amount_in_cents: CARD.amount_in_cents,
    });
    assert.notEqual(all.status, 409);
  });

  test('parts of a card payment are refunded at Stripe, each once, also after it has forgotten its keys', async () => {
    const payment = await pay(NUMBERS.good, posted());
    await payment.settled();
    const { id, intent } = payment;
    let refund_id = '';
    for (const amount_in_cents of [100, 100, 50]) {
      const body = { amount_in_cents, reason_code: 'other', reason: 'a test' };
      const asked = await platform.admin('POST', `/admin/v1/payments/${id}/refund`, body);
      const { outcome, refund } = asked.body as unknown as RefundMade;
      assert.equal(outcome, 'done', asked.text);
      refund_id = refund?.refund_id ?? '';
    }
    // As after a crash before the note, a day later.
    stripe.forgetKeys(id);
    const part = { refund_id, amount_in_cents: 50 };
    const refund = (change: object = {}) =>
      funds().refundPart(
        { ...CARD, platform_payment_id: id },
        { ...part, ...change },
        { signal: AbortSignal.timeout(120_000) },
      );
    assert.deepEqual(await refund(), { kind: 'refunded' });
    const made = refundsOf(payment);
    assert.deepEqual(
      made.map(({ amount }) => amount),
      [100, 50],
    );
    const all = { refund_id: 'three', amount_in_cents: CARD.amount_in_cents };
    assert.equal((await refund(all)).kind, 'refused');
    // One that Stripe has not made yet may still fail: the customer has nothing, and it is asked for again.
    const [, two] = made;
    assert.ok(two);
    for (const status of ['pending', 'requires_action'] as const) {
      Object.assign(two, { status });
      await assert.rejects(refund(), { message: `the refund ${two.id} is ${status}` });
    }
    Object.assign(two, { status: 'failed' });
    assert.equal((await refund()).kind, 'refused');
    // Whoever cancels a PaymentIntent leaves nothing to refund, today or later.
    Object.assign(intent(), { status: 'canceled' });
    assert.deepEqual(await refund({ refund_id: 'four' }), {
      kind: 'refused',
      reason: 'Stripe has no money of this payment',
    });
  });

  test('a closed bank account is declined before the PUT', async () => {
    const payment = await pay(BANK_CLOSED, posted(), BANK);
    assert.equal((await payment.ended()).failure, 'declined');
    assert.ok(!partner.payments.has(payment.id));
  });

  for (const approves of [true, false]) {
    test(`a bank that wants the account confirmed is ${approves ? 'answered' : 'refused'} in the page`, async () => {
      const payment = await pay(BANK_CONFIRMS, posted(), BANK);
      const action = await payment.asked();
      const id = (action.kind === 'step_up' ? action.data : '').replace('_secret_imitation', '');
      stripe.act(id, approves);
      const type = approves ? 'setup_intent.succeeded' : 'setup_intent.setup_failed';
      await webhook(type, stripe.setups.get(id) ?? {});
      const end = await payment.ended();
      assert.deepEqual(
        [end.status, end.failure_reason],
        approves
          ? ['succeeded', undefined]
          : ['failed', 'The bank could not confirm that it is you.'],
      );
    });
  }

  test('a bank account is debited once, after the biller has posted, even if Stripe has forgotten the key [PL7]', async () => {
    const payment = await pay(NUMBERS.bank, undefined, BANK);
    await payment.arrived();
    assert.throws(payment.intent, 'no debit yet');
    fates.set(`${payment.id}:capture`, (turn) => {
      if (turn > 1) return undefined;
      setImmediate(() => stripe.forgetKeys(payment.id));
      return { kind: 'lose' };
    });
    payment.ends(posted());
    await payment.settled();
    const debit = payment.intent();
    assert.deepEqual([stripe.taken.get(debit.id), debit.amount], [1, 12_345]);
    const owner = stripe.customers.get(debit.customer as string);
    assert.ok(owner !== undefined && owner.deleted !== true && owner.email === null);
    // Days later the bank returns it.
    const returned = {
      ...debit,
      status: 'requires_payment_method',
      last_payment_error: { type: 'card_error', code: 'insufficient_funds' },
    };
    await webhook('payment_intent.payment_failed', returned);
    assert.ok((await payment.trail()).includes('funds_returned'));
    await payment.becomes('uncollected');
  });

  test('a bank debit that is refused at once is left to an operator', async () => {
    const payment = await pay(BANK_REFUSED, posted(), BANK);
    assert.ok((await payment.settled()).includes('funds_uncollected'));
    assert.equal((await payment.read()).status, 'succeeded');
  });

  test('a debit that the bank has not taken yet is not counted as captured [PL7]', async () => {
    const payment = await pay(BANK_ASKS, posted(), BANK);
    assert.equal((await payment.ended()).status, 'succeeded');
    await until('a debit was made', () =>
      [...stripe.intents.values()].some(
        (one) => one.metadata['platform_payment_id'] === payment.id,
      ),
    );
    const asked = stripe.calls.length;
    await until('it is asked about again', () => stripe.calls.length > asked);
    // As it was before the payment left: an agreement to a debit lasts, which needs no note.
    await payment.becomes('new');
    payment.intent().status = 'processing';
    await payment.settled();
    await payment.becomes('captured');
  });

  test('a failed bank payment debits nothing, and the account is deleted at Stripe', async () => {
    const payment = await pay(NUMBERS.bank, failed, BANK);
    await payment.settled();
    assert.throws(payment.intent);
    const setup = [...stripe.setups.values()].find(
      ({ metadata }) => metadata?.['platform_payment_id'] === payment.id,
    );
    assert.equal(stripe.customers.get(setup?.customer as string)?.deleted, true);
    await payment.becomes('released');
  });
});

test('domains are registered for wallets once, and each says what is missing there', async () => {
  const at = { origins: ['https://acme.example', 'http://localhost:80'] };
  const adapters = [stripeAdapter(stripe.settings)];
  for (const _ of ['first', 'again'])
    assert.deepEqual(
      (await registerDomains(adapters, at, 'https://acme.example/')).map(({ domain, problem }) => [
        domain,
        problem,
      ]),
      [
        ['acme.example', null],
        ['localhost', 'The domain is not public.'],
      ],
    );
  assert.equal(stripe.domains.size, 2);
});

test('what a person has saved is found and forgotten at Stripe, however often that fails and whatever else is held', async () => {
  const one = await customer();
  const data = async (funding_method: string): Promise<string | null> => {
    const opened = await one.call('POST', '/v1/flow/saved-methods', { funding_method });
    assert.equal(opened.status, 200, opened.text);
    return (opened.body as { data: string | null }).data;
  };
  const secret = await data('stripe_card');
  const id = secret?.replace('_secret_session', '') ?? '';
  assert.ok(stripe.customers.has(id));
  // Another page of the same person gets the same; a method that saves nothing gets nothing.
  assert.equal(await data('stripe_card'), secret);
  assert.equal(await data('stripe_us_bank_account'), null);
  // Nothing else is held about them any more, as the retention sweep leaves it.
  await database.query(
    `UPDATE duebridge_platform.customers SET sealed = NULL, email_digest = NULL, erased_at = now()
      WHERE email_digest IN (SELECT email_digest FROM duebridge_platform.saved_customers)`,
  );
  const { email } = one;
  for (const act of ['show', 'erase'] as const) {
    const reason = 'asked for it';
    const done = await platform.admin('POST', `/admin/v1/people/${act}`, { email, reason });
    assert.deepEqual([done.status, done.body['saved_methods']], [200, 1]);
  }
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
