/**
 * The engine against a partner over real HTTP and a real database: what the world does to a payment, and what must come of it.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import { silentLog, systemClock } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { scriptedPartner, engineRig, type Answer, type Seen } from '../../test/engine-rig.ts';
import { createPartnerClient } from '../partners/client.ts';
import { openPartnerRegistry } from '../partners/registry.ts';
import { ARRIVALS, findPayment, type PaymentRow } from '../store/payments.ts';
import { pausePayment, resumePayment, withdrawPayment } from '../store/operators-acts.ts';
import { auditOfPayment } from '../store/audit.ts';
import { SEAL_KEY } from '../../test/engine-rig.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;
const puts = (seen: readonly Seen[]): Seen[] => seen.filter((one) => one.method === 'PUT');

test('a payment is put once, polled until it has ended, and then never called for again [S4 RU4 EV1 B4 B5 PL8]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  partner.pollsToEnd = 3;
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await engine.start();
  const row = await rig.pay(engine, 'acme');
  const done = await rig.until(row.platform_payment_id, settled);
  assert.equal(done.status, 'succeeded');
  assert.equal(done.payment_id, `P-${row.platform_payment_id}`);
  assert.notEqual(done.posted_at, null);
  assert.deepEqual(
    partner.seen.map((seen) => seen.method),
    ['PUT', 'GET', 'GET', 'GET', 'GET'],
  );
  const next = await rig.pay(engine, 'acme');
  await rig.until(next.platform_payment_id, settled);
  const calls = partner.seen.filter(({ path }) => path.includes(row.platform_payment_id));
  assert.equal(calls.length, 5);
  assert.deepEqual(rig.asked.get(row.platform_payment_id), ['authorize', 'capture']);
  const trail = await auditOfPayment(rig.database, row.platform_payment_id);
  assert.deepEqual(
    trail.map((line) => line.event),
    ['payment_created', 'payment_accepted', 'payment_ended', 'funds_captured'],
  );
});

test('the put carries the id in the path, the amount and the batch, no personal data, and the key in the header that the partner chose alone [PF2 PF3 PF6 S5 KY1 KY2]', async (t) => {
  const rig = await engineRig(t);
  const engine = rig.engine();
  await engine.start();
  const key = 'k3y/+=&%:~';
  for (const [name, header] of [
    ['own', 'X-Biller-Secret'],
    ['standard', 'Authorization'],
  ] as const) {
    const partner = await scriptedPartner(t);
    const auth = { method: 'key', header, key } as const;
    await rig.register(name, `${partner.url}/api/v2/`, { auth });
    const what = { account_id: 'A~1.x', amount_in_cents: 99_999_999_999 };
    const { platform_payment_id: id, platform_batch_id } = await rig.pay(engine, name, what);
    await rig.until(id, settled);
    const [put] = puts(partner.seen);
    assert.equal(put?.path, `/api/v2/biller/acme/account/A~1.x/payment/${id}`);
    assert.equal(
      put?.body,
      `{"amount_in_cents":99999999999,"platform_batch_id":"${platform_batch_id}","platform_payment_id":"${id}"}`,
    );
    assert.match(String(put?.headers['traceparent']), /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    for (const seen of partner.seen) {
      assert.equal(seen.headers[header.toLowerCase()], key);
      assert.equal(seen.rawHeaders.filter((text) => text === key).length, 1);
    }
  }
});

test('a lost, broken or hostile answer leads to the same put with the same bytes, never to failed, and a redirect takes the key nowhere else [RU5 S3 S4 ID1 KY1 PL2 PL5 PL14]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  const thief = await scriptedPartner(t);
  await rig.register('acme', partner.url, { budget: { call_timeout_ms: 150, wait_seconds: 0 } });
  const text =
    (body: string, headers: Record<string, string> = {}): Answer =>
    (response) => {
      response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(body);
    };
  const troubles: ((seen: Seen) => Answer)[] = [
    () => ({ status: 500, json: {} }),
    () => ({ status: 503, json: {} }),
    () => ({ status: 404, json: {} }),
    () => ({ status: 409, json: {} }),
    () => ({ status: 429, json: {} }),
    () => ({ status: 201, json: {} }),
    ...[301, 302, 303, 307, 308].map((status) => (seen: Seen): Answer => {
      return { status, headers: { location: `${thief.url}${seen.path}` }, json: {} };
    }),
    () => text('<html>maintenance</html>', { 'content-type': 'text/html' }),
    () => text('{"status":"succeeded"'),
    () => text(''),
    () => text('null'),
    () => text('x'.repeat(300 * 1024)),
    // After the partner has it: the answer is lost, reset or never comes.
    (seen) => (response) => {
      partner.right(seen);
      response.socket?.destroy();
    },
    (seen) => (response) => {
      partner.right(seen);
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
      response.write('{"payment_id"', () => response.socket?.destroy());
    },
    (seen) => () => {
      partner.right(seen);
    },
    // A drip that would go on forever: each byte well within any timeout between bytes.
    () => (response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      const drip = setInterval(() => response.write(' '), 20);
      response.on('close', () => clearInterval(drip));
    },
  ];
  let next = 0;
  partner.script = (seen) => (seen.method === 'PUT' ? troubles[next++]?.(seen) : undefined);
  const engine = rig.engine({ options: { retryMs: 1, maxRetryMs: 5, trialMs: 1 } });
  await engine.start();
  const row = await rig.pay(engine, 'acme');
  const done = await rig.until(row.platform_payment_id, settled);
  assert.equal(done.status, 'succeeded');
  const sent = puts(partner.seen);
  assert.equal(sent.length, troubles.length + 1);
  assert.equal(new Set(sent.map((put) => `${put.path} ${put.body}`)).size, 1);
  assert.deepEqual(partner.created, [row.platform_payment_id]);
  assert.deepEqual(rig.asked.get(row.platform_payment_id), ['authorize', 'capture']);
  assert.equal(thief.seen.length, 0);
});

test('nothing is sent to a paused partner; its payments can be withdrawn until it is resumed', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine({ options: { pausedMs: 20 } });
  await engine.start();
  await rig.registry.change('acme', { paused: true }, 'operator');
  const first = await rig.pay(engine, 'acme');
  await until('its funds are reserved', () => rig.asked.has(first.platform_payment_id));
  const second = await rig.pay(engine, 'acme', { slot: ARRIVALS });
  const withdrawn = await withdrawPayment(
    rig.database,
    second.platform_payment_id,
    'customer asked',
    'operator',
  );
  assert.equal(withdrawn.status, 'canceled');
  await rig.until(second.platform_payment_id, settled);
  assert.deepEqual(rig.asked.get(second.platform_payment_id), ['void']);
  assert.equal(partner.seen.length, 0);
  await rig.registry.change('acme', { paused: false }, 'operator');
  const done = await rig.until(first.platform_payment_id, settled);
  assert.equal(done.status, 'succeeded');
  assert.equal(partner.created.length, 1);
  await assert.rejects(
    withdrawPayment(rig.database, first.platform_payment_id, 'too late', 'operator'),
    (error) => error instanceof Refusal && error.code === 'CONFLICT',
  );
  await assert.rejects(
    withdrawPayment(rig.database, 'no-such-payment', 'gone', 'operator'),
    (error) => error instanceof Refusal && error.code === 'PAYMENT_NOT_FOUND',
  );
});

test('an operator pauses one payment: nothing more is sent for it, others go on, and resumed it ends as ever [PL8]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  partner.pollsToEnd = Number.POSITIVE_INFINITY;
  await rig.register('acme', partner.url);
  const engine = rig.engine({ options: { pollMs: 1 } });
  await engine.start();
  const { platform_payment_id: paused } = await rig.pay(engine, 'acme');
  const { platform_payment_id: other } = await rig.pay(engine, 'acme');
  const callsFor = (id: string): number =>
    partner.seen.filter(({ path }) => path.includes(id)).length;
  await until('both are polled', () => callsFor(paused) > 2 && callsFor(other) > 2);
  assert.ok(Date.parse(engine.nextStepAt(paused) ?? '') > 0, 'its next step is known');
  await pausePayment(rig.database, paused, 'the partner looks at it', 'ada');
  await until('it is dropped', () => engine.nextStepAt(paused) === undefined);
  // A poll that was under way may still arrive; after the other's next polls, none does.
  const soon = callsFor(other);
  await until('the other is polled', () => callsFor(other) > soon + 1);
  const [before, others] = [callsFor(paused), callsFor(other)];
  await until('the other goes on', () => callsFor(other) > others + 2);
  assert.equal(callsFor(paused), before, 'nothing was sent for it');
  await resumePayment(rig.database, paused, 'they found it', 'ada');
  partner.pollsToEnd = 1;
  for (const id of [paused, other]) {
    assert.equal((await rig.until(id, settled)).status, 'succeeded');
  }
  assert.equal(partner.created.length, 2, 'each was created once');
});

test('a withdrawal and the first put exclude each other, whichever comes first', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  const engine = rig.engine();
  await engine.start();
  const rows = await Promise.all(Array.from({ length: 40 }, () => rig.pay(engine, 'acme')));
  const outcomes = await Promise.all(
    rows.map(async (row) => {
      try {
        await withdrawPayment(rig.database, row.platform_payment_id, 'race', 'operator');
        return 'withdrawn';
      } catch (error) {
        assert(error instanceof Refusal);
        return error.code;
      }
    }),
  );
  for (const [index, row] of rows.entries()) {
    const done = await rig.until(row.platform_payment_id, settled);
    const wasPut = partner.created.includes(row.platform_payment_id);
    assert.equal(outcomes[index] === 'withdrawn', done.status === 'canceled');
    assert.equal(wasPut, done.status === 'succeeded', 'a withdrawn payment reached the partner');
    const ends = ['capture', 'void'].filter((act) =>
      rig.asked.get(row.platform_payment_id)?.includes(act),
    );
    assert.deepEqual(ends, [done.status === 'succeeded' ? 'capture' : 'void']);
  }
});

test('a stop records the acceptance that a call under way brings, and the next engine repeats no put [RU5]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, { budget: { wait_seconds: 0 } });
  const held = Promise.withResolvers<void>();
  partner.script = (seen) => held.promise.then(() => partner.right(seen));
  const engine = rig.engine();
  await engine.start();
  const { platform_payment_id } = await rig.pay(engine, 'acme');
  await until('the put has left', () => partner.seen.length === 1);
  const stopped = engine.stop();
  held.resolve();
  await stopped;
  assert.equal((await findPayment(rig.database, platform_payment_id))?.stage, 'accepted');
  const next = rig.engine();
  await next.start();
  assert.equal((await rig.until(platform_payment_id, settled)).status, 'succeeded');
  assert.equal(puts(partner.seen).length, 1);
});

test('calls of two workers together never exceed the budget of a partner [PL16]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, {
    budget: { max_concurrent_calls: 3, wait_seconds: 0 },
  });
  let underWay = 0;
  let most = 0;
  const used = Promise.withResolvers<void>();
  partner.script = async (seen) => {
    underWay += 1;
    most = Math.max(most, underWay);
    if (most >= 2) used.resolve();
    // The first call waits for another one, however slow the machine is.
    await used.promise;
    await systemClock.sleep(15);
    underWay -= 1;
    return partner.right(seen);
  };
  const one = rig.engine();
  const two = rig.engine();
  await one.start();
  await two.start();
  await until('each has counted the other', async () => {
    const owners = await rig.database.query(
      'SELECT DISTINCT worker_id FROM duebridge_platform.slots',
    );
    return owners.length === 2;
  });
  const rows = await Promise.all(
    Array.from({ length: 40 }, (_, index) => rig.pay(index % 2 === 0 ? one : two, 'acme')),
  );
  for (const row of rows) {
    assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
  }
  assert.ok(most <= 3, `${most} calls at once`);
});

test('a step of the host’s clock before the lease does not lengthen a hold: it is asked for anew before the PUT [PL7]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  await rig.registry.change('acme', { paused: true }, 'operator');
  // The processor drops it five minutes after `shortly`, and the last five minutes of a hold are not used.
  const shortly = 300;
  const authorize = rig.funding.authorize.bind(rig.funding);
  const holds: number[] = [];
  rig.funding.authorize = async (...asked) => {
    const answer = await authorize(...asked);
    holds.push(Date.now() + shortly);
    if (answer.kind !== 'authorized') return answer;
    return { ...answer, expires_at: Date.now() + shortly + 5 * 60_000 };
  };
  let aheadMs = 0;
  const clock = { ...systemClock, now: () => Date.now() + aheadMs };
  const engine = rig.engine({ clock, options: { pausedMs: 20 } });
  aheadMs = -60 * 60_000;
  await engine.start();
  const { platform_payment_id: id } = await rig.pay(engine, 'acme');
  await until('the hold is there, and is over', () => Date.now() > (holds[0] ?? Infinity));
  assert.equal(partner.seen.length, 0);
  await rig.registry.change('acme', { paused: false }, 'operator');
  await rig.until(id, settled);
  assert.ok(holds.length > 1, 'sent with a hold that was over');
});

test('a partner at a private address is not called unless private addresses are allowed [F48]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  // Registered while private addresses were admitted; the running platform does not admit them.
  await rig.register('literal', partner.url);
  await rig.register('named', partner.url.replace('127.0.0.1', 'localhost'));
  const registry = openPartnerRegistry({
    database: rig.database,
    sealKey: SEAL_KEY,
    allowPrivateAddresses: false,
    clock: systemClock,
  });
  const client = createPartnerClient({
    registry,
    clock: systemClock,
    log: silentLog,
    allowPrivateAddresses: false,
  });
  rig.database.closing(() => client.close());
  for (const partner_id of ['literal', 'named']) {
    const registered = await registry.get(partner_id);
    assert(registered);
    const answer = await client.getAccount(registered, { biller_id: 'acme', account_id: 'A' });
    assert.deepEqual(answer, { kind: 'unreachable', reason: 'address' });
  }
  assert.equal(partner.seen.length, 0);
});
