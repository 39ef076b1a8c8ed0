/** What an operator can find out about one payment, and the only way to end a payment that a partner refused for good. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import test, { after } from 'node:test';
import type { AskView, Overview, PaymentDetail, ReviewClose } from '@duebridge/contract';
import { createMetrics, systemClock } from '@duebridge/runtime';
import { served, until } from '@duebridge/runtime/testing';
import { bearer, startTestPlatform, type Answer } from '../checkout/testing.ts';
import { openGauges } from './overview.ts';

/** A partner that refuses every PUT with a message full of data that must not be stored, and has no payment. */
async function startRefusingPartner(): Promise<string> {
  const server = createServer((request, response) => {
    const answer = (status: number, body: object): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (request.url?.includes('/payment/') !== true) {
      answer(200, { biller_id: 'water', account_id: 'acct-775533', status: 'active' });
    } else if (request.method === 'PUT') {
      const { 'x-partner-key': key } = request.headers;
      answer(422, {
        code: 'AMOUNT_TOO_HIGH',
        message: `Too high for acct-775533 of jo@example.com, +1 512 555 0100, key ${String(key)}`,
      });
    } else answer(404, { code: 'PAYMENT_NOT_FOUND', message: 'no' });
  });
  return served({ after }, server);
}

const platform = await startTestPlatform({ after }, { secondPersonAboveCents: 100_000 });
await platform.admin('POST', '/admin/v1/partners', {
  partner_id: 'refuser',
  name: 'Refuser Water',
  kind: 'biller',
  biller_id: 'water',
  base_url: await startRefusingPartner(),
  origins: [],
  auth: { method: 'key', header: 'x-partner-key', key: 'hush-partner-key-123' },
});
const credentials = await platform.credentials('refuser');

/** An operator with a role; returns a function that calls as that operator. */
async function operator(operator_id: string, role: string) {
  const headers = bearer((await platform.operator(operator_id, role)).operator_key);
  return (method: string, path: string, body?: unknown): Promise<Answer> =>
    platform.admin(method, path, body, headers);
}
const ada = await operator('ada', 'operator');
const bob = await operator('bob', 'operator');
const vic = await operator('vic', 'viewer');

let customers = 0;
function pay(amount_in_cents: number): Promise<{ id: string; session: string }> {
  customers += 1;
  const email = `customer-${customers}@example.com`;
  return platform.pay(credentials, 'acct-775533', email, amount_in_cents);
}

async function detailOf(id: string): Promise<PaymentDetail> {
  const answer = await ada('GET', `/admin/v1/payments/${id}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.body as unknown as PaymentDetail;
}

/** Who asked for what about a payment, as the list of asks has it. */
async function asksAbout(id: string): Promise<string[]> {
  const { asks } = (await vic('GET', '/admin/v1/asks')).body as { asks: AskView[] };
  return asks
    .filter(({ subject }) => subject === `payment/${id}`)
    .map(({ asked_by, act }) => `${asked_by}: ${act}`);
}

async function inReview(amount = 2500): Promise<{ id: string; session: string }> {
  const made = await pay(amount);
  await until('the payment is in review', async () => {
    return (await detailOf(made.id)).payment.stage === 'review';
  });
  return made;
}

/** The gauges of what waits, read at each call. */
function readGauges(): () => Promise<string> {
  const metrics = createMetrics();
  const read = openGauges(platform.database, metrics, systemClock);
  return async () => {
    await read();
    return metrics.text();
  };
}

const reason = { reason: 'the biller says that it will never take it' };
const close = (by: typeof ada, id: string, body: object = reason): Promise<Answer> =>
  by('POST', `/admin/v1/payments/${id}/close`, body);

test('a payment refused by its partner for good can be closed: failed, funds released, the customer may pay again [ST3 FR1 LV6]', async () => {
  const { id, session } = await inReview();
  const closed = await close(ada, id);
  assert.equal(closed.status, 200, closed.text);
  const { outcome, payment } = closed.body as unknown as ReviewClose;
  assert.equal(outcome, 'done');
  assert.equal(payment.status, 'failed');
  assert.match(payment.failure_reason ?? '', /Too high/);
  await until('the funds are released', async () => {
    const rows = await platform.database.query(
      `SELECT 1 FROM duebridge_platform.funds WHERE platform_payment_id = $1 AND state = 'released'`,
      [id],
    );
    return rows.length === 1;
  });
  await platform.next(session);
  const again = await platform.confirm(session, { amount_in_cents: 2400 });
  assert.equal(again.status, 200, again.text);
  assert.notEqual(again.body['platform_payment_id'], id);
  const { audit } = await detailOf(id);
  const end = audit.find((entry) => entry.event === 'payment_ended');
  assert.equal(end?.actor, 'ada');
  assert.equal(end?.detail['reason'], reason.reason);
  assert.equal((await close(ada, 'never')).status, 404);
  const denied = await close(vic, id);
  assert.equal(denied.body['code'], 'INSUFFICIENT_ROLE');
});

test('above the limit one person cannot end a payment alone, however often they ask', async () => {
  const { id } = await inReview(100_001);
  const first = await close(ada, id);
  assert.equal(first.body['outcome'], 'second_person_needed', first.text);
  assert.equal((await close(ada, id)).status, 409);
  assert.equal((await detailOf(id)).ask?.asked_by, 'ada');
  assert.deepEqual(await asksAbout(id), ['ada: close']);
  const second = await close(bob, id, { reason: 'I agree' });
  assert.equal(second.body['outcome'], 'done', second.text);
  const { audit, ask } = await detailOf(id);
  assert.equal(ask, null);
  const end = audit.find((entry) => entry.event === 'payment_ended');
  assert.equal(end?.actor, 'ada');
  assert.equal(end?.detail['approved_by'], 'bob');
});

test('a request for a second person ends with its review, with its author, and where another asks for something else', async () => {
  const { id } = await inReview(100_002);
  const eve = await operator('eve', 'operator');
  const outcome = async (by: typeof ada, body: object) =>
    (await close(by, id, body)).body['outcome'];
  assert.equal(await outcome(ada, reason), 'second_person_needed');
  // Resumed, refused again: another review, of which nobody has asked anything.
  assert.equal((await ada('POST', `/admin/v1/payments/${id}/resume`, reason)).status, 200);
  await until('it is in review again', async () => {
    const { audit, payment } = await detailOf(id);
    return (
      payment.stage === 'review' &&
      audit.filter(({ event }) => event === 'payment_review').length === 2
    );
  });
  assert.equal((await detailOf(id)).ask, null);
  assert.deepEqual(await asksAbout(id), []);
  assert.equal(await outcome(eve, reason), 'second_person_needed');
  const word = { outcome: 'canceled', evidence: 'ticket 7' };
  assert.equal(await outcome(bob, { ...reason, word }), 'second_person_needed', 'another request');
  assert.equal(await outcome(eve, reason), 'second_person_needed');
  await platform.admin('PATCH', '/admin/v1/operators/eve', { disabled: true });
  assert.equal(await outcome(bob, reason), 'second_person_needed', 'eve may not act any more');
  assert.equal(await outcome(ada, reason), 'done');
});

test('two persons who state different ends of a payment have not asked for the same', async () => {
  const { id } = await inReview(100_003);
  const word = { outcome: 'succeeded', evidence: 'call of 9 o’clock', payment_id: 'p-1' };
  const at = (posted_at: string) => ({ ...reason, word: { ...word, posted_at } });
  const first = await close(ada, id, at('2026-03-21T10:00:00Z'));
  assert.equal(first.body['outcome'], 'second_person_needed', first.text);
  const other = await close(bob, id, at('2026-03-21T11:00:00Z'));
  assert.equal(other.body['outcome'], 'second_person_needed', other.text);
  const [asked] = await asksAbout(id);
  assert.match(asked ?? '', /^bob: close as succeeded, payment_id p-1, posted_at 2026-03-21T11:/);
});

test('a payment that is driven is not closed by word, and its funds are settled by word only after its end', async () => {
  const made = await inReview(2_501);
  const word = {
    outcome: 'failed',
    evidence: 'ticket 7',
    failure_reason: 'The account is closed.',
  };
  const settle = { ...reason, outcome: 'borne', evidence: 'ticket 7' };
  const early = await ada('POST', `/admin/v1/payments/${made.id}/settle`, settle);
  assert.equal(early.status, 409, early.text);
  assert.equal((await vic('POST', `/admin/v1/payments/${made.id}/settle`, settle)).status, 403);
  const closed = await close(ada, made.id, { ...reason, word });
  assert.equal(closed.status, 200, closed.text);
  const { payment } = closed.body as unknown as ReviewClose;
  assert.deepEqual([payment.status, payment.failure_reason], ['failed', 'The account is closed.']);
  assert.equal((await close(ada, made.id, { ...reason, word })).status, 409);
});

test('each attempt shows the partner’s answer without secrets or contact data, and the table holds it encrypted', async () => {
  const { id } = await inReview();
  const { attempts } = await detailOf(id);
  const put = attempts.find((attempt) => attempt.kind === 'put');
  assert.equal(put?.http_status, 422);
  assert.equal(put?.result, 'AMOUNT_TOO_HIGH');
  assert.match(put?.body ?? '', /Too high for •••/);
  assert.doesNotMatch(put?.body ?? '', /775533|jo@|512|hush/);
  assert.match(put?.request_id ?? '', /^[0-9a-f]{32}$/);
  assert.ok(attempts.some(({ kind, http_status }) => kind === 'get' && http_status === 404));
  const seen = (await vic('GET', `/admin/v1/payments/${id}`)).body as unknown as PaymentDetail;
  assert.ok(seen.attempts.every(({ body }) => body === null));
  await until('the evidence is stored', async () => {
    const rows = await platform.database.query<{ entries: unknown }>(
      'SELECT entries FROM duebridge_platform.attempts WHERE platform_payment_id = $1',
      [id],
    );
    assert.doesNotMatch(JSON.stringify(rows), /Too high/);
    return rows.length > 0;
  });
});

test('a client whose last API key expires soon appears, before all that expired, in the overview and the metrics until a longer-lived key is issued [AU1]', async () => {
  const path = '/admin/v1/partners/refuser/keys';
  // Sixty clients that were given up two days ago, and as many more than a year ago.
  for (const days of [2, 400]) {
    await platform.database.query(
      `WITH made AS (INSERT INTO duebridge_platform.clients (client_id, partner_id)
                     SELECT 'ended-' || $1 || '-' || n, 'refuser' FROM generate_series(1, 60) AS n RETURNING client_id)
       INSERT INTO duebridge_platform.client_keys (key_id, client_id, slot, digest, expires_at)
       SELECT 'key-' || client_id, client_id, 1, sha256(client_id::bytea), now() - $1::int * interval '1 day' FROM made`,
      [String(days)],
    );
  }
  const { client_id } = (await platform.admin('POST', path, { valid_for_days: 5 })).body;
  const long = (await platform.admin('POST', path, { valid_for_days: 60 })).body;
  const ending = async (): Promise<readonly string[]> =>
    ((await vic('GET', '/admin/v1/overview')).body as unknown as Overview).clients_ending.map(
      (one) => one.client_id,
    );
  const listed = await ending();
  assert.equal(listed[0], client_id);
  assert.ok(listed.slice(1).every((one) => one.startsWith('ended-2-')));
  const gauges = readGauges();
  const gauge = (clients: number): Promise<unknown> =>
    until(`the gauge is ${clients}`, async () =>
      (await gauges()).includes(`duebridge_client_keys_ending{partner_id="refuser"} ${clients}\n`),
    );
  await gauge(61);
  assert.equal((await platform.admin('POST', path, { client_id, valid_for_days: 0 })).status, 400);
  await platform.admin('POST', path, { client_id });
  assert.ok(!(await ending()).includes(String(client_id)));
  await gauge(60);
  const keys = (await vic('GET', path)).body['keys'] as {
    client_id: string;
    expires_at: unknown;
  }[];
  assert.ok(keys.some((one) => one.client_id === long['client_id'] && one.expires_at !== null));
});

test('the full account id is shown, and searched for, only with a reason that is audited', async () => {
  const { id } = await inReview();
  assert.equal((await vic('POST', `/admin/v1/payments/${id}/unmask`, reason)).status, 403);
  const shown = await ada('POST', `/admin/v1/payments/${id}/unmask`, reason);
  assert.equal(shown.body['account_id'], 'acct-775533');
  const found = await ada('POST', '/admin/v1/payments/search', { account_id: 'acct-775533' });
  assert.match(found.text, new RegExp(id));
  const byMail = await ada('POST', '/admin/v1/payments/search', {
    email: ` Customer-${customers}@Example.com`,
  });
  assert.match(byMail.text, new RegExp(id));
  const audit = await vic('GET', '/admin/v1/audit?actor=ada');
  for (const event of ['account_unmasked', 'payments_searched']) {
    assert.ok(audit.text.includes(event), event);
  }
  assert.doesNotMatch(audit.text, /775533|example\.com/i);
});
