import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { ERRORS, type ErrorCode, type FlowPayment, type FlowSession } from '@duebridge/contract';
import { until } from '@duebridge/runtime/testing';
import {
  bearer,
  startTestPartner,
  startTestPlatform,
  tokenRequest,
  type Answer,
} from './testing.ts';
import { MAX_SESSIONS_PER_TOKEN } from './session.ts';

const partner = await startTestPartner({ after });
const platform = await startTestPlatform({ after });
const biller = await platform.register(partner);
const credentials = await platform.credentials(biller.partner_id);

/** A customer of their own for each test, so that no flow meets another's. */
let customers = 0;
function newCustomer(): string {
  customers += 1;
  return `customer${customers}@canary.example`;
}

const succeeded = (): object => ({ status: 'succeeded', posted_at: new Date().toISOString() });
const failed = (failure_reason: string): object => ({
  status: 'failed',
  posted_at: null,
  failure_reason,
});

/** An account of its own, whose payments end as told; without an ending they stay in processing. */
let accounts = 0;
function newAccount(ending?: object): string {
  accounts += 1;
  const account_id = `n${accounts}`;
  partner.accounts.set(account_id, { ...partner.accounts.get('a1'), account_id });
  if (ending !== undefined) partner.endings.set(account_id, ending);
  return account_id;
}

async function exchange(token: string, body: object = {}): Promise<Answer> {
  return platform.call('POST', '/v1/flow/session', { headers: bearer(token), body });
}

async function readSession(session: string): Promise<FlowSession> {
  const answer = await platform.call('GET', '/v1/flow/session', { headers: bearer(session) });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowSession;
}

const confirm = (session: string, change: object = {}): Promise<Answer> =>
  platform.confirm(session, { amount_in_cents: 1_000, ...change });

async function pay(session: string, change: object = {}): Promise<FlowPayment> {
  const answer = await confirm(session, change);
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowPayment;
}

async function readPayment(session: string, id: string): Promise<FlowPayment> {
  const answer = await platform.call('GET', `/v1/flow/payments/${id}`, {
    headers: bearer(session),
  });
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as FlowPayment;
}

/** The payment after the engine has brought it to its end. */
const ended = (session: string, id: string): Promise<FlowPayment> => platform.ended(session, id);

function assertCode(answer: Answer, code: ErrorCode): void {
  assert.equal(answer.body['code'], code, answer.text);
  assert.equal(answer.status, ERRORS[code].status);
}

async function paymentsOf(account_id: string): Promise<number> {
  const rows = await platform.database.query(
    'SELECT 1 FROM duebridge_platform.payments WHERE partner_id = $1 AND account_id = $2',
    [biller.partner_id, account_id],
  );
  return rows.length;
}

test('a token opens the flow, the flow shows the bill, and the bill is paid [S1 S4 S5]', async () => {
  const account = newAccount(succeeded());
  const { session, session_id, token } = await platform.session(credentials, account);
  assert.notEqual(session, token);
  const bill = await readSession(session);
  assert.equal(bill.session_id, session_id);
  assert.deepEqual(bill.partner, { partner_id: biller.partner_id, name: 'Springfield Water' });
  assert.deepEqual(bill.biller, { biller_id: 'water', name: 'Springfield Water' });
  assert.equal(bill.account.balance_source, 'partner');
  assert.equal(bill.account.balance?.amount_due_in_cents, 12_345);
  assert.equal(bill.account.payment_rules.max_amount_in_cents, 500_000);
  assert.equal(bill.payment, null);
  assert.equal(bill.funding_methods[0]?.sandbox, true);

  const payment = await pay(session, { amount_in_cents: 12_345 });
  assert.equal(payment.status, 'processing');
  assert.equal(payment.amount_in_cents, 12_345);
  const end = await ended(session, payment.platform_payment_id);
  assert.equal(end.status, 'succeeded');
  assert.equal(end.progress, 'ended');
  assert.equal(end.payment_id, `there-${payment.platform_payment_id}`);
  assert.ok(end.posted_at !== null && end.initiated_at !== null);
  assert.deepEqual(await readPayment(session, payment.platform_payment_id), end);
  assert.deepEqual((await readSession(session)).payment, end);
});

test('an unknown, a garbled and an expired token open nothing, each with its own error [S1 PL12]', async () => {
  assertCode(await exchange(`dbt_${'A'.repeat(43)}`), 'TOKEN_INVALID');
  assertCode(await exchange('x'), 'TOKEN_INVALID');
  const bare = await platform.call('POST', '/v1/flow/session', { body: {} });
  assertCode(bare, 'TOKEN_INVALID');
  assert.equal(bare.headers.get('www-authenticate'), 'Bearer');
  const { token } = await platform.session(credentials, 'a1', newCustomer());
  await platform.database.query(
    `UPDATE duebridge_platform.tokens SET expires_at = now() WHERE token_hash = sha256($1)`,
    [Buffer.from(token)],
  );
  assertCode(await exchange(token), 'TOKEN_EXPIRED');
});

test('only a site registered for the partner may show its flow [S1]', async () => {
  const { token } = await platform.session(credentials, 'a1', newCustomer());
  assert.equal((await exchange(token, { origin: 'https://water.example' })).status, 200);
  for (const origin of [
    'https://evil.example',
    'https://water.example.evil.example',
    'http://water.example',
    'https://water.example/',
    'null',
    '',
  ]) {
    assertCode(await exchange(token, { origin }), 'ORIGIN_NOT_ALLOWED');
  }
  assertCode(await exchange(token, { site: 'x' }), 'INVALID_REQUEST');
});

test('an expired or made-up session opens nothing', async () => {
  const { session } = await platform.session(credentials, 'a1', newCustomer());
  const payment = await pay(session);
  await platform.database.query(
    'UPDATE duebridge_platform.sessions SET expires_at = now() WHERE session_hash = sha256($1)',
    [Buffer.from(session)],
  );
  const id = payment.platform_payment_id;
  for (const secret of [session, 'dbs_none', '']) {
    const headers = secret === '' ? {} : bearer(secret);
    const answers = [
      await platform.call('GET', '/v1/flow/session', { headers }),
      await platform.call('POST', '/v1/flow/payments', { headers, body: {} }),
      await platform.call('GET', `/v1/flow/payments/${id}`, { headers }),
    ];
    for (const answer of answers) assertCode(answer, 'SESSION_EXPIRED');
  }
});

test('a hundred confirms from two tabs and two tokens make one payment [S4 PL3 F93]', async () => {
  const account = newAccount();
  const customer = newCustomer();
  const one = await platform.session(credentials, account, customer);
  const two = await platform.session(credentials, account, customer);
  const third = (await exchange(one.token)).body as { session: string };
  await platform.next(third.session);
  const tabs = [one.session, two.session, third.session];
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, turn) =>
      confirm(tabs[turn % 3]!, { amount_in_cents: 1_000 + turn }),
    ),
  );
  const ids = new Set(answers.map((answer) => answer.body['platform_payment_id']));
  const amounts = new Set(answers.map((answer) => answer.body['amount_in_cents']));
  assert.ok(answers.every((answer) => answer.status === 200));
  assert.equal(ids.size, 1);
  assert.equal(amounts.size, 1);
  assert.equal(await paymentsOf(account), 1);
});

test('a tab opened before another tab paid cannot pay a second time, even after the payment ended [S4 PL3]', async () => {
  const account = newAccount(succeeded());
  const customer = newCustomer();
  const one = await platform.session(credentials, account, customer);
  const two = await platform.session(credentials, account, customer);
  const payment = await pay(one.session);
  await ended(one.session, payment.platform_payment_id);
  assert.equal((await pay(two.session)).platform_payment_id, payment.platform_payment_id);
  // Who comes back afterwards, under a new token, has seen the bill as it is now.
  const later = await platform.session(credentials, account, customer);
  assert.equal((await readSession(later.session)).payment, null);
  assert.notEqual((await pay(later.session)).platform_payment_id, payment.platform_payment_id);
  assert.equal(await paymentsOf(account), 2);
});

test('a session renewed in the middle of the flow repeats its confirm without a second payment [S4]', async () => {
  const account = newAccount(succeeded());
  const customer = newCustomer();
  const first = await platform.session(credentials, account, customer);
  const payment = await pay(first.session);
  await ended(first.session, payment.platform_payment_id);
  const { platform_payment_id } = payment;
  const renewed = await platform.session(credentials, account, customer);
  const again = await pay(renewed.session, { platform_payment_id });
  assert.equal(again.platform_payment_id, platform_payment_id);
  // Nobody else gets it by its id.
  const stranger = await platform.session(credentials, account, newCustomer());
  assertCode(await confirm(stranger.session, { platform_payment_id }), 'CONFLICT');
  assert.equal(await paymentsOf(account), 1);
});

test('a page that is an hour old and whose place another page has taken is given the payment that is there [S4 PL3]', async () => {
  const account = newAccount(succeeded());
  const customer = newCustomer();
  const old = await platform.session(credentials, account, customer);
  // Half an hour later the next id is minted anew.
  await platform.database.query(
    "UPDATE duebridge_platform.flows SET minted_at = minted_at - interval '1 hour' WHERE account_id = $1",
    [account],
  );
  const one = await platform.session(credentials, account, customer);
  const payment = await pay(one.session);
  assert.notEqual(old.bill?.next_payment_id, payment.platform_payment_id);
  await ended(one.session, payment.platform_payment_id);
  assert.equal((await pay(old.session)).platform_payment_id, payment.platform_payment_id);
  assert.equal(await paymentsOf(account), 1);
});

test('a token makes one successful payment, however often it is exchanged afterwards [S4 PL12]', async () => {
  const account = newAccount(succeeded());
  const { token, session } = await platform.session(credentials, account, newCustomer());
  const payment = await pay(session);
  await ended(session, payment.platform_payment_id);
  const again = String((await exchange(token)).body['session']);
  const shown = await readSession(again);
  assert.equal(shown.payment?.status, 'succeeded');
  await platform.next(again);
  assert.equal((await pay(again)).platform_payment_id, payment.platform_payment_id);
  assert.equal(await paymentsOf(account), 1);
});

test('another id, another customer, another partner: the same 404 for all of them', async () => {
  const account = newAccount();
  const mine = await platform.session(credentials, account, newCustomer());
  const payment = await pay(mine.session);
  const elsewhere = await platform.register(partner);
  const grant = await platform.credentials(elsewhere.partner_id);
  const theirs = await platform.session(grant, account, 'customer@canary.example');
  const headers = bearer(theirs.session);
  const bodies = [];
  for (const id of [payment.platform_payment_id, 'never', '018f0000-0000-7000-8000-000000000000']) {
    const answer = await platform.call('GET', `/v1/flow/payments/${id}`, { headers });
    assertCode(answer, 'PAYMENT_NOT_FOUND');
    bodies.push(answer.text);
  }
  assert.equal(new Set(bodies).size, 1);
});

test('a session never gets a payment of another partner, even if its flow points to one', async () => {
  const account = newAccount();
  const mine = await platform.session(credentials, account, newCustomer());
  const payment = await pay(mine.session);
  const elsewhere = await platform.register(partner);
  const theirs = await platform.session(
    await platform.credentials(elsewhere.partner_id),
    account,
    'customer@canary.example',
  );
  const own = await pay(theirs.session);
  // A mistake that hangs one partner's payment into the other's flow: the first wall is down.
  await platform.database.query(
    `UPDATE duebridge_platform.flow_payments SET flow_id =
       (SELECT flow_id FROM duebridge_platform.flow_payments WHERE platform_payment_id = $2)
      WHERE platform_payment_id = $1`,
    [payment.platform_payment_id, own.platform_payment_id],
  );
  await platform.database.query(
    `UPDATE duebridge_platform.flows SET latest_payment_id = $1 WHERE latest_payment_id = $2`,
    [payment.platform_payment_id, own.platform_payment_id],
  );
  const headers = bearer(theirs.session);
  const path = `/v1/flow/payments/${payment.platform_payment_id}`;
  assertCode(await platform.call('GET', path, { headers }), 'PAYMENT_NOT_FOUND');
  const odd = await platform.call('GET', '/v1/flow/payments/%00', { headers });
  assertCode(odd, 'INVALID_REQUEST');
  const shown = (await readSession(theirs.session)).payment?.platform_payment_id;
  assert.notEqual(shown, payment.platform_payment_id);
});

test('a payment that its flow names and that cannot be read yet is never taken for absent [PL3]', async () => {
  const account = newAccount();
  const { session } = await platform.session(credentials, account, newCustomer());
  const { platform_payment_id: id } = await pay(session);
  // As on a sharded database between two of its commits: the flow is there and the payment is not.
  const column = 'platform_payment_id';
  const rename = (from: string, to: string): Promise<unknown> =>
    platform.database.query(
      `UPDATE duebridge_platform.flows SET latest_payment_id = $2 WHERE latest_payment_id = $1`,
      [from, to],
    );
  const hide = (from: string, to: string): Promise<unknown> =>
    platform.database.query(
      `UPDATE duebridge_platform.flow_payments SET ${column} = $2 WHERE ${column} = $1`,
      [from, to],
    );
  const unseen = '01990000-0000-7000-8000-000000000000';
  await rename(id, unseen);
  await hide(id, unseen);
  const again = await confirm(session);
  assertCode(again, 'SERVICE_UNAVAILABLE');
  assert.equal(again.headers.get('retry-after'), '1');
  assert.equal(await paymentsOf(account), 1);
  await hide(unseen, id);
  await rename(unseen, id);
  assert.equal((await pay(session)).platform_payment_id, id);
});

test('each retry of a failed payment makes one payment, however often the button is pressed [S4]', async () => {
  const account = newAccount();
  const { session } = await platform.session(credentials, account, newCustomer());
  const first = await pay(session);
  partner.endings.set(account, failed('The card office is closed'));
  const end = await ended(session, first.platform_payment_id);
  assert.equal(end.status, 'failed');
  assert.equal(end.failure_reason, 'The card office is closed');
  // From a page that has not seen its end a confirm is still the same one.
  assert.equal((await pay(session)).platform_payment_id, first.platform_payment_id);
  partner.endings.delete(account);
  await platform.next(session);
  const tries = await Promise.all(Array.from({ length: 10 }, () => pay(session)));
  const ids = new Set(tries.map((payment) => payment.platform_payment_id));
  assert.equal(ids.size, 1);
  assert.ok(!ids.has(first.platform_payment_id));
  assert.equal(await paymentsOf(account), 2);
  assertCode(await confirm(session, { platform_payment_id: 'never' }), 'CONFLICT');
});

test('an old page cannot retry its failed payment after another page paid the bill [S4]', async () => {
  const account = newAccount(failed('The account was not found or is not active.'));
  const customer = newCustomer();
  const first = await platform.session(credentials, account, customer);
  const lost = await pay(first.session);
  assert.equal((await ended(first.session, lost.platform_payment_id)).status, 'failed');
  await platform.next(first.session);
  partner.endings.set(account, succeeded());
  const second = await platform.session(credentials, account, customer);
  const paid = await pay(second.session);
  assert.equal((await ended(second.session, paid.platform_payment_id)).status, 'succeeded');
  // The first page, opened anew by its own token, shows what was paid and pays nothing more.
  const again = String((await exchange(first.token)).body['session']);
  assert.equal((await readSession(again)).payment?.platform_payment_id, paid.platform_payment_id);
  await platform.next(again);
  for (const page of [first.session, again])
    assert.equal((await pay(page)).platform_payment_id, paid.platform_payment_id);
  assert.equal(await paymentsOf(account), 2);
});

test('a page that was drawn before another retried and paid shows that payment, not the failed one before it [S4]', async () => {
  const account = newAccount(failed('The card office is closed'));
  const customer = newCustomer();
  const first = await platform.session(credentials, account, customer);
  const second = await platform.session(credentials, account, customer);
  // Both show the bill; the first one pays, in vain, and tries again.
  const lost = await pay(first.session);
  assert.equal((await ended(first.session, lost.platform_payment_id)).status, 'failed');
  assert.equal((await pay(second.session)).platform_payment_id, lost.platform_payment_id);
  partner.endings.set(account, succeeded());
  await platform.next(first.session);
  const paid = await pay(first.session);
  assert.equal((await pay(second.session)).platform_payment_id, paid.platform_payment_id);
  assert.equal((await ended(first.session, paid.platform_payment_id)).status, 'succeeded');
  assert.equal((await pay(second.session)).platform_payment_id, paid.platform_payment_id);
  assert.equal(await paymentsOf(account), 2);
});

test('only the interface’s reason forbids a retry; free text that may describe a duplicate only asks [FR1]', async () => {
  for (const [reason, failure] of [
    ['Duplicate payment detected', 'duplicate'],
    ['duplicate payment detected.', 'duplicate'],
    ['This is not a duplicate; your bank refused', 'possible_duplicate'],
    ['Pago duplicado', 'possible_duplicate'],
    ['Este recibo ya fue pagado', 'possible_duplicate'],
    ['Paiement en doublon', 'possible_duplicate'],
    ['Account not found or inactive', 'account'],
    ['Amount above the maximum allowed', 'amount'],
    ['Our duplex printer is broken', 'other'],
    ['The account is already closed', 'other'],
  ] as const) {
    const account = newAccount(failed(reason));
    const { session } = await platform.session(credentials, account, newCustomer());
    const { platform_payment_id } = await pay(session);
    const end = await ended(session, platform_payment_id);
    assert.equal(end.failure, failure, reason);
    await platform.next(session);
    const again = await pay(session);
    const isSame = again.platform_payment_id === platform_payment_id;
    assert.equal(isSame, failure === 'duplicate', reason);
  }
});

test('a reason that cannot be stored unchanged still ends its payment, and those in the same batch', async () => {
  const odd = newAccount(failed('closed\u0000since\ud800 May'));
  const other = newAccount(failed('Please call us'));
  const both = await Promise.all(
    [odd, other].map(async (account) => {
      const { session } = await platform.session(credentials, account, newCustomer());
      const { platform_payment_id } = await pay(session);
      return ended(session, platform_payment_id);
    }),
  );
  assert.deepEqual(
    both.map(({ failure_reason }) => failure_reason),
    ['closed\uFFFDsince\uFFFD May', 'Please call us'],
  );
});

test('a token opens a limited number of sessions, and open ones continue', async () => {
  const made = await platform.token(credentials, {
    ...tokenRequest(newAccount()),
    email: newCustomer(),
  });
  const token = String(made.body['token']);
  const answers = await Promise.all(
    Array.from({ length: MAX_SESSIONS_PER_TOKEN + 5 }, () => exchange(token)),
  );
  const open = answers.filter(({ status }) => status === 200);
  assert.equal(open.length, MAX_SESSIONS_PER_TOKEN);
  const refused = answers.find(({ status }) => status !== 200);
  assertCode(refused!, 'TOO_MANY_REQUESTS');
  for (const { body } of open) await readSession(String(body['session']));
});

test('an e-mail address in two Unicode forms is one customer, who sees the payment already made', async () => {
  const account = newAccount();
  const name = `zoë${newCustomer()}`;
  const one = await platform.session(credentials, account, name.normalize('NFC'));
  const payment = await pay(one.session);
  const two = await platform.session(credentials, account, name.normalize('NFD').toUpperCase());
  const shown = await readSession(two.session);
  assert.equal(shown.payment?.platform_payment_id, payment.platform_payment_id);
});

test('a receipt names a contact, and what was refunded', async () => {
  const account = newAccount();
  await platform.admin('PATCH', `/admin/v1/partners/${biller.partner_id}`, {
    support_contact: 'help@water.example',
  });
  const { session, bill } = await platform.session(credentials, account, newCustomer());
  assert.equal(bill?.partner.support_contact, 'help@water.example');
  const payment = await pay(session);
  partner.endings.set(account, succeeded());
  await ended(session, payment.platform_payment_id);
  assert.equal((await readSession(session)).refunded_in_cents, undefined);
  await until('its funds are settled, so that a part is refunded', async () => {
    const path = `/admin/v1/payments/${payment.platform_payment_id}/refund`;
    const part = { amount_in_cents: 100, reason_code: 'goodwill', reason: 'r' };
    return (await platform.admin('POST', path, part)).status === 200;
  });
  assert.equal((await readSession(session)).refunded_in_cents, 100);
});

test('the page learns no whole account id, and no name of the holder, from any answer of the flow [PL15]', async () => {
  const account_id = 'secretaccount12345678';
  const holder = { first_name: 'Wilhelmina', last_name: 'Holder' };
  partner.accounts.set(account_id, { ...partner.accounts.get('a1'), account_id, holder });
  partner.endings.set(account_id, succeeded());
  const { session, token } = await platform.session(credentials, account_id, newCustomer());
  const headers = bearer(session);
  const answers = [
    await exchange(token),
    await platform.call('GET', '/v1/flow/session', { headers }),
    await confirm(session),
  ];
  const id = String(answers[2]?.body['platform_payment_id']);
  await ended(session, id);
  for (const path of [`/v1/flow/payments/${id}`, '/v1/flow/session']) {
    answers.push(await platform.call('GET', path, { headers }));
  }
  for (const { status, text } of answers) {
    assert.equal(status, 200, text);
    assert.doesNotMatch(text, /secretaccount|Wilhelmina|Holder/);
  }
  assert.match(answers[1]?.text ?? '', /••••5678/);
});

test('an amount that the account does not allow is refused with the limit, and stored nowhere [S5]', async () => {
  const account = newAccount();
  const { session } = await platform.session(credentials, account, newCustomer());
  for (const amount_in_cents of [99, 500_001]) {
    const answer = await confirm(session, { amount_in_cents });
    assertCode(answer, 'AMOUNT_OUT_OF_RANGE');
    const [detail] = answer.body['details'] as { path: string }[];
    assert.equal(detail?.path, 'body.amount_in_cents');
  }
  for (const amount_in_cents of [0, -1, 1.5, '1000', null, 100_000_000_000]) {
    assertCode(await confirm(session, { amount_in_cents }), 'INVALID_REQUEST');
  }
  assertCode(await confirm(session, { funding_method: '4111111111111111' }), 'INVALID_REQUEST');
  assertCode(await confirm(session, { note: 'x' }), 'INVALID_REQUEST');
  const typed = await platform.call('POST', '/v1/flow/payments', {
    headers: { ...bearer(session), 'content-type': 'text/plain' },
    raw: '{}',
  });
  assertCode(typed, 'UNSUPPORTED_MEDIA_TYPE');
  assert.equal(await paymentsOf(account), 0);
  assert.equal((await pay(session, { amount_in_cents: 100 })).amount_in_cents, 100);
});

test('an account that is gone or inactive is reported as not found, not offered for payment', async () => {
  const account = newAccount();
  const { session } = await platform.session(credentials, account, newCustomer());
  const record = partner.accounts.get(account)!;
  partner.accounts.set(account, { ...record, status: 'inactive' });
  const inactive = await platform.call('GET', '/v1/flow/session', { headers: bearer(session) });
  assertCode(inactive, 'ACCOUNT_NOT_FOUND');
  assertCode(await confirm(session), 'ACCOUNT_NOT_FOUND');
  partner.accounts.delete(account);
  const gone = await platform.call('GET', '/v1/flow/session', { headers: bearer(session) });
  assertCode(gone, 'ACCOUNT_NOT_FOUND');
  assertCode(await confirm(session), 'ACCOUNT_NOT_FOUND');
  const { external_identifiers: _none, ...nameless } = tokenRequest();
  const made = await platform.token(credentials, nameless);
  const opened = await exchange(String(made.body['token']));
  const headers = bearer(String(opened.body['session']));
  assertCode(await platform.call('GET', '/v1/flow/session', { headers }), 'ACCOUNT_NOT_FOUND');
  assert.equal(await paymentsOf(account), 0);
});

test('a biller that does not answer is reported unreachable before a payment, and hides no payment afterwards', async (t) => {
  t.after(() => {
    partner.mode = 'ok';
  });
  const account = newAccount();
  const { session } = await platform.session(credentials, account, newCustomer());
  partner.mode = 'broken';
  const bill = await platform.call('GET', '/v1/flow/session', { headers: bearer(session) });
  assertCode(bill, 'PARTNER_UNREACHABLE');
  assert.ok(Number(bill.headers.get('retry-after')) >= 1);
  assertCode(await confirm(session), 'PARTNER_UNREACHABLE');
  assert.equal(await paymentsOf(account), 0);
  // The alerts tell a biller that does not answer from an error of ours by this.
  const metrics = await (await fetch(new URL('/metrics', platform.adminUrl))).text();
  assert.match(metrics, /_count\{.*"\/v1\/flow\/session",status="503",code="PARTNER_UNREACHABLE"/);
  partner.mode = 'ok';
  const payment = await pay(session);
  partner.mode = 'broken';
  const shown = await readSession(session);
  assert.equal(shown.payment?.platform_payment_id, payment.platform_payment_id);
  assert.equal(shown.account.balance_source, 'token');
  assert.equal(shown.account.balance?.amount_due_in_cents, 4_200);
  assert.equal((await pay(session)).platform_payment_id, payment.platform_payment_id);
  partner.mode = 'ok';
});
